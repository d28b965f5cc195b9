"""The model of rounds: networks, schedules, the verifier, lower bounds, named topologies."""

"""The model of rounds: networks, schedules, the checker that replays them, lower bounds, named topologies."""

"""Control messages: join a job, keep a place in it, come back into it, and read what the switch shows of itself."""

"""Switches that tests compile: each takes some 40 seconds of processor time once, so as few as possible, shared by all tests."""

from iswitch.config import Config

__all__ = ["MANY_MEMBERS", "TWO_PORTS"]

TWO_PORTS = Config(ports=2, bus_bits=64, members=4, window=4, elements=64, queue_bytes=4096, mac_entries=64)
"""The smallest switch with everything but replay."""
MANY_MEMBERS = Config(ports=4, bus_bits=64, members=32, window=4, elements=64, queue_bytes=8192)
"""The most members that a job can have, and eight jobs."""

"""Switches that tests compile. Each takes some 40 seconds of processor time once, so there are few of them, shared by
all tests.

`python -m sim.bench.designs demo` compiles the emulator's switch, and `python -m sim.bench.designs test` all that the
short tier needs. Set-up does so while pip installs; a test whose switch is not compiled yet compiles it.
"""

import sys
from dataclasses import replace

from iswitch.config import Config
from sim.bench.replay_traffic import NARROW, SMALL
from sim.emulator.compile import CompileError, library
from sim.emulator.defaults import EMULATED

__all__ = ["HALF_WIDTH", "MANY_MEMBERS", "SOAK", "TREE", "TWO_PORTS"]

TWO_PORTS = Config(ports=2, bus_bits=64, members=4, window=4, elements=64, queue_bytes=4096, mac_entries=64)
"""The smallest switch with all features except replay and half-width formats."""
HALF_WIDTH = replace(TWO_PORTS, half_width=True)
"""The smallest switch with half-width formats."""
MANY_MEMBERS = Config(ports=4, bus_bits=64, members=32, window=4, elements=64, queue_bytes=8192)
"""The most members of a job, and eight jobs."""
TREE = Config(ports=8, bus_bits=64, members=8, window=2, elements=16, queue_bytes=4096, mac_entries=64)
"""Enough ports for a leaf with all its workers."""
SOAK = Config(
    ports=4, bus_bits=64, members=8, jobs=8, window=4, elements=64, queue_bytes=32768, mac_entries=64, replay=SMALL
)
"""All features except half-width formats, and queues that hold what a network at random sends at once."""
NEEDED = {"demo": [EMULATED], "test": [EMULATED, Config(), TWO_PORTS, HALF_WIDTH, MANY_MEMBERS, TREE, NARROW, SOAK]}


def main() -> None:
    try:
        for config in NEEDED[sys.argv[1]]:
            library(config)
    except CompileError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

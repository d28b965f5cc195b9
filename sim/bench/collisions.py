"""Checks in the simulator that memories marked as never read where they are written keep that promise."""

import contextlib
from collections.abc import Iterator

from amaranth.hdl import Assert, Module
from amaranth.lib.memory import Memory

from hw.stream.memory import NEVER_READ_WHILE_WRITTEN

__all__ = ["collisions_refused"]


@contextlib.contextmanager
def collisions_refused() -> Iterator[list[Memory]]:
    """Raise AssertionError in any simulation inside this context when a port of such a memory reads the word that
    another writes in the same cycle.

    Yields the list of the watched memories. Raises RuntimeError for a memory whose ports have different clocks: they
    have no common cycle.
    """
    elaborate, watched = Memory.elaborate, []

    def watching(self, platform):
        if not NEVER_READ_WHILE_WRITTEN.keys() & self.attrs.keys():
            return elaborate(self, platform)
        m = Module()
        m.submodules.memory = elaborate(self, platform)
        watched.append(self)
        for put in self.write_ports:
            for get in self.read_ports:
                if put.domain != get.domain:
                    raise RuntimeError(
                        f"memory {self.attrs} must have ports of one clock, not of {put.domain} and {get.domain}"
                    )
                m.d[put.domain] += Assert(~((put.en != 0) & get.en & (put.addr == get.addr)))
        return m

    Memory.elaborate = watching
    try:
        yield watched
    finally:
        Memory.elaborate = elaborate

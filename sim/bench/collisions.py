"""Memories that are said never to be read where they are written, held to it in the simulator."""

import contextlib
from collections.abc import Iterator

from amaranth.hdl import Assert, Module
from amaranth.lib.memory import Memory

from hw.stream.memory import NEVER_READ_WHILE_WRITTEN

__all__ = ["collisions_refused"]


@contextlib.contextmanager
def collisions_refused() -> Iterator[list[Memory]]:
    """Whatever is simulated in here raises AssertionError when a port of such a memory reads the word that another
    writes in the same cycle. The list is of the memories that were watched. RuntimeError from one whose ports are of
    different clocks: there is no such cycle."""
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

"""Block lock: the receiver's alignment to sync headers, and the monitor of wrong ones."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BerMonitor", "BlockLock"]

WINDOW = 64
INVALID_MAX = 16
"""Clause 49.2.13.2.4: headers in a window, and the number of wrong ones that loses the lock."""


class BlockLock(wiring.Component):
    """The block lock state machine of figure 49-14. A header every cycle.

    `locked` rises after 64 headers that are all "01" or "10", and falls with the 16th wrong one among 64. It never
    rises in the middle of these. Without lock, and when the lock is lost, a wrong header sets `slip` for a cycle: the
    transceiver must then move by a bit, and has `slip_cycles` cycles, in which headers are ignored. Both outputs follow
    the header by 1 cycle.
    """

    def __init__(self, *, slip_cycles: int):
        if slip_cycles < 1:
            raise ValueError(f"BlockLock slip_cycles must be at least 1, not {slip_cycles!r}")
        self.slip_cycles = slip_cycles
        super().__init__({"header": In(2), "locked": Out(1), "slip": Out(1)})

    def elaborate(self, platform):
        m = Module()
        seen, invalid, wait = Signal(range(WINDOW)), Signal(range(INVALID_MAX)), Signal(range(self.slip_cycles + 1))
        m.d.sync += self.slip.eq(0)
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Else():
            is_valid, is_end = self.header[0] ^ self.header[1], seen == WINDOW - 1
            m.d.sync += seen.eq(seen + 1)
            with m.If(is_end):
                # Without lock a window with a wrong header never ends: the header makes a slip, below.
                m.d.sync += [invalid.eq(0), self.locked.eq(1)]
            with m.If(~is_valid):
                with m.If(~self.locked | (invalid == INVALID_MAX - 1)):
                    m.d.sync += [
                        self.locked.eq(0),
                        self.slip.eq(1),
                        seen.eq(0),
                        invalid.eq(0),
                        wait.eq(self.slip_cycles),
                    ]
                with m.Elif(~is_end):
                    m.d.sync += invalid.eq(invalid + 1)
        return m


class BerMonitor(wiring.Component):
    """The state machine of figure 49-15. A header every cycle. `high` rises when `limit` headers within `blocks` are
    wrong, and falls at the end of the first such window with fewer. Nothing is counted while `locked` is 0. 10GBASE-R:
    16 in 125 us."""

    def __init__(self, *, blocks: int, limit: int):
        if not 1 <= limit <= blocks:
            raise ValueError(f"BerMonitor limit must be 1 to blocks, not {limit!r}")
        self.blocks, self.limit = blocks, limit
        super().__init__({"header": In(2), "locked": In(1), "high": Out(1)})

    def elaborate(self, platform):
        m = Module()
        seen, wrong, invalid = Signal(range(self.blocks)), Signal(range(self.limit + 1)), Signal()
        m.d.sync += [invalid.eq(~(self.header[0] ^ self.header[1])), seen.eq(seen + 1)]
        with m.If(invalid & (wrong != self.limit)):
            m.d.sync += wrong.eq(wrong + 1)
        with m.If(wrong == self.limit):
            m.d.sync += self.high.eq(1)
        with m.If(seen == self.blocks - 1):
            m.d.sync += [seen.eq(0), wrong.eq(invalid), self.high.eq(wrong == self.limit)]
        with m.If(~self.locked):
            m.d.sync += [seen.eq(0), wrong.eq(0), self.high.eq(0)]
        return m

"""How long the frame at the head of a queue has waited, in whole ticks."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TICK_BIT", "QueueAge"]

TICK_BIT = 20
"""The bit of `now_us` that a tick changes: 2^20 us, 1.05 s. A frame is sent for 1.05 s at least and 2.1 s at most after
it came in; IEEE 802.1D allows a bridge 4 s at most, and recommends 1 s (7.7.3)."""


class QueueAge(wiring.Component):
    """Counts the frames in a queue by age. `aged` is 1 if the head has waited for more than one whole tick.

    `enters` and `leaves` are 1 for one cycle for each frame, `tick` for each tick. `aged` follows them in the next
    cycle. There is no memory for each frame: three counters hold the number of all frames, of those that came before
    the last tick, and of those that came before the tick before it.

    Parameters
    ----------
    frames : int
        The most frames that the queue holds.
    """

    def __init__(self, *, frames: int):
        if frames < 1:
            raise ValueError(f"QueueAge frames must be at least 1, not {frames!r}")
        self.frames = frames
        super().__init__({"enters": In(1), "leaves": In(1), "tick": In(1), "aged": Out(1)})

    def elaborate(self, platform):
        m = Module()
        inside, old, oldest = (Signal(range(self.frames + 1), name=name) for name in ("inside", "old", "oldest"))
        older = Signal.like(old)
        m.d.comb += [self.aged.eq(oldest != 0), older.eq(old - (self.leaves & (old != 0)))]
        m.d.sync += [
            inside.eq(inside + self.enters - self.leaves),
            old.eq(Mux(self.tick, inside - self.leaves, older)),
            oldest.eq(Mux(self.tick, older, oldest - (self.leaves & (oldest != 0)))),
        ]
        return m

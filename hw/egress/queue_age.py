"""How long the frame at the head of a queue has waited, in whole ticks."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TICK_BIT", "QueueAge"]

TICK_BIT = 20
"""The bit of `now_us` that a tick changes: 2^20 us, 1.05 s. A frame is sent for 1.05 s at least and 2.1 s at most after
it came in; IEEE 802.1D allows a bridge 4 s at most, and recommends 1 s (7.7.3)."""


class QueueAge(wiring.Component):
    """Finds whether the frame at the head of a queue has waited for more than one whole tick (`aged`).

    `enters` and `leaves` are 1 for one cycle for each frame, `tick` for each tick. `aged` follows them in the next
    cycle. There is no memory for each frame: two counters number the frames that entered and that left, and two marks
    hold how many had entered at the last tick and at the tick before it.

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
        # The counters wrap, so the marks are compared for equality only: `old` and `oldest` are 1 from a tick until all
        # frames before the mark have left.
        entered, left, old_mark, oldest_mark = (
            Signal(range(self.frames + 1), name=name) for name in ("entered", "left", "old_mark", "oldest_mark")
        )
        old, oldest, old_waits = Signal(), Signal(), Signal()
        m.d.comb += [old_waits.eq(old & (left != old_mark)), self.aged.eq(oldest & (left != oldest_mark))]
        m.d.sync += [old.eq(old_waits | self.tick), oldest.eq(Mux(self.tick, old_waits, self.aged))]
        with m.If(self.enters):
            m.d.sync += entered.eq(entered + 1)
        with m.If(self.leaves):
            m.d.sync += left.eq(left + 1)
        with m.If(self.tick):
            m.d.sync += [old_mark.eq(entered), oldest_mark.eq(old_mark)]
        return m

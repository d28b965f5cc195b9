"""Keeps frames from a cable that is not there, and frames that waited for too long from any cable."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.stream.packet import Packet, first_of

__all__ = ["LinkGate"]


class LinkGate(wiring.Component):
    """Passes the frames of `i` to `o`, or discards a frame that begins while `link` is 0 or with `aged`.

    Combinational; one word per cycle. `o` may stall. A discarded frame never stalls `i`, so a port whose link is down
    empties its queues. A frame that has been offered to `o` is passed to its end: a MAC takes frames while its link is
    down, and they are lost there.

    Members
    -------
    aged : 1, in
        The frame in `i` has waited for too long. Read with its first word.
    stat_frame, stat_aged, stat_link_down : 1, out
        A frame has left, or was discarded because of its age, or because the link is down.
    """

    def __init__(self, *, bus_bits: int):
        word = stream.Signature(Packet(bus_bits))
        super().__init__(
            {
                "i": In(word),
                "aged": In(1),
                "link": In(1, init=1),
                "o": Out(word),
                "stat_frame": Out(1),
                "stat_aged": Out(1),
                "stat_link_down": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        first = first_of(m, self.i)
        offered, discarding, for_age, discards, ages = Signal(), Signal(), Signal(), Signal(), Signal()
        begins = first & ~offered
        ends = self.i.valid & self.i.ready & self.i.payload.last
        m.d.comb += [
            discards.eq(discarding | begins & (~self.link | self.aged)),
            ages.eq(for_age | begins & self.link & self.aged),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & ~discards),
            self.i.ready.eq(discards | self.o.ready),
            self.stat_frame.eq(ends & ~discards),
            self.stat_aged.eq(ends & discards & ages),
            self.stat_link_down.eq(ends & discards & ~ages),
        ]
        with m.If(self.i.valid):
            m.d.sync += [
                offered.eq(~discards & ~ends),
                discarding.eq(discards & ~ends),
                for_age.eq(discards & ages & ~ends),
            ]
        return m

"""A skid buffer: the register that ends a stream's combinational paths."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SkidBuffer"]


class SkidBuffer(wiring.Component):
    """Registers both directions of a stream: payload and valid forward, ready backward.

    Latency 1 cycle, one item per cycle. Holds up to two items while `o` stalls.

    Parameters
    ----------
    shape : ShapeLike
        Shape of the items.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        payload, spare = (Signal(self.o.payload.shape(), name=name, reset_less=True) for name in ("payload", "spare"))
        spare_valid = Signal()

        m.d.comb += [self.i.ready.eq(~spare_valid), self.o.payload.eq(payload)]
        with m.If(~self.o.valid | self.o.ready):
            # The spare item is older than any that arrives, so it leaves first. While it waits, no item arrives.
            m.d.sync += self.o.valid.eq(self.i.valid | spare_valid)
            m.d.sync += spare_valid.eq(0)
            with m.If(spare_valid):
                m.d.sync += payload.eq(spare)
            with m.Elif(self.i.valid):
                m.d.sync += payload.eq(self.i.payload)
        with m.Elif(self.i.valid & self.i.ready):
            # The consumer stalled in the cycle in which an item arrived: keep the item aside.
            m.d.sync += spare.eq(self.i.payload)
            m.d.sync += spare_valid.eq(1)
        return m

"""Merges streams of framed items."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Merge"]


class Merge(wiring.Component):
    """Whole frames from the lowest input that has one; packets of the given shape. Latency 0, one item per
    cycle."""

    def __init__(self, shape, *, inputs: int):
        if inputs < 1:
            raise ValueError(f"Merge inputs must be at least 1, not {inputs!r}")
        super().__init__({"i": In(stream.Signature(shape)).array(inputs), "o": Out(stream.Signature(shape))})
        self.inputs = inputs

    def elaborate(self, platform):
        m = Module()
        within, current = Signal(), Signal(range(self.inputs))
        lowest, grant = Signal.like(current), Signal.like(current)
        for k in reversed(range(self.inputs)):
            with m.If(self.i[k].valid):
                m.d.comb += lowest.eq(k)
        m.d.comb += grant.eq(Mux(within, current, lowest))
        with m.Switch(grant):
            for k in range(self.inputs):
                with m.Case(k):
                    m.d.comb += [
                        self.o.valid.eq(self.i[k].valid),
                        self.o.payload.eq(self.i[k].payload),
                        self.i[k].ready.eq(self.o.ready),
                    ]
        with m.If(self.o.valid):
            # From the first offer on, taken or not: what is offered is held.
            m.d.sync += [within.eq(~(self.o.ready & self.o.payload.last)), current.eq(grant)]
        return m

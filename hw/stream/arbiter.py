"""Several packet streams into one."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PacketArbiter"]


class PacketArbiter(wiring.Component):
    """Passes complete packets, from one input at a time.

    Combinational: latency 0, one word per cycle, no cycle lost between packets. `o` stalls the input that is served.
    The input is chosen when `o` becomes valid with a first word, and stays until the last word is taken.

    Parameters
    ----------
    shape : Packet
        Shape of the words; any layout with `last` will do.
    inputs : int
        Number of inputs.
    round_robin : bool
        Whether the search for a packet starts behind the input served last, so that an input waits for at most one
        packet of each other input. Otherwise the lowest input that has a packet is served.

    Members
    -------
    deferred : inputs
        The set of inputs that are served only while no other input has a packet.
    grant : range(inputs)
        The input that `o` shows. Valid with `o`.
    """

    def __init__(self, shape, *, inputs: int, round_robin: bool = True):
        if inputs < 1:
            raise ValueError(f"PacketArbiter inputs must be at least 1, not {inputs!r}")
        self.inputs, self.round_robin = inputs, round_robin
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(inputs),
                "o": Out(stream.Signature(shape)),
                "deferred": In(inputs),
                "grant": Out(range(inputs)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        within, served, following = Signal(), Signal(range(self.inputs)), Signal(range(self.inputs))
        valid, candidates = Signal(self.inputs), Signal(self.inputs)
        m.d.comb += [
            valid.eq(Cat(i.valid for i in self.i)),
            candidates.eq(Mux((valid & ~self.deferred).any(), valid & ~self.deferred, valid)),
        ]
        if self.round_robin:
            with m.Switch(served):
                for number in range(self.inputs):
                    with m.Case(number):
                        self._choose(m, following, candidates, (number + 1) % self.inputs)
        else:
            self._choose(m, following, candidates, 0)
        m.d.comb += [
            self.grant.eq(Mux(within, served, following)),
            self.o.valid.eq(valid.bit_select(self.grant, 1)),
            self.o.payload.eq(Array(i.payload for i in self.i)[self.grant]),
        ]
        for number, i in enumerate(self.i):
            m.d.comb += i.ready.eq(self.o.ready & (self.grant == number))
        with m.If(self.o.valid):
            # From the first offer on, taken or not: a stream must hold what it has offered.
            m.d.sync += [within.eq(~(self.o.ready & self.o.payload.last)), served.eq(self.grant)]
        return m

    def _choose(self, m, following, candidates, begin: int):
        """Assign the first of the `candidates`, counted from `begin`."""
        for distance in reversed(range(self.inputs)):
            number = (begin + distance) % self.inputs
            with m.If(candidates[number]):
                m.d.comb += following.eq(number)

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
        Whether inputs have turns, so that an input waits for at most one turn of each other input. Otherwise the lowest
        input that has a packet is served.
    turn_words : int
        Words after which the turn of an input ends, with the packet then under way. A turn also ends when another input
        is served because this one has no packet. With 1, a turn is one packet.

    Members
    -------
    deferred : inputs
        The set of inputs that are served only while no other input has a packet.
    grant : range(inputs)
        The input that `o` shows. Valid with `o`.
    """

    def __init__(self, shape, *, inputs: int, round_robin: bool = True, turn_words: int = 1):
        if inputs < 1:
            raise ValueError(f"PacketArbiter inputs must be at least 1, not {inputs!r}")
        if turn_words < 1:
            raise ValueError(f"PacketArbiter turn_words must be at least 1, not {turn_words!r}")
        self.inputs, self.round_robin, self.turn_words = inputs, round_robin, turn_words
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
            # The search begins at the input that has the turn. `had`: words of this turn, at most `turn_words` - 1.
            has_turn, had, before = (
                Signal(range(self.inputs)),
                Signal(range(self.turn_words)),
                Signal(range(self.turn_words)),
            )
            with m.Switch(has_turn):
                for number in range(self.inputs):
                    with m.Case(number):
                        self._choose(m, following, candidates, number)
            ends = before == self.turn_words - 1
            taken = Mux(ends, before, before + 1)
            m.d.comb += before.eq(Mux(self.grant == served, had, 0))
            with m.If(self.o.valid):
                next_input = Mux(self.grant == self.inputs - 1, 0, self.grant + 1)
                m.d.sync += [has_turn.eq(Mux(ends, next_input, self.grant)), had.eq(Mux(self.o.ready, taken, before))]
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

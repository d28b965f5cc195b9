"""Several packet streams into one."""

from functools import reduce
from itertools import combinations
from operator import or_

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PacketArbiter"]


class PacketArbiter(wiring.Component):
    """Passes complete packets, from one input at a time.

    Combinational: latency 0, one word per cycle, no cycle lost between packets. `o` stalls the input that is served.
    The input is chosen when `o` becomes valid with a first word, and stays until the last word is taken. An input is
    ready only while `o` shows its word.

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
        numbers = range(self.inputs)
        within, served, has_turn = Signal(), Signal(range(self.inputs)), Signal(range(self.inputs))
        # Which of two inputs goes before the other is known before it is known which of them have a packet.
        offers, chosen = Signal(self.inputs), Signal(self.inputs)
        goes_before = {pair: self._goes_before(has_turn, *pair) for pair in combinations(numbers, 2)}
        for number, i in enumerate(self.i):
            better = [offers[other] & goes_before[other, number] for other in numbers[:number]]
            better += [offers[other] & ~goes_before[number, other] for other in numbers[number + 1 :]]
            m.d.comb += [
                offers[number].eq(i.valid & (~within | (served == number))),
                chosen[number].eq(offers[number] & ~Cat(better).any()),
                i.ready.eq(self.o.ready & chosen[number]),
            ]
        m.d.comb += [
            self.grant.eq(reduce(or_, (Mux(chosen[number], number, 0) for number in numbers))),
            self.o.valid.eq(offers.any()),
            self.o.payload.eq(Array(i.payload for i in self.i)[self.grant]),
        ]
        with m.If(self.o.valid):
            # From the first offer on, taken or not: a stream must hold what it has offered.
            m.d.sync += [within.eq(~(self.o.ready & self.o.payload.last)), served.eq(self.grant)]
        if self.round_robin:
            # The turn passes to the next input with its last word. `had`: words of this turn, at most `turn_words` - 1.
            had, goes_on, full = Signal(range(self.turn_words)), Signal(), Signal()
            m.d.comb += [goes_on.eq(self.grant == served), full.eq(had == self.turn_words - 1)]
            ends = (goes_on & full) if self.turn_words > 1 else Const(1)
            taken = Mux(goes_on, Mux(full, had, had + 1), int(self.turn_words > 1))
            with m.If(self.o.valid):
                next_input = Mux(self.grant == self.inputs - 1, 0, self.grant + 1)
                m.d.sync += [
                    has_turn.eq(Mux(ends, next_input, self.grant)),
                    had.eq(Mux(self.o.ready, taken, Mux(goes_on, had, 0))),
                ]
        return m

    def _goes_before(self, has_turn, one: int, other: int) -> Value:
        """Return whether input `one` goes before input `other`, a higher one, if both have a packet."""
        in_order = ~((has_turn > one) & (has_turn <= other)) if self.round_robin else Const(1)
        return Mux(self.deferred[one] == self.deferred[other], in_order, self.deferred[other])

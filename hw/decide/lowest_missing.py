"""The lowest seq whose result a live member may lack."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.rows import SEQ_BITS
from hw.stream.reduction import combine_pairs, reduce_tree
from iswitch.config import Config

__all__ = ["LowestMissing"]


def lower(a: Value, b: Value) -> Value:
    return Mux(a < b, a, b)


class LowestMissing(wiring.Component):
    """Finds the lowest seq whose result a live member may lack.

    Live members lack results within 4W of each other's, so a few bits of each distance from `member` determine the
    minimum. `member` itself is taken as `gain` ahead of what `acknowledged` says; `gain` is not negative. Latency 3
    cycles from `acknowledged`, `live` and `member`, 2 from `gain`; one result per cycle, without stalls. Source:
    `lowest_acknowledged` of `host/iswitch/golden/decide/tree.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "live": In(config.members),
                "member": In(range(config.members)),
                "gain": In(32),
                "lowest": Out(SEQ_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = exact_log2(self.config.slots) + 3
        nearest = (1 << bits - 1) - 1
        own_seq, own_seq_1, own_seq_2 = Signal(SEQ_BITS), Signal(SEQ_BITS), Signal(SEQ_BITS)
        m.d.comb += own_seq.eq(self.acknowledged[self.member])
        m.d.sync += [own_seq_1.eq(own_seq), own_seq_2.eq(own_seq_1)]
        distances, member_is_live, own = [], Signal(), Signal(signed(bits))
        for k in range(self.config.members):
            distance = Signal(signed(bits), name=f"distance_{k}")
            m.d.sync += distance.eq(
                Mux(self.live[k] & (self.member != k), (self.acknowledged[k] - own_seq)[:bits], nearest)
            )
            distances.append(distance)
        m.d.sync += [
            member_is_live.eq(self.live.bit_select(self.member, 1)),
            own.eq(Mux(member_is_live, self.gain[:bits], nearest)),
        ]
        # The minimum of each four in one cycle, of all in the next.
        fours = combine_pairs(lower, combine_pairs(lower, distances))
        least_of = [Signal(signed(bits), name=f"least_of_{k}") for k in range(len(fours))]
        m.d.sync += [one.eq(value) for one, value in zip(least_of, fours, strict=True)]
        last = lower(reduce_tree(lower, least_of), own)
        reference, least = Signal(SEQ_BITS), Signal(signed(bits))
        m.d.sync += [reference.eq(own_seq_2), least.eq(last)]
        m.d.comb += self.lowest.eq(reference + least)
        return m

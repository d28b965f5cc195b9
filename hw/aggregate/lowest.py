"""How far behind the slowest live member of a job is."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.control.tables import SEQ
from iswitch.config import Config

__all__ = ["Lowest"]


class Lowest(wiring.Component):
    """The lowest seq whose result some live member may lack: `tree.lowest` of `sim/model/aggregate/tree.py`.

    Live members lack results within 4W of each other's, so a few bits of how far each is from `member` tell the least; `member` itself counts
    as `gain` ahead of what `have` says. 2 cycles after `have`, `live` and `member`, 1 after `gain`, which is not negative; one a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "have": In(data.ArrayLayout(SEQ, config.members)), "live": In(config.members), "member": In(range(config.members)),
            "gain": In(32), "lowest": Out(SEQ),
        })

    def elaborate(self, platform):
        m = Module()
        bits = exact_log2(self.config.slots) + 3
        nearest = (1 << bits - 1) - 1
        mine, kept = Signal(SEQ), Signal(SEQ)
        m.d.comb += mine.eq(self.have[self.member])
        m.d.sync += kept.eq(mine)
        distances = []
        for k in range(self.config.members):
            distance = Signal(signed(bits), name=f"distance_{k}")
            own = Signal(name=f"own_{k}")
            m.d.sync += [distance.eq(Mux(self.live[k], (self.have[k] - mine)[:bits], nearest)), own.eq(self.live[k] & (self.member == k))]
            distances.append(Mux(own, self.gain[:bits].as_signed(), distance))
        while len(distances) > 1:
            distances = [Mux(a < b, a, b) for a, b in zip(distances[::2], distances[1::2], strict=False)] + distances[len(distances) & ~1:]
        reference, least = Signal(SEQ), Signal(signed(bits))
        m.d.sync += [reference.eq(kept), least.eq(distances[0])]
        m.d.comb += self.lowest.eq(reference + least)
        return m

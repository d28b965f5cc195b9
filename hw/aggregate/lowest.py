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
    as `gain` ahead of what `have` says. 3 cycles after `have`, `live` and `member`, 2 after `gain`, which is not negative; one a cycle.
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
        mine, kept, again = Signal(SEQ), Signal(SEQ), Signal(SEQ)
        m.d.comb += mine.eq(self.have[self.member])
        m.d.sync += [kept.eq(mine), again.eq(kept)]
        distances = []
        for k in range(self.config.members):
            distance = Signal(signed(bits), name=f"distance_{k}")
            own = Signal(name=f"own_{k}")
            m.d.sync += [distance.eq(Mux(self.live[k], (self.have[k] - mine)[:bits], nearest)), own.eq(self.live[k] & (self.member == k))]
            distances.append(Mux(own, self.gain[:bits].as_signed(), distance))
        # Of pairs in one cycle, of all in the next.
        halved = [Signal(signed(bits), name=f"halved_{k}") for k in range(len(distances) + 1 >> 1)]
        m.d.sync += [one.eq(value) for one, value in zip(halved, self._halve(distances), strict=True)]
        while len(halved) > 1:
            halved = self._halve(halved)
        reference, least = Signal(SEQ), Signal(signed(bits))
        m.d.sync += [reference.eq(again), least.eq(halved[0])]
        m.d.comb += self.lowest.eq(reference + least)
        return m

    def _halve(self, values):
        """The lower of each pair."""
        return [Mux(a < b, a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) & ~1:]

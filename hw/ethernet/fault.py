"""Link fault signalling: sequences by which the link partner reports a fault while the link carries no frames."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.ethernet.xgmii import LOCAL_FAULT, REMOTE_FAULT, Xgmii

__all__ = ["LinkFault"]

SEQUENCES = 4
"""Sequences of one kind before the fault is accepted (clause 46.3.4.2)."""
LAPSE_WORDS = 128 // 2
"""Words of two columns without a sequence after which the fault is over."""


class LinkFault(wiring.Component):
    """The fault state machine of clause 46.3.4.2, two columns a cycle.

    `local` or `remote` is set after four sequences of that kind, with no sequence of the other kind between them and
    fewer than 128 columns from one to the next. The signal falls after 128 columns without a sequence, and follows the
    deciding word by 2 cycles. If one word has two sequences of different kinds, only the later one counts.
    """

    def __init__(self):
        super().__init__({"xgmii": In(Xgmii), "local": Out(1), "remote": Out(1)})

    def elaborate(self, platform):
        m = Module()
        found = [[Signal(name=f"{name}_{half}") for half in range(2)] for name in ("local", "remote")]
        for kind, column in zip(found, (LOCAL_FAULT, REMOTE_FAULT), strict=True):
            for half, here in enumerate(kind):
                m.d.sync += here.eq(
                    (self.xgmii.data.word_select(half, 32) == column["data"])
                    & (self.xgmii.control.word_select(half, 4) == column["control"])
                )
        (local, later_local), (remote, later_remote) = found
        is_remote, was_remote, count, lapse = (
            Signal(),
            Signal(),
            Signal(range(SEQUENCES + 1)),
            Signal(range(LAPSE_WORDS)),
        )
        both = local & later_local | remote & later_remote
        total = Mux(is_remote == was_remote, count, 0) + 1 + both
        m.d.comb += is_remote.eq(later_remote | remote & ~later_local)
        with m.If(local | later_local | remote | later_remote):
            m.d.sync += [
                was_remote.eq(is_remote),
                lapse.eq(LAPSE_WORDS - 1),
                count.eq(Mux(total > SEQUENCES, SEQUENCES, total)),
            ]
            with m.If(total >= SEQUENCES):
                m.d.sync += [self.local.eq(~is_remote), self.remote.eq(is_remote)]
        with m.Elif(lapse != 0):
            m.d.sync += lapse.eq(lapse - 1)
        with m.Else():
            m.d.sync += [count.eq(0), self.local.eq(0), self.remote.eq(0)]
        return m

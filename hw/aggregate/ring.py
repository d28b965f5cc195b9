"""The ring's rules as combinational logic; the truth is `sim/model/aggregate/ring.py`."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.control.tables import job_row, slot_row
from iswitch.config import Config
from iswitch.wire import Operation, Outcome, SlotState

__all__ = ["Asked", "Ring", "is_complete", "popcount"]


def popcount(bits):
    """Number of ones, as a balanced tree."""
    counts = list(bits)
    while len(counts) > 1:
        counts = [a + b for a, b in zip(counts[::2], counts[1::2], strict=False)] + counts[len(counts) & ~1:]
    return counts[0]


def is_complete(members, arrived, expected, threshold):
    """Enough workers are in the sum, or nobody is left to wait for."""
    return (popcount(members) >= threshold) | ~(expected & ~arrived).any()


class Asked(data.Struct):
    """What the ring needs to know of a contribution or a receipt."""

    receipt: 1
    want: 1
    seq: 32
    behind: 16
    numeric: 4
    length: 14
    tainted: 1


class Ring(wiring.Component):
    """Decides one contribution or receipt, given the rows of its job, its slot and what the members hold.

    In two steps, because it is the longest logic in the switch: the comparisons of serial numbers are registered, the decision on
    them is combinational. Inputs must be held for both cycles; `outcome` and what follows are right in the second.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "asked": In(Asked), "member": In(range(config.members)), "job": In(job_row(config)),
            "slot": In(slot_row(config)), "have": In(data.ArrayLayout(32, config.members)),
            "outcome": Out(Outcome), "advance": Out(1), "low": Out(32),
            "slot_write": Out(1), "slot_next": Out(slot_row(config)),
            "works": Out(1), "operation": Out(Operation), "include": Out(1), "first": Out(1), "emit": Out(1),
            "resend": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        asked, slot, job = self.asked, self.slot, self.job
        slots, window = self.config.slots, self.config.window

        # Serial distances, modulo 2^32 and signed (RFC 1982).
        low = Signal(32)
        m.d.comb += low.eq(asked.seq - asked.behind)
        ahead, gain = Signal(signed(32)), Signal(signed(32))
        mine = Signal(32)
        m.d.comb += mine.eq(self.have[self.member])
        behind_bad, held = Signal(), Signal()
        # Whoever opens a slot within its window holds the result on the lap before.
        holds = []
        for k in range(self.config.members):
            known = Signal(signed(32), name=f"known_{k}")
            m.d.comb += known.eq(self.have[k] - slot.seq)
            holds.append(~job.live[k] | (known > 0) | (self.member == k))
        m.d.sync += [
            ahead.eq(asked.seq - slot.seq), gain.eq(low - mine), self.low.eq(low),
            behind_bad.eq(Mux(asked.receipt, asked.behind > window, asked.behind >= window)),
            held.eq(Cat(*holds).all()),
        ]

        bit = Signal(self.config.members)
        m.d.comb += bit.eq(1 << self.member)
        quarantined = asked.tainted & ~job.mode
        here = (slot.arrived & bit).any()
        stored = (slot.state == SlotState.COMPLETE) & (ahead == 0)

        # The slot as it will be: of the same lap, or opened for the next one.
        opens = ahead > 0
        arrived, members, tainted, expected = (Signal(self.config.members, name=name)
                                               for name in ("arrived", "members", "tainted", "expected"))
        m.d.comb += [
            arrived.eq(Mux(opens, 0, slot.arrived) | bit),
            members.eq(Mux(opens, 0, slot.members) | Mux(quarantined, 0, bit)),
            tainted.eq(Mux(opens, 0, slot.tainted) | Mux(asked.tainted, bit, 0)),
            expected.eq(Mux(opens, job.live, slot.expected)),
            self.emit.eq(is_complete(members, arrived, expected, job.threshold)),
            self.include.eq(~quarantined), self.first.eq(opens | (slot.members == 0)),
            self.slot_next.seq.eq(asked.seq), self.slot_next.numeric.eq(asked.numeric),
            self.slot_next.length.eq(asked.length), self.slot_next.arrived.eq(arrived),
            self.slot_next.members.eq(members), self.slot_next.tainted.eq(tainted),
            self.slot_next.expected.eq(expected),
            self.slot_next.state.eq(Mux(self.emit, SlotState.COMPLETE, SlotState.COLLECTING)),
        ]

        m.d.comb += [self.advance.eq(gain > 0), self.operation.eq(Operation.CONTRIBUTE)]
        with m.If(behind_bad | (gain > slots) | (~asked.receipt & (ahead > slots))):
            m.d.comb += [self.outcome.eq(Outcome.WINDOW), self.advance.eq(0)]
        with m.Elif(asked.receipt):
            m.d.comb += [self.outcome.eq(Outcome.RECEIPT), self.resend.eq(asked.want & stored)]
        with m.Elif((ahead < 0) | ((ahead == 0) & (slot.state == SlotState.EMPTY))):
            m.d.comb += self.outcome.eq(Outcome.STALE)
        with m.Elif(opens & (slot.state != SlotState.EMPTY) & ~((slot.state == SlotState.COMPLETE) & held)):
            m.d.comb += self.outcome.eq(Outcome.SLOT_HELD)
        with m.Elif(~opens & (asked.numeric != slot.numeric)):
            m.d.comb += self.outcome.eq(Outcome.FORMAT)
        with m.Elif(~opens & (asked.length != slot.length)):
            m.d.comb += self.outcome.eq(Outcome.LENGTH)
        with m.Elif(~opens & (here | (slot.state != SlotState.COLLECTING))):
            m.d.comb += [self.outcome.eq(Mux(here, Outcome.DUPLICATE, Outcome.LATE)), self.resend.eq(stored)]
            # SET_H may have made enough of what an open slot already has: a repeat ends it.
            with m.If((slot.state == SlotState.COLLECTING) & is_complete(slot.members, slot.arrived, slot.expected, job.threshold)):
                m.d.comb += [self.works.eq(1), self.operation.eq(Operation.FORCE), self.include.eq(0), self.slot_write.eq(1),
                             self.slot_next.eq(slot), self.slot_next.state.eq(SlotState.COMPLETE)]
        with m.Else():
            m.d.comb += [
                self.outcome.eq(Mux(quarantined, Outcome.QUARANTINED, Outcome.ADDED)), self.slot_write.eq(1),
                self.works.eq(~quarantined | self.emit),
                self.operation.eq(Mux(quarantined, Operation.FORCE, Operation.CONTRIBUTE)),
            ]
        with m.If(self.resend):
            m.d.comb += [self.works.eq(1), self.operation.eq(Operation.RESEND)]
        return m

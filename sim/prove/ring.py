"""The decision of the core about one frame and its slot: no contribution counts twice, no result changes."""

from functools import reduce
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In
from amaranth.utils import exact_log2

import hw.decide.ring
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import Operation, Outcome, SlotState
from sim.prove.harness import Harness, after
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

CONFIG = Config()
LATENCY = 3
"""Cycles from the inputs to the decision."""


class Case:
    """A decision of the ring about a frame and a slot, both arbitrary. `valid` is 1 once the decision is there.

    Attributes
    ----------
    empty : Value
        The slot has no content: whatever its row says, it stands one lap before the first seq.
    same : Value
        The slot has content, and it is that of the frame's seq.
    sends : Value
        The frame is a contribution or an uplink: neither a receipt nor from the parent.
    opens : Value
        The frame writes a slot that had no content of its seq.
    """

    def __init__(self, part: Any):
        self.h = h = Harness(ring := part.Ring(CONFIG))
        h.constant_inputs()
        self.ring, self.valid = ring, after(h, LATENCY)
        # The rows show all frames before. tests/hw/decide/test_ring.py compares the decisions where they do not.
        h.assume(~ring.before.valid)
        self.request, self.slot, self.job = ring.request, ring.slot, ring.job
        self.decision, self.next = ring.decision, ring.decision.slot_next
        index = exact_log2(CONFIG.slots)
        # A slot holds seqs of its own place, and its row is that of a switch: a leaf's slots alone are SENT_UP, and
        # only members that have arrived are in a sum.
        self.empty = self.slot.state == SlotState.EMPTY
        h.assume(self.empty | (self.slot.seq[:index] == self.request.seq[:index]))
        h.assume((self.slot.members & ~self.slot.arrived) == 0)
        self.same = ~self.empty & (self.slot.seq == self.request.seq)
        self.sends = ~self.request.receipt & ~self.request.install & ~self.request.contest
        # The frame is of one kind, as the core makes it.
        kinds = Cat(self.request.receipt, self.request.install, self.request.contest)
        h.assume((kinds & (kinds - 1)[: len(kinds)]) == 0)
        self.bit = Mux(self.request.install, 0, 1 << ring.member)
        self.opens = self.decision.slot_write & ~self.same

    def laps_ahead(self) -> Value:
        """Laps from what the slot holds to the frame, at most half of all."""
        index = exact_log2(CONFIG.slots)
        held = Mux(self.empty, self.job.empty_lap, self.slot.seq[index:])
        ahead = Signal(signed(32 - index), name="laps_ahead")
        self.h.m.d.comb += ahead.eq(self.request.seq[index:] - held)
        return ahead

    def works(self, operation: Operation) -> Value:
        """The aggregator carries out this operation."""
        return self.decision.works & (self.decision.operation == operation)

    def require(self, condition: Any) -> None:
        """Add the property that the condition holds for each decision."""
        self.h.require(~self.valid | condition)

    def reach(self, condition: Any) -> None:
        """Add a decision that must be possible."""
        self.h.reach(self.valid & condition)


def counts_once(part: Any) -> Harness:
    """A contribution is added to the sum and recorded at once, unless its sender is recorded already."""
    c = Case(part)
    adds = c.works(Operation.CONTRIBUTE)
    recorded = c.same & (c.slot.arrived & c.bit).any()
    c.require(~adds | (c.sends & ~recorded & c.decision.slot_write & (c.decision.outcome == Outcome.ADDED)))
    c.require(~adds | ((c.next.arrived & c.next.members & c.bit).any() & (c.next.seq == c.request.seq)))
    # No other member enters the sum, and what is recorded stays.
    grown = c.next.members & ~Mux(c.same, c.slot.members, 0)
    writes = c.decision.slot_write & ~c.request.install
    c.require(~writes | (grown == Mux(adds, c.bit, 0)))
    lost = (c.slot.arrived & ~c.next.arrived) | (c.slot.members & ~c.next.members)
    c.require(~(writes & c.same) | (lost == 0))
    c.require(~c.decision.slot_write | ((c.next.members & ~c.next.arrived) == 0))  # as is assumed of the slot
    c.reach(adds & c.same)
    c.reach(adds & c.opens & ~c.empty)
    c.reach(adds & c.opens & c.empty)
    return c.h


def keeps_results(part: Any) -> Harness:
    """A complete slot is not written until the next lap, and a sum that has gone up is only sent up again."""
    c = Case(part)
    complete = c.same & (c.slot.state == SlotState.COMPLETE)
    c.require(~complete | (~c.decision.slot_write & (~c.decision.works | c.works(Operation.RESEND))))
    sent_up = c.same & (c.slot.state == SlotState.SENT_UP)
    allowed = c.works(Operation.SEND_UP) | (c.request.install & c.works(Operation.INSTALL_DOWN))
    c.require(~(sent_up & c.decision.works) | allowed)
    only_rival = Signal.like(c.slot, name="only_rival")
    c.h.m.d.comb += [only_rival.eq(c.slot), only_rival.rival.eq(c.request.collective)]
    kept = [
        Value.cast(getattr(c.next, name)) == Value.cast(getattr(only_rival, name))
        for name in c.slot.shape().members
        if name != "incarnation"
    ]
    c.require(~(sent_up & c.decision.slot_write & ~c.request.install) | reduce(lambda a, b: a & b, kept))
    c.reach(complete & c.works(Operation.RESEND))
    c.reach(sent_up & c.works(Operation.SEND_UP))
    c.reach(sent_up & c.works(Operation.INSTALL_DOWN))
    c.reach(sent_up & c.decision.slot_write & ~c.request.install)
    return c.h


def refuses_old_laps(part: Any) -> Harness:
    """A frame of an older lap than the slot's has no effect, and one of a newer lap than the next has none."""
    c = Case(part)
    ahead = c.laps_ahead()
    old = (ahead < 0) | (c.empty & (ahead == 0))
    quiet = ~c.decision.slot_write & ~c.decision.works
    c.require(~(old | (ahead > 1)) | quiet)
    c.reach(old & (c.decision.outcome == Outcome.STALE))
    c.reach((ahead > 1) & (c.decision.outcome == Outcome.WINDOW))
    c.reach((ahead == 1) & c.decision.slot_write)
    return c.h


def overwrites_what_all_hold(part: Any) -> Harness:
    """The next lap takes the slot only if it is complete and each live member has acknowledged its result."""
    c = Case(part)
    overwrites = c.decision.slot_write & ~c.empty & ~c.same
    c.require(~overwrites | (c.slot.state == SlotState.COMPLETE))
    for member in range(CONFIG.members):
        known = Signal(signed(32), name=f"known_{member}")
        c.h.m.d.comb += known.eq(c.ring.acknowledged[member] - c.slot.seq)
        holds = ~c.job.live[member] | (known > 0)
        is_sender = ~c.request.install & (c.ring.member == member)
        low = Signal(signed(32), name=f"low_{member}")
        c.h.m.d.comb += low.eq(c.request.seq - c.request.behind - c.slot.seq)
        c.require(~overwrites | holds | (is_sender & (low > 0)))
    c.reach(overwrites & c.works(Operation.CONTRIBUTE) & c.job.live.all())
    c.reach(overwrites & c.request.install)
    return c.h


def completes_when_it_should(part: Any) -> Harness:
    """A slot is complete with the contribution after which nobody is awaited, or those in the sum are enough."""
    c = Case(part)
    added = (c.decision.outcome == Outcome.ADDED) | (c.decision.outcome == Outcome.QUARANTINED)
    added &= c.sends
    age = Signal(32)
    c.h.m.d.comb += age.eq(c.ring.now_us - c.slot.opened_us)
    overdue = ~c.opens & (c.job.deadline_us != 0) & (age >= c.job.deadline_us)
    enough = ~c.request.requires_all & ((popcount(c.next.members) >= c.job.threshold) | overdue)
    due = ~(c.next.expected & ~c.next.arrived).any() | enough
    c.require(~added | (c.decision.emit == due))
    closed = Mux(c.ring.is_leaf, SlotState.SENT_UP, SlotState.COMPLETE)
    c.require(~added | (Value.cast(c.next.state) == Mux(due, closed, SlotState.COLLECTING)))
    expected = Mux(c.job.segments.any(), c.ring.granted, c.job.live & ~Mux(early(c), c.job.admitted, 0))
    c.require(~added | (c.next.expected == Mux(c.opens, expected, c.slot.expected)))
    c.reach(added & due & ~enough)
    c.reach(added & enough & overdue)
    c.reach(added & ~due)
    return c.h


def early(c: Case) -> Value:
    """The segment is before the boundary at which the newest members were admitted."""
    distance = Signal(signed(32), name="after_boundary")
    c.h.m.d.comb += distance.eq(c.request.seq - c.job.admitted_seq)
    return distance < 0


def accepts_what_the_slot_takes(part: Any) -> Harness:
    """The core lets the next frame enter if the ring accepts a frame, before the decision is there."""
    c = Case(part)
    accepts = c.ring.accepts
    added = (c.decision.outcome == Outcome.ADDED) | (c.decision.outcome == Outcome.QUARANTINED)
    c.require(accepts == (c.sends & added))
    answers = c.decision.conflicts | c.decision.reports | c.decision.resend
    c.require(~accepts | ~(c.ring.evicts | answers))
    c.require(~accepts | (c.ring.advances == c.decision.advance))
    c.reach(accepts & c.ring.advances)
    c.reach(accepts & c.request.uplink)
    return c.h


class Twins(Component):
    """Two rings with the same inputs but for the rows of their slots, which are both empty."""

    def __init__(self, part: Any):
        self.one, self.other = part.Ring(CONFIG), part.Ring(CONFIG)
        self._inputs = {
            name: member for name, member in self.one.signature.members.items() if member.flow is In and name != "slot"
        }
        slot = self.one.signature.members["slot"].shape
        super().__init__({**self._inputs, "slot": In(slot), "other_slot": In(slot)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.one, m.submodules.other = self.one, self.other
        for name in self._inputs:
            for ring in (self.one, self.other):
                m.d.comb += Value.cast(getattr(ring, name)).eq(Value.cast(getattr(self, name)))
        m.d.comb += [self.one.slot.eq(self.slot), self.other.slot.eq(self.other_slot)]
        m.d.comb += [ring.slot.state.eq(SlotState.EMPTY) for ring in (self.one, self.other)]
        return m


def forgets_old_rows(part: Any) -> Harness:
    """What the row of an empty slot held before does not matter: a ring begins anew without clearing its rows."""
    h = Harness(twins := Twins(part))
    h.constant_inputs()
    valid = after(h, LATENCY)
    one, other = twins.one.decision, twins.other.decision
    names = [name for name in one.shape().members if name not in ("slot_next", "operation", "first", "emit")]
    same = [Value.cast(getattr(one, name)) == Value.cast(getattr(other, name)) for name in names]
    same.append(~one.slot_write | (Value.cast(one.slot_next) == Value.cast(other.slot_next)))
    same += [~one.works | (getattr(one, name) == getattr(other, name)) for name in ("operation", "first", "emit")]
    same += [twins.one.evicts == twins.other.evicts, ~twins.one.evicts | (twins.one.late == twins.other.late)]
    h.require(~valid | reduce(lambda a, b: a & b, same))
    h.reach(valid & one.slot_write & one.works & (twins.slot.arrived != twins.other_slot.arrived))
    return h


PROOFS = [
    Proof(law=law, part=hw.decide.ring, harness=harness, depth=LATENCY + 2, covers_all=True, mutants=mutants)
    for law, harness, mutants in (
        (
            "a contribution is added to its sum once, and is recorded when it is added",
            counts_once,
            (
                ("already_arrived.eq((slot.arrived & bit).any())", "already_arrived.eq(0)"),
                (
                    "grows.arrived.eq(Mux(opens, 0, slot.arrived) | bit)",
                    "grows.arrived.eq(Mux(opens, 0, slot.arrived))",
                ),
                ("Mux(opens, 0, slot.members) | Mux(rejects, 0, bit)", "Mux(rejects, 0, bit)"),
                ("decision.operation.eq(Mux(rejects, Operation.FORCE", "decision.operation.eq(Mux(0, Operation.FORCE"),
            ),
        ),
        (
            "a result does not change until the next lap, and a sum that went up is only sent up again",
            keeps_results,
            (
                ("(already_arrived | ~collecting))", "already_arrived)"),
                ("decision.slot_write.eq(collecting | sent_up)", "decision.slot_write.eq(1)"),
                ("with m.Elif(installs & stored):", "with m.Elif(0):"),
            ),
        ),
        (
            "a frame of an older lap, or of one beyond the next, changes no slot and no sum",
            refuses_old_laps,
            (("(stale, (ahead < 0) | ", "(stale, "), ("(same & vacant)", "0"), ("(~receipt & beyond_ring)", "0")),
        ),
        (
            "a slot is taken for the next lap only after its result, which every live member has acknowledged",
            overwrites_what_all_hold,
            (
                ("(slot_held, opens & result_held)", "(slot_held, 0)"),
                ("known_before <= 0, known <= 0)", "known_before <= 0, known < 0)"),
                ("result_held.eq(collecting | sent_up |", "result_held.eq(collecting |"),
            ),
        ),
        (
            "a slot is complete with the contribution after which no member is awaited, or enough are in the sum",
            completes_when_it_should,
            (
                ("count.eq(Mux(opens, 0, tally)", "count.eq(tally"),
                ("job.threshold, overdue & ~opens)", "job.threshold, overdue)"),
                ("job.live & ~Mux(early, job.admitted, 0)", "job.live"),
            ),
        ),
        (
            "the ring accepts exactly the frames that a slot takes, and they wait for no member and have no answer",
            accepts_what_the_slot_takes,
            (
                ("~refused & ~receipt", "~refused"),
                ("any() | other_collective | other_format | other_length", "any() | other_format | other_length"),
                ("Cat(holds for _, holds in refusals).any() |", ""),
            ),
        ),
        (
            "what the row of an empty slot held before does not matter",
            forgets_old_rows,
            (
                (
                    "ahead.eq(Mux(empty, laps_after_empty << index_bits, request.seq - slot.seq))",
                    "ahead.eq(request.seq - slot.seq)",
                ),
                ("grows.arrived.eq(Mux(opens, 0, slot.arrived) | bit)", "grows.arrived.eq(slot.arrived | bit)"),
                ("after.rival.eq(Mux(opens | installs, 0, slot.rival))", "after.rival.eq(slot.rival)"),
            ),
        ),
    )
]

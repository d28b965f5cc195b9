"""The switch of `ring.py`: the golden rules of the ring, and beside them accumulators and every promise made so far.

A payload is one bit that names its worker and segment. The accumulators are sets of such bits, driven by the same
`Work` as the gateware's. Each step is checked as it is made.
"""

from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.decide import ring as golden
from iswitch.golden.decide.slot import RULES, Ring, Rules, Slot, Step, Work
from iswitch.golden.interface.serial import SERIAL
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Operation, Outcome, SlotState
from sim.explore.messages import UNKNOWN, Contribution, Leave, Receipt, SegmentNumbers, SetThreshold, is_member
from sim.explore.search import Event, Scenario, Violation
from sim.explore.switch import ExploredSwitch

__all__ = ["DeadlinePasses", "ForceSegment", "Join", "RingCore", "RingScenario", "RingSent", "RingSwitch"]


@dataclass(frozen=True)
class RingScenario(Scenario):
    """One job on one switch.

    Parameters
    ----------
    workers, window, segments, threshold : int
        N, W, how many segments are summed, and H.
    leaves : int
        How many workers may be absent at a time, having left or been evicted, rightly or not.
    thresholds : tuple of int
        Values that SET_H may set at any time.
    tainted : frozenset of (worker, segment)
        Contributions that the switch quarantines.
    joins : bool
        Whether absent workers may join again.
    boundaries : frozenset of int
        The last segments of collectives.
    requires_all : frozenset of int
        Segments that wait for every member, whatever the threshold.
    forces, deadline : bool
        Whether FBCAST may force, or the deadline may pass for, any collecting slot at any time.
    misaligned : frozenset of int
        Workers that are at another position than the others, so all their collectives are others.
    rules : Rules
        The rules under test.
    receipts : bool
        False makes a mutant: no worker sends receipts.
    slots : int
        If not 0, a mutant with that many slots instead of 2W.
    eager : bool
        True makes a mutant: workers do not wait at a boundary.
    any_forced : bool
        True makes a mutant: FBCAST also forces slots that require all members.
    """

    workers: int
    window: int
    segments: int
    threshold: int
    leaves: int = 0
    thresholds: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    joins: bool = False
    boundaries: frozenset[int] = frozenset()
    requires_all: frozenset[int] = frozenset()
    forces: bool = False
    deadline: bool = False
    misaligned: frozenset[int] = frozenset()
    rules: Rules = RULES
    receipts: bool = True
    slots: int = 0
    eager: bool = False
    any_forced: bool = False


class Join(NamedTuple):
    """An absent worker confirms its Join to the running job."""

    worker: int


class ForceSegment(NamedTuple):
    """FBCAST forces the slot of a segment."""

    segment: int


class DeadlinePasses(NamedTuple):
    """Time passes: the slot of this segment has been open for the job's deadline."""

    segment: int


class RingCore(NamedTuple):
    """The switch, and what its promises refer to.

    `accumulators`: per slot, bit `segment * workers + worker` for each payload in the sum. `results`: per segment, the
    members of its result, with bit `workers` for the flag `members_changed`, or UNKNOWN. `first_segment`: per worker,
    the segment at which it became a member.
    """

    ring: Ring
    accumulators: tuple[int, ...]
    results: tuple[int, ...]
    first_segment: tuple[int, ...]


class RingSent(NamedTuple):
    """What the switch does besides changing: it sends the result of `segment` (or UNKNOWN) to the set `receivers`.

    `waits_for`: the members for which the event shows that its sender waits. `told`: the sender gets a NOTICE that
    another member calls another collective.
    """

    segment: int = UNKNOWN
    receivers: int = 0
    waits_for: int = 0
    told: bool = False


class ShortRing(Ring):
    """Mutant: as many slots as the window. (`_replace` keeps the class.)"""

    @property
    def window(self) -> int:
        return len(self.slots)


class RingSwitch(ExploredSwitch[RingCore, RingSent]):
    """The ring of one job, with every promise about sums and results checked."""

    def __init__(self, scenario: RingScenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.numbers = SegmentNumbers(scenario.window)
        self.all_contribute = scenario.threshold == scenario.workers and not (
            scenario.thresholds or scenario.forces or scenario.deadline
        )

    def start(self) -> int:
        """Return the number of the first state: all workers live, all slots empty."""
        s, first_seq = self.scenario, self.numbers.first_seq
        live = (1 << s.workers) - 1
        ring = golden.new_ring(first_seq, s.window, s.workers, live, s.threshold, int(s.deadline))
        if s.slots:
            slots = tuple(Slot((first_seq + k - s.slots) % SERIAL) for k in range(s.slots))
            ring = ShortRing(slots, ring.acknowledged, live, s.threshold)
        return self.number(RingCore(ring, (0,) * len(ring.slots), (UNKNOWN,) * s.segments, (0,) * s.workers))

    def transition(self, state: RingCore, event: Event) -> tuple[RingCore, RingSent]:
        ring, works, waits_for, told = self._apply(state, event)
        admitted = ring.live & ~state.ring.live
        first_segment = tuple(
            self.numbers.segment(ring.acknowledged[m]) if is_member(admitted, m) else first
            for m, first in enumerate(state.first_segment)
        )
        state = state._replace(ring=ring, first_segment=first_segment)
        segment, receivers = UNKNOWN, 0
        for work in works:
            state = self._execute(state, work, event)
            sends = work.emit or work.operation == Operation.RESEND
            segment = self.segment(state.ring.slots[work.slot]) if sends else UNKNOWN
            receivers = work.receivers
        return state, RingSent(segment, receivers, waits_for, told)

    def _apply(self, state: RingCore, event: Event) -> tuple[Ring, list[Work], int, bool]:
        """Return what the golden rules make of an event: the ring, operations on accumulators, awaited members, and
        whether the sender learns of another collective."""
        s, ring = self.scenario, state.ring
        match event:
            case Leave(worker):
                ring, works = golden.leave(ring, worker, s.rules)
                return ring, works, 0, False
            case Join(worker):
                return ring._replace(joining=ring.joining | 1 << worker), [], 0, False
            case SetThreshold(threshold):
                return ring._replace(threshold=threshold), [], 0, False
            case ForceSegment(segment):
                ring, work = golden.force(ring, self._slot_index(ring, segment), s.rules)
                return ring, [work], 0, False
            case DeadlinePasses(segment):
                index = self._slot_index(ring, segment)
                slots = replace_at(ring.slots, index, ring.slots[index]._replace(opened_us=-1))
                return ring._replace(slots=slots), [], 0, False
        if not is_member(ring.live, event.worker):
            return ring, [], 0, False
        step = self._receive(state, event)
        if step.outcome == Outcome.WINDOW or self.all_contribute and step.outcome == Outcome.SLOT_HELD:
            raise Violation(f"an honest worker is refused with {step.outcome.name}")
        return step.ring, [step.work] if step.work else [], step.waits_for, step.differs_from is not None

    def _receive(self, state: RingCore, event: Contribution | Receipt) -> Step:
        s, seq = self.scenario, self.numbers.seq(event.segment)
        if isinstance(event, Receipt):
            return golden.receipt(
                state.ring, member=event.worker, seq=seq, behind=event.segment - event.low, want=event.wanted != UNKNOWN
            )
        return golden.contribute(
            state.ring,
            member=event.worker,
            seq=seq,
            behind=event.segment - event.low,
            boundary=event.segment in s.boundaries,
            requires_all=self.requires_all(state, event.segment),
            tainted=(event.worker, event.segment) in s.tainted,
            collective=self.collective(event.worker),
            rules=s.rules,
        )

    def _execute(self, state: RingCore, work: Work, event: Event) -> RingCore:
        """Execute an operation on the accumulators, and check what leaves against the header that goes with it."""
        s, slot, content = self.scenario, state.ring.slots[work.slot], state.accumulators[work.slot]
        segment = self.segment(slot)
        if work.operation != Operation.RESEND:
            adds = work.operation == Operation.CONTRIBUTE
            payload = 1 << event.segment * s.workers + event.worker if adds else 0
            content = 0 if work.first else content
            if content & payload:
                raise Violation("a worker is in a sum twice")
            content |= payload
            state = state._replace(accumulators=replace_at(state.accumulators, work.slot, content))
            if not work.emit:
                return state
        called = {self.collective(m) for m in range(s.workers) if is_member(slot.members | slot.tainted, m)}
        if len(called) > 1:
            raise Violation("a sum adds two collectives")
        answers = isinstance(event, Contribution) and work.operation == Operation.RESEND
        if answers and called != {self.collective(event.worker)}:
            raise Violation("a contribution is answered with the result of another collective")
        if content != slot.members << segment * s.workers:
            raise Violation("a sum differs from its members' payloads")
        if work.emit:
            self._check_completion(state, slot, isinstance(event, ForceSegment))
        result = slot.members | slot.members_changed << s.workers
        if state.results[segment] not in (UNKNOWN, result):
            raise Violation("a result changes")
        if slot.state != SlotState.COMPLETE:
            raise Violation("a slot that is not complete sends a result")
        return state._replace(results=replace_at(state.results, segment, result))

    def _check_completion(self, state: RingCore, slot: Slot, forced: bool) -> None:
        """Check that a slot completes with everyone that it must wait for, and admits everyone that it may."""
        s, ring, segment = self.scenario, state.ring, self.segment(slot)
        members = sum(
            1 << m for m, first in enumerate(state.first_segment) if is_member(ring.live, m) and first <= segment
        )
        missing = members & ~slot.arrived
        forced = forced or bool(slot.opened_us) and not slot.requires_all
        if slot.members.bit_count() < ring.threshold and missing and not forced:
            raise Violation("a slot completes with too few workers")
        if slot.requires_all and missing and not forced:
            raise Violation("a slot that requires all completes without a member")
        if members & ~slot.expected:
            raise Violation("a slot does not wait for a member")
        if segment in s.boundaries and ring.joining:
            raise Violation("a joining member is not admitted")
        everyone = (1 << s.workers) - 1
        if self.all_contribute and not s.leaves and not s.tainted and slot.members != everyone:
            raise Violation("H = N, but a result lacks a worker")

    def requires_all(self, state: RingCore, segment: int) -> bool:
        """Return whether a segment waits for every member, as the collective after a change does.

        A worker that contributes to that collective holds the result that announced the change.
        """
        last = max((end for end in self.scenario.boundaries if end < segment), default=UNKNOWN)
        change = last != UNKNOWN and state.results[last] >> self.scenario.workers == 1
        return segment in self.scenario.requires_all or change

    def collective(self, worker: int) -> int:
        """Return the collective of a worker's contributions, as the slots compare it."""
        return 1 + (worker in self.scenario.misaligned)

    def segment(self, slot: Slot) -> int:
        """Return the segment of a slot."""
        return self.numbers.segment(slot.seq)

    def _slot_index(self, ring: Ring, segment: int) -> int:
        return self.numbers.seq(segment) % len(ring.slots)

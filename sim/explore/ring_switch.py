"""The switch of `explorer.py`: the ring on one side, accumulators and everything that was promised on the other.

A payload is one bit that names its worker and segment; the accumulators are sets of such bits, driven by the same
`Work` as the gateware's. Each step is checked as it is made.
"""

from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState
from sim.explore.cores import Cores
from sim.explore.search import Violation, put
from sim.model.decide import ring as rules_of
from sim.model.decide.ring import RULES, Ring, Rules, Slot, Work

__all__ = [
    "SERIAL",
    "UNKNOWN",
    "Contribution",
    "Core",
    "Event",
    "Force",
    "Join",
    "Leave",
    "Overdue",
    "Receipt",
    "RingSwitch",
    "Scenario",
    "SetThreshold",
]

SERIAL = 1 << 32
UNKNOWN = -1

Event = tuple[Any, ...]


class Scenario(NamedTuple):
    """What is explored. `leaves`: how many workers may be gone at a time, by their own will or evicted, rightly or not.
    `joins`: those who are gone may join again. `boundaries`: last segments of collectives. `thresholds`: values that
    SET_H may set at any time. `tainted`: (worker, segment) pairs to be quarantined. `whole`: segments that wait for
    all. `forces`: open slots may be forced at any time. `deadline`: slots may become overdue at any time. The last five
    make mutants: `eager` workers do not wait at a boundary, `any_forced` forces also slots that wait for all."""

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
    rules: Rules = RULES
    receipts: bool = True
    slots: int = 0
    eager: bool = False
    any_forced: bool = False


class Contribution(NamedTuple):
    """`segment` counts from 0; the sender lacked nothing below `low`."""

    worker: int
    segment: int
    low: int


class Receipt(NamedTuple):
    """`wanted` is a segment whose result is asked for, or -1."""

    worker: int
    low: int
    wanted: int


class Leave(NamedTuple):
    worker: int


class Join(NamedTuple):
    """The confirmation of one who is not a member of a running job."""

    worker: int


class SetThreshold(NamedTuple):
    threshold: int


class Force(NamedTuple):
    segment: int


class Overdue(NamedTuple):
    """Time passes: the slot of this segment has been open for too long."""

    segment: int


class Core(NamedTuple):
    """The switch: ring, accumulators (bit `segment * workers + worker` for each payload in the sum), and, for the
    checks, of each result so far its members with bit `workers` for `change`, and each worker's first segment."""

    ring: Ring
    memory: tuple[int, ...]
    truth: tuple[int, ...]
    start: tuple[int, ...]


class ShortRing(Ring):
    """Mutant: as many slots as the window. (`_replace` keeps the class.)"""

    @property
    def window(self) -> int:
        return len(self.slots)


class RingSwitch(Cores[Core]):
    """First seq is the last multiple of 2W before 2^32, so that seq wraps."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.first_seq = SERIAL - 2 * scenario.window
        self.strict = scenario.threshold == scenario.workers and not (
            scenario.thresholds or scenario.forces or scenario.deadline
        )

    def start(self) -> int:
        s = self.scenario
        live = (1 << s.workers) - 1
        ring = rules_of.new_ring(self.first_seq, s.window, s.workers, live, s.threshold, int(s.deadline))
        if s.slots:
            slots = tuple(Slot((self.first_seq + k - s.slots) % SERIAL) for k in range(s.slots))
            ring = ShortRing(slots, ring.acknowledged, live, s.threshold)
        return self.intern(Core(ring, (0,) * len(ring.slots), (UNKNOWN,) * s.segments, (0,) * s.workers))

    def perform(self, core: Core, event: Event) -> tuple[Core, int, int, int]:
        """The core after a message or an action; a result that it sent: segment (or -1) and set of receivers; and for
        whom its sender has been waiting."""
        s, ring, waits = self.scenario, core.ring, 0
        works: list[Work] = []
        if isinstance(event, Leave):
            ring, works = rules_of.leave(ring, event.worker, s.rules)
        elif isinstance(event, Join):
            ring = ring._replace(joining=ring.joining | 1 << event.worker)
        elif isinstance(event, SetThreshold):
            ring = ring._replace(threshold=event.threshold)
        elif isinstance(event, Force):
            ring, work = rules_of.force(ring, self.seq(event.segment) % len(ring.slots), s.rules)
            works = [work]
        elif isinstance(event, Overdue):
            index = self.seq(event.segment) % len(ring.slots)
            ring = rules_of.put(ring, index, ring.slots[index]._replace(opened_us=-1))
        elif isinstance(event, (Contribution, Receipt)) and ring.live >> event.worker & 1:
            if isinstance(event, Contribution):
                step = rules_of.contribute(
                    ring,
                    member=event.worker,
                    seq=self.seq(event.segment),
                    behind=event.segment - event.low,
                    boundary=event.segment in s.boundaries,
                    requires_all=self.is_whole(core, event.segment),
                    tainted=(event.worker, event.segment) in s.tainted,
                    rules=s.rules,
                )
            else:
                asked = event.low if event.wanted == UNKNOWN else event.wanted
                step = rules_of.receipt(
                    ring,
                    member=event.worker,
                    seq=self.seq(asked),
                    behind=asked - event.low,
                    want=event.wanted != UNKNOWN,
                )
            if step.outcome == Outcome.WINDOW or self.strict and step.outcome == Outcome.SLOT_HELD:
                raise Violation(f"an honest worker is told {step.outcome.name}")
            ring, works, waits = step.ring, [step.work] if step.work else [], step.waits
        new = ring.live & ~core.ring.live
        core = core._replace(
            ring=ring,
            start=tuple(
                self.segment(Slot(ring.acknowledged[m])) if new >> m & 1 else start
                for m, start in enumerate(core.start)
            ),
        )
        segment, receivers = UNKNOWN, 0
        for work in works:
            core = self.execute(core, work, event)
            sends = work.emit or work.operation == Operation.RESEND
            segment = self.segment(core.ring.slots[work.slot]) if sends else UNKNOWN
            receivers = work.receivers
        return core, segment, receivers, waits

    def execute(self, core: Core, work: Work, event: Event) -> Core:
        """The accumulators obey; what leaves is compared with the header that goes with it."""
        s, slot, content = self.scenario, core.ring.slots[work.slot], core.memory[work.slot]
        segment = self.segment(slot)
        if work.operation != Operation.RESEND:
            bit = 1 << event.segment * s.workers + event.worker if isinstance(event, Contribution) else 0
            bit = bit if work.operation == Operation.CONTRIBUTE else 0
            content = 0 if work.first else content
            if content & bit:
                raise Violation("a worker is twice in a sum")
            content |= bit
            core = core._replace(memory=put(core.memory, work.slot, content))
            if not work.emit:
                return core
        if content != slot.members << segment * s.workers:
            raise Violation("a sum is not that of its members' payloads")
        taking_part = sum(1 << m for m, start in enumerate(core.start) if core.ring.live >> m & 1 and start <= segment)
        waiting = taking_part & ~slot.arrived
        forced = isinstance(event, Force) or slot.opened_us and not slot.requires_all
        if work.emit and slot.members.bit_count() < core.ring.threshold and waiting and not forced:
            raise Violation("a slot completes with too few workers")
        if work.emit and slot.requires_all and waiting and not forced:
            raise Violation("a slot that waits for all completes without somebody")
        if work.emit and taking_part & ~slot.expected:
            raise Violation("a slot does not wait for a member")
        if work.emit and segment in s.boundaries and core.ring.joining:
            raise Violation("a newcomer is not let in")
        if self.strict and not s.leaves and not s.tainted and slot.members != (1 << s.workers) - 1:
            raise Violation("H = N, but a result lacks somebody")
        fact = slot.members | slot.change << s.workers
        if core.truth[segment] not in (UNKNOWN, fact):
            raise Violation("a result changes")
        if slot.state != SlotState.COMPLETE:
            raise Violation("a result leaves an open slot")
        return core._replace(truth=core.truth[:segment] + (fact,) + core.truth[segment + 1 :])

    def is_whole(self, core: Core, segment: int) -> bool:
        """The collective after a change waits for all. Whoever sends for it holds the result that says so."""
        last = max((end for end in self.scenario.boundaries if end < segment), default=UNKNOWN)
        change = last != UNKNOWN and core.truth[last] >> self.scenario.workers == 1
        return segment in self.scenario.requires_all or change

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, slot: Slot) -> int:
        return (slot.seq - self.first_seq) % SERIAL

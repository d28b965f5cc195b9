"""The switch of `claims.py`: claims and ring on one side, accumulators and everything that was promised on the
other.

A vector is known by its worker and k; accumulators are sets of (segment, worker). Each step is checked as it is made.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState, Type
from sim.explore.cores import Cores
from sim.explore.ring_switch import UNKNOWN, Leave, Receipt, SetThreshold
from sim.explore.search import Violation, put
from sim.model.decide import claims as claims_of
from sim.model.decide import ring as ring_of
from sim.model.decide.claims import Answer, Claims, Verdict
from sim.model.decide.ring import Ring, Work

__all__ = [
    "Claim",
    "ClaimsSwitch",
    "Contribution",
    "Core",
    "Enter",
    "Event",
    "Force",
    "Knock",
    "Reset",
    "Rules",
    "Scenario",
    "Sent",
    "grants_to",
    "renewed",
]

SERIAL = 1 << 32

Event = tuple[Any, ...]


def renewed(claims: Claims, first_seq: int) -> Claims:
    """After a RESET."""
    return claims_of.new_claims(
        first_seq, segments=claims.segments, staleness=claims.staleness, members=len(claims.claimants)
    )


class Rules(NamedTuple):
    """The rules the tests replace by plausible wrong ones. `granted` for contributions, `wanted` for receipts; `renew`
    with a RESET."""

    claim: Callable[..., Verdict] = claims_of.claim
    leave: Callable[[Claims, int], Claims] = claims_of.leave
    admit: Callable[[Claims, Ring], Ring] = claims_of.admit
    granted: Callable[[Claims, int], int | None] = claims_of.granted
    wanted: Callable[[Claims, int], int | None] = claims_of.granted
    renew: Callable[[Claims, int], Claims] = renewed


class Scenario(NamedTuple):
    """What is explored: until `updates` are granted. `leaves`: how many workers may leave; `joins`: how many may come
    in their places. `thresholds`: values that SET_H may set at any time. `tainted`: (segment, k) of contributions to be
    quarantined, whoever sends them. `lies`: claims may name any weights, those of updates that do not exist too.
    `resets`: how often the job may be reset; `fbcasts`: anybody may try to force a slot. `whole`, `epochs`: False makes
    a mutant."""

    workers: int
    staleness: int
    threshold: int
    updates: int
    segments: int = 1
    window: int = 1
    pipelined: bool = False
    leaves: int = 0
    joins: int = 0
    thresholds: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    lies: bool = False
    resets: int = 0
    fbcasts: bool = False
    rules: Rules = Rules()
    requires_all: bool = True
    epochs: bool = True


class Claim(NamedTuple):
    worker: int
    k: int
    version: int


class Contribution(NamedTuple):
    """`segment` counts from 0 over all updates; the sender lacked nothing below `low`. `k`: of which vector."""

    worker: int
    segment: int
    low: int
    k: int


class Knock(NamedTuple):
    """A newcomer's Join is confirmed; it gets in at the next boundary."""

    worker: int


class Enter(NamedTuple):
    worker: int


class Reset(NamedTuple):
    """Somebody resets the job; workers learn of it when they may."""


class Force(NamedTuple):
    """FBCAST of a slot."""

    slot: int


class Core(NamedTuple):
    """The switch: ring, claims, accumulators (masks of workers), how many have joined, how often it was reset. For the
    checks: members of each result; for each update granted, the vectors k (0: none, negative: its worker has left
    since); the version of each worker's waiting vector; masks of the k that were refused."""

    ring: Ring
    claims: Claims
    memory: tuple[int, ...]
    joined: int
    truth: tuple[int, ...]
    granted: tuple[tuple[int, ...], ...]
    versions: tuple[int, ...]
    refused: tuple[int, ...]
    epoch: int = 0


class Sent(NamedTuple):
    """What the switch sends because of an event: results, as (segment, receivers), and at most one answer to a claim.
    `waits`: whom it learns that somebody waits for."""

    results: tuple[tuple[int, int], ...] = ()
    answer: Answer | None = None
    waits: int = 0


class ClaimsSwitch(Cores[Core]):
    """First seq is the last multiple of 2W before 2^32, so that seq wraps."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.rules = scenario.rules
        self.first_seq = SERIAL - 2 * scenario.window

    def start(self) -> int:
        s = self.scenario
        n = s.workers
        ring = ring_of.new_ring(self.first_seq, s.window, n, (1 << n) - 1, s.threshold)
        claims = claims_of.new_claims(self.first_seq, segments=s.segments, staleness=s.staleness, members=n)
        core = Core(
            ring, claims, (0,) * 2 * s.window, 0, (UNKNOWN,) * s.updates * s.segments, (), (UNKNOWN,) * n, (0,) * n
        )
        return self.intern(core)

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, seq: int) -> int:
        return (seq - self.first_seq) % SERIAL

    def base(self, update: int) -> int:
        return self.seq(update * self.scenario.segments)

    def perform(self, core: Core, event: Event) -> tuple[Core, Sent]:
        if isinstance(event, Leave):
            return self.depart(core, event)
        if isinstance(event, SetThreshold):
            return core._replace(ring=core.ring._replace(threshold=event.threshold)), Sent()
        if isinstance(event, Reset):
            return self.reset(core), Sent()
        if isinstance(event, Force):
            ring, work = ring_of.force(core.ring, event.slot)
            core, result = self.accumulate(core._replace(ring=ring), work, event)
            return core, Sent((result,))
        if isinstance(event, Knock):
            return core._replace(ring=core.ring._replace(joining=1 << event.worker)), Sent()
        if isinstance(event, Enter):
            return self.enter(core, event.worker), Sent()
        if isinstance(event, Claim):
            return self.claim(core, event)
        if isinstance(event, Contribution):
            return self.contribute(core, event)
        assert isinstance(event, Receipt)
        asked = event.low if event.wanted == UNKNOWN else event.wanted
        step = ring_of.receipt(
            core.ring,
            member=event.worker,
            seq=self.seq(asked),
            behind=asked - event.low,
            want=event.wanted != UNKNOWN,
            granted=self.rules.wanted(core.claims, self.seq(asked)),
        )
        return self.execute(core, step, event)

    def reset(self, core: Core) -> Core:
        """What the accumulators hold stays there."""
        s, ring = self.scenario, core.ring
        after = ring_of.new_ring(self.first_seq, s.window, s.workers, ring.live, ring.threshold)._replace(
            joining=ring.joining
        )
        return core._replace(
            ring=after,
            claims=self.rules.renew(core.claims, self.first_seq),
            truth=(UNKNOWN,) * s.updates * s.segments,
            granted=(),
            versions=(UNKNOWN,) * s.workers,
            refused=(0,) * s.workers,
            epoch=core.epoch + 1,
        )

    def depart(self, core: Core, event: Leave) -> tuple[Core, Sent]:
        ring, works = ring_of.leave(core.ring, event.worker)
        granted = tuple(put(row, event.worker, -abs(row[event.worker])) for row in core.granted)
        core = core._replace(
            ring=ring,
            claims=self.rules.leave(core.claims, event.worker),
            granted=granted,
            versions=put(core.versions, event.worker, UNKNOWN),
        )
        results = []
        for work in works:
            core, result = self.accumulate(core, work, event)
            results.append(result)
        return core, Sent(tuple(results))

    def enter(self, core: Core, worker: int) -> Core:
        return core._replace(
            ring=self.rules.admit(core.claims, core.ring), joined=core.joined + 1, refused=put(core.refused, worker, 0)
        )

    def claim(self, core: Core, event: Claim) -> tuple[Core, Sent]:
        before = core.claims
        if len(core.granted) == self.scenario.updates and event.k > before.claimants[event.worker].k:
            return core, Sent()  # here the exploration ends
        verdict = self.rules.claim(before, core.ring, member=event.worker, k=event.k, weights=self.base(event.version))
        if verdict.outcome == Outcome.WINDOW and event.version <= len(core.granted):
            raise Violation("an honest worker is told WINDOW")
        if verdict.outcome == Outcome.UNHELD and self.base(event.version) == core.ring.acknowledged[event.worker]:
            raise Violation("a worker is not believed what it has said")
        core, answer = core._replace(claims=verdict.claims), verdict.answer
        if verdict.outcome == Outcome.CONTROL:
            core = core._replace(versions=put(core.versions, event.worker, event.version))
        if answer and answer.type == Type.REFUSE:
            core = core._replace(refused=put(core.refused, event.worker, core.refused[event.worker] | 1 << answer.seq))
        if verdict.claims.base != before.base:
            core = self.check_grant(core)
        return core, Sent(answer=answer, waits=verdict.waits)

    def check_grant(self, core: Core) -> Core:
        """The update granted just now."""
        s, update, members = self.scenario, len(core.granted), core.claims.grants[-1].members
        row = tuple(core.claims.claimants[m].k if members >> m & 1 else 0 for m in range(s.workers))
        if members & ~core.ring.live:
            raise Violation("an update is granted to somebody who left")
        for m, k in enumerate(row):
            if k and core.versions[m] == UNKNOWN or any(k and k == earlier[m] for earlier in core.granted):
                raise Violation("a vector is granted twice")
            if k and update - core.versions[m] > s.staleness:
                raise Violation("a vector older than S is granted")
        if members.bit_count() < claims_of.quorum(core.ring):
            raise Violation("an update is granted to too few")
        self.check_forgotten(core)
        versions = tuple(UNKNOWN if k else version for k, version in zip(row, core.versions))
        return core._replace(granted=(*core.granted, row), versions=versions)

    def check_forgotten(self, core: Core) -> None:
        forgotten = max(0, len(core.granted) - self.scenario.staleness) * self.scenario.segments
        if UNKNOWN in core.truth[:forgotten]:
            raise Violation("more than S + 1 updates are under way")

    def contribute(self, core: Core, event: Contribution) -> tuple[Core, Sent]:
        update = event.segment // self.scenario.segments
        if update >= len(core.granted) or abs(core.granted[update][event.worker]) != event.k:
            raise Violation("a vector is sent to an update that it was not granted")
        seq = self.seq(event.segment)
        step = ring_of.contribute(
            core.ring,
            member=event.worker,
            seq=seq,
            behind=event.segment - event.low,
            requires_all=self.scenario.requires_all,
            tainted=(event.segment, event.k) in self.scenario.tainted,
            granted=self.rules.granted(core.claims, seq) or 0,
        )
        return self.execute(core, step, event)

    def execute(self, core: Core, step: ring_of.Step, event: Event) -> tuple[Core, Sent]:
        if step.outcome == Outcome.WINDOW:
            raise Violation("an honest worker is told WINDOW")
        core = core._replace(ring=step.ring)
        if not step.work:
            return core, Sent(waits=step.waits)
        core, result = self.accumulate(core, step.work, event)
        sends = step.work.emit or step.work.operation == Operation.RESEND
        return core, Sent((result,) if sends else (), waits=step.waits)

    def accumulate(self, core: Core, work: Work, event: Event) -> tuple[Core, tuple[int, int]]:
        """The accumulators obey. Returns also (segment, receivers) of a result, which is compared with the grant."""
        slot, content = core.ring.slots[work.slot], core.memory[work.slot]
        segment, n = self.segment(slot.seq), self.scenario.workers
        if work.operation != Operation.RESEND:
            content = 0 if work.first else content
            if work.operation == Operation.CONTRIBUTE and isinstance(event, Contribution):
                bit = 1 << segment * n + event.worker
                if content & bit:
                    raise Violation("a worker is twice in a sum")
                content |= bit
            core = core._replace(memory=put(core.memory, work.slot, content))
        result = segment, work.receivers
        if not work.emit and work.operation != Operation.RESEND:
            return core, result
        row = tuple(
            0 if (segment, abs(k)) in self.scenario.tainted else k
            for k in core.granted[segment // self.scenario.segments]
        )
        if content != slot.members << segment * n or slot.state != SlotState.COMPLETE:
            raise Violation("a sum is not that of its members' vectors")
        if any(slot.members >> m & 1 and not k or k > 0 and not slot.members >> m & 1 for m, k in enumerate(row)):
            raise Violation("a sum is not that of those granted")
        if core.truth[segment] not in (UNKNOWN, slot.members):
            raise Violation("a result changes")
        return core._replace(truth=put(core.truth, segment, slot.members)), result


def grants_to(core: Core, worker: int) -> int:
    return sum(row[worker] != 0 for row in core.granted)

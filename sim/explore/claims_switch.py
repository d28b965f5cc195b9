"""The switch of `claims.py`: the golden rules of claims and ring, and beside them every promise made so far.

A vector is known by its worker and k. Accumulators are sets of (segment, worker). Each step is checked as it is made.
"""

from typing import NamedTuple

from iswitch.golden.decide import claims as golden
from iswitch.golden.decide import ring as golden_ring
from iswitch.golden.decide.claims import Answer, Claims
from iswitch.golden.decide.slot import Ring, Step, Work
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Operation, Outcome, SlotState, Type
from sim.explore.claims_scenario import (
    AdmitJoining,
    Claim,
    ClaimsScenario,
    ForceSlot,
    JoinConfirmed,
    Reset,
    VectorContribution,
)
from sim.explore.messages import UNKNOWN, Leave, Receipt, SegmentNumbers, SetThreshold, is_member
from sim.explore.search import Event, Violation
from sim.explore.switch import ExploredSwitch

__all__ = ["ClaimsCore", "ClaimsSent", "ClaimsSwitch", "grants_to"]


class ClaimsCore(NamedTuple):
    """The switch, and what its promises refer to.

    `accumulators`: per slot, bit `segment * workers + worker` for each vector in the sum. `joined`: how many workers
    have joined. `results`: per segment, the members of its result, or UNKNOWN. `granted`: per update granted, each
    worker's vector k (0: none; negative: the worker has left since). `versions`: per worker, the version of its waiting
    vector. `refused`: per worker, the bit mask of refused k. `epoch`: how often the job was reset.
    """

    ring: Ring
    claims: Claims
    accumulators: tuple[int, ...]
    joined: int
    results: tuple[int, ...]
    granted: tuple[tuple[int, ...], ...]
    versions: tuple[int, ...]
    refused: tuple[int, ...]
    epoch: int = 0


class ClaimsSent(NamedTuple):
    """What the switch sends because of an event: results, as (segment, receivers), and at most one answer to a claim.

    `waits_for`: the members for which the event shows that its sender waits.
    """

    results: tuple[tuple[int, int], ...] = ()
    answer: Answer | None = None
    waits_for: int = 0


NOTHING = ClaimsSent()


class ClaimsSwitch(ExploredSwitch[ClaimsCore, ClaimsSent]):
    """One asynchronous job, with every promise about grants, sums and results checked."""

    def __init__(self, scenario: ClaimsScenario) -> None:
        super().__init__()
        self.scenario, self.rules = scenario, scenario.rules
        self.numbers = SegmentNumbers(scenario.window)

    def start(self) -> int:
        """Return the number of the first state: all workers live, nothing claimed."""
        s, n, first_seq = self.scenario, self.scenario.workers, self.numbers.first_seq
        return self.number(
            ClaimsCore(
                ring=golden_ring.new_ring(first_seq, s.window, n, (1 << n) - 1, s.threshold),
                claims=golden.new_claims(first_seq, segments=s.segments, staleness=s.staleness, members=n),
                accumulators=(0,) * 2 * s.window,
                joined=0,
                results=self._no_results(),
                granted=(),
                versions=(UNKNOWN,) * n,
                refused=(0,) * n,
            )
        )

    def base(self, update: int) -> int:
        """Return the serial number of an update's first segment."""
        return self.numbers.seq(update * self.scenario.segments)

    def _no_results(self) -> tuple[int, ...]:
        return (UNKNOWN,) * self.scenario.updates * self.scenario.segments

    def transition(self, state: ClaimsCore, event: Event) -> tuple[ClaimsCore, ClaimsSent]:
        ring = state.ring
        match event:
            case Leave():
                return self._depart(state, event)
            case SetThreshold(threshold):
                return state._replace(ring=ring._replace(threshold=threshold)), NOTHING
            case Reset():
                return self._reset(state), NOTHING
            case ForceSlot(slot):
                ring, work = golden_ring.force(ring, slot)
                state, result = self._accumulate(state._replace(ring=ring), work, event)
                return state, ClaimsSent((result,))
            case JoinConfirmed(worker):
                return state._replace(ring=ring._replace(joining=1 << worker)), NOTHING
            case AdmitJoining(worker):
                return self._admit(state, worker), NOTHING
            case Claim():
                return self._claim(state, event)
            case VectorContribution():
                return self._contribute(state, event)
        assert isinstance(event, Receipt)
        seq = self.numbers.seq(event.segment)
        step = golden_ring.receipt(
            ring,
            member=event.worker,
            seq=seq,
            behind=event.segment - event.low,
            want=event.wanted != UNKNOWN,
            granted=self.rules.granted_for_receipt(state.claims, seq),
        )
        return self._execute(state, step, event)

    def _reset(self, state: ClaimsCore) -> ClaimsCore:
        """Start the job over. What the accumulators hold stays there."""
        s, ring, first_seq = self.scenario, state.ring, self.numbers.first_seq
        fresh = golden_ring.new_ring(first_seq, s.window, s.workers, ring.live, ring.threshold)
        return state._replace(
            ring=fresh._replace(joining=ring.joining),
            claims=self.rules.reset(state.claims, first_seq),
            results=self._no_results(),
            granted=(),
            versions=(UNKNOWN,) * s.workers,
            refused=(0,) * s.workers,
            epoch=state.epoch + 1,
        )

    def _depart(self, state: ClaimsCore, event: Leave) -> tuple[ClaimsCore, ClaimsSent]:
        """A member leaves; slots that waited for it alone complete."""
        ring, works = golden_ring.leave(state.ring, event.worker)
        granted = tuple(replace_at(row, event.worker, -abs(row[event.worker])) for row in state.granted)
        state = state._replace(
            ring=ring,
            claims=self.rules.leave(state.claims, event.worker),
            granted=granted,
            versions=replace_at(state.versions, event.worker, UNKNOWN),
        )
        results = []
        for work in works:
            state, result = self._accumulate(state, work, event)
            results.append(result)
        return state, ClaimsSent(tuple(results))

    def _admit(self, state: ClaimsCore, worker: int) -> ClaimsCore:
        return state._replace(
            ring=self.rules.admit(state.claims, state.ring),
            joined=state.joined + 1,
            refused=replace_at(state.refused, worker, 0),
        )

    def _claim(self, state: ClaimsCore, event: Claim) -> tuple[ClaimsCore, ClaimsSent]:
        before, worker = state.claims, event.worker
        if len(state.granted) == self.scenario.updates and event.k > before.claimants[worker].k:
            return state, NOTHING  # the exploration ends here
        weights = self.base(event.version)
        verdict = self.rules.claim(before, state.ring, member=worker, k=event.k, weights=weights)
        if verdict.outcome == Outcome.WINDOW and event.version <= len(state.granted):
            raise Violation("an honest worker is refused with WINDOW")
        if verdict.outcome == Outcome.UNHELD and weights == state.ring.acknowledged[worker]:
            raise Violation("the switch rejects weights whose receipt it has")
        state, answer = state._replace(claims=verdict.claims), verdict.answer
        if verdict.outcome == Outcome.CONTROL:
            state = state._replace(versions=replace_at(state.versions, worker, event.version))
        if answer and answer.type == Type.REFUSE:
            refused = state.refused[worker] | 1 << answer.seq
            state = state._replace(refused=replace_at(state.refused, worker, refused))
        if verdict.claims.base != before.base:
            state = self._check_grant(state)
        return state, ClaimsSent(answer=answer, waits_for=verdict.waits_for)

    def _check_grant(self, state: ClaimsCore) -> ClaimsCore:
        """Check the update that was granted just now, and record it."""
        s, update, members = self.scenario, len(state.granted), state.claims.grants[-1].members
        vectors = tuple(state.claims.claimants[m].k if is_member(members, m) else 0 for m in range(s.workers))
        if members & ~state.ring.live:
            raise Violation("an update is granted to a member that left")
        for m, k in enumerate(vectors):
            if k and state.versions[m] == UNKNOWN or any(k and k == earlier[m] for earlier in state.granted):
                raise Violation("a vector is granted twice")
            if k and update - state.versions[m] > s.staleness:
                raise Violation("a vector older than S is granted")
        if members.bit_count() < golden.quorum(state.ring):
            raise Violation("an update is granted to too few members")
        self.check_forgotten(state)
        versions = tuple(UNKNOWN if k else version for k, version in zip(vectors, state.versions))
        return state._replace(granted=(*state.granted, vectors), versions=versions)

    def check_forgotten(self, state: ClaimsCore) -> None:
        """Check that each update whose grant is no longer kept is complete."""
        forgotten = max(0, len(state.granted) - self.scenario.staleness) * self.scenario.segments
        if UNKNOWN in state.results[:forgotten]:
            raise Violation("more than S + 1 updates are in flight")

    def _contribute(self, state: ClaimsCore, event: VectorContribution) -> tuple[ClaimsCore, ClaimsSent]:
        update = event.segment // self.scenario.segments
        if update >= len(state.granted) or abs(state.granted[update][event.worker]) != event.k:
            raise Violation("a vector is sent to an update that was not granted to it")
        seq = self.numbers.seq(event.segment)
        step = golden_ring.contribute(
            state.ring,
            member=event.worker,
            seq=seq,
            behind=event.segment - event.low,
            requires_all=self.scenario.requires_all,
            tainted=(event.segment, event.k) in self.scenario.tainted,
            granted=self.rules.granted_for_contribution(state.claims, seq) or 0,
        )
        return self._execute(state, step, event)

    def _execute(self, state: ClaimsCore, step: Step, event: Event) -> tuple[ClaimsCore, ClaimsSent]:
        if step.outcome == Outcome.WINDOW:
            raise Violation("an honest worker is refused with WINDOW")
        state = state._replace(ring=step.ring)
        if not step.work:
            return state, ClaimsSent(waits_for=step.waits_for)
        state, result = self._accumulate(state, step.work, event)
        sends = step.work.emit or step.work.operation == Operation.RESEND
        return state, ClaimsSent((result,) if sends else (), waits_for=step.waits_for)

    def _accumulate(self, state: ClaimsCore, work: Work, event: Event) -> tuple[ClaimsCore, tuple[int, int]]:
        """Execute an operation on the accumulators, and check a sum that leaves against the grant.

        Also return (segment, receivers) of the result.
        """
        slot, content = state.ring.slots[work.slot], state.accumulators[work.slot]
        segment, n = self.numbers.segment(slot.seq), self.scenario.workers
        if work.operation != Operation.RESEND:
            content = 0 if work.first else content
            if work.operation == Operation.CONTRIBUTE and isinstance(event, VectorContribution):
                vector = 1 << segment * n + event.worker
                if content & vector:
                    raise Violation("a worker is in a sum twice")
                content |= vector
            state = state._replace(accumulators=replace_at(state.accumulators, work.slot, content))
        result = segment, work.receivers
        if not work.emit and work.operation != Operation.RESEND:
            return state, result
        granted = state.granted[segment // self.scenario.segments]
        vectors = tuple(0 if (segment, abs(k)) in self.scenario.tainted else k for k in granted)
        if content != slot.members << segment * n or slot.state != SlotState.COMPLETE:
            raise Violation("a sum differs from its members' vectors")
        for m, k in enumerate(vectors):
            included = is_member(slot.members, m)
            if included and not k or k > 0 and not included:
                raise Violation("a sum differs from its grant")
        if state.results[segment] not in (UNKNOWN, slot.members):
            raise Violation("a result changes")
        return state._replace(results=replace_at(state.results, segment, slot.members)), result


def grants_to(state: ClaimsCore, worker: int) -> int:
    """Return how many updates were granted to a worker."""
    return sum(vectors[worker] != 0 for vectors in state.granted)

"""The claims of an asynchronous job, and its ring as the grants make it wait: every state of small jobs, and every
claim, contribution and receipt in it.

Each frame is given to the gateware with the claims' row, so the members to which its seq is granted are those that
`Claims` finds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from iswitch.config import Config
from iswitch.golden.decide import claims as golden
from iswitch.golden.decide.claims import Claims, Verdict
from iswitch.golden.interface.serial import SERIAL
from iswitch.wire import Outcome, Type
from sim.bench.compiled import Compiled
from sim.refine.case import JobState, Resets, RingCase
from sim.refine.comparison import Comparison, Numbers
from sim.refine.decider import CYCLES
from sim.refine.ring import RingRefinement
from sim.refine.rows import ClaimsColumns

__all__ = ["Claim", "ClaimsCase", "ClaimsRefinement"]


class Claim(NamedTuple):
    """A member's claim."""

    member: int
    k: int
    weights: int


@dataclass(frozen=True)
class ClaimsCase(RingCase):
    """A small asynchronous job.

    Parameters
    ----------
    updates, segments, staleness : int
        The job is explored until so many updates are granted. M and S.
    numbers : tuple of int
        The numbers k that claims may have.
    weights : tuple of int
        The weights that claims may name, relative to the first seq.
    """

    updates: int = 2
    segments: int = 1
    staleness: int = 0
    numbers: tuple[int, ...] = (0, 1, 2)
    weights: tuple[int, ...] = (0, 1, 2)

    def claims(self) -> list[Claim]:
        """Return every claim of every member."""
        return [
            Claim(member, k % SERIAL, self.seq(at))
            for member, k, at in product(range(self.members), self.numbers, self.weights)
        ]


class ClaimsComparison(Comparison):
    """The decisions about claims."""

    OF_FRAME = ("member", "k", "at")
    JOB = ("live", "joining", "threshold", "segments", "staleness")
    SAID = ("outcome", "grants", "base", "members", "receivers", "waits", "age", "behind")

    def __init__(self, part: Compiled, config: Config, claims: list[Claim]) -> None:
        row, members = ClaimsColumns(config).names, range(config.members)
        of_rows = [*(f"job_{name}" for name in self.JOB), *(f"acknowledged_{m}" for m in members)]
        super().__init__(
            part,
            of_frame=self.OF_FRAME,
            of_rows=[*of_rows, *(f"row_{name}" for name in row)],
            frames=[tuple(claim) for claim in claims],
            said=[f"claimed_{name}" for name in (*self.SAID, *(f"row_{name}" for name in row))],
            hold=CYCLES,
            at=CYCLES,
        )


class ClaimsRefinement(RingRefinement):
    """Search of one `ClaimsCase`. Claims and frames of the ring are compared."""

    case: ClaimsCase

    def __init__(self, case: ClaimsCase, part: Compiled) -> None:
        self.updates = case.segments, case.staleness
        super().__init__(case, part)
        self.claims = case.claims()
        self.claim_number = {claim: k for k, claim in enumerate(self.claims)}
        self.row = ClaimsColumns(case.config())
        self.compared_claims = ClaimsComparison(part, case.config(), self.claims)
        self.comparisons = (self.compared, self.compared_claims)

    def start(self) -> JobState:
        return super().start()._replace(claims=self.new_claims())

    def new_claims(self) -> Claims:
        c = self.case
        return golden.new_claims(c.first, segments=c.segments, staleness=c.staleness, members=c.members)

    @staticmethod
    def of(state: JobState) -> Claims:
        """Return the claims of a state."""
        assert state.claims is not None
        return state.claims

    def is_covered(self, state: JobState) -> bool:
        granted = (self.of(state).base - self.case.first) % SERIAL
        return super().is_covered(state) and granted <= self.case.updates * self.case.segments

    def events(self, state: JobState) -> Iterator[tuple]:
        yield from super().events(state)
        yield from (claim for claim in self.claims if state.ring.live >> claim.member & 1)

    def after(self, state: JobState, event: tuple) -> JobState:
        if isinstance(event, Claim):
            verdict = golden.claim(self.of(state), state.ring, **event._asdict())
            self.compare_claim(state, event, verdict)
            victim = self.victim(state, event.member, verdict.waits_for)
            state = state._replace(claims=verdict.claims, silent=state.silent & ~(1 << event.member))
            return self.settled(state if victim is None else self.without(state, victim))
        state = super().after(state, event)
        return state._replace(claims=self.new_claims()) if isinstance(event, Resets) else state

    def granted(self, state: JobState, seq: int) -> int | None:
        return golden.granted_members(self.of(state), seq)

    def without(self, state: JobState, member: int) -> JobState:
        return super().without(state, member)._replace(claims=golden.leave(self.of(state), member))

    def settled(self, state: JobState) -> JobState:
        """Return the state after the job has admitted whom it may, unless all live members are silent."""
        if not state.ring.live & ~state.silent:
            return state
        return state._replace(ring=golden.admit(self.of(state), state.ring))

    def claims_columns(self, state: JobState) -> Numbers:
        return self.row.row(self.of(state))

    def compare_claim(self, state: JobState, claim: Claim, verdict: Verdict) -> None:
        """Compare a claim's decision, and the claims' row after it."""
        ring, claims, answer = state.ring, self.of(state), verdict.answer
        row = self.row.row(claims)
        grants = answer is not None and answer.type == Type.GRANT
        after = row
        if verdict.claims != claims:
            # A new grant moves all that stand in the row, also those that the job does not keep.
            older = [row[at : at + 3] for at in range(len(row) - 3 * self.row.kept, len(row), 3)]
            kept = len(verdict.claims.grants)
            moved = verdict.claims.base != claims.base
            after = self.row.row(verdict.claims, older[kept - moved :])
        said = (
            verdict.outcome,
            *((1, answer.seq, answer.members, answer.receivers) if answer and grants else (0,) * 4),
            verdict.waits_for,
            verdict.age or 0,
            golden.members_behind(claims, ring),
            *after,
        )
        if verdict.outcome == Outcome.REFUSED:
            assert answer == (Type.REFUSE, 1 << claim.member, claim.k, claims.base)
        rows = (ring.live, ring.joining, ring.threshold, *self.updates, *ring.acknowledged, *row)
        self.compared_claims.add((state, claim), rows, self.claim_number[claim], said)

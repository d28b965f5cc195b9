"""Asynchronous jobs: the switch decides which vectors enter an update before any member sends data.

Training update u owns the M segments from its *base*, first seq + u M. A member with a vector ready sends CLAIM with a
rising number k of its own, and its *weights*: the lowest seq whose result is not in the weights that the vector was
computed with, which is the base of update v if v updates were in them. The switch grants an update to a set of members,
and from there on the update is a synchronous reduction of these members in the ring (`ring.py`).

Pure functions on small tuples, as in `ring.py`. H, the live and the joining members are the ring's. Claims add each
member's last k, whether it waits, and the last S + 1 grants. The grants serve three ends:

- **Staleness.** The age of a claim, u - v for the next update u, is the number of kept grants at or after its weights.
  It is stale if that is all S + 1 of them. No update is numbered anywhere, and nothing is divided.
- **Expectation.** A slot waits for the members of the grant that covers its seq.
- **Kept answer.** A granted claim that comes again is answered with the newest kept grant that names its member. The
  grant is kept long enough: an update whose base is dropped is complete, so each of its members contributed to it and
  knew of the grant.

That dropped updates are complete needs no bookkeeping: update u is granted to members that have applied at least
u - S updates, so the first u - S are complete. The same bounds the updates in flight to S + 1 without a rule for it. So
the switch accepts a claim only as far as its sender's receipts go: weights beyond what the sender has acknowledged are
UNHELD, and the claim comes again when the receipts have come. (A program may be wrong about its weights; its driver
knows what it holds.)

The switch decides at arrival whether a claim is stale. A waiting claim cannot become stale, because each grant covers
all waiting claims. A refused claim leaves no state; a retransmission of it is refused again.

Grants are made when a CLAIM comes and at no other time. After a departure or SET_H enough members may wait already: the
next retransmission of a waiting claim then makes the grant.
"""

from typing import NamedTuple

from iswitch.golden.decide.slot import Ring
from iswitch.golden.interface.serial import SERIAL, ahead
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import Outcome, Type

__all__ = [
    "Answer",
    "Claimant",
    "Claims",
    "Grant",
    "Verdict",
    "admit",
    "age",
    "claim",
    "grant",
    "granted_members",
    "leave",
    "members_behind",
    "new_claims",
    "quorum",
    "waiting_members",
    "with_claimant",
]


class Grant(NamedTuple):
    """The update with this base is the sum of these members' vectors, less the members that left."""

    base: int
    members: int


class Claimant(NamedTuple):
    """One member. `k`: its last claim that was not refused. `waiting`: that claim is not granted yet."""

    k: int = 0
    waiting: bool = False


class Claims(NamedTuple):
    """The claims of one asynchronous job, beside its ring.

    `base`: of the next update. `segments`: M. `staleness`: S. `grants`: the last S + 1, oldest first.
    """

    base: int
    segments: int
    staleness: int
    grants: tuple[Grant, ...]
    claimants: tuple[Claimant, ...]


class Answer(NamedTuple):
    """What is sent to the set `receivers`.

    GRANT: `seq` is the update's base, `members` are those granted. REFUSE: `seq` is the claim's k, `members` the base
    of the next update.
    """

    type: Type
    receivers: int
    seq: int
    members: int


class Verdict(NamedTuple):
    """The outcome of a CLAIM.

    CONTROL: it waits or is granted, and its `age` goes into the histogram. REFUSED: stale. DUPLICATE: a retransmission.
    STALE: a newer one came before. WINDOW: weights that do not exist. UNHELD: weights that the sender has not
    acknowledged. `waits_for`: members for which the sender waits, as in `Step`.
    """

    claims: Claims
    outcome: Outcome
    answer: Answer | None = None
    age: int | None = None
    waits_for: int = 0


def new_claims(first_seq: int, *, segments: int, staleness: int, members: int) -> Claims:
    """Return the claims of a job that starts: none granted. The first vectors are computed with weights `first_seq`."""
    return Claims(first_seq, segments, staleness, (), (Claimant(),) * members)


def age(claims: Claims, weights: int) -> int:
    """Return how many updates the next one is ahead of these weights, but at most S + 1."""
    return sum(ahead(grant.base, weights) >= 0 for grant in claims.grants)


def waiting_members(claims: Claims) -> int:
    """Return the members whose claim waits for a grant."""
    return sum(1 << m for m, claimant in enumerate(claims.claimants) if claimant.waiting)


def quorum(ring: Ring) -> int:
    """Return how many members must wait for a grant: H, or all live ones, so that departures do not stop the job."""
    return min(ring.threshold, ring.live.bit_count())


def with_claimant(claims: Claims, member: int, claimant: Claimant) -> Claims:
    """Return the claims with another row of a member."""
    return claims._replace(claimants=replace_at(claims.claimants, member, claimant))


def claim(claims: Claims, ring: Ring, *, member: int, k: int, weights: int) -> Verdict:
    """Handle a CLAIM of a live member.

    Invariant: a claim that is at most S updates old waits until enough members wait, and then all of them are granted
    the next update. Nothing is granted while a member joins, because the boundary that admits it would never come.
    """
    claimant = claims.claimants[member]
    newer = ahead(k, claimant.k)
    if newer < 0:
        return Verdict(claims, Outcome.STALE)
    if ahead(weights, claims.base) > 0:
        return Verdict(claims, Outcome.WINDOW)
    if ahead(weights, ring.acknowledged[member]) > 0:
        return Verdict(claims, Outcome.UNHELD)
    if not newer and not claimant.waiting:
        return Verdict(claims, Outcome.DUPLICATE, kept_answer(claims, member))
    updates_behind = age(claims, weights)
    if newer and updates_behind > claims.staleness:
        return Verdict(claims, Outcome.REFUSED, Answer(Type.REFUSE, 1 << member, k, claims.base))
    verdict = Verdict(claims, Outcome.DUPLICATE)
    if newer:
        verdict = Verdict(with_claimant(claims, member, Claimant(k, True)), Outcome.CONTROL, age=updates_behind)
    if ring.joining:
        return verdict._replace(waits_for=members_behind(claims, ring))
    waiting = waiting_members(verdict.claims)
    if waiting.bit_count() < quorum(ring):
        return verdict._replace(waits_for=ring.live & ~waiting)
    return grant(verdict, ring)


def kept_answer(claims: Claims, member: int) -> Answer | None:
    """Return the GRANT of a member's last granted claim, for it alone; None if its update has long been complete."""
    for kept in reversed(claims.grants):
        if kept.members >> member & 1:
            return Answer(Type.GRANT, 1 << member, kept.base, kept.members)
    return None


def grant(verdict: Verdict, ring: Ring) -> Verdict:
    """Grant the next update to all members that wait.

    Every live member receives the GRANT, because each expects the result.
    """
    claims = verdict.claims
    made = Grant(claims.base, waiting_members(claims))
    claims = claims._replace(
        base=(claims.base + claims.segments) % SERIAL,
        grants=(*claims.grants, made)[-(claims.staleness + 1) :],
        claimants=tuple(claimant._replace(waiting=False) for claimant in claims.claimants),
    )
    return verdict._replace(claims=claims, answer=Answer(Type.GRANT, ring.live, *made))


def granted_members(claims: Claims, seq: int) -> int | None:
    """Return the live members to which `seq` is granted.

    None if it is granted to no member yet, or its update is dropped and thus complete.
    """
    return next((grant.members for grant in claims.grants if 0 <= ahead(seq, grant.base) < claims.segments), None)


def leave(claims: Claims, member: int) -> Claims:
    """Remove a member: it claims nothing and is expected nowhere. The next member at its index starts with k = 1."""
    grants = tuple(grant._replace(members=grant.members & ~(1 << member)) for grant in claims.grants)
    return with_claimant(claims._replace(grants=grants), member, Claimant())


def members_behind(claims: Claims, ring: Ring) -> int:
    """Return the live members not known to hold every granted result. If there are none, this is a boundary."""
    return sum(
        1 << m for m, acknowledged in enumerate(ring.acknowledged) if ring.live >> m & 1 and acknowledged != claims.base
    )


def admit(claims: Claims, ring: Ring) -> Ring:
    """Admit the joining members at a boundary; called after each message.

    They lack nothing below `claims.base` and receive the weights of that point. Admitted earlier, with such weights
    while older updates are in flight, they could be granted more than S + 1.
    """
    if not ring.joining or members_behind(claims, ring):
        return ring
    acknowledged = tuple(claims.base if ring.joining >> m & 1 else known for m, known in enumerate(ring.acknowledged))
    return ring._replace(live=ring.live | ring.joining, joining=0, acknowledged=acknowledged)

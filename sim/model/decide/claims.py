"""Asynchronous jobs: whose vector goes into which update is decided before its first byte is sent.

Training update u owns the M segments from its *base*, first seq + u M. A member with a vector ready sends CLAIM with a
number k of its own, which rises, and its *weights*: the lowest seq whose result is not in the weights that the vector
was computed with, thus the base of update v if v updates were in them. The switch grants an update to a set of members,
and from there the update is a synchronous reduction of these members in the ring (`ring.py`).

Pure functions on small tuples, as in `ring.py`. H, who is live and who waits to join are the ring's. Claims add the
last k of each member, whether it waits, and the last S + 1 grants. These serve three ends:

- **Staleness.** The age of a claim, u - v for the next update u, is the number of kept grants at or after its weights.
It is
  too old if that is all S + 1 of them. No update is numbered anywhere, nothing is divided.
- **Expectation.** A slot waits for the members of the grant that covers its seq.
- **Kept answer.** A claim that was granted and comes again is answered with the newest kept grant that names its
member. It
  is kept long enough: an update whose base is forgotten is complete, so each of its members contributed to it and knew.

That forgotten updates are complete needs no bookkeeping: update u is granted to members that have applied at least u -
S updates, so the first u - S are complete. The same bounds the updates under way to S + 1 without a rule for it. So a
claim is believed only as far as its sender's receipts go: weights beyond what it has said it holds are UNHELD, and it
comes again when they have come. (A program may be wrong about its weights; what it holds its driver knows.)

A claim is refused when it comes or never: the next update changes only by a grant, and a grant takes all who wait. A
refused claim leaves no trace; if it comes again it is too old again.

Grants are made when a CLAIM comes and at no other time. After a departure or SET_H enough may wait already: then the
next repeat of a waiting claim makes the grant.
"""

from typing import NamedTuple

from iswitch.wire import Outcome, Type
from sim.model.decide.ring import SERIAL, Ring, forward

__all__ = [
    "Answer",
    "Claimant",
    "Claims",
    "Grant",
    "Verdict",
    "admit",
    "age",
    "behind",
    "claim",
    "granted",
    "leave",
    "new_claims",
    "quorum",
    "waiting",
]


class Grant(NamedTuple):
    """The update with this base is the sum of these members' vectors, less those who left."""

    base: int
    members: int


class Claimant(NamedTuple):
    """One member. `k`: the last claim of it that was not refused. `waiting`: that claim is not granted yet."""

    k: int = 0
    waiting: bool = False


class Claims(NamedTuple):
    """One asynchronous job, beside its ring. `base`: of the next update. `segments`: M. `staleness`: S. `grants`: the
    last S + 1, oldest first."""

    base: int
    segments: int
    staleness: int
    grants: tuple[Grant, ...]
    claimants: tuple[Claimant, ...]


class Answer(NamedTuple):
    """What is sent to the set `receivers`. GRANT: `seq` is the update's base, `members` are those granted. REFUSE:
    `seq` is the claim's k, `members` the base of the next update."""

    type: Type
    receivers: int
    seq: int
    members: int


class Verdict(NamedTuple):
    """What became of a CLAIM. CONTROL: it waits or is granted; its `age` goes into the histogram. REFUSED: too old.
    DUPLICATE: came before. STALE: a newer one came before. WINDOW: weights that do not exist. UNHELD: weights that the
    sender is not known to hold. `waits`: whom the sender waits for, as in `ring.Step`."""

    claims: Claims
    outcome: Outcome
    answer: Answer | None = None
    age: int | None = None
    waits: int = 0


def new_claims(first_seq: int, *, segments: int, staleness: int, members: int) -> Claims:
    """Nothing claimed, nothing granted; the first vectors are computed with the weights `first_seq`."""
    return Claims(first_seq, segments, staleness, (), (Claimant(),) * members)


def age(claims: Claims, weights: int) -> int:
    """u - v: how many updates the next one is ahead of these weights, but at most S + 1."""
    return sum(forward(grant.base, weights) >= 0 for grant in claims.grants)


def waiting(claims: Claims) -> int:
    return sum(1 << m for m, claimant in enumerate(claims.claimants) if claimant.waiting)


def quorum(ring: Ring) -> int:
    """How many must wait for a grant."""
    return min(ring.threshold, ring.live.bit_count())


def put(claims: Claims, member: int, claimant: Claimant) -> Claims:
    return claims._replace(claimants=claims.claimants[:member] + (claimant,) + claims.claimants[member + 1 :])


def claim(claims: Claims, ring: Ring, *, member: int, k: int, weights: int) -> Verdict:
    """A CLAIM of a live member. Nothing is granted while somebody waits to join: the boundary would never come."""
    claimant = claims.claimants[member]
    newer = forward(k, claimant.k)
    if newer < 0:
        return Verdict(claims, Outcome.STALE)
    if forward(weights, claims.base) > 0:
        return Verdict(claims, Outcome.WINDOW)
    if forward(weights, ring.acknowledged[member]) > 0:
        return Verdict(claims, Outcome.UNHELD)
    if not newer and not claimant.waiting:
        return Verdict(claims, Outcome.DUPLICATE, kept_answer(claims, member))
    old = age(claims, weights)
    if newer and old > claims.staleness:
        return Verdict(claims, Outcome.REFUSED, Answer(Type.REFUSE, 1 << member, k, claims.base))
    verdict = Verdict(claims, Outcome.DUPLICATE)
    if newer:
        verdict = Verdict(put(claims, member, Claimant(k, True)), Outcome.CONTROL, age=old)
    if ring.joining:
        return verdict._replace(waits=behind(claims, ring))
    if waiting(verdict.claims).bit_count() < quorum(ring):
        return verdict._replace(waits=ring.live & ~waiting(verdict.claims))
    return grant(verdict, ring)


def kept_answer(claims: Claims, member: int) -> Answer | None:
    """The GRANT of this member's last granted claim, for it alone; None if its update has been complete for long."""
    for grant in reversed(claims.grants):
        if grant.members >> member & 1:
            return Answer(Type.GRANT, 1 << member, grant.base, grant.members)
    return None


def grant(verdict: Verdict, ring: Ring) -> Verdict:
    """The next update goes to all who wait, and everybody hears of it."""
    claims = verdict.claims
    made = Grant(claims.base, waiting(claims))
    claims = claims._replace(
        base=(claims.base + claims.segments) % SERIAL,
        grants=(*claims.grants, made)[-(claims.staleness + 1) :],
        claimants=tuple(claimant._replace(waiting=False) for claimant in claims.claimants),
    )
    return verdict._replace(claims=claims, answer=Answer(Type.GRANT, ring.live, *made))


def granted(claims: Claims, seq: int) -> int | None:
    """The live members to whom `seq` is granted. None: to nobody yet, or its update is forgotten, thus complete."""
    return next((grant.members for grant in claims.grants if 0 <= forward(seq, grant.base) < claims.segments), None)


def leave(claims: Claims, member: int) -> Claims:
    """The member claims nothing and is expected nowhere. Whoever gets its index later begins with k = 1."""
    grants = tuple(grant._replace(members=grant.members & ~(1 << member)) for grant in claims.grants)
    return put(claims._replace(grants=grants), member, Claimant())


def behind(claims: Claims, ring: Ring) -> int:
    """The live members who are not known to hold every result that was granted. Nobody: this is a boundary."""
    return sum(
        1 << m for m, acknowledged in enumerate(ring.acknowledged) if ring.live >> m & 1 and acknowledged != claims.base
    )


def admit(claims: Claims, ring: Ring) -> Ring:
    """After each message: at a boundary those who wait to join are live. They lack nothing below `claims.base` and are
    to have the weights of there: with such weights while older updates are under way they could be granted more than S
    + 1."""
    if not ring.joining or behind(claims, ring):
        return ring
    acknowledged = tuple(claims.base if ring.joining >> m & 1 else known for m, known in enumerate(ring.acknowledged))
    return ring._replace(live=ring.live | ring.joining, joining=0, acknowledged=acknowledged)

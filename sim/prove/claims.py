"""The decision of the core about a claim: no vector is granted twice or too late, and each seq has one update."""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value, signed

import hw.decide.claims
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import Outcome
from sim.prove.harness import Harness, after
from sim.prove.proof import Proof

__all__ = ["PROOFS"]

CONFIG = Config()
LATENCY = 2
"""Cycles from the inputs to the decision."""


class Case:
    """A decision about an arbitrary claim, with an arbitrary row. `valid` is 1 once the decision is there."""

    def __init__(self, part: Any):
        self.h = h = Harness(claims := part.Claims(CONFIG))
        h.constant_inputs()
        self.claims, self.valid = claims, after(h, LATENCY)
        self.job, self.row, self.next, self.decision = claims.job, claims.row, claims.row_next, claims.decision
        h.assume(self.job.segments != 0)  # an asynchronous job
        h.assume(self.job.staleness <= CONFIG.staleness)
        self.bit = 1 << claims.member
        self.last = Mux(claims.member == 0, self.row.last[0], 0)
        for member in range(1, CONFIG.members):
            self.last = Mux(claims.member == member, self.row.last[member], self.last)
        self.ahead = self.signed("ahead", claims.k - self.last)
        self.waited = (self.row.waiting & self.bit).any()
        self.kept = [grant.valid & (self.job.staleness >= k) for k, grant in enumerate(self.row.grants)]
        self.new_grant = self.decision.write & self.decision.grants

    def signed(self, name: str, value: Any) -> Signal:
        """Return the lowest 32 bits of a value as a signed number."""
        number = Signal(signed(32), name=name)
        self.h.m.d.comb += number.eq(value)
        return number

    def require(self, condition: Any) -> None:
        """Add the property that the condition holds for each decision."""
        self.h.require(~self.valid | condition)

    def reach(self, condition: Any) -> None:
        """Add a decision that must be possible."""
        self.h.reach(self.valid & condition)


def grants_once(part: Any) -> Harness:
    """A claim that is repeated after its grant gets that grant again; a new grant takes every waiting claim with it."""
    c = Case(part)
    fresh, waits = c.ahead > 0, (c.ahead == 0) & c.waited
    c.require(~c.decision.write | fresh | waits)
    waiting = c.row.waiting | c.bit
    c.require(~c.new_grant | ((c.decision.members == waiting) & (c.next.waiting == 0)))
    c.require(~(c.decision.write & ~c.decision.grants) | (c.next.waiting == waiting))
    c.require(c.decision.write | (Value.cast(c.next) == Value.cast(c.row)))
    # What is granted anew: the update behind the last one, which no earlier grant has.
    newest = c.next.grants[0]
    granted = (newest.base == c.row.base) & (newest.members == waiting) & newest.valid
    c.require(~c.new_grant | (granted & (c.next.base == (c.row.base + c.job.segments)[:32])))
    c.require(~c.new_grant | (c.decision.base == c.row.base) & (c.decision.receivers == c.job.live))
    older = Cat(*(Value.cast(grant) for grant in list(c.row.grants)[: CONFIG.staleness]))
    c.require(~c.new_grant | (Cat(*(Value.cast(grant) for grant in list(c.next.grants)[1:])) == older))
    # What is said again: the newest kept grant of the sender, to the sender alone.
    again = c.decision.grants & ~c.decision.write
    mine = Cat(*(kept & (grant.members & c.bit).any() for kept, grant in zip(c.kept, c.row.grants, strict=True)))
    base = c.row.grants[CONFIG.staleness].base
    for k in reversed(range(CONFIG.staleness)):
        base = Mux(mine[k], c.row.grants[k].base, base)
    c.require(~again | (mine.any() & (c.decision.base == base) & (c.decision.receivers == c.bit)))
    c.reach(c.new_grant & waits)
    c.reach(c.new_grant & fresh)
    c.reach(again & ~mine[0])
    return c.h


def accepts_what_is_fresh(part: Any) -> Harness:
    """An accepted vector is at most S updates old, of weights that its sender holds, and enough claims make a grant."""
    c = Case(part)
    fresh = c.decision.write & (c.ahead > 0)
    since = [
        kept & (c.signed(f"since_{k}", grant.base - c.claims.at) >= 0)
        for k, (kept, grant) in enumerate(zip(c.kept, c.row.grants, strict=True))
    ]
    age = popcount(Cat(*since))
    c.require(~fresh | (age <= c.job.staleness))
    c.require((c.decision.outcome != Outcome.REFUSED) | (age > c.job.staleness))
    held = Signal(32)
    for member in range(CONFIG.members):
        with c.h.m.If(c.claims.member == member):
            c.h.m.d.comb += held.eq(c.claims.acknowledged[member])
    c.require(~c.decision.write | (c.signed("beyond_held", c.claims.at - held) <= 0))
    c.require(~c.decision.write | (c.signed("beyond_base", c.claims.at - c.row.base) <= 0))
    waiting = c.row.waiting | c.bit
    enough = (popcount(waiting) >= c.job.threshold) | ((c.job.live & ~waiting) == 0)
    c.require(~c.decision.write | (c.decision.grants == (enough & ~c.job.joining.any())))
    c.reach(fresh & (age == c.job.staleness) & (age != 0))
    c.reach(c.decision.outcome == Outcome.REFUSED)
    c.reach(c.new_grant & ~(popcount(waiting) >= c.job.threshold))
    return c.h


def finds_the_update(part: Any) -> Harness:
    """A seq belongs to the newest kept grant whose M segments contain it, and to none otherwise."""
    c = Case(part)
    owns = Cat(
        *(
            kept & ((c.claims.at - grant.base)[:32] < c.job.segments)
            for kept, grant in zip(c.kept, c.row.grants, strict=True)
        )
    )
    members: Any = 0
    for k in reversed(range(CONFIG.staleness + 1)):
        members = Mux(owns[k], c.row.grants[k].members, members)
    c.require((c.claims.covered == owns.any()) & (c.claims.granted == members))
    c.reach(owns[CONFIG.staleness] & ~owns[:-1].any())
    return c.h


PROOFS = [
    Proof(law=law, part=hw.decide.claims, harness=harness, depth=LATENCY + 2, covers_all=True, mutants=mutants)
    for law, harness, mutants in (
        (
            "a claim is granted once, with all that wait, and the update of a grant is granted to no later claim",
            grants_once,
            (
                ("with m.Elif(repeats & ~waited):", "with m.Elif(0):"),
                ("next_row.waiting.eq(0)", "next_row.waiting.eq(bit)"),
                ("next_row.base.eq(row.base + job.segments)", "next_row.base.eq(row.base)"),
                ("older.eq(ahead < 0)", "older.eq(0)"),
            ),
        ),
        (
            "an accepted vector is at most S updates old, and of weights that its sender holds",
            accepts_what_is_fresh,
            (
                ("old.eq(age > job.staleness)", "old.eq(age > job.staleness + 1)"),
                ("at_or_after.append(valid[k] & (distance >= 0))", "at_or_after.append(valid[k] & (distance > 0))"),
                ("unheld.eq(beyond_acknowledged > 0)", "unheld.eq(0)"),
                ("| ~(job.live & ~waiting).any()", ""),
            ),
        ),
        (
            "a seq belongs to the newest kept grant with it among its segments, and else to no update",
            finds_the_update,
            (
                ("past_base < job.segments", "past_base <= job.segments"),
                ("for k in reversed(range(len(kept))):", "for k in range(len(kept)):"),
                ("valid.append(grant.valid & (job.staleness >= k))", "valid.append(grant.valid)"),
            ),
        ),
    )
]

"""The rules of claims; golden model: `host/iswitch/golden/decide/claims.py`."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.rows import SEQ_BITS, claims_row, job_row
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import STALENESS_MAX, Outcome

__all__ = ["ClaimDecision", "Claims"]


class ClaimDecision(data.StructLayout):
    """The outcome of a claim, and what the switch does with it.

    `grants`: a GRANT of `base` to `members` goes to `receivers`. `write`: the job's claims change. `waits`: the members
    for which the claimant waits.
    """

    def __init__(self, config: Config):
        members = config.members
        super().__init__(
            {
                "outcome": Outcome,
                "write": 1,
                "grants": 1,
                "base": SEQ_BITS,
                "members": members,
                "receivers": members,
                "waits": members,
            }
        )


class Claims(wiring.Component):
    """Decides one CLAIM. For a contribution or a receipt, looks up the members to which its seq is granted.

    Because a job keeps S + 1 grants, this takes three steps: differences of serial numbers, their consequences, the
    decision. The first two end in registers, the third is combinational. Latency 2 cycles; hold the inputs for three.
    One frame in 3 cycles, without stalls.

    `at` is the seq of a claim's weights, or the seq to look up; `k` is the claim's number. `covered`: `at` belongs to a
    kept grant, whose members are `granted`. `behind`: live members that have not acknowledged every granted result.
    `row_next` is the claims row after `decision`. `age` is the age of the claim's weights in updates. The component is
    empty if `config.staleness` is 0. Source: `host/iswitch/golden/decide/claims.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "at": In(SEQ_BITS),
                "k": In(SEQ_BITS),
                "member": In(range(config.members)),
                "job": In(job_row(config)),
                "row": In(claims_row(config)),
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "covered": Out(1),
                "granted": Out(config.members),
                "behind": Out(config.members),
                "decision": Out(ClaimDecision(config)),
                "age": Out(range(STALENESS_MAX + 1)),
                "row_next": Out(claims_row(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if not self.config.staleness:
            return m
        job, row, kept = self.job, self.row, self.row.grants
        decision = self.decision
        bit = Signal(self.config.members)
        m.d.comb += bit.eq(1 << self.member)
        waiting, holding_grants = Signal(self.config.members), []

        # Serial distances, modulo 2^32 and signed (RFC 1982), and the members to which they apply.
        ahead, beyond, beyond_acknowledged = Signal(signed(32)), Signal(signed(32)), Signal(signed(32))
        m.d.comb += [
            ahead.eq(self.k - Array(row.last)[self.member]),
            beyond.eq(self.at - row.base),
            beyond_acknowledged.eq(self.at - Array(self.acknowledged)[self.member]),
        ]
        older, repeats, future, unheld = Signal(), Signal(), Signal(), Signal()
        at_or_after, owns, valid, lacks = [], [], [], []
        for k, grant in enumerate(kept):
            distance, past_base = Signal(signed(32), name=f"distance_{k}"), Signal(SEQ_BITS, name=f"past_base_{k}")
            m.d.comb += [distance.eq(grant.base - self.at), past_base.eq(self.at - grant.base)]
            valid.append(grant.valid & (job.staleness >= k))
            at_or_after.append(valid[k] & (distance >= 0))
            # A grant owns the seqs 0 to M - 1 ahead of its base.
            owns.append(valid[k] & (past_base < job.segments))
            holding_grants.append(valid[k] & (grant.members & bit).any())
        for k in range(self.config.members):
            lacks.append(job.live[k] & (self.acknowledged[k] != row.base))
        after, owners, holding = Signal(len(kept)), Signal(len(kept)), Signal(len(kept))
        m.d.sync += [
            older.eq(ahead < 0),
            repeats.eq(ahead == 0),
            future.eq(beyond > 0),
            unheld.eq(beyond_acknowledged > 0),
            after.eq(Cat(*at_or_after)),
            owners.eq(Cat(*owns)),
            self.behind.eq(Cat(*lacks)),
            holding.eq(Cat(*holding_grants)),
            waiting.eq(row.waiting | bit),
        ]

        # Consequences: age, the newest kept grant of the sender, and whether enough members wait.
        enough, old = Signal(), Signal()
        age, granted, mine, own = (
            Signal(range(len(kept) + 1)),
            Signal(self.config.members),
            Signal(),
            Signal.like(kept[0]),
        )
        for k in reversed(range(len(kept))):
            with m.If(owners[k]):
                m.d.comb += granted.eq(kept[k].members)
            with m.If(holding[k]):
                m.d.comb += [mine.eq(1), own.eq(kept[k])]
        kept_own, kept_mine, waited, any_joining, late = (
            Signal.like(own),
            Signal(),
            Signal(),
            Signal(),
            Signal.like(waiting),
        )
        m.d.comb += age.eq(popcount(after))
        m.d.sync += [
            self.age.eq(age),
            old.eq(age > job.staleness),
            self.covered.eq(owners.any()),
            self.granted.eq(granted),
            kept_mine.eq(mine),
            kept_own.eq(own),
            waited.eq((row.waiting & bit).any()),
            any_joining.eq(job.joining.any()),
            late.eq(job.live & ~waiting),
            enough.eq((popcount(waiting) >= job.threshold) | ~(job.live & ~waiting).any()),
        ]

        next_row = self.row_next
        m.d.comb += [
            next_row.eq(row),
            decision.base.eq(row.base),
            decision.members.eq(waiting),
            decision.receivers.eq(job.live),
        ]
        with m.If(older):
            m.d.comb += decision.outcome.eq(Outcome.STALE)
        with m.Elif(future):
            m.d.comb += decision.outcome.eq(Outcome.WINDOW)
        with m.Elif(unheld):
            m.d.comb += decision.outcome.eq(Outcome.UNHELD)
        with m.Elif(repeats & ~waited):
            m.d.comb += [
                decision.outcome.eq(Outcome.DUPLICATE),
                decision.grants.eq(kept_mine),
                decision.base.eq(kept_own.base),
                decision.members.eq(kept_own.members),
                decision.receivers.eq(bit),
            ]
        with m.Elif(~repeats & old):
            m.d.comb += decision.outcome.eq(Outcome.REFUSED)
        with m.Else():
            m.d.comb += [
                decision.outcome.eq(Mux(repeats, Outcome.DUPLICATE, Outcome.CONTROL)),
                decision.write.eq(1),
                next_row.waiting.eq(waiting),
            ]
            for k in range(self.config.members):
                with m.If(bit[k]):
                    m.d.comb += next_row.last[k].eq(self.k)
            with m.If(any_joining):
                m.d.comb += decision.waits.eq(self.behind)
            with m.Elif(~enough):
                m.d.comb += decision.waits.eq(late)
            with m.Else():
                m.d.comb += [
                    decision.grants.eq(1),
                    next_row.waiting.eq(0),
                    next_row.base.eq(row.base + job.segments),
                    next_row.grants[0].valid.eq(1),
                    next_row.grants[0].base.eq(row.base),
                    next_row.grants[0].members.eq(waiting),
                ]
                for k in range(1, len(kept)):
                    m.d.comb += next_row.grants[k].eq(kept[k - 1])
        return m

"""Which entry a Join gets: its own, the one that it wants, or the lowest."""

from amaranth.hdl import Cat, Mux, Signal

from hw.decide.membership.context import Context
from hw.decide.membership.settings import agreement, limits, limits_in_tree
from hw.decide.rules.first_failing import first_failing
from hw.stream.reduction import lowest_set
from iswitch.wire import NO_MEMBER, JobState, Reason

__all__ = ["search"]


def search(m, c: Context):
    """From JOIN on: the first thing wrong with the settings refuses the Join, one cycle an entry; else `c.index` is the
    entry, in AGAIN if it is the sender's own, which has joined before, and in CREATE if it is free or yields.

    While a job forms those who are silent yield, and at all times those who have not confirmed. In a tree a rank
    belongs to one member, whatever its index: who wants a rank of an entry that yields has that cleared (OTHER, YIELD),
    and all are looked through again.
    """
    config, frame, asked, t, job, row = c.config, c.frame, c.asked, c.tables, c.job, c.row
    uplinks, index, step, confirms = config.uplinks, c.index, c.step, c.confirms
    own_found, own, other_found, other = Signal(), Signal.like(index), Signal(), Signal.like(index)
    free, yielding, held = (Signal(config.members, name=name) for name in ("free", "yielding", "held"))
    wanted, mine, below = (Signal(bits, name=name) for name, bits in (("wanted", 8), ("mine", 32), ("below", 32)))
    shared, strange, previous = Signal(), Signal(), Signal.like(index)
    everybody = (1 << asked.world[:6]) - 1
    m.d.sync += [
        previous.eq(index),
        strange.eq((mine & ~below).any()),
        below.eq(Mux(c.leaf, c.ports.parent.ranks, everybody) if uplinks else everybody),
    ]

    rules = (limits_in_tree(c) if uplinks else []) + limits(c) + agreement(c)
    holds = Signal(len(rules))
    with m.State("JOIN"):
        m.d.sync += [
            holds.eq(Cat(good for good, _ in rules)),
            own_found.eq(0),
            free.eq(0),
            yielding.eq(0),
            index.eq(0),
            held.eq(0),
            shared.eq(0),
            other_found.eq(0),
            wanted.eq(frame.member),
            mine.eq(Mux(frame.member[5:] == 0, 1 << frame.member[:5], 0)),
        ]
        if uplinks:
            with m.If(frame.members.any()):
                m.d.sync += [wanted.eq(lowest_set(frame.members)), mine.eq(frame.members)]
        m.next = "JUDGE"
    with m.State("JUDGE"):
        fails, why = first_failing(zip(holds, (name for _, name in rules), strict=True))
        m.d.sync += c.reason.eq(Mux(fails, why, Reason.DONE))
        m.next = "SCAN"
    with m.State("SCAN"):
        # The row of `previous` is here while `index` already points at the next.
        m.d.sync += [index.eq(index + 1), step.eq(step + 1)]
        with m.If(step != 0):
            taken = row.pending | row.live
            # In a job that runs the silent are evicted when they are waited for.
            yields = row.pending | (row.live & (job.state == JobState.FORMING) & c.ports.silent.bit_select(previous, 1))
            with m.If(taken & (row.nonce == asked.nonce) & c.same & ~own_found):
                m.d.sync += [own_found.eq(1), own.eq(previous)]
            with m.If(previous < asked.world):
                m.d.sync += [
                    free.bit_select(previous, 1).eq(~taken & below.bit_select(previous, 1)),
                    yielding.bit_select(previous, 1).eq(yields),
                ]
            if uplinks:
                with m.If(taken):
                    m.d.sync += held.eq(held | row.ranks)
                    with m.If((row.ranks & mine).any() & (previous != wanted)):
                        m.d.sync += [shared.eq(shared | ~yields), other_found.eq(1), other.eq(previous)]
        with m.If(c.reason != Reason.DONE):
            m.next = "SETTLE"
        with m.Elif(step == config.members):
            m.d.sync += step.eq(0)
            m.next = "CHOOSE"
    with m.State("CHOOSE"):
        empty = free & ~held
        with m.If(own_found):
            m.d.sync += index.eq(own)
            m.next = "AGAIN"
        with m.Elif(confirms):
            # The confirmation of an entry that is gone, perhaps with its job: late, and nobody's first Join.
            c.refuse(m, Reason.TOKEN)
        with m.Elif(c.shut | shared | strange):
            c.refuse(m, Reason.MEMBER)
        with m.Elif(wanted != NO_MEMBER):
            m.d.sync += index.eq(Mux(other_found, other, wanted))
            m.next = "CREATE"
            with m.If((wanted >= config.members) | ~(free | yielding).bit_select(wanted, 1)):
                c.refuse(m, Reason.MEMBER)
            if uplinks:
                with m.Elif(other_found):
                    m.next = "OTHER"
        with m.Else():
            m.d.sync += index.eq(Mux(empty.any(), lowest_set(empty), lowest_set(yielding)))
            m.next = "CREATE"
            with m.If(~(empty | yielding).any()):
                c.refuse(m, Reason.MEMBER)
    if uplinks:
        with m.State("OTHER"):
            m.next = "YIELD"
        with m.State("YIELD"):
            m.d.comb += [
                t.member_write.eq(1),
                t.member_next.pending.eq(0),
                t.member_next.live.eq(0),
                t.job_write.eq(1),
                t.job_next.live.eq(job.live & ~c.bit),
                t.job_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0)),
            ]
            m.next = "JOIN"

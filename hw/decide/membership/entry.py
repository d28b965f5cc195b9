"""A Join that has an entry: the job is founded, the entry written; told again, and confirmed."""

from amaranth.hdl import Mux, Signal

from hw.decide.membership.context import Context
from hw.interface.address import SWITCH_UDP
from hw.stream.reduction import popcount
from iswitch.wire import NO_MEMBER, JobState, Reason

__all__ = ["enter"]

REJECT_BASE = 58 + 127
"""window64 takes |x| < 2^(58 - F): 64 bits less the sign and 5 for the sum of 32 workers, as a biased exponent."""


def enter(m, c: Context):
    """From CREATE on: who is at `c.index` becomes pending, with a token, in a job that is founded unless it exists (its
    ring is emptied by CLEAR, which leads back to TOKEN). From AGAIN on: whose entry it is already is told its token
    again, and becomes live, or joining, if it knows it. A founder at a leaf makes the switch a member of its parent's
    job: a nonce is drawn for it."""
    _note_settings(m, c)
    _create(m, c)
    _confirm(m, c)


def _note_settings(m, c: Context):
    """What a founder and a newcomer say; it is written with `settings_write` and `sender_write` alone."""
    frame, asked, founded, entered = c.frame, c.asked, c.tables.job_next, c.tables.member_next
    limit = REJECT_BASE - asked.fraction
    m.d.comb += [
        founded.world.eq(asked.world),
        founded.numeric.eq(asked["format"]),
        founded.fraction.eq(asked.fraction),
        founded.limit.eq(Mux(limit > 255, 255, limit)),
        founded.elements.eq(asked.elements),
        founded.mode.eq(asked.mode),
        founded.key.eq(asked.key),
        founded.deadline_us.eq(asked.deadline_us),
        founded.evict_us.eq(asked.evict_us),
        founded.staleness.eq(asked.staleness),
        founded.segments.eq(asked.segments),
        entered.nonce.eq(asked.nonce),
        entered.port.eq(c.ports.headers.arrival.port),
        entered.address.mac.eq(frame.eth_src),
        entered.address.ip.eq(frame.ip_src),
        entered.address.udp.eq(frame.udp_src),
    ]


def _create(m, c: Context):
    config, ports, frame, t, job, row = c.config, c.ports, c.frame, c.tables, c.job, c.row
    uplinks, founds, random = config.uplinks, Signal(), ports.random
    ranks = Signal(32)
    m.d.comb += ranks.eq(Mux(frame.members == 0, c.bit, frame.members))
    with m.State("CREATE"):
        m.d.sync += founds.eq(0)
        with m.If(c.exists):
            m.next = "TOKEN"
        with m.Else():
            made = t.job_next
            m.d.comb += [
                ports.draw.eq(1),
                t.job_write.eq(1),
                t.settings_write.eq(1),
                made.state.eq(JobState.FORMING),
                made.epoch.eq(random[:16]),
                made.first_seq.eq(random[32:] & (2**32 - config.slots)),
                made.threshold.eq(c.asked.threshold),
                made.live.eq(0),
            ]
            if uplinks:
                m.d.comb += [
                    made.tree.eq(0),
                    made.ranks.eq(0),
                    made.up_member.eq(NO_MEMBER),
                    made.up_token.eq(0),
                    made.up_running.eq(0),
                    made.up_reason.eq(Reason.DONE),
                ]
                m.d.sync += founds.eq(c.leaf)
            m.next = "CREATED"
    with m.State("CREATED"):
        m.next = "WRITTEN"
    with m.State("WRITTEN"):
        m.next = "CLEAR"
    with m.State("TOKEN"):
        entry = t.member_next
        m.d.comb += [
            ports.draw.eq(1),
            t.member_write.eq(1),
            t.sender_write.eq(1),
            entry.pending.eq(1),
            entry.live.eq(0),
            entry.token.eq(random[32:] | 1),
            entry.number.eq(0),
            ports.binding.valid.eq(1),
            t.heard_write.eq(c.bit),
            t.job_write.eq(1),
            t.job_next.live.eq(job.live & ~c.bit),
        ]
        m.d.sync += [ports.member.eq(c.index), ports.token.eq(random[32:] | 1)]
        m.next = "SETTLE"
        if uplinks:
            m.d.comb += [
                entry.ranks.eq(ranks),
                t.job_next.tree.eq(job.tree | (frame.members != 0)),
                t.job_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0)),
            ]
            with m.If(founds):
                m.next = "FOUNDED"
    if uplinks:
        with m.State("FOUNDED"):
            m.next = "STORED"
        with m.State("STORED"):
            m.next = "NONCE"
        with m.State("NONCE"):
            # The parent is bound as members are, and told apart by the index behind theirs.
            bound, parent = ports.binding.payload, ports.parent
            m.d.comb += [
                ports.draw.eq(1),
                t.job_write.eq(1),
                t.job_next.up_nonce.eq(random),
                ports.binding.valid.eq(1),
                bound.member.eq(config.members),
                bound.port.eq(parent.port),
                bound.address.mac.eq(parent.mac),
                bound.address.ip.eq(parent.ip),
                bound.address.udp.eq(SWITCH_UDP),
            ]
            m.next = "SETTLE"


def _confirm(m, c: Context):
    ports, frame, t, job, row = c.ports, c.frame, c.tables, c.job, c.row
    # What the rows are compared with, a cycle later.
    other_token, there, live = Signal(), Signal(), Signal.like(c.bit)
    m.d.comb += live.eq(job.live | c.bit)
    m.d.sync += [other_token.eq(c.confirms & (frame.token != row.token)), there.eq(popcount(live) == job.world)]
    if c.config.uplinks:
        m.d.sync += there.eq(~c.leaf & (popcount(job.ranks | row.ranks) == job.world))
    with m.State("AGAIN"):
        m.next = "FETCHED"
    with m.State("FETCHED"):
        m.next = "CONFIRM"
    with m.State("CONFIRM"):
        with m.If(other_token):
            c.refuse(m, Reason.TOKEN)
        with m.Elif(c.shut & c.confirms & row.pending):
            c.refuse(m, Reason.MEMBER)
        with m.Else():
            m.d.sync += [ports.member.eq(c.index), ports.token.eq(row.token)]
            m.d.comb += t.heard_write.eq(c.bit)
            m.next = "SETTLE"
            with m.If(c.confirms & row.pending):
                m.d.comb += [
                    t.member_write.eq(1),
                    t.member_next.pending.eq(0),
                    t.member_next.live.eq(1),
                    t.job_write.eq(1),
                ]
                with m.If(job.state == JobState.FORMING):
                    m.d.comb += [
                        t.job_next.live.eq(live),
                        t.job_next.state.eq(Mux(there, JobState.RUNNING, JobState.FORMING)),
                    ]
                    if c.config.uplinks:
                        m.d.comb += t.job_next.ranks.eq(job.ranks | row.ranks)
                with m.Else():
                    m.d.comb += t.job_next.joining.eq(job.joining | c.bit)

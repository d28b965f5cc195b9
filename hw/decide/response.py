"""What goes out beside sums: acknowledgements, notices and refusals to whom the frame is from, and what a leaf says to
its parent."""

from amaranth.hdl import Mux, Signal

from hw.decide.case import Case
from hw.interface.address import SWITCH_UDP
from hw.interface.layout import layout
from iswitch.wire import CONTROL, FLAGS_SHIFT, Action, ContributionFlag, JobState, Outcome, Reason, Type, version_type

__all__ = ["NOTICES", "respond", "respond_above"]

NOTICES = {
    Outcome.JOB: Reason.JOB,
    Outcome.EPOCH: Reason.EPOCH,
    Outcome.MEMBER: Reason.MEMBER,
    Outcome.TOKEN: Reason.TOKEN,
    Outcome.HALTED: Reason.HALTED,
}


def respond(m, case: Case, reply, outcome, *, control):
    """Makes the `reply`: an ACK if the frame is a `control` message, else a notice of the `outcome`."""
    held, frame, job, membership = case.held, case.frame, case.rows.job_row, case.membership
    exists = (frame.job < case.config.jobs) & (job.state != JobState.NONE)
    m.d.comb += [
        reply.port.eq(held.arrival.port),
        reply.address.mac.eq(frame.eth_src),
        reply.address.ip.eq(frame.ip_src),
        reply.address.udp.eq(frame.udp_src),
        reply.acknowledges.eq(control),
        reply.header.version_type.eq(Mux(control, version_type(Type.ACK), version_type(Type.NOTICE))),
        reply.header.job.eq(frame.job),
        reply.header.seq.eq(frame.seq),
        reply.body.eq(membership.body),
        reply.header.epoch.eq(Mux(exists, job.epoch, 0)),
        reply.header.member.eq(Mux(control, membership.member, frame.member)),
        reply.header.token.eq(Mux(control, membership.token, frame.token)),
    ]
    with m.If(~control):
        for name, reason in NOTICES.items():
            with m.If(outcome == name):
                m.d.comb += reply.header.count.eq(reason)


def respond_above(m, case: Case, reply, *, asks, reports):
    """Makes it one to the parent instead, if the switch `asks` (a Join, or a Leave) or `reports` (a receipt)."""
    job, parent, membership, report = case.rows.job_row, case.parent, case.membership, case.decision.report
    asked = Signal(layout(CONTROL))
    m.d.comb += [
        asked.action.eq(Mux(membership.asks_leave, Action.LEAVE, Action.JOIN)),
        asked["format"].eq(job.numeric),
        asked.fraction.eq(job.fraction),
        asked.world.eq(job.world),
        asked.threshold.eq(job.threshold),
        asked.elements.eq(job.elements),
        asked.mode.eq(job.mode),
        asked.deadline_us.eq(job.deadline_us),
        asked.evict_us.eq(job.evict_us),
        asked.key.eq(job.key),
        asked.nonce.eq(job.up_nonce),
    ]
    with m.If(asks | reports):
        m.d.comb += [
            reply.port.eq(parent.port),
            reply.address.mac.eq(parent.mac),
            reply.address.ip.eq(parent.ip),
            reply.address.udp.eq(SWITCH_UDP),
            reply.acknowledges.eq(asks),
            reply.receipt.eq(reports),
            reply.body.as_value().eq(asked.as_value()),
            reply.header.count.eq(0),
            reply.header.version_type.eq(version_type(Mux(asks, Type.CONTROL, Type.RECEIPT))),
            reply.header.epoch.eq(Mux(asks, 0, job.epoch)),
            reply.header.seq.eq(Mux(asks, membership.asks_leave, report.seq)),
            reply.header.member.eq(job.up_member),
            reply.header.token.eq(job.up_token),
            reply.header.members.eq(Mux(asks, parent.ranks, 0)),
        ]
    with m.If(reports):
        m.d.comb += [
            reply.header.behind.eq(report.behind),
            reply.header.format_flags.eq(Mux(report.want, ContributionFlag.WANT << FLAGS_SHIFT, 0)),
        ]

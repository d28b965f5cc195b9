"""Replies of the core: acknowledgements, notices and refusals to the sender, requests and receipts to the parent."""

from amaranth.hdl import Mux, Signal

from hw.decide.held_frame import HeldFrame
from hw.interface.address import SWITCH_UDP
from hw.interface.layout import layout
from hw.stream.reduction import reaches
from iswitch.wire import CONTROL, FLAGS_SHIFT, Action, ContributionFlag, JobState, Outcome, Reason, Type, version_type

__all__ = ["NOTICES", "build_parent_request", "build_refusal", "build_reply"]

NOTICES = {
    Outcome.JOB: Reason.JOB,
    Outcome.EPOCH: Reason.EPOCH,
    Outcome.MEMBER: Reason.MEMBER,
    Outcome.TOKEN: Reason.TOKEN,
    Outcome.PORT: Reason.PORT,
    Outcome.ADDRESS: Reason.ADDRESS,
    Outcome.HALTED: Reason.HALTED,
}
"""The reasons of the notices that answer frames which fail a check."""


def build_reply(m, held: HeldFrame, reply, outcome, *, rows, membership, control, conflicts):
    """Fill in `reply`: the acknowledgement of a `control` message, or else a notice of the `outcome`.

    `conflicts`: the notice is about another collective than the frame's.
    """
    frame, job = held.frame, rows.job_row
    exists = ~reaches(frame.job, held.config.jobs) & (job.state != JobState.NONE)
    m.d.comb += [
        reply.port.eq(held.headers.arrival.port),
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
        reply.header.token.eq(frame.token),
    ]
    with m.If(conflicts):
        refused = held.decision.outcome == Outcome.COLLECTIVE
        m.d.comb += [
            reply.header.count.eq(Reason.COLLECTIVE),
            reply.header.members.eq(Mux(refused, rows.slot_row.collective, rows.slot_row.rival)),
        ]
    with m.Elif(~control):
        for name, reason in NOTICES.items():
            with m.If(outcome == name):
                m.d.comb += reply.header.count.eq(reason)


def build_parent_request(m, held: HeldFrame, reply, *, job, operator_key, leaves, requests_parent, reports):
    """Address the reply to the parent, if `requests_parent` or `reports` is 1.

    `requests_parent`: the reply is a Leave if the switch `leaves`, otherwise a Join, with the switch's `operator_key`.
    No other frame has that key. `reports`: the reply is a receipt.
    """
    parent, report = held.parent, held.decision.report
    request_body = Signal(layout(CONTROL))
    m.d.comb += [
        request_body.action.eq(Mux(leaves, Action.LEAVE, Action.JOIN)),
        request_body["format"].eq(job.numeric),
        request_body.fraction.eq(job.fraction),
        request_body.world.eq(job.world),
        request_body.threshold.eq(job.threshold),
        request_body.elements.eq(job.elements),
        request_body.mode.eq(job.mode),
        request_body.deadline_us.eq(job.deadline_us),
        request_body.evict_us.eq(job.evict_us),
        request_body.key.eq(job.key),
        request_body.nonce.eq(job.up_nonce),
        request_body.job_token.eq(job.job_token),
        request_body.challenge.eq(job.up_challenge if held.config.uplinks else 0),
        request_body.operator_key.eq(Mux(leaves, 0, operator_key)),
    ]
    with m.If(requests_parent | reports):
        m.d.comb += [
            reply.port.eq(parent.port),
            reply.address.mac.eq(parent.mac),
            reply.address.ip.eq(parent.ip),
            reply.address.udp.eq(SWITCH_UDP),
            reply.acknowledges.eq(requests_parent),
            reply.receipt.eq(reports),
            reply.body.as_value().eq(request_body.as_value()),
            reply.header.count.eq(0),
            reply.header.version_type.eq(version_type(Mux(requests_parent, Type.CONTROL, Type.RECEIPT))),
            reply.header.epoch.eq(Mux(requests_parent, 0, job.epoch)),
            reply.header.seq.eq(Mux(requests_parent, leaves, report.seq)),
            reply.header.member.eq(job.up_member),
            reply.header.token.eq(job.up_token),
            reply.header.members.eq(Mux(requests_parent, parent.ranks, 0)),
        ]
    with m.If(reports):
        m.d.comb += [
            reply.header.behind.eq(report.behind),
            reply.header.format_flags.eq(Mux(report.want, ContributionFlag.WANT << FLAGS_SHIFT, 0)),
        ]


def build_refusal(m, reply, base):
    """Make the reply the REFUSE of a claim, with the base of the next update."""
    m.d.comb += [reply.header.version_type.eq(version_type(Type.REFUSE)), reply.header.members.eq(base)]

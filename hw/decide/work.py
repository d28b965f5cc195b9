"""The operation that a decision gives the aggregator to do."""

from amaranth.hdl import Mux, Signal

from hw.decide.held_frame import HeldFrame
from hw.interface.rows import slot_row
from hw.interface.verdict import Work
from hw.numeric.formats import has_wide_uplink, uplink_format
from iswitch.wire import ContributionFlag, Operation, ResultFlag, SlotState, result_identity

__all__ = ["build_work"]


def build_work(m, held: HeldFrame, *, rows, membership, admitted, lowest) -> Signal:
    """Return the operation for the aggregator, combinationally.

    Its slot is the next row from the ring, or the present row if that only is sent again, or the slot that
    `membership` completes without a frame. The members `admitted` receive the result, too. `lowest` is the lowest seq
    whose result a member lacks. A claim's operation is a GRANT.
    """
    work = Signal(Work(held.config))
    _build_sum(m, held, work, rows, membership, admitted, lowest)
    if held.config.staleness:
        with m.If(held.kind.claim & ~membership.completed.valid):
            _build_grant(m, held, work)
    return work


def _build_sum(m, held: HeldFrame, work, rows, membership, admitted, lowest):
    config, kind, frame, decision = held.config, held.kind, held.frame, held.decision
    job, uplinks, forces, leaf = held.job_row, config.uplinks, membership.completed.valid, held.decided.is_leaf
    slot = Signal(slot_row(config))
    completed = membership.completed.payload
    is_retransmission = ~forces & (decision.operation == Operation.SEND_UP)
    # The tables point at a slot that membership completes, and a few fields of its row change.
    m.d.comb += slot.eq(Mux(forces | held.keeps_slot, rows.slot_row.as_value(), decision.slot_next.as_value()))
    with m.If(forces):
        m.d.comb += [slot[name].eq(completed[name]) for name in ("state", "expected", "members_changed")]
    lacks = (slot.expected & ~slot.members).any()
    partial = slot.partial | lacks & ~(leaf & (slot.state == SlotState.COMPLETE)) if uplinks else lacks
    flags = (
        Mux(partial, ResultFlag.PARTIAL, 0)
        | Mux(decision.resend & ~forces, ResultFlag.RESENT, 0)
        | Mux(slot.tainted.any(), ResultFlag.TAINTED, 0)
        | Mux(slot.members_changed, ResultFlag.MEMBERS_CHANGED, 0)
    )
    first = Mux(forces, slot.members == 0, decision.first)
    operation = Mux(forces, Operation.FORCE, decision.operation)
    m.d.comb += [
        work.operation.eq(operation),
        work.slot.eq(Mux(forces, membership.tables.slot, held.decided.slot)),
        work.first.eq(first & (operation != Operation.RESEND) & (operation != Operation.SEND_UP)),
        work.include.eq((operation == Operation.CONTRIBUTE) | (operation == Operation.INSTALL_DOWN)),
        work.write.eq(work.include | ((operation == Operation.FORCE) & first)),
        work.emit.eq((operation != Operation.CONTRIBUTE) | decision.emit),
        work.fraction.eq(job.fraction),
        work.limit.eq(job.limit),
        work.result.job.eq(held.decided.job),
        work.result.epoch.eq(job.epoch),
        work.result.token.eq(job.job_token),
        work.result.seq.eq(slot.seq),
        work.result.numeric.eq(slot.numeric),
        work.result.flags.eq(flags),
        work.result.members.eq(slot.ranks if uplinks else slot.members),
        work.result.tainted.eq(slot.tainted),
        work.result.length.eq(slot.length),
        work.result.identity.eq(result_identity(slot.collective, slot.digest)),
        work.result.recipients.eq(
            Mux(operation == Operation.RESEND, 1 << frame.member, job.live | Mux(forces, membership.admitted, admitted))
        ),
    ]
    if uplinks:
        adds = ~forces & (operation == Operation.CONTRIBUTE)
        installs = ~forces & (operation == Operation.INSTALL_DOWN)
        up = Mux(forces, leaf, decision.up)
        m.d.comb += [
            work.wide.eq(adds & kind.uplink & has_wide_uplink(slot.numeric, half_width=config.half_width)),
            work.tailed.eq(adds & kind.uplink | installs),
            work.as_is.eq(leaf & (installs | (operation == Operation.RESEND))),
            work.result.up.eq(up),
            work.result.member.eq(job.up_member),
            work.result.collective.eq(slot.collective),
            work.result.partial.eq(partial),
        ]
        with m.If(up):
            m.d.comb += [
                work.result.token.eq(job.up_token),
                work.result.behind.eq(slot.seq - lowest),
                work.result.flags.eq(
                    Mux(is_retransmission, ContributionFlag.RETRANSMISSION, 0)
                    | Mux(slot.boundary, ContributionFlag.BOUNDARY, 0)
                    | Mux(slot.requires_all, ContributionFlag.REQUIRES_ALL, 0)
                ),
                work.result.numeric.eq(uplink_format(slot.numeric, half_width=config.half_width)),
                work.result.identity.eq(slot.digest),
                work.result.recipients.eq(1 << config.members),
            ]


def _build_grant(m, held: HeldFrame, work):
    """Make the GRANT: a result without elements, so that it keeps its place in the order of results."""
    claim, job = held.claim, held.job_row
    m.d.comb += [
        work.operation.eq(Operation.GRANT),
        work.first.eq(0),
        work.include.eq(0),
        work.write.eq(0),
        work.emit.eq(1),
        work.result.eq(0),
        work.result.job.eq(held.decided.job),
        work.result.epoch.eq(job.epoch),
        work.result.token.eq(job.job_token),
        work.result.seq.eq(claim.base),
        work.result.members.eq(claim.members),
        work.result.recipients.eq(claim.receivers),
    ]

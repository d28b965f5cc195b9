"""Slots that complete without a frame: when a member departs, and at an FBCAST."""

from amaranth.hdl import Mux, Signal

from hw.decide.membership.context import Context
from hw.decide.rules.completion import has_enough, is_complete
from hw.interface.rows import slot_row
from hw.stream.reduction import popcount
from iswitch.wire import Reason, SlotState

__all__ = ["close"]


def close(m, c: Context):
    """From PART on: the member at `c.index` is live no more, and no slot waits for it; the last one's departure ends
    the job (END), and at a leaf that its parent knows is the parent's to answer first. From AIM on: the slot at
    `c.step`, if it is the one asked for. A slot that completes is handed on with `forces`, in registers with all that
    goes out, and written when it is `forced`. Four cycles a slot."""
    config, ports, t, job, row, slot = c.config, c.ports, c.tables, c.job, c.row, c.tables.slot_row
    uplinks, forces, forced, closed = config.uplinks, ports.forces, ports.forced, ports.closed
    # What the rows say, a cycle later.
    remaining, alone, told = Signal.like(c.bit), Signal(), Signal()
    m.d.comb += remaining.eq(job.live & ~c.bit)
    m.d.sync += [alone.eq((remaining & ~job.admitted) == 0), told.eq(job.up_token != 0 if uplinks else 0)]
    with m.State("PART"):
        m.d.comb += [
            t.member_write.eq(1),
            t.member_next.live.eq(0),
            t.job_write.eq(1),
            t.job_next.live.eq(remaining),
            t.job_next.joining.eq(job.joining & ~c.bit),
            t.claims_write.eq(1),
        ]
        m.next = "SWEEP"
        if uplinks:
            m.d.comb += t.job_next.ranks.eq(job.ranks & ~row.ranks)
            m.next = "ROWS"
        # Newcomers have nothing yet of what the others knew.
        with m.If(alone):
            m.next = "END"
            if uplinks:
                # Nobody is left to repeat a leaf's own Leave: the last member's stays unanswered until the parent has
                # answered.
                with m.If(c.leaf & told):
                    m.d.comb += [t.member_write.eq(0), t.job_write.eq(0)]
                    m.d.sync += [c.asks.eq(1), ports.leaves.eq(1), c.passes.eq(1)]
                    m.next = "SETTLE"
    if uplinks:
        with m.State("ROWS"):
            m.next = "DISTANCES"
        with m.State("DISTANCES"):
            m.next = "LEAST"
        with m.State("LEAST"):
            m.next = "LOWEST"
        with m.State("LOWEST"):
            # What the worst of the others lacks comes with the first slot.
            m.next = "SWEEP"

    collecting, passed, remains = slot.state == SlotState.COLLECTING, Signal(), Signal(slot_row(config))
    members = Signal(range(config.members + 1))
    enough = has_enough(slot.requires_all, members, job.threshold, 0)
    m.d.sync += members.eq(popcount(slot.members))
    m.d.comb += [remains.eq(slot), remains.expected.eq(slot.expected & ~c.bit)]

    def note(row, state):
        m.d.sync += [
            closed.eq(row),
            closed.state.eq(state),
            closed.members_changed.eq(slot.members_changed | slot.boundary & job.joining.any()),
        ]

    with m.State("AIM"):
        m.next = "TARGET"
    with m.State("TARGET"):
        here = slot.seq == c.asked.segment
        m.d.sync += [
            forces.eq(here & collecting & ~slot.requires_all),
            passed.eq(here & (slot.state == SlotState.COMPLETE)),
        ]
        note(slot, SlotState.COMPLETE)
        m.next = "FORCE"
    with m.State("FORCE"):
        with m.If(~forces & ~passed):
            c.refuse(m, Reason.SEQ)
        with m.Elif(~forces | forced):
            m.d.comb += [
                t.slot_write.eq(forces),
                t.slot_next.eq(closed),
                t.member_write.eq(1),
                t.member_next.number.eq(c.frame.seq),
            ]
            m.d.sync += forces.eq(0)
            m.next = "SETTLE"
    with m.State("SWEEP"):
        # The row of the slot pointed at comes with the next state, and how many members it has with the one after that.
        m.next = "COUNT"
    with m.State("COUNT"):
        m.next = "WEIGH"
    with m.State("WEIGH"):
        m.d.sync += forces.eq(collecting & is_complete(remains, enough))
        note(remains, Mux(c.leaf, SlotState.SENT_UP, SlotState.COMPLETE))
        m.next = "RELEASE"
    with m.State("RELEASE"):
        m.d.comb += t.slot_next.eq(Mux(forces, closed.as_value(), remains.as_value()))
        with m.If(~forces | forced):
            m.d.comb += t.slot_write.eq(collecting)
            m.d.sync += [forces.eq(0), c.step.eq(c.step + 1)]
            m.next = "SWEEP"
            with m.If(c.step == config.slots - 1):
                m.next = "SETTLE"

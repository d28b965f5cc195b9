"""What a leaf's parent says: the answer to a Join or a Leave, and notice."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data

from hw.decide.flags import flags
from hw.decide.membership.context import Context
from hw.interface.layout import layout
from iswitch.wire import ACK, NO_MEMBER, Action, JobState, Reason, Type

__all__ = ["heed"]


def heed(m, c: Context):
    """ABOVE, two cycles after the frame's rows came: the job has a place above, or is refused one, or runs from here on
    (CREATED); the parent has let the switch go, or does not know it any more (END). What is not for this job as it is
    now is `unknown`, and changes nothing."""
    frame, job, t, after = c.frame, c.job, c.tables, c.tables.job_next
    said = data.View(layout(ACK), c.asked.as_value())
    later, it = (
        Signal(16),
        flags("acknowledged", "left", "runs", "declined", "unfit", "astray", "fresh", "moved", "newer"),
    )
    m.d.sync += [
        it.acknowledged.eq(frame.version_type[:4] == Type.ACK),
        it.left.eq(said.action == Action.LEAVE),
        it.runs.eq(said.state == JobState.RUNNING),
        it.declined.eq(said.reason != Reason.DONE),
        it.unfit.eq(said.window != c.config.window),
        it.astray.eq(said.nonce != job.up_nonce),
        it.fresh.eq(frame.token != job.up_token),
        later.eq(frame.epoch - job.epoch),
        it.moved.eq(later != 0),
        it.newer.eq((later != 0) & ~later[15]),
    ]
    with m.State("ABOVE"):
        m.next = "SETTLE"
        with m.If(it.acknowledged):
            with m.If(it.astray):
                m.d.sync += c.ports.unknown.eq(1)
            with m.Elif(it.left):
                m.next = "END"
            with m.Elif(it.declined):
                m.d.comb += [
                    t.job_write.eq(~job.up_running),
                    after.up_member.eq(NO_MEMBER),
                    after.up_token.eq(0),
                    after.up_reason.eq(Mux(said.reason > max(Reason), max(Reason), said.reason)),
                ]
                with m.If(said.reason == Reason.TOKEN):
                    m.d.comb += after.up_reason.eq(Reason.DONE)
            with m.Elif(it.unfit):
                m.d.comb += [t.job_write.eq(1), after.up_reason.eq(Reason.ELEMENTS)]
            with m.Elif(it.fresh & ~job.up_running):
                m.d.comb += [
                    t.job_write.eq(1),
                    after.up_member.eq(frame.member),
                    after.up_token.eq(frame.token),
                    after.up_reason.eq(Reason.DONE),
                ]
                m.d.sync += c.asks.eq(1)
            # An answer to an earlier Join may come late: epochs only rise, one at a Reset.
            with m.Elif(~it.fresh & it.runs & (~job.up_running | it.newer)):
                m.d.comb += [
                    t.job_write.eq(1),
                    after.epoch.eq(frame.epoch),
                    after.first_seq.eq(said.first_seq),
                    after.state.eq(JobState.RUNNING),
                    after.up_running.eq(1),
                    after.joining.eq(0),
                    after.admitted.eq(0),
                ]
                m.next = "CREATED"
        with m.Elif(it.fresh | ~job.up_running):
            m.d.sync += c.ports.unknown.eq(1)
        with m.Elif(frame.count == Reason.EPOCH):
            m.d.sync += c.asks.eq(it.moved)
        with m.Else():
            m.next = "END"

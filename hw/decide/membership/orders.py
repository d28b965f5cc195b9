"""What a member may ask of its job, and who ends one: the checks of docs/protocol.md section 4, and what is written at
once."""

from amaranth.hdl import Mux, Signal

from hw.decide.flags import flags
from hw.decide.membership.context import Context
from iswitch.wire import NO_MEMBER, Action, JobState, Reason

__all__ = ["obey"]


def obey(m, c: Context):
    """From POINT on, for a Leave, Reset, SET_H, FBCAST or HALT: the first check that fails refuses it. A Leave goes on
    in PART, and so does the departure of a member that is evicted, unchecked; an FBCAST in AIM, a Reset in CLEAR, and
    in END if it is by nobody but knows the key."""
    config, frame, asked, t, job, row, leaf = c.config, c.frame, c.asked, c.tables, c.job, c.row, c.leaf
    leaves, resets, sets, halts, forces = (
        c.action == action for action in (Action.LEAVE, Action.RESET, Action.SET_H, Action.HALT, Action.FBCAST)
    )
    # What the rows are compared with, a cycle later.
    ahead = Signal(32)
    it = flags(
        "number_same",
        "token_same",
        "token_set",
        "key_same",
        "epoch_same",
        "sender_same",
        "gone",
        "in_tree",
        "outsider",
        "anybody",
        "everybody",
        "too_many",
    )
    m.d.sync += [
        ahead.eq(frame.seq - row.number),
        it.number_same.eq(frame.seq == row.number),
        it.token_same.eq(frame.token == row.token),
        it.token_set.eq(row.token != 0),
        it.key_same.eq(asked.key == job.key),
        it.epoch_same.eq(frame.epoch == job.epoch),
        it.sender_same.eq(c.same),
        it.gone.eq(~c.exists),
        it.in_tree.eq((leaf | (c.exists & job.tree)) if config.uplinks else 0),
        it.outsider.eq(frame.member >= config.members),
        it.anybody.eq(frame.member == NO_MEMBER),
        it.everybody.eq(asked.threshold == job.world),
        it.too_many.eq((asked.threshold == 0) | (asked.threshold > job.world)),
    ]
    with m.State("POINT"):
        m.next = "COMPARE"
    with m.State("COMPARE"):
        m.next = "ACT"
        with m.If(c.ports.evicts):
            m.next = "PART"
    with m.State("ACT"):
        with m.If(sets & it.in_tree & ~it.everybody):
            c.refuse(m, Reason.THRESHOLD)
        with m.Elif(halts & it.in_tree | forces & leaf | resets & ~it.anybody & leaf):
            c.refuse(m, Reason.ACTION)
        with m.Elif(it.gone):
            c.refuse(m, Reason.JOB)
        with m.Elif(resets & it.anybody):
            with m.If(~it.key_same):
                c.refuse(m, Reason.KEY)
            with m.Else():
                m.next = "END"
        with m.Elif(leaves & ~it.outsider & ~row.live & ~row.pending & it.token_set & it.token_same):
            m.next = "SETTLE"
        with m.Elif(it.outsider | ~row.live):
            c.refuse(m, Reason.MEMBER)
        with m.Elif(~it.token_same):
            c.refuse(m, Reason.TOKEN)
        with m.Elif(~it.sender_same):
            c.refuse(m, Reason.MEMBER)
        with m.Elif(it.number_same):
            m.next = "SETTLE"
        with m.Elif(ahead[31]):
            c.refuse(m, Reason.NUMBER)
        with m.Elif(resets & ~it.epoch_same):
            c.refuse(m, Reason.EPOCH)
        with m.Elif(sets & it.too_many):
            c.refuse(m, Reason.THRESHOLD)
        with m.Elif(leaves):
            m.next = "PART"
        with m.Elif(forces):
            m.d.sync += c.step.eq(asked.segment & (config.slots - 1))
            m.next = "AIM"
        with m.Else():
            m.d.comb += [t.member_write.eq(1), t.member_next.number.eq(frame.seq), t.job_write.eq(1)]
            with m.Switch(c.action):
                with m.Case(Action.SET_H):
                    m.d.comb += t.job_next.threshold.eq(asked.threshold)
                    m.next = "SETTLE"
                with m.Case(Action.HALT):
                    with m.If(job.state != JobState.FORMING):
                        m.d.comb += t.job_next.state.eq(Mux(asked.mode != 0, JobState.HALTED, JobState.RUNNING))
                    m.next = "SETTLE"
                with m.Default():
                    m.d.comb += [t.job_next.epoch.eq(job.epoch + 1), t.job_next.admitted.eq(0)]
                    m.next = "CLEAR"

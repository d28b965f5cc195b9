"""Replies and notices of a leaf's parent."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from hw.decide.membership.procedure import FollowUp, procedure_ports, wait_row
from hw.decide.rules.renewal import begin_anew
from hw.decide.tables.access import write_back
from hw.interface.headers import type_of
from hw.interface.layout import layout
from iswitch.config import Config
from iswitch.wire import ACK, NO_MEMBER, REGISTERS_PER_READ, AckRegister, Action, JobState, Reason, Type

__all__ = ["ParentReply"]


WRITES = {
    "status": (
        "epoch",
        "first_seq",
        "state",
        "challenge",
        "renewed",
        "up_nonce",
        "up_member",
        "up_job_token",
        "up_challenge",
        "up_ran",
        "up_reason",
    ),
    "roster": ("joining", "admitted"),
}


class ParentReply(wiring.Component):
    """Handles an acknowledgement or a notice from the parent of a leaf's job.

    The acknowledgement of a Join has an index for the switch and the token of the parent's job, or the parent's
    challenge, which the leaf's next Join carries, or a refusal, which the leaf then returns to its members. Or it says
    that the job runs: then the leaf takes over epoch and first seq, and its ring has to be emptied. The acknowledgement
    of a Leave ends the job here. So does a notice that the parent has no such job. If the parent has no such member,
    which another challenge also says while the job runs, the job begins anew: it forms, its ring has to be emptied, and
    the leaf joins with the next nonce. In the cycle of `done`, `unknown` means that the frame does not match the job's
    present state and changes nothing; `requests_parent` means that the switch sends a Join to the parent.

    The job's row must be here in the cycle of `start`. Takes 1 cycle, or 3 if the job runs from now on. Procedure: see
    `procedure_ports`. Source: `handle_parent_ack` and `handle_parent_notice` of `host/iswitch/golden/tree_member.py`.
    """

    def __init__(self, config: Config):
        if not config.uplinks:
            raise ValueError(f"ParentReply config must have uplinks, not {config.uplinks!r}")
        self.config = config
        super().__init__({**procedure_ports(config, writes=WRITES), "unknown": Out(1), "requests_parent": Out(1)})

    def elaborate(self, platform):
        m = Module()
        request, tables = self.request, self.tables
        frame, job, status = request.headers.frame, tables.job_row, tables.status_next
        ack = data.View(layout(ACK), request.headers.body.as_value())
        registers = data.View(data.ArrayLayout(32, REGISTERS_PER_READ), ack.registers.as_value())
        m.d.comb += [tables.job.eq(frame.job), *write_back(tables, "status", "roster")]
        # Conditions of the frame and the row, a cycle later.
        (
            acknowledges,
            of_leave,
            runs,
            refused,
            challenged,
            other_challenge,
            other_window,
            other_nonce,
            other_token,
            other_epoch,
            later_epoch,
            forms,
        ) = (
            Signal(name=name)
            for name in (
                "acknowledges",
                "of_leave",
                "runs",
                "refused",
                "challenged",
                "other_challenge",
                "other_window",
                "other_nonce",
                "other_token",
                "other_epoch",
                "later_epoch",
                "forms",
            )
        )
        epochs_ahead = Signal(16)
        m.d.comb += epochs_ahead.eq(frame.epoch - job.epoch)
        m.d.sync += [
            acknowledges.eq(type_of(frame) == Type.ACK),
            of_leave.eq(ack.action == Action.LEAVE),
            runs.eq(ack.state == JobState.RUNNING),
            refused.eq(ack.reason != Reason.DONE),
            challenged.eq(ack.reason == Reason.CHALLENGE),
            other_challenge.eq(registers[AckRegister.CHALLENGE] != job.up_challenge),
            other_window.eq(ack.window != self.config.window),
            other_nonce.eq(ack.nonce != job.up_nonce),
            other_token.eq(frame.token != job.up_token),
            other_epoch.eq(epochs_ahead != 0),
            later_epoch.eq((epochs_ahead != 0) & ~epochs_ahead[15]),
            forms.eq(job.state == JobState.FORMING),
        ]

        def join_again():
            """Send a Join to the parent, which does not know the leaf. If the job runs here, it begins anew."""
            m.d.comb += [self.requests_parent.eq(1), tables.status_write.eq(1)]
            with m.If(~forms):
                m.d.comb += [
                    *begin_anew(self.config, tables, is_leaf=Const(1)),
                    status.challenge.eq(job.challenge + 1),
                    tables.roster_write.eq(1),
                    tables.roster_next.admitted.eq(0),
                    self.follow_up.eq(FollowUp.EMPTY_RING),
                ]

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
                with m.If(acknowledges):
                    with m.If(other_nonce):
                        m.d.comb += self.unknown.eq(1)
                    with m.Elif(of_leave):
                        m.d.comb += self.follow_up.eq(FollowUp.ERASE_JOB)
                    with m.Elif(challenged):
                        with m.If(other_challenge):
                            join_again()
                            m.d.comb += status.up_challenge.eq(registers[AckRegister.CHALLENGE])
                    with m.Elif(refused):
                        m.d.comb += [
                            tables.status_write.eq(forms),
                            status.up_member.eq(NO_MEMBER),
                            status.up_reason.eq(Mux(ack.reason > max(Reason), max(Reason), ack.reason)),
                        ]
                    with m.Elif(other_window):
                        m.d.comb += [tables.status_write.eq(1), status.up_reason.eq(Reason.ELEMENTS)]
                    with m.Else():
                        with m.If(forms):
                            m.d.comb += [
                                tables.status_write.eq(1),
                                status.up_member.eq(frame.member),
                                status.up_job_token.eq(registers[AckRegister.JOB_TOKEN]),
                                status.up_reason.eq(Reason.DONE),
                            ]
                        # The answer to an earlier Join may arrive late. Epochs only rise, by one.
                        with m.If(runs & (forms | later_epoch)):
                            m.d.comb += [
                                tables.status_write.eq(1),
                                status.epoch.eq(frame.epoch),
                                status.first_seq.eq(ack.first_seq),
                                status.state.eq(JobState.RUNNING),
                                status.renewed.eq(registers[AckRegister.RENEWED]),
                                status.up_ran.eq(1),
                                tables.roster_write.eq(1),
                                tables.roster_next.joining.eq(0),
                                tables.roster_next.admitted.eq(0),
                                self.done.eq(0),
                            ]
                            m.next = "READ_JOB"
                with m.Elif(other_token | forms):
                    m.d.comb += self.unknown.eq(1)
                with m.Elif(frame.count == Reason.EPOCH):
                    m.d.comb += self.requests_parent.eq(other_epoch)
                with m.Elif(frame.count == Reason.JOB):
                    m.d.comb += self.follow_up.eq(FollowUp.ERASE_JOB)
                with m.Elif(~other_epoch):  # else the notice of an earlier epoch came late
                    join_again()
            wait_row(m, "READ_JOB", then="EMPTY_RING", cycles=1)
            with m.State("EMPTY_RING"):
                m.d.comb += [self.done.eq(1), self.follow_up.eq(FollowUp.EMPTY_RING)]
                m.next = "IDLE"
        return m

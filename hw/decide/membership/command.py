"""A command: Leave, Reset, SET_H, FBCAST or Halt of a member; END or RESUME by key."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring

from hw.decide.membership.procedure import FollowUp, job_exists, procedure_ports, wait_row
from hw.decide.rules.renewal import begin_anew
from hw.decide.rules.sender import matches_sender
from hw.stream.reduction import reaches
from iswitch.config import Config
from iswitch.wire import Action, JobState, Reason

__all__ = ["COMMANDS", "Command"]

WRITES = {
    "status": ("state", "epoch", "threshold", "challenge", "renewed"),
    "roster": ("admitted",),
    "entry": ("number",),
}
UPLINK_WRITES = {"status": (*WRITES["status"], "up_nonce", "up_reason")}

COMMANDS = (Action.LEAVE, Action.RESET, Action.SET_H, Action.FBCAST, Action.HALT, Action.END, Action.RESUME)


class Command(wiring.Component):
    """Checks a command; the first check that fails refuses it. Writes what a SET_H, a Halt, a RESUME or a Reset
    changes.

    A repeat of the last command is `DONE`, and nothing is done. A Leave is to be followed by the departure, an FBCAST
    by the forced slot, a Reset by an empty ring, an END by the end of the job. At a leaf a Reset makes the job form
    until the parent has begun the next epoch.

    Takes 3 cycles: two until the sender's row has been compared, one to decide. Procedure: see `procedure_ports`.
    Source: docs/protocol.md section 4, the order of the checks; `host/iswitch/golden/decide/command.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(procedure_ports(config, writes=WRITES | UPLINK_WRITES if config.uplinks else WRITES))

    def elaborate(self, platform):
        m = Module()
        config, request, tables = self.config, self.request, self.tables
        frame, settings, job, row = request.headers.frame, request.headers.body, tables.job_row, tables.member_row
        is_leaf = request.is_leaf if config.uplinks else Const(0)
        m.d.comb += [tables.job.eq(frame.job), tables.member.eq(self.member)]
        leaves, resets, sets, halts, forces, ends, resumes = (
            request.action == action
            for action in (
                Action.LEAVE,
                Action.RESET,
                Action.SET_H,
                Action.HALT,
                Action.FBCAST,
                Action.END,
                Action.RESUME,
            )
        )
        # What the rows are compared with, a cycle later.
        number_ahead = Signal(32)
        is_repeat, token_matches, challenge_matches, key_matches, epoch_matches, sender_matches = (
            Signal(name=name)
            for name in (
                "is_repeat",
                "token_matches",
                "challenge_matches",
                "key_matches",
                "epoch_matches",
                "sender_matches",
            )
        )
        no_job, in_tree, member_out_of_range, threshold_is_world, threshold_out_of_range = (
            Signal(name=name)
            for name in ("no_job", "in_tree", "member_out_of_range", "threshold_is_world", "threshold_out_of_range")
        )
        exists = job_exists(request, job)
        port_same, address_same = matches_sender(request.headers, row)
        m.d.sync += [
            number_ahead.eq(frame.seq - row.number),
            is_repeat.eq(frame.seq == row.number),
            token_matches.eq(frame.token == row.token),
            challenge_matches.eq(request.challenge == job.challenge),
            key_matches.eq((settings.key == job.key) | request.from_operator),
            epoch_matches.eq(frame.epoch == job.epoch),
            sender_matches.eq(port_same & address_same),
            no_job.eq(~exists),
            in_tree.eq((is_leaf | (exists & job.tree)) if config.uplinks else 0),
            member_out_of_range.eq(reaches(frame.member, config.members)),
            threshold_is_world.eq(settings.threshold == job.world),
            threshold_out_of_range.eq((settings.threshold == 0) | (settings.threshold > job.world)),
        ]

        # What a command writes follows from its action alone, not from the checks: these decide whether it is written.
        status, forming = tables.status_next, job.state == JobState.FORMING
        m.d.comb += [
            status.state.eq(job.state),
            status.epoch.eq(job.epoch),
            status.renewed.eq(job.renewed),
            status.threshold.eq(Mux(sets, settings.threshold, job.threshold)),
            status.challenge.eq(Mux(resets | resumes, job.challenge + 1, job.challenge)),
            tables.roster_next.admitted.eq(0),
            tables.entry_next.number.eq(frame.seq),
        ]
        if config.uplinks:
            m.d.comb += [status.up_nonce.eq(job.up_nonce), status.up_reason.eq(job.up_reason)]
        with m.If(resets):
            m.d.comb += begin_anew(config, tables, is_leaf=is_leaf)
        with m.If(resumes | halts & ~forming):
            m.d.comb += status.state.eq(Mux(halts & (settings.mode != 0), JobState.HALTED, JobState.RUNNING))

        def refuse(reason):
            m.d.comb += self.reason.eq(reason)

        def follow(procedure):
            m.d.comb += self.follow_up.eq(procedure)

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "READ_ROWS"
            wait_row(m, "READ_ROWS", then="DECIDE")
            with m.State("DECIDE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
                with m.If(sets & in_tree & ~threshold_is_world):
                    refuse(Reason.THRESHOLD)
                with m.Elif(halts & in_tree | forces & is_leaf):
                    refuse(Reason.ACTION)
                with m.Elif(no_job):
                    refuse(Reason.JOB)
                with m.Elif(ends | resumes):
                    with m.If(~challenge_matches):
                        refuse(Reason.CHALLENGE)
                    with m.Elif(~key_matches):
                        refuse(Reason.KEY)
                    with m.Elif(ends):
                        follow(FollowUp.ERASE_JOB)
                    with m.Elif(job.state == JobState.HALTED):
                        m.d.comb += tables.status_write.eq(1)
                with m.Elif(leaves & ~member_out_of_range & ~row.live & row.left & token_matches):
                    # The member has left already; the answer was lost.
                    refuse(Reason.DONE)
                with m.Elif(member_out_of_range | ~row.live):
                    refuse(Reason.MEMBER)
                with m.Elif(~token_matches):
                    refuse(Reason.TOKEN)
                with m.Elif(~sender_matches):
                    refuse(Reason.MEMBER)
                with m.Elif(is_repeat):
                    refuse(Reason.DONE)
                with m.Elif(number_ahead[31]):
                    refuse(Reason.NUMBER)
                with m.Elif(resets & ~epoch_matches):
                    refuse(Reason.EPOCH)
                with m.Elif(sets & threshold_out_of_range):
                    refuse(Reason.THRESHOLD)
                with m.Else():
                    with m.Switch(request.action):
                        with m.Case(Action.LEAVE):
                            follow(FollowUp.DEPART)
                        with m.Case(Action.FBCAST):
                            follow(FollowUp.FORCE_SLOT)
                        with m.Case(Action.SET_H, Action.HALT):
                            m.d.comb += [tables.status_write.eq(1), tables.entry_write.eq(1)]
                        with m.Case(Action.RESET):
                            m.d.comb += [tables.status_write.eq(1), tables.entry_write.eq(1), tables.roster_write.eq(1)]
                            follow(FollowUp.EMPTY_RING)
                        with m.Default():
                            refuse(Reason.ACTION)
        return m

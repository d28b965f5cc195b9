"""Membership of jobs: control messages, eviction, the parent's replies, and the read-out of the registers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.decide.membership.acknowledgement import Acknowledgement
from hw.decide.membership.command import COMMANDS, Command
from hw.decide.membership.departure import Departure
from hw.decide.membership.job_erasure import JobErasure
from hw.decide.membership.join import Join
from hw.decide.membership.parent_reply import ParentReply
from hw.decide.membership.procedure import FollowUp, Request, job_exists, wait_row
from hw.decide.membership.register_read import RegisterRead
from hw.decide.membership.ring_reset import RingReset
from hw.decide.membership.slot_completion import SlotCompletion
from hw.decide.tables.access import Access, connect_data, connect_rows, connect_writes, write_back
from hw.decide.tables.tables import MEMBERSHIP_WRITES
from hw.interface.address import Binding, Parent
from hw.interface.headers import Headers, type_of
from hw.interface.layout import layout
from hw.interface.rows import CHALLENGE_BITS, TICK_BITS, slot_row
from hw.stream.reduction import reaches
from iswitch.config import Config
from iswitch.wire import ACK, Action, JobState, Reason, Type

__all__ = ["Membership"]

KEPT = ("status", "roster", "entry")
"""Records of which a procedure changes some fields and leaves the others."""

if {Action.JOIN, Action.READ, *COMMANDS} != set(Action):
    raise ValueError(f"Membership actions must be JOIN, READ and {COMMANDS}, not {tuple(Action)}")


class Membership(wiring.Component):
    """Carries out one request while `active`, then shows `done` with the answer until `active` falls.

    The request is the control message, or the parent's reply, in `headers`; with `evicts` it is the departure of
    `victim`; with `wipes` it is the end of the frame's job, for which all of the job's rows are written. Membership has
    the tables meanwhile, and after a reset until it has `erased` all jobs. `completed` offers each slot that completes
    without a frame, which the tables point at then, and with it `admitted` joins.

    `row_corrupt`: a row that the tables showed in the last cycle has a bit error. If a procedure has read such a row of
    the frame's job, `corrupt` is 1 from before anything is offered at `completed`, and with `done`: then neither may
    leave. A Read shows what it reads.

    The answer: `member` for the header of an acknowledgement, its `body`, and the `reason` in that. In a
    tree a leaf sends no acknowledgement if not `answers`. `unknown`: the parent's reply changed nothing.
    `requests_parent`: a Join has to go to the `parent`, or a Leave if `requests_leave`.

    A sequencer starts one procedure after another: Join, Command, Departure, SlotCompletion, RingReset, JobErasure,
    ParentReply, RegisterRead. `active` to `done`: a departure takes a cycle for each slot, 6 for each slot that
    collects, and at most 15 more; a Read takes 14, all else at most as many as there are entries, and 15. A Join that
    removes a silent member takes as long as both. Only `completed` can stall. Source: docs/protocol.md section 4,
    `host/iswitch/golden/decide/join.py`, `command.py`; in a tree docs/tree.md, `host/iswitch/golden/tree_switch.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "active": In(1),
                "evicts": In(1),
                "wipes": In(1),
                "row_corrupt": In(1),
                "corrupt": Out(1),
                "victim": In(range(config.members)),
                "stale": In(config.members),
                "operator_key": In(64),
                "offered_challenge": In(CHALLENGE_BITS),
                "tick": In(TICK_BITS),
                "headers": In(Headers),
                "tables": Out(Access(config, writes=MEMBERSHIP_WRITES)),
                "erased": Out(1),
                "random": In(64),
                "draw": Out(1),
                "read_address": Out(32),
                "read_value": In(32),
                "binding": Out(stream.Signature(Binding(config), always_ready=True)),
                "completed": Out(stream.Signature(slot_row(config))),
                "admitted": Out(config.members),
                "done": Out(1),
                "reason": Out(Reason),
                "member": Out(8),
                "body": Out(layout(ACK)),
                "parent": In(Parent),
                "is_leaf": In(1),
                "answers": Out(1),
                "unknown": Out(1),
                "requests_parent": Out(1),
                "requests_leave": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, tables, frame = self.config, self.tables, self.headers.frame
        request, first_challenge = self._request(m)
        m.submodules.join = join = Join(config)
        m.submodules.command = command = Command(config)
        m.submodules.departure = departure = Departure(config)
        m.submodules.slot_completion = slot_completion = SlotCompletion(config)
        m.submodules.ring_reset = ring_reset = RingReset(config)
        m.submodules.job_erasure = job_erasure = JobErasure(config)
        m.submodules.register_read = register_read = RegisterRead(config)
        procedures = {
            "JOIN": join,
            "COMMAND": command,
            "DEPARTURE": departure,
            "SLOT_COMPLETION": slot_completion,
            "RING_RESET": ring_reset,
            "JOB_ERASURE": job_erasure,
            "REGISTER_READ": register_read,
        }
        if config.uplinks:
            m.submodules.parent_reply = procedures["PARENT_REPLY"] = parent_reply = ParentReply(config)

        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(self.member),
            *write_back(tables, *KEPT),
            join.stale.eq(self.stale),
            join.random.eq(self.random),
            self.draw.eq(join.draw),
            self.admitted.eq(slot_completion.admitted),
            register_read.tick.eq(self.tick),
            register_read.read_value.eq(self.read_value),
            self.read_address.eq(register_read.read_address),
            job_erasure.wipes.eq(self.wipes),
        ]
        connect(m, join.binding, flipped(self.binding))
        connect(m, slot_completion.completed, flipped(self.completed))
        for procedure in reversed(procedures.values()):
            connect_rows(m, tables, procedure.tables)
            connect_data(m, tables, procedure.tables, without=KEPT)
            m.d.comb += [procedure.request.eq(request), procedure.member.eq(self.member)]

        reason, requests_parent, suppresses_ack = Signal(Reason), Signal(), Signal()
        # Only a Read points at the rows of other jobs.
        points_at_job = Signal()
        with m.If(self.row_corrupt & points_at_job):
            m.d.sync += self.corrupt.eq(1)

        def start(state):
            m.d.comb += procedures[state].start.eq(1)
            m.next = state

        with m.FSM() as fsm:
            m.d.comb += [
                self.erased.eq(~fsm.ongoing("ERASE_ALL_JOBS")),
                self.done.eq(fsm.ongoing("ANSWER")),
                register_read.clear.eq(fsm.ongoing("IDLE")),
            ]
            with m.State("ERASE_ALL_JOBS"):
                connect_writes(m, tables, job_erasure.tables)
                with m.If(job_erasure.done):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.sync += [
                    reason.eq(Reason.DONE),
                    self.member.eq(frame.member),
                    suppresses_ack.eq(0),
                    requests_parent.eq(0),
                    self.requests_leave.eq(0),
                    self.unknown.eq(0),
                    self.corrupt.eq(0),
                    points_at_job.eq(request.job_in_range),
                ]
                with m.If(self.active & self.wipes):
                    start("JOB_ERASURE")
                with m.Elif(self.active & self.evicts):
                    m.d.sync += self.member.eq(self.victim)
                    m.next = "READ_VICTIM"
                if config.uplinks:
                    with m.Elif(self.active & request.from_parent):
                        start("PARENT_REPLY")
                with m.Elif(self.active):
                    with m.Switch(request.action):
                        with m.Case(Action.JOIN):
                            start("JOIN")
                        with m.Case(Action.READ):
                            m.d.sync += points_at_job.eq(0)
                            start("REGISTER_READ")
                        with m.Case(*COMMANDS):
                            start("COMMAND")
                        with m.Default():
                            m.d.sync += reason.eq(Reason.ACTION)
                            m.next = "READ_ROWS"
            wait_row(m, "READ_VICTIM", then="START_DEPARTURE", cycles=1)
            with m.State("START_DEPARTURE"):
                start("DEPARTURE")
            with m.State("SELECT_SILENT_MEMBER"):
                m.d.sync += self.member.eq(join.entry)
                m.next = "READ_VICTIM"
            for state, procedure in procedures.items():
                with m.State(state):
                    connect_writes(m, tables, procedure.tables)
                    with m.If(procedure.done):
                        with m.If(procedure.reason != Reason.DONE):
                            m.d.sync += reason.eq(procedure.reason)
                        m.next = "READ_ROWS"
                        with m.Switch(procedure.follow_up):
                            with m.Case(FollowUp.NONE):
                                pass
                            with m.Case(FollowUp.DEPART):
                                if state == "JOIN":
                                    m.next = "SELECT_SILENT_MEMBER"
                                else:
                                    start("DEPARTURE")
                            with m.Case(FollowUp.FORCE_SLOT):
                                m.d.comb += slot_completion.forces_one.eq(1)
                                start("SLOT_COMPLETION")
                            with m.Case(FollowUp.SWEEP_SLOTS):
                                start("SLOT_COMPLETION")
                            with m.Case(FollowUp.EMPTY_RING):
                                start("RING_RESET")
                            with m.Case(FollowUp.ERASE_JOB):
                                start("JOB_ERASURE")
            wait_row(m, "READ_ROWS", then="ANSWER")
            with m.State("ANSWER"):
                with m.If(~self.active):
                    m.next = "IDLE"

        with m.If(join.grants):
            m.d.sync += self.member.eq(join.entry)
        job = tables.job_row
        m.d.comb += self.answers.eq(1)
        if config.uplinks:
            with m.If(departure.requests_parent):
                m.d.sync += [requests_parent.eq(1), self.requests_leave.eq(1), suppresses_ack.eq(1)]
            with m.If(parent_reply.done):
                m.d.sync += [requests_parent.eq(parent_reply.requests_parent), self.unknown.eq(parent_reply.unknown)]
            # A leaf joins at its parent when all ranks below it have joined, and whenever its job forms again. It
            # retransmits when its members do.
            all_ranks = Cat(job.ranks, Const(0, 32 - config.members)) == self.parent.ranks
            forms = (job.state == JobState.FORMING) & (job.up_ran | all_ranks)
            joins = request.action.matches(Action.JOIN, Action.RESET) & ~request.from_parent & self.is_leaf
            m.d.comb += [
                self.answers.eq(~request.from_parent & ~suppresses_ack),
                self.requests_parent.eq(requests_parent | (joins & job_exists(request, job) & forms)),
            ]

        m.submodules.acknowledgement = acknowledgement = Acknowledgement(config)
        m.d.comb += [
            acknowledgement.request.eq(request),
            acknowledgement.member.eq(self.member),
            acknowledgement.reason.eq(reason),
            acknowledgement.registers.eq(register_read.registers),
            acknowledgement.first_challenge.eq(first_challenge),
            acknowledgement.job_row.eq(job),
            acknowledgement.member_row.eq(tables.member_row),
            acknowledgement.acknowledged.eq(tables.acknowledged),
            self.body.eq(acknowledgement.body),
            self.reason.eq(acknowledgement.body.reason),
        ]
        return m

    def _request(self, m):
        """Return the request, and the first challenge. The fields that depend on the headers alone are registered
        before a procedure starts."""
        request, frame, action = Signal(Request(self.config)), self.headers.frame, self.headers.body.action
        known, job_in_range = Signal(request.action.shape(), reset_less=True), Signal()
        operator_key_same, has_operator_key = Signal(), Signal()
        # After a reset all challenges begin at a number that follows from the time of the first request.
        started, first_challenge, challenge = Signal(), Signal(CHALLENGE_BITS), Signal(CHALLENGE_BITS)
        with m.If(self.active & ~started):
            m.d.sync += [started.eq(1), first_challenge.eq(self.offered_challenge)]
        m.d.sync += [
            known.eq(Mux(reaches(action, max(Action) + 1), 0, action)),
            job_in_range.eq(~reaches(frame.job, self.config.jobs)),
            challenge.eq(self.headers.body.challenge - first_challenge),
            operator_key_same.eq(self.headers.body.operator_key == self.operator_key),
            has_operator_key.eq(self.operator_key.any()),
        ]
        m.d.comb += [
            request.headers.eq(self.headers),
            request.action.eq(known),
            request.job_in_range.eq(job_in_range),
            request.challenge.eq(challenge),
            request.operator_key_same.eq(operator_key_same),
            request.from_operator.eq(operator_key_same & has_operator_key),
        ]
        if self.config.uplinks:
            from_parent = Signal()
            m.d.sync += from_parent.eq(type_of(frame) != Type.CONTROL)
            m.d.comb += [
                request.from_parent.eq(from_parent),
                request.is_leaf.eq(self.is_leaf),
                request.parent.eq(self.parent),
            ]
        return request, first_challenge

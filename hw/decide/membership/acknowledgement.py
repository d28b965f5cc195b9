"""The body of an acknowledgement."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.procedure import Request, job_exists
from hw.interface.layout import layout
from hw.interface.rows import CHALLENGE_BITS, SEQ_BITS, job_row, member_row
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import ACK, REGISTERS_PER_READ, AckRegister, Action, MemberState, Reason

__all__ = ["Acknowledgement"]


class Acknowledgement(wiring.Component):
    """Fills in the `body` from the `reason` of the procedures and the rows of the job and the member after them.

    At a leaf, a Join that it would grant itself is refused with the reason that its parent gave. Combinational.
    Source: docs/protocol.md section 4, ACK.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "request": In(Request(config)),
                "member": In(range(config.members + 1)),
                "reason": In(Reason),
                "registers": In(data.ArrayLayout(32, REGISTERS_PER_READ)),
                "job_row": In(job_row(config)),
                "member_row": In(member_row(config)),
                "first_challenge": In(CHALLENGE_BITS),
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "body": Out(layout(ACK)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, request, body = self.config, self.request, self.body
        request_body, job = request.headers.body, self.job_row
        exists, bit = Signal(), Signal(config.members)
        joins = (request.action == Action.JOIN) & (self.reason == Reason.DONE)
        registers = data.View(self.registers.shape(), body.registers.as_value())
        m.d.comb += [
            exists.eq(job_exists(request, job)),
            bit.eq(1 << self.member),
            body.action.eq(request_body.action),
            body.reason.eq(self.reason),
            body.window.eq(config.window),
            body.members.eq(config.members),
            body.nonce.eq(request_body.nonce),
            body.address.eq(request_body.address),
            body.elements.eq(config.elements),
            registers.eq(self.registers),
        ]
        says_challenge = request.action.matches(Action.JOIN, Action.END, Action.RESUME)
        with m.If(says_challenge & request.job_in_range):
            m.d.comb += registers[AckRegister.CHALLENGE].eq(job.challenge + self.first_challenge)
        with m.If(exists):
            m.d.comb += [
                body.state.eq(job.state),
                body.elements.eq(job.elements),
                body.world.eq(job.world),
                body.live.eq(popcount(job.live)),
                body.first_seq.eq(job.first_seq),
                body.threshold.eq(job.threshold),
            ]
        if config.uplinks:
            with m.If(joins & request.is_leaf & exists):
                m.d.comb += body.reason.eq(job.up_reason)
        live = (job.live & bit).any()
        with m.If(joins):
            m.d.comb += [
                registers[AckRegister.JOB_TOKEN].eq(job.job_token),
                registers[AckRegister.RENEWED].eq(job.renewed),
                body.standing.eq(Mux(live, MemberState.LIVE, MemberState.JOINING)),
            ]
        with m.If(joins & (job.admitted & bit).any()):
            m.d.comb += body.first_seq.eq(job.admitted_seq)
        if config.staleness:
            with m.If(joins & job.segments.any() & live):
                m.d.comb += body.first_seq.eq(Array(self.acknowledged)[self.member])
        return m

"""Who is in a job: the control messages, eviction, and the read-out of the registers."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.above import heed
from hw.decide.membership.closing import close
from hw.decide.membership.context import Context
from hw.decide.membership.entry import enter
from hw.decide.membership.orders import obey
from hw.decide.membership.search import search
from hw.decide.rules.claim_withdrawal import forget
from hw.decide.rules.completion import admission
from hw.decide.tables.access import Access
from hw.decide.tables.views import Views
from hw.interface.address import Binding, Parent
from hw.interface.headers import Headers
from hw.interface.layout import layout
from hw.interface.rows import SENDER_FIELDS, SETTINGS_FIELDS, TICK_BITS, slot_number, slot_row
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import ACK, REGISTERS_PER_READ, Action, Reason, Standing

__all__ = ["Membership"]


def empty(row, kept):
    """A row's fields but those that are written once."""
    return [row[name].eq(0) for name in row.shape().members if name not in kept]


class Membership(wiring.Component):
    """Carries out one control message while `active`, or with `evicts` the departure of `victim`, then shows `done`
    with the answer until `active` falls.

    It owns the tables meanwhile, and after a reset until it has `wiped` them. `forces`: the slot that the tables point
    at completes because of a departure or an FBCAST, is `closed` then, and lets in `admitted`; the operation is handed
    on when `forced`. A departure walks through the ring at four cycles a slot, a Reset and a new job at one; a Read
    takes 13 cycles, all else at most members + 12. Order of the checks: docs/protocol.md section 4; truth:
    `sim/model/decide/membership.py`.

    In a tree (truth: `sim/model/tree_switch.py`) a `leaf`'s parent may have answered: then the frame itself has no
    answer (not `answers`), and may be `unknown`. `asks`: a Join, or a Leave if it `leaves`, is to go to the `parent`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "active": In(1),
                "evicts": In(1),
                "victim": In(range(config.members)),
                "silent": In(config.members),
                "tick": In(TICK_BITS),
                "headers": In(Headers),
                "tables": Out(Access(config, registers=True)),
                "wiped": Out(1),
                "random": In(64),
                "draw": Out(1),
                "read_address": Out(32),
                "read_value": In(32),
                "binding": Out(stream.Signature(Binding(config), always_ready=True)),
                "forces": Out(1),
                "forced": In(1),
                "closed": Out(slot_row(config)),
                "admitted": Out(config.members),
                "done": Out(1),
                "reason": Out(Reason),
                "member": Out(8),
                "token": Out(32),
                "body": Out(layout(ACK)),
                **(
                    {
                        "parent": In(Parent),
                        "leaf": In(1),
                        "answers": Out(1),
                        "unknown": Out(1),
                        "asks": Out(1),
                        "leaves": Out(1),
                    }
                    if config.uplinks
                    else {}
                ),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, frame, t = self.config, self.headers.frame, self.tables
        c = Context(m, self)
        bound = self.binding.payload
        m.d.comb += [
            t.job.eq(frame.job),
            t.member.eq(c.index),
            t.slot.eq(slot_number(config, frame.job, c.step)),
            t.job_next.eq(c.job),
            t.member_next.eq(c.row),
            t.slot_next.eq(t.slot_row),
            t.acknowledged_next.eq(c.job.first_seq),
            bound.job.eq(frame.job),
            bound.member.eq(c.index),
            bound.port.eq(self.headers.arrival.port),
            bound.address.mac.eq(frame.eth_src),
            bound.address.ip.eq(frame.ip_src),
            bound.address.udp.eq(frame.udp_src),
        ]
        forget(m, t.claims_row, t.claims_next, c.bit)
        m.d.comb += self.admitted.eq(admission(m, self.forces, t.slot_row, self.forced, t))

        with m.FSM() as fsm:
            m.d.comb += self.wiped.eq(~fsm.ongoing("WIPE"))
            self._begin(m, c)
            search(m, c)
            enter(m, c)
            obey(m, c)
            close(m, c)
            if config.uplinks:
                heed(m, c)
            self._empty(m, c)
            self._read(m, c)
            with m.State("SETTLE"):
                # The rows show the last write two cycles later.
                m.next = "SETTLED"
            with m.State("SETTLED"):
                m.d.sync += self.done.eq(1)
                m.next = "DONE"
            with m.State("DONE"):
                with m.If(~self.active):
                    m.d.sync += self.done.eq(0)
                    m.next = "ENTRY"
        self._answer(m, c)
        return m

    def _begin(self, m, c):
        t, wiped_job = self.tables, Signal(range(self.config.jobs))
        with m.State("WIPE"):
            # A reset clears registers, the ports' members among them, but no memory: empty the tables of who is who.
            m.d.comb += [
                t.job.eq(wiped_job),
                t.job_write.eq(1),
                t.member_write.eq(1),
                *empty(t.job_next, SETTINGS_FIELDS),
                *empty(t.member_next, SENDER_FIELDS),
            ]
            m.d.sync += c.index.eq(c.index + 1)
            with m.If(c.index == self.config.members - 1):
                m.d.sync += [c.index.eq(0), wiped_job.eq(wiped_job + 1)]
                with m.If(wiped_job == self.config.jobs - 1):
                    m.next = "ENTRY"
        with m.State("ENTRY"):
            m.d.sync += [
                c.reason.eq(Reason.DONE),
                c.step.eq(0),
                c.index.eq(Mux(c.action == Action.JOIN, 0, c.frame.member)),
                self.member.eq(c.frame.member),
                self.token.eq(c.frame.token),
                c.address.eq(c.asked.address),
                c.registers.eq(0),
            ]
            if self.config.uplinks:
                m.d.sync += [c.asks.eq(0), c.passes.eq(0), self.leaves.eq(0), self.unknown.eq(0)]
            with m.If(self.active & self.evicts):
                m.d.sync += c.index.eq(self.victim)
                m.next = "POINT"
            if self.config.uplinks:
                with m.Elif(self.active & ~c.answers):
                    m.next = "ABOVE"
            with m.Elif(self.active):
                with m.Switch(c.action):
                    with m.Case(Action.JOIN):
                        m.next = "JOIN"
                    with m.Case(Action.READ):
                        m.next = "READ"
                    with m.Case(Action.LEAVE, Action.RESET, Action.SET_H, Action.FBCAST, Action.HALT):
                        m.next = "POINT"
                    with m.Default():
                        c.refuse(m, Reason.ACTION)

    def _empty(self, m, c):
        """A ring of slots, and a job with its members."""
        t, slots = self.tables, self.config.slots
        with m.State("CLEAR"):
            # Empty slots stand one lap before the first sequence number.
            m.d.comb += [
                t.slot_write.eq(1),
                t.slot_next.eq(0),
                t.slot_next.seq.eq(c.job.first_seq - slots + c.step),
                t.acknowledged_write.eq(~0),
                t.claims_write.eq(1),
                t.claims_next.eq(0),
                t.claims_next.base.eq(c.job.first_seq),
            ]
            m.d.sync += c.step.eq(c.step + 1)
            with m.If(c.step == slots - 1):
                m.d.sync += c.step.eq(0)
                with m.If((c.action == Action.JOIN) & c.answers):
                    m.next = "TOKEN"
                with m.Else():
                    m.next = "SETTLE"
        with m.State("END"):
            m.d.comb += [t.job_write.eq(1), *empty(t.job_next, SETTINGS_FIELDS)]
            m.d.sync += c.index.eq(0)
            m.next = "FORGET"
        with m.State("FORGET"):
            m.d.comb += [t.member_write.eq(1), *empty(t.member_next, SENDER_FIELDS)]
            m.d.sync += c.index.eq(c.index + 1)
            with m.If(c.index == self.config.members - 1):
                m.next = "SETTLE"

    def _read(self, m, c):
        t, counted = self.tables, Signal(32)
        m.submodules.views = views = Views(self.config)
        m.d.sync += counted.eq(self.read_value)
        m.d.comb += [
            self.read_address.eq(c.address),
            views.address.eq(c.address),
            views.tick.eq(self.tick),
            views.job_row.eq(c.job),
            views.member_row.eq(c.row),
            views.slot_row.eq(t.slot_row),
            views.acknowledged.eq(t.acknowledged),
            views.heard.eq(t.heard),
        ]
        with m.State("READ"):
            # What stands at an address is here two cycles later.
            m.d.comb += [t.job.eq(views.job), t.member.eq(views.member), t.slot.eq(views.slot)]
            m.d.sync += [c.step.eq(c.step + 1), c.address.eq(c.address + 1)]
            for k in range(REGISTERS_PER_READ):
                with m.If(c.step == k + 2):
                    m.d.sync += c.registers[k].eq(Mux(views.viewed, views.value, counted))
            with m.If(c.step == REGISTERS_PER_READ + 1):
                m.next = "SETTLE"

    def _answer(self, m, c):
        """The body of the ACK."""
        config, body, asked, job, row, t = self.config, self.body, c.asked, c.job, c.row, self.tables
        joins = (c.action == Action.JOIN) & (c.reason == Reason.DONE)
        m.d.comb += [
            self.reason.eq(c.reason),
            body.action.eq(asked.action),
            body.reason.eq(c.reason),
            body.window.eq(config.window),
            body.members.eq(config.members),
            body.nonce.eq(asked.nonce),
            body.address.eq(asked.address),
            body.elements.eq(config.elements),
            body.registers.as_value().eq(c.registers),
        ]
        with m.If(c.exists):
            m.d.comb += [
                body.state.eq(job.state),
                body.elements.eq(job.elements),
                body.world.eq(job.world),
                body.live.eq(popcount(job.live)),
                body.first_seq.eq(job.first_seq),
                body.threshold.eq(job.threshold),
            ]
        if config.uplinks:
            whole = Cat(job.ranks, Const(0, 32 - config.members)) == self.parent.ranks
            m.d.comb += [
                self.answers.eq(c.answers & ~c.passes),
                self.asks.eq(
                    c.asks | (c.answers & (c.action == Action.JOIN) & c.leaf & c.exists & ~job.up_running & whole)
                ),
            ]
            with m.If(joins & c.leaf & c.exists):
                m.d.comb += [self.reason.eq(job.up_reason), body.reason.eq(job.up_reason)]
        with m.If(joins):
            live = (job.live & c.bit).any()
            m.d.comb += body.standing.eq(Mux(row.pending, Standing.PENDING, Mux(live, Standing.LIVE, Standing.JOINING)))
            with m.If((job.admitted & c.bit).any()):
                m.d.comb += body.first_seq.eq(job.admitted_seq)
            with m.If(job.segments.any() & live):
                m.d.comb += body.first_seq.eq(Array(t.acknowledged)[c.index])

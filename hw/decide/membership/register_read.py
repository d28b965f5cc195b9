"""A Read: eight registers for the acknowledgement."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.procedure import procedure_ports
from hw.decide.tables.views import Views
from hw.interface.rows import TICK_BITS
from iswitch.config import Config
from iswitch.wire import REGISTERS_PER_READ

__all__ = ["RegisterRead"]

LATENCY = 3
"""Cycles from an address to what stands there, in a view of the tables or among the counters."""


class RegisterRead(wiring.Component):
    """Reads the registers from the request's address on, one per cycle, into `registers`, which `clear` empties.

    A register is part of a view of the tables (`Views`), or what `read_value` shows a cycle after `read_address`. Takes
    11 cycles. Procedure: see `procedure_ports`. Source: docs/protocol.md section 5.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                **procedure_ports(config),
                "clear": In(1),
                "tick": In(TICK_BITS),
                "read_address": Out(32),
                "read_value": In(32),
                "registers": Out(data.ArrayLayout(32, REGISTERS_PER_READ)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tables, address = self.tables, self.read_address
        counted, step = Signal(32), Signal(range(REGISTERS_PER_READ + LATENCY))
        m.submodules.views = views = Views(self.config)
        m.d.sync += counted.eq(self.read_value)
        m.d.comb += [
            views.counted.eq(counted),
            tables.job.eq(views.job),
            tables.member.eq(views.member),
            tables.slot.eq(views.slot),
            views.address.eq(address),
            views.tick.eq(self.tick),
            views.job_row.eq(tables.job_row),
            views.member_row.eq(tables.member_row),
            views.slot_row.eq(tables.slot_row),
            views.acknowledged.eq(tables.acknowledged),
            views.heard.eq(tables.heard),
        ]
        arrives = Signal()
        # The registers arrive in order and are shifted in, so each has one source. `clear` never meets an arrival.
        with m.If(arrives):
            m.d.sync += self.registers.eq(Cat(*list(self.registers)[1:], views.value))
        with m.If(self.clear):
            m.d.sync += self.registers.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [address.eq(self.request.headers.body.address), step.eq(0)]
                with m.If(self.start):
                    m.next = "READ"
            with m.State("READ"):
                m.d.sync += [step.eq(step + 1), address.eq(address + 1)]
                m.d.comb += arrives.eq(step >= LATENCY)
                with m.If(step == REGISTERS_PER_READ + LATENCY - 1):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

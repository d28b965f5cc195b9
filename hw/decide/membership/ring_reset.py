"""An empty ring, for a job that begins, or begins again."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.utils import exact_log2

from hw.decide.membership.procedure import procedure_ports
from hw.interface.rows import slot_number
from iswitch.config import Config

__all__ = ["RingReset"]


class RingReset(wiring.Component):
    """Empties all slots of a job, lets all members lack results from the job's first seq on, and forgets all claims.

    An empty slot stands one lap before the first sequence number. The job's row must be here in the cycle after
    `start`. Takes a cycle for each slot. Procedure: see `procedure_ports`. Source: `new_ring` of
    `sim/model/decide/ring.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(procedure_ports(config, writes=("slot", "acknowledged", "claims")))

    def elaborate(self, platform):
        m = Module()
        slots, tables, frame = self.config.slots, self.tables, self.request.headers.frame
        index, first_seq = Signal(exact_log2(slots)), self.tables.job_row.first_seq
        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(self.member),
            tables.slot.eq(slot_number(self.config, frame.job, index)),
            tables.slot_next.seq.eq(first_seq - slots + index),
            tables.acknowledged_next.eq(first_seq),
            tables.claims_next.base.eq(first_seq),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "EMPTY_SLOTS"
            with m.State("EMPTY_SLOTS"):
                m.d.comb += [tables.slot_write.eq(1), tables.acknowledged_write.eq(~0), tables.claims_write.eq(1)]
                m.d.sync += index.eq(index + 1)
                with m.If(index == slots - 1):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

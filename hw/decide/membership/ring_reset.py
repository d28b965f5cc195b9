"""An empty ring, for a job that begins, or begins again."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.utils import exact_log2

from hw.decide.membership.procedure import procedure_ports
from hw.interface.rows import slot_number
from iswitch.config import Config

__all__ = ["RingReset"]


class RingReset(wiring.Component):
    """Empties all slots of a job, lets all members lack results from the job's first seq on, and forgets all claims.

    The ring gets its next incarnation, in which no slot has any content (`Tables`). An empty slot stands one lap before
    the first sequence number. The incarnations repeat after as many as there are slots, so the slot whose number is the
    new incarnation is written: before an incarnation comes again, each slot has been written in another one, or is
    written now. So no slot ever gets its old content back.

    The job's row must be here in the cycle after `start`. Takes 1 cycle. Procedure: see `procedure_ports`. Source:
    `new_ring` of `sim/model/decide/ring.py`; `sim/explore/incarnations.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(procedure_ports(config, writes=("ring", "slot", "acknowledged", "claims")))

    def elaborate(self, platform):
        m = Module()
        tables, frame, index_bits = self.tables, self.request.headers.frame, exact_log2(self.config.slots)
        first_seq, incarnation = tables.job_row.first_seq, Signal.like(tables.job_row.incarnation)
        m.d.comb += [
            incarnation.eq(tables.job_row.incarnation + 1),
            tables.job.eq(frame.job),
            tables.member.eq(self.member),
            tables.slot.eq(slot_number(self.config, frame.job, incarnation)),
            tables.ring_next.incarnation.eq(incarnation),
            tables.ring_next.empty_lap.eq(first_seq[index_bits:] - 1),
            tables.slot_next.incarnation.eq(incarnation),
            tables.slot_next.seq.eq(Cat(incarnation, tables.ring_next.empty_lap)),
            tables.acknowledged_next.eq(first_seq),
            tables.claims_next.base.eq(first_seq),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "RENEW"
            with m.State("RENEW"):
                m.d.comb += [
                    tables.ring_write.eq(1),
                    tables.slot_write.eq(1),
                    tables.acknowledged_write.eq(~0),
                    tables.claims_write.eq(1),
                    self.done.eq(1),
                ]
                m.next = "IDLE"
        return m

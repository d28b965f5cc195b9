"""An empty ring, for a job that begins, or begins again."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.utils import exact_log2

from hw.decide.membership.procedure import procedure_ports
from hw.interface.rows import slot_number
from iswitch.config import Config

__all__ = ["RingReset"]

WRITES = {"ring": (), "slot": ("state", "incarnation"), "acknowledged": (), "claims": ()}
"""An empty slot has no content, so its other fields may have any value."""


class RingReset(wiring.Component):
    """Empties all slots of a job, lets all members lack results from the job's first seq on, and forgets all claims.

    The ring gets its next incarnation, in which no slot has any content (`Tables`). An empty slot stands one lap before
    the first sequence number. The incarnations repeat after as many as there are slots, so the slot whose number is the
    new incarnation is written: before an incarnation comes again, each slot has been written in another one, or is
    written now. So no slot ever gets its old content back.

    The job's row must be here in the cycle after `start`. Takes 2 cycles. Procedure: see `procedure_ports`. Source:
    `new_ring` of `host/iswitch/golden/decide/ring.py`; `sim/explore/incarnations.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(procedure_ports(config, writes=WRITES))

    def elaborate(self, platform):
        m = Module()
        tables, frame, index_bits = self.tables, self.request.headers.frame, exact_log2(self.config.slots)
        job, incarnation, empty_lap = tables.job_row, Signal(index_bits), Signal.like(tables.job_row.empty_lap)
        m.d.sync += [incarnation.eq(job.incarnation + 1), empty_lap.eq(job.first_seq[index_bits:] - 1)]
        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(self.member),
            tables.slot.eq(slot_number(self.config, frame.job, incarnation)),
            tables.ring_next.incarnation.eq(incarnation),
            tables.ring_next.empty_lap.eq(empty_lap),
            tables.slot_next.incarnation.eq(incarnation),
            tables.acknowledged_next.eq(job.first_seq),
            tables.claims_next.base.eq(job.first_seq),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "READ_JOB"
            with m.State("READ_JOB"):
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

"""The end of a job; and after a reset, of all jobs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring

from hw.decide.membership.procedure import procedure_ports
from hw.interface.rows import slot_number
from iswitch.config import Config

__all__ = ["JobErasure"]

WRITES = {"status": (), "roster": (), "entry": (), "ring": (), "slot": ("state", "incarnation")}
"""An empty slot has no content, so its other fields may have any value."""


class JobErasure(wiring.Component):
    """Erases a job and all its entries. The fields that only a creator and a new member write may stay, because no
    logic reads them. The job number gets its next challenge.

    The job's row must be here in the cycle after `start`. After a reset, which clears no memory, it erases all jobs and
    all slots without a `start`; this takes a cycle for each entry or slot of each job, whichever are more. The end of a
    job takes a cycle for each entry; its slots vanish with the next incarnation of the ring. Procedure: see
    `procedure_ports`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(procedure_ports(config, writes=WRITES))

    def elaborate(self, platform):
        m = Module()
        config, tables = self.config, self.tables
        index, job = Signal(range(max(config.members, config.slots))), Signal(range(config.jobs))
        all_jobs, next_index, is_last = Signal(init=1), Signal.like(index), Signal()
        last = Mux(all_jobs, max(config.members, config.slots), config.members) - 1
        m.d.sync += [index.eq(next_index), is_last.eq(next_index == last)]
        m.d.comb += [
            tables.job.eq(Mux(all_jobs, job, self.request.headers.frame.job)),
            tables.member.eq(index),
            tables.slot.eq(slot_number(config, job, index)),
            tables.status_next.challenge.eq(Mux(all_jobs, 0, tables.job_row.challenge + 1)),
        ]
        with m.FSM(init="ERASE"):
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "ERASE"
            with m.State("ERASE"):
                m.d.comb += [
                    tables.status_write.eq(index == 0),
                    tables.roster_write.eq(1),
                    tables.entry_write.eq(index < config.members),
                    tables.ring_write.eq(all_jobs),
                    tables.slot_write.eq(all_jobs & (index < config.slots)),
                ]
                m.d.comb += next_index.eq(Mux(is_last, 0, index + 1))
                with m.If(is_last):
                    m.d.sync += job.eq(job + 1)
                    with m.If(~all_jobs | (job == config.jobs - 1)):
                        m.d.comb += self.done.eq(1)
                        m.d.sync += all_jobs.eq(0)
                        m.next = "IDLE"
        return m

"""The end of a job; and after a reset, of all jobs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring

from hw.decide.membership.procedure import procedure_ports
from iswitch.config import Config

__all__ = ["JobErasure"]


class JobErasure(wiring.Component):
    """Erases a job and all its entries. The fields that only a creator and a new member write may stay, because no
    logic reads them.

    After a reset, which clears no memory, it erases all jobs without a `start`. Takes a cycle for each entry.
    Procedure: see `procedure_ports`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(procedure_ports(config, writes=("status", "roster", "entry")))

    def elaborate(self, platform):
        m = Module()
        config, tables = self.config, self.tables
        index, job = Signal(range(config.members)), Signal(range(config.jobs))
        all_jobs = Signal(init=1)
        m.d.comb += [tables.job.eq(Mux(all_jobs, job, self.request.headers.frame.job)), tables.member.eq(index)]
        with m.FSM(init="ERASE"):
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "ERASE"
            with m.State("ERASE"):
                m.d.comb += [tables.status_write.eq(1), tables.roster_write.eq(1), tables.entry_write.eq(1)]
                m.d.sync += index.eq(index + 1)
                with m.If(index == config.members - 1):
                    m.d.sync += [index.eq(0), job.eq(job + 1)]
                    with m.If(~all_jobs | (job == config.jobs - 1)):
                        m.d.comb += self.done.eq(1)
                        m.d.sync += all_jobs.eq(0)
                        m.next = "IDLE"
        return m

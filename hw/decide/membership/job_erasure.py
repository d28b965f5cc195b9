"""The end of a job; and after a reset, of all jobs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hw.decide.membership.procedure import procedure_ports
from hw.interface.rows import slot_number
from iswitch.config import Config

__all__ = ["JobErasure"]

WRITES = {"status": (), "roster": (), "entry": (), "ring": (), "slot": ("state", "incarnation")}
"""An empty slot has no content, so its other fields may have any value."""

OVERWRITES = ("settings", "sender", "claims", "acknowledged", "heard")
"""Records that no logic reads without a job. They are written only for their parity."""


class JobErasure(wiring.Component):
    """Erases a job and all its entries. The fields that only a creator and a new member write may stay, because no
    logic reads them. The job number gets its next challenge.

    With `wipes`, which is constant while it works, it also writes all other rows of the job, so that each has the right
    parity, and empties all slots. After a reset, which clears no memory, it wipes all jobs without a `start`.

    The job's row must be here in the cycle after `start`. The end of a job takes a cycle for each entry; its slots
    vanish with the next incarnation of the ring. Wiping a job takes a cycle for each entry or slot, whichever are more.
    Procedure: see `procedure_ports`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({**procedure_ports(config, writes=WRITES, overwrites=OVERWRITES), "wipes": In(1)})

    def elaborate(self, platform):
        m = Module()
        config, tables = self.config, self.tables
        index, job = Signal(range(max(config.members, config.slots))), Signal(range(config.jobs))
        all_jobs, wipes, next_index, is_last = Signal(init=1), Signal(), Signal.like(index), Signal()
        last = Mux(wipes, max(config.members, config.slots), config.members) - 1
        m.d.sync += [index.eq(next_index), is_last.eq(next_index == last)]
        m.d.comb += [
            wipes.eq(all_jobs | self.wipes),
            tables.job.eq(Mux(all_jobs, job, self.request.headers.frame.job)),
            tables.member.eq(index),
            tables.slot.eq(slot_number(config, tables.job, index)),
            tables.status_next.challenge.eq(Mux(all_jobs, 0, tables.job_row.challenge + 1)),
        ]
        with m.FSM(init="ERASE"):
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "ERASE"
            with m.State("ERASE"):
                is_entry = index < config.members
                m.d.comb += [
                    tables.status_write.eq(index == 0),
                    tables.roster_write.eq(1),
                    tables.entry_write.eq(is_entry),
                    tables.ring_write.eq(wipes),
                    tables.slot_write.eq(wipes & (index < config.slots)),
                    tables.settings_write.eq(wipes),
                    tables.sender_write.eq(wipes & is_entry),
                    tables.claims_write.eq(wipes),
                    tables.acknowledged_write.eq(Mux(wipes, ~0, 0)),
                    tables.heard_write.eq(Mux(wipes, ~0, 0)),
                ]
                m.d.comb += next_index.eq(Mux(is_last, 0, index + 1))
                with m.If(is_last):
                    m.d.sync += job.eq(job + 1)
                    with m.If(~all_jobs | (job == config.jobs - 1)):
                        m.d.comb += self.done.eq(1)
                        m.d.sync += all_jobs.eq(0)
                        m.next = "IDLE"
        return m

"""A member leaves its job, by a Leave or because it is evicted."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hw.decide.membership.procedure import FollowUp, procedure_ports
from hw.decide.rules.withdrawal import withdraw_claims
from hw.decide.tables.access import write_back
from iswitch.config import Config
from iswitch.wire import NO_MEMBER

__all__ = ["Departure"]


class Departure(wiring.Component):
    """Takes the member out of the job: it is no longer live or joining, owns no rank and claims nothing.

    The slots have to be swept afterwards, because none waits for the member any more. If only members are left that
    were admitted but have no state yet, the job ends instead. At a leaf which its parent knows, the parent has to
    release the switch first: nothing is written, and `requests_parent` says, in the cycle of `done`, that a Leave has
    to go up. The switch does not answer the member's own Leave; its retransmissions also trigger those of the switch.

    The rows of job and member must be here in the cycle of `start`. Takes 1 cycle. Procedure: see
    `procedure_ports`. Source: `remove_member` of `host/iswitch/golden/decide/command.py`; `is_last_leave` of
    `host/iswitch/golden/tree_member.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        status = ("challenge", "ranks") if config.uplinks else ("challenge",)
        writes = {"roster": ("live", "joining"), "entry": ("live", "left"), "claims": (), "status": status}
        super().__init__({**procedure_ports(config, writes=writes), "requests_parent": Out(1)})

    def elaborate(self, platform):
        m = Module()
        config, request, tables, uplinks = self.config, self.request, self.tables, self.config.uplinks
        job, row = tables.job_row, tables.member_row
        bit, remaining = Signal(config.members), Signal(config.members)
        m.d.comb += [
            bit.eq(1 << self.member),
            remaining.eq(job.live & ~bit),
            tables.job.eq(request.headers.frame.job),
            tables.member.eq(self.member),
            *write_back(tables, "roster", "entry", "status"),
            tables.status_next.challenge.eq(job.challenge + 1),
        ]
        withdraw_claims(m, tables.claims_row, tables.claims_next, bit)
        # Conditions of the job's row, a cycle later.
        last_member, parent_knows = Signal(), Signal()
        m.d.sync += last_member.eq((remaining & ~job.admitted) == 0)
        if uplinks:
            m.d.sync += parent_knows.eq(request.is_leaf & (job.up_member != NO_MEMBER))

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "LEAVE"
            with m.State("LEAVE"):
                m.next = "IDLE"
                with m.If(last_member & parent_knows):
                    m.d.comb += [self.done.eq(1), self.requests_parent.eq(1)]
                with m.Else():
                    m.d.comb += [
                        tables.entry_write.eq(1),
                        tables.entry_next.live.eq(0),
                        tables.entry_next.left.eq(1),
                        tables.roster_write.eq(1),
                        tables.roster_next.live.eq(remaining),
                        tables.roster_next.joining.eq(job.joining & ~bit),
                        tables.claims_write.eq(1),
                    ]
                    if uplinks:
                        m.d.comb += tables.status_next.ranks.eq(job.ranks & ~row.ranks)
                    with m.If(last_member):
                        m.d.comb += [self.done.eq(1), self.follow_up.eq(FollowUp.ERASE_JOB)]
                    with m.Else():
                        m.d.comb += [
                            tables.status_write.eq(1),
                            self.done.eq(1),
                            self.follow_up.eq(FollowUp.SWEEP_SLOTS),
                        ]
        return m

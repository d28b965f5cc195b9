"""The search for the entry that a Join receives."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.procedure import procedure_ports, wait_row
from hw.decide.membership.settings import agreement, limits, limits_in_tree
from hw.decide.rules.first_failing import first_failing
from hw.decide.rules.sender import matches_sender
from hw.decide.tables.access import write_back
from hw.stream.reduction import lowest_set
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, JobState, Reason

__all__ = ["EntrySearch"]


HOLDER_WRITES = {"status": ("ranks",), "roster": ("live",), "entry": ("pending", "live", "token")}
"""What changes when an entry is cleared."""


class EntrySearch(wiring.Component):
    """Checks a Join's settings, then looks at the job's entries: finds the sender's own, the wanted or the lowest one.

    With `done` and the reason DONE, `entry` is the index that the Join gets, and `own` says that the sender has it
    already. An entry is free, or it yields: a pending one always, and while the job forms that of a `silent` member. In
    a tree a rank belongs to one member. If an entry that yields has a rank that the Join brings, the entry is cleared,
    and the search begins again. `tree_closed`: a running tree accepts no Join.

    Takes 4 cycles and one for each entry, once more for each entry that is cleared. Procedure: see `procedure_ports`.
    Source: docs/protocol.md section 4, the order of a Join's checks; section 7, ranks.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                **procedure_ports(config, writes=HOLDER_WRITES if config.uplinks else {}),
                "silent": In(config.members),
                "tree_closed": In(1),
                "entry": Out(range(config.members)),
                "own": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, uplinks, tables = self.config, self.config.uplinks, self.tables
        frame, settings, job, row = (
            self.request.headers.frame,
            self.request.headers.body,
            tables.job_row,
            tables.member_row,
        )
        # `index` points at an entry; the row that is there belongs to `previous`.
        index, previous, step = (
            Signal(range(config.members + 1)),
            Signal(range(config.members + 1)),
            Signal(range(config.members + 2)),
        )
        own_found, own = Signal(), Signal.like(index)
        free, yielding, ranks_taken = (
            Signal(config.members, name=name) for name in ("free", "yielding", "ranks_taken")
        )
        wanted, ranks, ranks_below = Signal(8), Signal(32), Signal(32)
        rank_is_taken, rank_not_allowed = Signal(), Signal()
        holder_found, holder = Signal(), Signal.like(index)
        refusal = Signal(Reason)
        every_rank = (1 << settings.world[:6]) - 1
        port_same, address_same = matches_sender(self.request.headers, row)
        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(index),
            self.reason.eq(refusal),
            *write_back(tables, *(HOLDER_WRITES if uplinks else ())),
        ]
        m.d.sync += [
            previous.eq(index),
            rank_not_allowed.eq((ranks & ~ranks_below).any()),
            ranks_below.eq(Mux(self.request.is_leaf, self.request.parent.ranks, every_rank) if uplinks else every_rank),
        ]

        rules = [
            *(limits_in_tree(config, self.request) if uplinks else []),
            *limits(config, self.request),
            *agreement(self.request, job),
        ]
        holds = Signal(len(rules))
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "COMPARE_SETTINGS"
            with m.State("COMPARE_SETTINGS"):
                m.d.sync += [
                    holds.eq(Cat(good for good, _ in rules)),
                    index.eq(0),
                    step.eq(0),
                    own_found.eq(0),
                    holder_found.eq(0),
                    free.eq(0),
                    yielding.eq(0),
                    ranks_taken.eq(0),
                    rank_is_taken.eq(0),
                    wanted.eq(frame.member),
                    ranks.eq(Mux(frame.member[5:] == 0, 1 << frame.member[:5], 0)),
                ]
                if uplinks:
                    with m.If(frame.members.any()):
                        m.d.sync += [wanted.eq(lowest_set(frame.members)), ranks.eq(frame.members)]
                m.next = "CHECK_SETTINGS"
            with m.State("CHECK_SETTINGS"):
                fails, reason = first_failing(zip(holds, (name for _, name in rules), strict=True))
                m.d.sync += refusal.eq(Mux(fails, reason, Reason.DONE))
                m.next = "SCAN_ENTRIES"
            with m.State("SCAN_ENTRIES"):
                m.d.sync += [index.eq(index + 1), step.eq(step + 1)]
                with m.If(step != 0):
                    taken = row.pending | row.live
                    # In a job that runs, a silent member is evicted when another one waits for it.
                    yields = row.pending | (
                        row.live & (job.state == JobState.FORMING) & self.silent.bit_select(previous, 1)
                    )
                    is_own = taken & (row.nonce == settings.nonce) & port_same & address_same
                    with m.If(is_own & ~own_found):
                        m.d.sync += [own_found.eq(1), own.eq(previous)]
                    with m.If(previous < settings.world):
                        m.d.sync += [
                            free.bit_select(previous, 1).eq(~taken & ranks_below.bit_select(previous, 1)),
                            yielding.bit_select(previous, 1).eq(yields),
                        ]
                    if uplinks:
                        with m.If(taken):
                            m.d.sync += ranks_taken.eq(ranks_taken | row.ranks)
                            with m.If((row.ranks & ranks).any() & (previous != wanted)):
                                m.d.sync += [
                                    rank_is_taken.eq(rank_is_taken | ~yields),
                                    holder_found.eq(1),
                                    holder.eq(previous),
                                ]
                with m.If(refusal != Reason.DONE):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
                with m.Elif(step == config.members):
                    m.next = "CHOOSE_ENTRY"
            with m.State("CHOOSE_ENTRY"):
                empty = free & ~ranks_taken
                m.d.comb += [self.done.eq(1), self.own.eq(own_found)]
                m.next = "IDLE"
                with m.If(own_found):
                    m.d.comb += self.entry.eq(own)
                with m.Elif(self.request.has_token):
                    # The confirmation names an entry that no longer exists, so it creates none.
                    m.d.comb += self.reason.eq(Reason.TOKEN)
                with m.Elif(self.tree_closed | rank_is_taken | rank_not_allowed):
                    m.d.comb += self.reason.eq(Reason.MEMBER)
                with m.Elif(wanted != NO_MEMBER):
                    m.d.comb += self.entry.eq(wanted)
                    with m.If((wanted >= config.members) | ~(free | yielding).bit_select(wanted, 1)):
                        m.d.comb += self.reason.eq(Reason.MEMBER)
                    if uplinks:
                        with m.Elif(holder_found):
                            m.d.comb += self.done.eq(0)
                            m.d.sync += index.eq(holder)
                            m.next = "READ_HOLDER"
                with m.Else():
                    m.d.comb += self.entry.eq(Mux(empty.any(), lowest_set(empty), lowest_set(yielding)))
                    with m.If(~(empty | yielding).any()):
                        m.d.comb += self.reason.eq(Reason.MEMBER)
            if uplinks:
                wait_row(m, "READ_HOLDER", then="CLEAR_HOLDER", cycles=1)
                with m.State("CLEAR_HOLDER"):
                    m.d.comb += [
                        tables.entry_write.eq(1),
                        tables.entry_next.pending.eq(0),
                        tables.entry_next.live.eq(0),
                        tables.entry_next.token.eq(0),
                        tables.status_write.eq(1),
                        tables.status_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0)),
                        tables.roster_write.eq(1),
                        tables.roster_next.live.eq(job.live & ~(1 << index)),
                    ]
                    m.next = "COMPARE_SETTINGS"
        return m

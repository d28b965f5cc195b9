"""The search for the entry that a Join receives."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.procedure import FollowUp, job_exists, procedure_ports, wait_row
from hw.decide.membership.settings import agreement, limits, limits_in_tree, ranks_of_world
from hw.decide.rules.first_failing import first_failing
from hw.decide.rules.sender import matches_sender
from hw.decide.tables.access import write_back
from hw.stream.reduction import lowest_set, reaches
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, JobState, Reason

__all__ = ["EntrySearch"]


HOLDER_WRITES = {"status": ("ranks",), "roster": ("live",), "entry": ("live", "left")}
"""What changes when an entry is cleared."""


class EntrySearch(wiring.Component):
    """Checks a Join's settings and challenge, and looks at the job's entries: finds the sender's own, the wanted or the
    lowest one.

    With `done` and the reason DONE, `entry` is the index that the Join gets. `own`: the sender is that member already;
    `moves`: it was, at another port or address. `replaces`: the Join takes the place of a member. While the job forms,
    and `in_tree`, the entry of a `stale` member yields; `in_tree`, so does an entry with the token of the Join, or with
    its port and addresses, if both are of switches or both of workers. A Join that names ranks is that of a switch,
    must carry the operator key, and is never that of a worker's entry. In a tree a rank belongs to one member. If an
    entry that yields has a rank that the Join brings, the entry is cleared, and the search begins again.

    If all live members are stale, a Join of no member that carries the challenge can be refused with CHALLENGE. The end
    of the job has to follow if the key or a setting differs; in a tree, if the job runs or the Join is refused. If a
    Join finds no free entry in a job that runs, the departure of `entry` has to follow, a stale member whose place it
    can have.

    Takes 4 cycles and one for each entry, once more for each entry that is cleared. Procedure: see `procedure_ports`.
    Source: docs/protocol.md section 4, the order of a Join's checks; docs/tree.md, ranks.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                **procedure_ports(config, writes=HOLDER_WRITES if config.uplinks else {}),
                "stale": In(config.members),
                "in_tree": In(1),
                "entry": Out(range(config.members)),
                "own": Out(1),
                "moves": Out(1),
                "replaces": Out(1),
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
        index, previous = Signal(range(config.members + 1)), Signal(range(config.members + 1))
        # The entry found is the sender's own, or else the one chosen: it cannot be had, or its member yields.
        own_found, found, objection, yields = Signal(), Signal.like(index), Signal(), Signal()
        free, yielding, ranks_taken = (
            Signal(config.members, name=name) for name in ("free", "yielding", "ranks_taken")
        )
        wanted, ranks, ranks_below = Signal(8), Signal(32), Signal(32)
        rank_is_taken, rank_not_allowed = Signal(), Signal()
        holder_found, holder = Signal(), Signal.like(index)
        refusal, limit_fails, cleared = Signal(Reason), Signal(), Signal()
        exists, challenge_matches, abandoned = Signal(), Signal(), Signal()
        own_moves, admits_later = Signal(), Signal()
        # Of the entry `previous`, and of the request.
        is_stale, in_world, names_ranks = Signal(), Signal(), Signal()
        port_same, address_same = matches_sender(self.request.headers, row)
        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(index),
            *write_back(tables, *(HOLDER_WRITES if uplinks else ())),
            exists.eq(job_exists(self.request, job)),
            self.entry.eq(found),
            self.own.eq(own_found),
            self.moves.eq(own_moves),
            self.replaces.eq(~own_found & (cleared | yields)),
        ]
        m.d.sync += [
            challenge_matches.eq(self.request.challenge == job.challenge),
            # An entry that is cleared was live when the Join came.
            abandoned.eq(Mux(cleared, abandoned, exists & ((job.live & ~self.stale) == 0))),
            admits_later.eq(~self.in_tree & exists & (job.state != JobState.FORMING)),
            previous.eq(index),
            is_stale.eq(self.stale.bit_select(index, 1)),
            in_world.eq(index < settings.world),
        ]
        # Without trees the member of an index has the rank of that number, so the size of the job limits both.
        if uplinks:
            m.d.sync += [
                rank_not_allowed.eq((ranks & ~ranks_below).any()),
                ranks_below.eq(Mux(self.request.is_leaf, self.request.parent.ranks, ranks_of_world(settings.world))),
                names_ranks.eq(frame.members.any()),
            ]

        limiting = [*(limits_in_tree(config, self.request) if uplinks else []), *limits(config, self.request)]
        rules = [*limiting, *agreement(self.request, job)]
        holds = Signal(len(rules))
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += cleared.eq(0)
                with m.If(self.start):
                    m.next = "COMPARE_SETTINGS"
            with m.State("COMPARE_SETTINGS"):
                m.d.sync += [
                    holds.eq(Cat(good for good, _ in rules)),
                    index.eq(0),
                    own_found.eq(0),
                    holder_found.eq(0),
                    free.eq(0),
                    yielding.eq(0),
                    ranks_taken.eq(0),
                    rank_is_taken.eq(0),
                    wanted.eq(frame.member),
                ]
                if uplinks:
                    m.d.sync += ranks.eq(Mux(frame.member[5:] == 0, 1 << frame.member[:5], 0))
                    with m.If(names_ranks):
                        m.d.sync += [wanted.eq(lowest_set(frame.members)), ranks.eq(frame.members)]
                m.next = "CHECK_SETTINGS"
            with m.State("CHECK_SETTINGS"):
                fails, reason = first_failing(zip(holds, (name for _, name in rules), strict=True))
                m.d.sync += [
                    refusal.eq(Mux(fails, reason, Reason.DONE)),
                    limit_fails.eq(~holds[: len(limiting)].all()),
                    index.eq(index + 1),
                ]
                m.next = "SCAN_ENTRIES"
            with m.State("SCAN_ENTRIES"):
                m.d.sync += index.eq(index + 1)
                taken = row.live
                # In a job that runs, a silent member is evicted when another one waits for it; a tree begins anew.
                token_same = row.token == frame.token
                # A leaf has the token of one of its workers, so a Join of a worker is never that of a switch.
                same_kind = row.sends_uplinks == names_ranks if uplinks else 1
                has_restarted = self.in_tree & same_kind & (token_same | port_same & address_same)
                entry_yields = row.live & ((~admits_later | abandoned) & is_stale | has_restarted)
                is_own = taken & same_kind & (row.nonce == settings.nonce) & token_same
                with m.If(is_own & ~own_found):
                    m.d.sync += [own_found.eq(1), found.eq(previous), own_moves.eq(~(port_same & address_same))]
                with m.If(in_world):
                    m.d.sync += [
                        free.bit_select(previous, 1).eq(
                            ~taken & (ranks_below.bit_select(previous, 1) if uplinks else 1)
                        ),
                        yielding.bit_select(previous, 1).eq(entry_yields),
                    ]
                if uplinks:
                    with m.If(taken):
                        m.d.sync += ranks_taken.eq(ranks_taken | row.ranks)
                        with m.If((row.ranks & ranks).any() & (previous != wanted)):
                            m.d.sync += [
                                rank_is_taken.eq(rank_is_taken | ~entry_yields),
                                holder_found.eq(1),
                                holder.eq(previous),
                            ]
                with m.If(limit_fails):
                    m.d.comb += [self.done.eq(1), self.reason.eq(refusal)]
                    m.next = "IDLE"
                with m.Elif(previous == config.members - 1):
                    m.next = "CHOOSE_ENTRY"
            with m.State("CHOOSE_ENTRY"):
                empty, wants_any = free & ~ranks_taken, wanted == NO_MEMBER
                wanted_fits = ~reaches(wanted, config.members) & (free | yielding).bit_select(wanted, 1)
                # A member that is silent while the job runs may live, so a free entry is better than its place.
                takes_place = yielding.any() & ~(admits_later & empty.any())
                fits = Mux(wants_any, yielding.any() | empty.any(), wanted_fits)
                m.d.sync += [
                    objection.eq(rank_is_taken | rank_not_allowed | ~fits),
                    yields.eq(Mux(wants_any, takes_place, yielding.bit_select(wanted, 1))),
                ]
                with m.If(~own_found):
                    m.d.sync += found.eq(Mux(wants_any, lowest_set(Mux(takes_place, yielding, empty)), wanted))
                m.next = "ANSWER"
            with m.State("ANSWER"):
                refused, begins_anew = refusal != Reason.DONE, self.in_tree & (job.state != JobState.FORMING)
                ends = refused | self.in_tree & objection | begins_anew
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
                with m.If(own_found):
                    with m.If(refused):
                        m.d.comb += self.reason.eq(refusal)
                    with m.Elif(own_moves):
                        m.d.comb += self.reason.eq(Mux(challenge_matches, Reason.DONE, Reason.CHALLENGE))
                with m.Elif(~challenge_matches):
                    m.d.comb += self.reason.eq(Reason.CHALLENGE)
                with m.Elif(abandoned & ends):
                    m.d.comb += [self.reason.eq(Reason.CHALLENGE), self.follow_up.eq(FollowUp.ERASE_JOB)]
                with m.Elif(abandoned & admits_later & ~(refused | objection) & yields):
                    m.d.comb += [self.reason.eq(Reason.CHALLENGE), self.follow_up.eq(FollowUp.DEPART)]
                with m.Else():
                    m.d.comb += self.reason.eq(Mux(refused, refusal, Mux(objection, Reason.MEMBER, Reason.DONE)))
                    if uplinks:
                        with m.If(~(refused | objection) & (wanted != NO_MEMBER) & holder_found):
                            m.d.comb += self.done.eq(0)
                            m.d.sync += index.eq(holder)
                            m.next = "READ_HOLDER"
            if uplinks:
                wait_row(m, "READ_HOLDER", then="CLEAR_HOLDER", cycles=1)
                with m.State("CLEAR_HOLDER"):
                    m.d.comb += [
                        tables.entry_write.eq(1),
                        tables.entry_next.live.eq(0),
                        tables.entry_next.left.eq(0),
                        tables.status_write.eq(1),
                        tables.status_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0)),
                        tables.roster_write.eq(1),
                        tables.roster_next.live.eq(job.live & ~(1 << index)),
                    ]
                    m.d.sync += cleared.eq(1)
                    m.next = "COMPARE_SETTINGS"
        return m

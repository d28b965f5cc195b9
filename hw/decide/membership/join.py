"""A Join: the job is created, an entry taken, or a member bound to a new address."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.entry_search import EntrySearch
from hw.decide.membership.procedure import FollowUp, job_exists, procedure_ports, wait_row
from hw.decide.membership.settings import ranks_of_world
from hw.decide.rules.renewal import begin_anew
from hw.decide.tables.access import connect_rows, connect_writes, write_back
from hw.interface.address import SWITCH_UDP, Binding
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, JobState, Reason

__all__ = ["Join"]

REJECT_BASE = 58 + 127
"""window64 takes |x| < 2^(58 - F): 64 bits less the sign and 5 for the sum of 32 workers, as a biased exponent."""


class Join(wiring.Component):
    """Finds the sender's entry (`EntrySearch`), and if it is not a member, makes it one.

    The job is created if it does not exist; then the ring has to be emptied. While the job forms, a new member is live
    at once, and the last one makes the job run; in a job that runs, it is joining. In a tree that runs, the new member
    is live at once, and the job begins anew: the ring has to be emptied. A member that comes from another port or
    address is bound to that. In the cycle of `grants`, the sender has the entry `entry`. If the departure of a silent
    member has to follow, `entry` is that member's in the cycle after `done`.

    `binding` announces a member's port and address, and at a leaf that creates a job those of its parent. `draw` takes
    the number at `random` for epoch and first seq.

    Takes what the search takes, and 3 cycles for an entry of the sender's own, 4 for a new one, 2 more for a new job,
    and 1 more for that at a leaf. Procedure: see `procedure_ports`. Source: `host/iswitch/golden/decide/join.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                **procedure_ports(config, writes=("settings", "status", "roster", "sender", "entry", "heard")),
                "stale": In(config.members),
                "random": In(64),
                "draw": Out(1),
                "binding": Out(stream.Signature(Binding(config), always_ready=True)),
                "grants": Out(1),
                "entry": Out(range(config.members + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, request, tables, uplinks = self.config, self.request, self.tables, self.config.uplinks
        frame, job, row = request.headers.frame, tables.job_row, tables.member_row
        is_leaf = request.is_leaf if uplinks else Const(0)
        exists, entry, bit = Signal(), self.entry, Signal(config.members)
        # The row of an entry comes a cycle later as well.
        m.d.sync += bit.eq(1 << entry)
        m.d.comb += [
            exists.eq(job_exists(request, job)),
            tables.job.eq(frame.job),
            tables.member.eq(entry),
            *write_back(tables, "status", "roster"),
            *self._settings_and_sender(),
            *self._new_entry(bit),
            self.binding.payload.job.eq(frame.job),
            self.binding.payload.member.eq(entry),
            self.binding.payload.port.eq(tables.sender_next.port),
            self.binding.payload.address.eq(tables.sender_next.address),
        ]
        in_tree, runs = Signal(), Signal()
        if uplinks:
            m.d.sync += [
                in_tree.eq(job.tree | is_leaf | (frame.members != 0)),
                runs.eq(exists & (job.state != JobState.FORMING)),
            ]

        m.submodules.search = search = EntrySearch(config)
        connect_rows(m, tables, search.tables)
        m.d.comb += [
            search.request.eq(request),
            search.member.eq(self.member),
            search.stale.eq(self.stale),
            search.in_tree.eq(in_tree),
        ]

        # The members, and in trees the ranks, after a new member has come; a cycle after the rows. All are ranks of the
        # job: `EntrySearch` grants no others.
        live, all_joined, ranks = Signal(config.members), Signal(), Signal(config.members)
        every_rank = ranks_of_world(request.headers.body.world)[: config.members]
        m.d.comb += live.eq(job.live | bit)
        if uplinks:
            own_ranks = Mux(frame.members == 0, bit, frame.members)
            m.d.comb += ranks.eq((job.ranks & ~Mux(row.live, row.ranks, 0)) | own_ranks)
            m.d.sync += all_joined.eq(~is_leaf & (ranks == every_rank))
        else:
            m.d.sync += all_joined.eq(live == every_rank)

        # What a new challenge, epoch and first seq would be; the states below decide whether they are written.
        own, moves, replaces, created, begins_anew = Signal(), Signal(), Signal(), Signal(), Signal()
        status, changes = tables.status_next, Signal()
        m.d.comb += [
            changes.eq(own | exists & (replaces | begins_anew)),
            status.challenge.eq(Mux(changes, job.challenge + 1, job.challenge)),
        ]
        with m.If(~exists):
            m.d.comb += [
                status.epoch.eq(self.random[:16]),
                status.first_seq.eq(self.random[32:] & (2**32 - config.slots)),
                status.threshold.eq(request.headers.body.threshold),
            ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [created.eq(0), own.eq(0), replaces.eq(0), begins_anew.eq(0)]
                m.d.comb += search.start.eq(self.start)
                with m.If(self.start):
                    m.next = "SEARCH"
            with m.State("SEARCH"):
                if uplinks:
                    m.d.comb += write_back(tables, "entry")
                connect_writes(m, tables, search.tables)
                with m.If(search.done):
                    m.d.sync += [
                        entry.eq(search.entry),
                        own.eq(search.own),
                        moves.eq(search.moves),
                        replaces.eq(search.replaces),
                        begins_anew.eq(in_tree & runs),
                    ]
                    m.next = "READ_ENTRY"
                    with m.If(search.reason != Reason.DONE):
                        m.d.comb += [
                            self.done.eq(1),
                            self.reason.eq(search.reason),
                            self.follow_up.eq(search.follow_up),
                        ]
                        m.next = "IDLE"
            wait_row(m, "READ_ENTRY", then="DECIDE")
            with m.State("DECIDE"):
                m.next = "TAKE_ENTRY"
                with m.If(own):
                    self._greet_member(m, moves, bit)
                    m.next = "IDLE"
                with m.Elif(~exists):
                    m.d.sync += created.eq(1)
                    self._create_job(m)
                    m.next = "READ_JOB"
            wait_row(m, "READ_JOB", then="TAKE_ENTRY")
            with m.State("TAKE_ENTRY"):
                self._take_entry(m, bit, live, all_joined, ranks, begins_anew, is_leaf)
                empties = created | begins_anew
                m.d.comb += [self.done.eq(1), self.follow_up.eq(Mux(empties, FollowUp.EMPTY_RING, FollowUp.NONE))]
                m.next = "IDLE"
                if uplinks:
                    with m.If(created & is_leaf):
                        m.d.comb += self.done.eq(0)
                        m.next = "BIND_PARENT"
            if uplinks:
                with m.State("BIND_PARENT"):
                    self._bind_parent(m)
                    m.d.comb += [self.done.eq(1), self.follow_up.eq(FollowUp.EMPTY_RING)]
                    m.next = "IDLE"
        return m

    def _settings_and_sender(self):
        """Return the fields that a creator and a new member set; only `settings_write` and `sender_write` store
        them."""
        settings, frame = self.request.headers.body, self.request.headers.frame
        created, sender = self.tables.settings_next, self.tables.sender_next
        limit = REJECT_BASE - settings.fraction
        return [
            created.world.eq(settings.world),
            created.numeric.eq(settings["format"]),
            created.fraction.eq(settings.fraction),
            created.limit.eq(Mux(limit > 255, 255, limit)),
            created.elements.eq(settings.elements),
            created.mode.eq(settings.mode),
            created.key.eq(settings.key),
            created.deadline_us.eq(settings.deadline_us),
            created.evict_us.eq(settings.evict_us),
            created.staleness.eq(settings.staleness),
            created.segments.eq(settings.segments),
            created.job_token.eq(settings.job_token),
            sender.nonce.eq(settings.nonce),
            sender.port.eq(self.request.headers.arrival.port),
            sender.address.mac.eq(frame.eth_src),
            sender.address.ip.eq(frame.ip_src),
            sender.address.udp.eq(frame.udp_src),
        ]

    def _new_entry(self, bit):
        """Return the fields of a new member's entry; only `entry_write` stores them."""
        entry, frame = self.tables.entry_next, self.request.headers.frame
        fields = [entry.live.eq(1), entry.left.eq(0), entry.token.eq(frame.token), entry.number.eq(0)]
        if self.config.uplinks:
            fields += [
                entry.ranks.eq(Mux(frame.members == 0, bit, frame.members)),
                entry.sends_uplinks.eq(frame.members != 0),
            ]
        return fields

    def _create_job(self, m):
        tables, status = self.tables, self.tables.status_next
        m.d.comb += [
            self.draw.eq(1),
            tables.settings_write.eq(1),
            tables.status_write.eq(1),
            tables.roster_write.eq(1),
            status.state.eq(JobState.FORMING),
            status.renewed.eq(0),
            tables.roster_next.live.eq(0),
        ]
        if self.config.uplinks:
            frame = self.request.headers.frame
            m.d.comb += [
                status.tree.eq(0),
                status.ranks.eq(0),
                status.up_nonce.eq(self.request.headers.body.nonce),
                status.up_token.eq(frame.token),
                status.up_member.eq(NO_MEMBER),
                status.up_job_token.eq(0),
                status.up_challenge.eq(0),
                status.up_ran.eq(0),
                status.up_reason.eq(Reason.DONE),
            ]

    def _greet_member(self, m, moves, bit):
        """Answer a member's Join. If the member has moved, bind it to the port and address from which the Join came."""
        tables = self.tables
        m.d.comb += [self.done.eq(1), self.grants.eq(1), tables.heard_write.eq(bit)]
        with m.If(moves):
            m.d.comb += [tables.sender_write.eq(1), self.binding.valid.eq(1), tables.status_write.eq(1)]

    def _take_entry(self, m, bit, live, all_joined, ranks, begins_anew, is_leaf):
        """Make the sender a member: live while the job forms, or if it begins anew, and afterwards joining."""
        tables, frame = self.tables, self.request.headers.frame
        job = tables.job_row
        m.d.comb += [
            self.grants.eq(1),
            tables.entry_write.eq(1),
            tables.sender_write.eq(1),
            tables.heard_write.eq(bit),
            tables.roster_write.eq(1),
            tables.status_write.eq(1),
            self.binding.valid.eq(1),
        ]
        with m.If(job.state == JobState.FORMING):
            m.d.comb += [
                tables.roster_next.live.eq(live),
                tables.status_next.state.eq(Mux(all_joined, JobState.RUNNING, JobState.FORMING)),
            ]
        with m.Elif(~begins_anew):
            m.d.comb += tables.roster_next.joining.eq(job.joining | bit)
        if self.config.uplinks:
            m.d.comb += tables.status_next.tree.eq(job.tree | (frame.members != 0))
            with m.If((job.state == JobState.FORMING) | begins_anew):
                m.d.comb += tables.status_next.ranks.eq(ranks)
            with m.If(begins_anew):
                m.d.comb += tables.roster_next.live.eq(live)
                m.d.comb += [tables.roster_next.admitted.eq(0), *begin_anew(self.config, tables, is_leaf=is_leaf)]

    def _bind_parent(self, m):
        """Bind the parent as members are, with the index behind theirs."""
        parent, bound = self.request.parent, self.binding.payload
        m.d.comb += [
            self.binding.valid.eq(1),
            bound.member.eq(self.config.members),
            bound.port.eq(parent.port),
            bound.address.mac.eq(parent.mac),
            bound.address.ip.eq(parent.ip),
            bound.address.udp.eq(SWITCH_UDP),
        ]

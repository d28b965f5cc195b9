"""A Join: the job is created, an entry taken, and the member confirmed."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.membership.entry_search import EntrySearch
from hw.decide.membership.procedure import FollowUp, job_exists, procedure_ports, wait_row
from hw.decide.tables.access import connect_rows, connect_writes, write_back
from hw.interface.address import SWITCH_UDP, Binding
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, JobState, Reason

__all__ = ["Join"]

REJECT_BASE = 58 + 127
"""window64 takes |x| < 2^(58 - F): 64 bits less the sign and 5 for the sum of 32 workers, as a biased exponent."""


class Join(wiring.Component):
    """Finds the sender's entry (`EntrySearch`), and creates it or confirms it.

    A sender without an entry gets one, pending, with a random token. The job is created if it does not exist; then the
    ring has to be emptied. A sender that has an entry receives its token again. If the Join carries that token, a
    pending member becomes live, or in a job that runs, joining. In the cycle of `grants`, the sender has the entry
    `entry` and the token `token`.

    `binding` announces the new member's port and address, and at a leaf that creates a job those of its parent. `draw`
    takes the number at `random`: for epoch and first seq, for a token, for the nonce at the parent.

    Takes what the search takes, and 3 cycles for an entry of the sender's own, 2 for a new one, 2 more for a new job,
    and 3 more for that at a leaf. Procedure: see `procedure_ports`. Source: `sim/model/decide/join.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                **procedure_ports(config, writes=("settings", "status", "roster", "sender", "entry", "heard")),
                "silent": In(config.members),
                "random": In(64),
                "draw": Out(1),
                "binding": Out(stream.Signature(Binding(config), always_ready=True)),
                "grants": Out(1),
                "entry": Out(range(config.members + 1)),
                "token": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, request, tables, uplinks = self.config, self.request, self.tables, self.config.uplinks
        frame, job, row = request.headers.frame, tables.job_row, tables.member_row
        is_leaf = request.is_leaf if uplinks else Const(0)
        exists, entry, bit = Signal(), self.entry, Signal(config.members)
        m.d.comb += [exists.eq(job_exists(request, job)), bit.eq(1 << entry)]
        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(entry),
            *write_back(tables, "status", "roster", "entry"),
            *self._settings_and_sender(),
            self.token.eq(self.random[32:] | 1),
            self.binding.payload.job.eq(frame.job),
            self.binding.payload.member.eq(entry),
            self.binding.payload.port.eq(tables.sender_next.port),
            self.binding.payload.address.eq(tables.sender_next.address),
        ]
        tree_closed = Signal()
        if uplinks:
            m.d.sync += tree_closed.eq(exists & (job.tree | is_leaf) & (job.state != JobState.FORMING))

        m.submodules.search = search = EntrySearch(config)
        connect_rows(m, tables, search.tables)
        m.d.comb += [
            search.request.eq(request),
            search.member.eq(self.member),
            search.silent.eq(self.silent),
            search.tree_closed.eq(tree_closed),
        ]

        # Conditions of the sender's own row, a cycle after the row is valid.
        other_token, all_joined, live = Signal(), Signal(), Signal(config.members)
        confirms = request.has_token
        m.d.comb += live.eq(job.live | bit)
        m.d.sync += [other_token.eq(confirms & (frame.token != row.token)), all_joined.eq(popcount(live) == job.world)]
        if uplinks:
            m.d.sync += all_joined.eq(~is_leaf & (popcount(job.ranks | row.ranks) == job.world))

        created = Signal()
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += created.eq(0)
                m.d.comb += search.start.eq(self.start)
                with m.If(self.start):
                    m.next = "SEARCH"
            with m.State("SEARCH"):
                connect_writes(m, tables, search.tables)
                with m.If(search.done):
                    m.d.sync += entry.eq(search.entry)
                    with m.If(search.reason != Reason.DONE):
                        m.d.comb += [self.done.eq(1), self.reason.eq(search.reason)]
                        m.next = "IDLE"
                    with m.Elif(search.own):
                        m.next = "READ_ENTRY"
                    with m.Else():
                        m.next = "CREATE_JOB"
            wait_row(m, "READ_ENTRY", then="CONFIRM")
            with m.State("CONFIRM"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
                with m.If(other_token):
                    m.d.comb += self.reason.eq(Reason.TOKEN)
                with m.Elif(tree_closed & confirms & row.pending):
                    m.d.comb += self.reason.eq(Reason.MEMBER)
                with m.Else():
                    m.d.comb += [self.grants.eq(1), self.token.eq(row.token), tables.heard_write.eq(bit)]
                    with m.If(confirms & row.pending):
                        self._confirm(m, bit, live, all_joined)
            with m.State("CREATE_JOB"):
                m.next = "TAKE_ENTRY"
                with m.If(~exists):
                    m.d.sync += created.eq(1)
                    self._create_job(m)
                    m.next = "READ_JOB"
            wait_row(m, "READ_JOB", then="TAKE_ENTRY")
            with m.State("TAKE_ENTRY"):
                self._take_entry(m, bit)
                m.d.comb += [self.done.eq(1), self.follow_up.eq(Mux(created, FollowUp.EMPTY_RING, FollowUp.NONE))]
                m.next = "IDLE"
                if uplinks:
                    with m.If(created & is_leaf):
                        m.d.comb += self.done.eq(0)
                        m.next = "READ_STATUS"
            if uplinks:
                wait_row(m, "READ_STATUS", then="DRAW_NONCE")
                with m.State("DRAW_NONCE"):
                    self._become_member_of_parent(m)
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

    def _create_job(self, m):
        tables, status, random = self.tables, self.tables.status_next, self.random
        m.d.comb += [
            self.draw.eq(1),
            tables.settings_write.eq(1),
            tables.status_write.eq(1),
            tables.roster_write.eq(1),
            status.state.eq(JobState.FORMING),
            status.epoch.eq(random[:16]),
            status.first_seq.eq(random[32:] & (2**32 - self.config.slots)),
            status.threshold.eq(self.request.headers.body.threshold),
            tables.roster_next.live.eq(0),
        ]
        if self.config.uplinks:
            m.d.comb += [
                status.tree.eq(0),
                status.ranks.eq(0),
                status.up_member.eq(NO_MEMBER),
                status.up_token.eq(0),
                status.up_job_token.eq(0),
                status.up_running.eq(0),
                status.up_reason.eq(Reason.DONE),
            ]

    def _take_entry(self, m, bit):
        """Make the sender's entry pending; if another member owned it, that member is no longer live."""
        tables, entry, frame = self.tables, self.tables.entry_next, self.request.headers.frame
        job, row = tables.job_row, tables.member_row
        m.d.comb += [
            self.draw.eq(1),
            self.grants.eq(1),
            tables.entry_write.eq(1),
            tables.sender_write.eq(1),
            entry.pending.eq(1),
            entry.live.eq(0),
            entry.token.eq(self.token),
            entry.number.eq(0),
            tables.heard_write.eq(bit),
            tables.roster_write.eq(1),
            tables.roster_next.live.eq(job.live & ~bit),
            self.binding.valid.eq(1),
        ]
        if self.config.uplinks:
            m.d.comb += [
                entry.ranks.eq(Mux(frame.members == 0, bit, frame.members)),
                entry.sends_uplinks.eq(frame.members != 0),
                tables.status_write.eq(1),
                tables.status_next.tree.eq(job.tree | (frame.members != 0)),
                tables.status_next.ranks.eq(job.ranks & ~Mux(row.live, row.ranks, 0)),
            ]

    def _become_member_of_parent(self, m):
        """Draw a nonce for the switch. The parent is bound as members are, with the index behind theirs."""
        tables, parent, bound = self.tables, self.request.parent, self.binding.payload
        m.d.comb += [
            self.draw.eq(1),
            tables.status_write.eq(1),
            tables.status_next.up_nonce.eq(self.random),
            self.binding.valid.eq(1),
            bound.member.eq(self.config.members),
            bound.port.eq(parent.port),
            bound.address.mac.eq(parent.mac),
            bound.address.ip.eq(parent.ip),
            bound.address.udp.eq(SWITCH_UDP),
        ]

    def _confirm(self, m, bit, live, all_joined):
        """Make a pending member live while the job forms, and afterwards joining."""
        tables, job, row = self.tables, self.tables.job_row, self.tables.member_row
        m.d.comb += [
            tables.entry_write.eq(1),
            tables.entry_next.pending.eq(0),
            tables.entry_next.live.eq(1),
            tables.roster_write.eq(1),
        ]
        with m.If(job.state == JobState.FORMING):
            m.d.comb += [
                tables.roster_next.live.eq(live),
                tables.status_write.eq(1),
                tables.status_next.state.eq(Mux(all_joined, JobState.RUNNING, JobState.FORMING)),
            ]
            if self.config.uplinks:
                m.d.comb += tables.status_next.ranks.eq(job.ranks | row.ranks)
        with m.Else():
            m.d.comb += tables.roster_next.joining.eq(job.joining | bit)

"""One frame after another: look up, check, decide, write. The switch's protocol state machine."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import exact_log2

from hw.aggregate.claims import Claims
from hw.aggregate.ring import Ring, admission, lowest
from hw.control.checks import Checks
from hw.control.membership import Membership
from hw.control.random import Random
from hw.control.reply import Reply
from hw.control.tables import Binding, Parent, Tables, Verdict, Work, slot_number, slot_row
from hw.layout import layout
from hw.net.forwarder import Forwarder
from hw.net.parser import Headers
from iswitch.config import Config
from iswitch.wire import (
    CONTROL, NOTICE_INTERVAL_US, SILENCE_TICK_US, STALENESS_MAX, UDP_PORT, VERSION, Action, ContributionFlag, Format, JobState, Operation,
    Outcome, Reason, ResultFlag, SlotState, Standing, Stat, Type,
)

__all__ = ["Core", "Trace"]

NOTICES = {Outcome.JOB: Reason.JOB, Outcome.EPOCH: Reason.EPOCH, Outcome.MEMBER: Reason.MEMBER,
           Outcome.TOKEN: Reason.TOKEN, Outcome.HALTED: Reason.HALTED}


UDP_PORT_WIRE = int.from_bytes(UDP_PORT.to_bytes(2, "big"), "little")


class Trace(data.Struct):
    """What became of a frame, for whoever watches."""

    outcome: Outcome
    port: 4
    job: 8
    member: 8
    seq: 32


class Core(wiring.Component):
    """Takes frames' headers one at a time and gives exactly one outcome and one verdict for each, in order.

    An ordinary frame has its verdict 2 cycles after its headers were taken, and the next headers are taken after 2; a request for the replay
    service has its verdict after 3, the next after 4; a contribution, receipt or claim after 5 and 6, or after 5 and 9 while somebody waits to
    join its asynchronous job; a control message takes as many cycles as
    its walk through the tables, and so does a member that is evicted because the frame's sender waits for it. Not ready after a reset
    until the tables are wiped, the `MacTable` among them. `decided` with `trace`, `claimed` with `age`, and `stats` tell of the cycle before.
    `headers` wait while a verdict or a reply cannot be handed on. A verdict with a reply and the reply are offered
    together, each while the other's receiver is ready: a receiver must stay ready until it is served, as a `Cut` and the `ReplyComposer`
    do. A Join or Leave for the parent in `parents` follows the frame that caused it. The truth is `sim/model/tree_switch.py`; the rules are
    docs/protocol.md.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "headers": In(stream.Signature(Headers)), "verdicts": Out(stream.Signature(Verdict(config))),
            "replies": Out(stream.Signature(Reply)), "now_us": In(32), "seed": In(64),
            "own_mac": In(48), "own_ip": In(32), "parents": In(Parent).array(config.jobs),
            "bind": Out(stream.Signature(Binding(config), always_ready=True)),
            "read_address": Out(32), "read_value": In(32),
            "decided": Out(1), "trace": Out(Trace), "claimed": Out(1), "age": Out(range(STALENESS_MAX + 1)),
            "stats": Out(1).array(len(Stat)), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.tables = tables = Tables(config)
        m.submodules.checks = checks = Checks(config)
        m.submodules.ring = ring = Ring(config)
        m.submodules.claims = claims = Claims(config)
        m.submodules.random = random = Random()
        m.submodules.membership = membership = Membership(config)
        m.submodules.forwarder = forwarder = Forwarder(config)
        connect(m, membership.tables, tables.members)

        held = Signal(Headers, reset_less=True)
        held_us = Signal(32, reset_less=True)  # a decision that waits to be handed on must not change with the time
        rows = tables.frames
        frame = held.frame
        verdict = self.verdicts.payload
        uplinks = config.uplinks
        rises = verdict.work.result.up if uplinks else Const(0)
        parent = Signal(Parent)
        # What kind of frame it is, in registers from JUDGE on.
        kind = SimpleNamespace(**{name: Signal(name=name) if hasattr(checks, name) else Const(0) for name in (
            "control", "claim", "request", "leaf", "answer", "install", "uplink")})
        m.d.sync += [flag.eq(getattr(checks, name)) for name, flag in vars(kind).items() if hasattr(checks, name)]
        leaf, answer, installs = kind.leaf, kind.answer, kind.install
        asks, reports, replied = Const(0), Const(0), Const(1)
        if uplinks:
            asks, reports, replied = membership.asks, ring.reports, membership.answers
            self._tree(m, held, rows, checks, ring, membership, parent, leaf)
        m.d.comb += [
            random.seed.eq(self.seed), random.draw.eq(membership.draw), membership.random.eq(random.value),
            membership.headers.eq(held), self.bind.payload.eq(membership.binding.payload),
            self.bind.valid.eq(membership.binding.valid),
            self.read_address.eq(membership.read_address), membership.read_value.eq(self.read_value),
            checks.headers.eq(held), checks.job.eq(rows.job_row), checks.member.eq(rows.member_row),
            ring.member.eq(frame.member), ring.job.eq(rows.job_row), ring.slot.eq(rows.slot_row),
            ring.have.eq(rows.have), ring.heard.eq(rows.heard), ring.now_us.eq(held_us),
            ring.tick.eq(held_us >> exact_log2(SILENCE_TICK_US)), tables.tick.eq(ring.tick), membership.tick.eq(ring.tick),
            ring.asked.receipt.eq(checks.receipt), ring.asked.seq.eq(frame.seq),
            ring.asked.want.eq(frame.format_flags[7]), ring.asked.whole.eq(frame.format_flags[7] | rows.job_row.segments.any()),
            ring.asked.boundary.eq(frame.format_flags[5] & ~rows.job_row.segments.any()), ring.asked.behind.eq(frame.behind),
            ring.asked.numeric.eq(Mux(frame.format_flags[:4] == Format.FIXED64, Format.WINDOW64, frame.format_flags[:4])),
            ring.asked.length.eq(checks.payload),
            ring.asked.covered.eq(claims.covered), ring.granted.eq(claims.granted),
            claims.at.eq(Mux(checks.claim, frame.members, frame.seq)), claims.k.eq(frame.seq), claims.member.eq(frame.member),
            claims.job.eq(rows.job_row), claims.row.eq(rows.claims_row), claims.have.eq(rows.have),
            ring.asked.tainted.eq(self._tainted(frame.format_flags[:4], held.arrival.scan.exponent, rows.job_row.limit)),
        ]
        handed, operation = Signal(), verdict.work.operation
        m.d.comb += handed.eq(self.verdicts.valid & self.verdicts.ready)
        m.d.sync += [
            self.decided.eq(0), self.claimed.eq(0), self.age.eq(claims.age), *(stat.eq(0) for stat in self.stats),
            self.trace.port.eq(held.arrival.port), self.trace.job.eq(frame.job), self.trace.member.eq(frame.member),
            self.trace.seq.eq(frame.seq),
            self.stats[Stat.RESULTS].eq(handed & verdict.works & verdict.work.emit & ~rises & (operation != Operation.RESEND)
                                        & (operation != Operation.GRANT)),
            self.stats[Stat.RESENT].eq(handed & verdict.works & (operation == Operation.RESEND)),
            self.stats[Stat.FORCED].eq(handed & verdict.works & (operation == Operation.FORCE)),
        ]
        m.d.comb += [
            forwarder.headers.eq(self.headers.payload), forwarder.takes.eq(self.headers.valid & self.headers.ready),
            forwarder.own_mac.eq(self.own_mac), forwarder.own_ip.eq(self.own_ip), forwarder.now_us.eq(self.now_us),
        ]
        fault, outcome, ordinary, work = Signal(), Signal(Outcome), Signal(), Signal(Work(config))
        victim = Signal(range(config.members))
        m.d.comb += [membership.victim.eq(victim), membership.silent.eq(ring.silent)]
        given = SimpleNamespace(**{name: Signal.like(getattr(claims, name), name=f"given_{name}", reset_less=True)
                                   for name in ("outcome", "write", "grants", "base", "members", "receivers", "waits")})
        m.d.sync += [kept.eq(getattr(claims, name)) for name, kept in vars(given).items()]

        # What the ring decides is handed on in the next cycle.
        names = ["outcome", "advance", "slot_write", "slot_next", "works", "operation", "first", "emit", "resend", "completes"]
        names += ["up", "reports", "report"] if uplinks else []
        decision = SimpleNamespace(**{name: Signal(getattr(ring, name).shape(), name=f"decided_{name}", reset_less=True) for name in names})

        # Pointers: from the arriving frame while idle, from the held one afterwards.
        upcoming = self.headers.payload.frame
        m.d.comb += rows.job_next.eq(rows.job_row)
        decides = Signal()
        admitted = admission(m, decision.completes, decision.slot_next, decides, rows)
        stays = Signal()
        self._work(m, decision, stays, ring, kind, membership, rows, frame, work, admitted)
        with m.If(kind.claim & ~membership.forces):
            self._grant(m, given, rows, frame, work)
        with m.If(~ordinary):  # beside an ordinary frame's verdict the rows are already those of the next
            m.d.comb += verdict.work.eq(work)
        m.d.comb += [
            rows.job.eq(frame.job), rows.member.eq(frame.member), rows.slot.eq(slot_number(config, frame.job, frame.seq)),
            rows.slot_next.eq(decision.slot_next), rows.have_next.eq(ring.low),
            verdict.frame.eq(1), verdict.length.eq(held.arrival.scan.length),
        ]

        # In an asynchronous job: whom a claim or a newcomer waits for, and whether this is a boundary.
        claim, newcomers = Signal(), Signal()
        late, absent, knocks = Signal(config.members), Signal(config.members, reset_less=True), Signal()
        m.d.comb += [
            claim.eq(kind.claim & ~fault), newcomers.eq(rows.job_row.segments.any() & rows.job_row.joining.any()),
            late.eq(Mux(knocks, claims.behind & ring.silent, absent)), rows.claims_next.eq(claims.row_next),
        ]
        m.d.sync += victim.eq(lowest(late))
        unheard = given.waits & ~(1 << frame.member) & ring.silent

        noticed_us, noticed = Signal(32), Signal()
        notes, mutes, tells, counts, evicts = (Signal(name=name) for name in ("notes", "mutes", "tells", "counts", "evicts"))
        final, works, hands = Signal(Outcome), Signal(), Signal()
        notice, may_notice = Signal(), Signal()
        m.d.sync += [
            notice.eq(0), may_notice.eq(~noticed | ((held_us - noticed_us)[:32] >= NOTICE_INTERVAL_US))]
        for name in NOTICES:
            with m.If(fault & (outcome == name) & ~answer & ~installs):
                m.d.sync += notice.eq(1)

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE") | ordinary | forwarder.busy | self.decided | Cat(self.stats).any())
            with m.State("WIPE"):
                m.d.comb += tables.control.eq(1)
                with m.If(membership.wiped & forwarder.wiped):
                    m.next = "IDLE"
            with m.State("IDLE"):
                # The route of an ordinary frame comes while the next headers are taken.
                m.d.comb += [self.headers.ready.eq(~ordinary | self.verdicts.ready),
                             rows.job.eq(upcoming.job), rows.member.eq(upcoming.member),
                             rows.slot.eq(slot_number(config, upcoming.job, upcoming.seq))]
                with m.If(ordinary):
                    m.d.comb += [self.verdicts.valid.eq(1), verdict.ports.eq(forwarder.route.ports), verdict.answer.eq(forwarder.route.answer)]
                    m.d.sync += [self.trace.outcome.eq(forwarder.route.outcome), self.decided.eq(self.verdicts.ready)]
                with m.If(self.verdicts.ready):
                    m.d.sync += ordinary.eq(0)
                with m.If(self.headers.valid & self.headers.ready):
                    m.d.sync += [held.eq(self.headers.payload), held_us.eq(self.now_us)]
                    m.next = "CHECK"
            with m.State("CHECK"):
                # The rows are here; checks and differences are registered.
                m.next = "JUDGE"
                with m.If(~held.ours):
                    m.d.sync += ordinary.eq(1)
                    m.next = "IDLE"
            with m.State("JUDGE"):
                m.d.sync += [fault.eq(checks.fault), outcome.eq(checks.outcome)]
                m.next = "WEIGH"
                with m.If((kind.control | answer) & ~checks.fault):
                    m.next = "CONTROL"
                with m.Elif(kind.request & ~checks.fault):
                    m.next = "REQUEST"
            with m.State("WEIGH"):
                # Reasons for and against the frame are registered, each by itself.
                m.next = "DECIDE"
            with m.State("REQUEST"):
                m.d.comb += self.verdicts.valid.eq(1)
                m.d.sync += [self.trace.outcome.eq(Outcome.REPLAY), self.decided.eq(self.verdicts.ready)]
                if config.replay:
                    m.d.comb += [verdict.replay.eq(1), verdict.port.eq(held.arrival.port)]
                with m.If(self.verdicts.ready):
                    m.next = "IDLE"
            with m.State("DECIDE"):
                m.d.sync += [
                    *(getattr(decision, name).eq(getattr(ring, name)) for name in names),
                    stays.eq(ring.resend | (ring.operation == Operation.SEND_UP)),
                    tells.eq(notice & may_notice | ~fault & reports | claim & (given.outcome == Outcome.REFUSED)),
                    notes.eq(notice & may_notice), mutes.eq(notice & ~may_notice),
                    final.eq(Mux(fault, outcome, Mux(claim, given.outcome, ring.outcome))),
                    works.eq(~fault & Mux(claim, given.grants, ring.works)), counts.eq(~fault & ~claim),
                    evicts.eq(Mux(claim, unheard.any(), ~fault & ring.evicts)), absent.eq(Mux(claim, unheard, ring.late)),
                ]
                m.next = "HAND"
            with m.State("HAND"):
                # A notice that cannot be handed on at once holds the frame back; nothing is decided twice.
                m.d.comb += [
                    self.verdicts.valid.eq(~tells | self.replies.ready), self.replies.valid.eq(tells & self.verdicts.ready),
                    hands.eq((~tells | self.replies.ready) & self.verdicts.ready), verdict.works.eq(works),
                ]
                m.d.sync += self.trace.outcome.eq(final)
                with m.If(hands):
                    m.d.comb += [
                        rows.slot_write.eq(counts & decision.slot_write),
                        rows.have_write.eq(Mux(counts & decision.advance, 1 << frame.member, 0)),
                        rows.heard_write.eq(Mux(fault & (outcome != Outcome.HALTED) | installs, 0, 1 << frame.member)), decides.eq(counts),
                        rows.claims_write.eq(claim & given.write),
                    ]
                    m.d.sync += [
                        self.decided.eq(1), self.claimed.eq(claim & (given.outcome == Outcome.CONTROL)),
                        self.stats[Stat.ADMITTED].eq(counts & admitted.any()), self.stats[Stat.EVICTED].eq(evicts),
                        self.stats[Stat.NOTICES].eq(notes), self.stats[Stat.NOTICES_SUPPRESSED].eq(mutes),
                    ]
                    with m.If(notes):
                        m.d.sync += [noticed.eq(1), noticed_us.eq(held_us)]
                    m.next = "IDLE"
                    with m.If(evicts):
                        m.next = "EVICT"
                    with m.Elif(~fault & newcomers):
                        m.next = "LOOK"
            with m.State("EVICT"):
                m.d.comb += [
                    tables.control.eq(1), membership.active.eq(1), membership.evicts.eq(1), verdict.frame.eq(0), verdict.works.eq(1),
                    self.verdicts.valid.eq(membership.forces), membership.forced.eq(membership.forces & self.verdicts.ready),
                ]
                m.d.sync += self.stats[Stat.ADMITTED].eq(membership.forced & membership.admitted.any())
                with m.If(membership.done):
                    m.d.sync += knocks.eq(0)
                    m.next = "IDLE"
                    with m.If(newcomers):
                        m.next = "LOOK"
            with m.State("LOOK"):
                # The row of what is held shows the frame's own receipt in the next cycle, and what follows of it in the one after.
                m.next = "KNOCK"
            with m.State("KNOCK"):
                m.next = "ENTER"
                with m.If(knocks & late.any()):
                    m.d.sync += self.stats[Stat.EVICTED].eq(1)
                    m.next = "EVICT"
            with m.State("ENTER"):
                # At a boundary of an asynchronous job those who wait are let in; they lack nothing below the next update.
                m.d.sync += knocks.eq(0)
                m.next = "IDLE"
                with m.If(~claims.behind.any()):
                    job = rows.job_row
                    m.d.comb += [
                        rows.job_write.eq(1), rows.job_next.live.eq(job.live | job.joining), rows.job_next.joining.eq(0),
                        rows.start_write.eq(job.joining), rows.start_next.eq(rows.claims_row.base)]
                    m.d.sync += self.stats[Stat.ADMITTED].eq(1)
            with m.State("CONTROL"):
                # The membership machine has the tables until it answers; departures hand out operations on the way.
                m.d.comb += [
                    tables.control.eq(1), membership.active.eq(1),
                    self.verdicts.valid.eq(membership.forces | (membership.done & (self.replies.ready | ~replied))),
                    verdict.frame.eq(~membership.forces), verdict.works.eq(membership.forces),
                    membership.forced.eq(membership.forces & self.verdicts.ready),
                    self.replies.valid.eq(membership.done & self.verdicts.ready & replied),
                ]
                m.d.sync += [
                    self.stats[Stat.ADMITTED].eq(membership.forced & membership.admitted.any()),
                    self.trace.outcome.eq(Mux(membership.reason == Reason.DONE, Outcome.CONTROL, Outcome.REFUSED)),
                ]
                if uplinks:
                    with m.If(~membership.answers):
                        m.d.sync += self.trace.outcome.eq(Mux(membership.unknown, Outcome.TOKEN, Outcome.CONTROL))
                with m.If(membership.done & self.verdicts.ready & (self.replies.ready | ~replied)):
                    m.d.sync += self.decided.eq(1)
                    m.next = "IDLE"
                    with m.If(asks):
                        m.next = "ASK"
                    with m.Elif(newcomers):
                        m.d.sync += knocks.eq((held.body.action == Action.JOIN) & (membership.body.standing == Standing.JOINING))
                        m.next = "LOOK"
            with m.State("ASK"):
                m.d.comb += [tables.control.eq(1), membership.active.eq(1), self.replies.valid.eq(1)]
                with m.If(self.replies.ready):
                    m.next = "IDLE"
        self._reply(m, held, rows, outcome, membership, fsm.ongoing("CONTROL"))
        if uplinks:
            self._up(m, frame, rows, membership, parent, fsm.ongoing("ASK"), ~fault & decision.reports & fsm.ongoing("HAND"), decision.report)
        with m.If(claim):
            m.d.comb += [self.replies.payload.header.version_type.eq(VERSION << 4 | Type.REFUSE),
                         self.replies.payload.header.members.eq(rows.claims_row.base)]
        return m

    def _tree(self, m, held, rows, checks, ring, membership, parent, leaf):
        """What a frame means in a tree of switches. Its job's parent comes with the job's row."""
        m.d.sync += parent.eq(Array(self.parents)[rows.job])
        frame, scan, asked = held.frame, held.arrival.scan, ring.asked
        m.d.comb += [
            checks.parent.eq(parent), membership.parent.eq(parent), membership.leaf.eq(leaf),
            ring.leaf.eq(leaf), ring.departs.eq(membership.active), asked.uplink.eq(checks.uplink), asked.install.eq(checks.install),
            asked.ranks.eq(rows.member_row.ranks), asked.tainted_ranks.eq(Mux(asked.tainted, rows.member_row.ranks, 0)),
        ]
        with m.If(checks.uplink):
            m.d.comb += [asked.ranks.eq(frame.members), asked.tainted_ranks.eq(scan.tainted), asked.partial.eq(scan.partial)]
        with m.If(checks.install):
            m.d.comb += [asked.ranks.eq(frame.members), asked.tainted_ranks.eq(frame.token),
                         asked.partial.eq((frame.format_flags >> 4 & ResultFlag.PARTIAL) != 0)]

    def _up(self, m, frame, rows, membership, parent, asks, reports, report):
        """What goes to the parent beside sums: a Join or a Leave, or a receipt."""
        reply, job = self.replies.payload, rows.job_row
        asked = Signal(layout(CONTROL))
        m.d.comb += [
            asked.action.eq(Mux(membership.leaves, Action.LEAVE, Action.JOIN)), asked["format"].eq(job.numeric), asked.fraction.eq(job.fraction),
            asked.world.eq(job.world), asked.threshold.eq(job.threshold), asked.elements.eq(job.elements), asked.mode.eq(job.mode),
            asked.deadline_us.eq(job.deadline), asked.evict_us.eq(job.evict), asked.key.eq(job.key), asked.nonce.eq(job.up_nonce),
        ]
        with m.If(asks | reports):
            m.d.comb += [
                reply.port.eq(parent.port), reply.address.mac.eq(parent.mac), reply.address.ip.eq(parent.ip), reply.address.udp.eq(UDP_PORT_WIRE),
                reply.acknowledges.eq(asks), reply.receipt.eq(reports), reply.body.as_value().eq(asked.as_value()), reply.header.count.eq(0),
                reply.header.version_type.eq(VERSION << 4 | Mux(asks, Type.CONTROL, Type.RECEIPT)), reply.header.epoch.eq(Mux(asks, 0, job.epoch)),
                reply.header.seq.eq(Mux(asks, membership.leaves, report.seq)), reply.header.member.eq(job.up_member),
                reply.header.token.eq(job.up_token), reply.header.members.eq(Mux(asks, parent.ranks, 0)),
            ]
        with m.If(reports):
            m.d.comb += [reply.header.behind.eq(report.behind),
                         reply.header.format_flags.eq(Mux(report.want, ContributionFlag.WANT << 4, 0))]

    def _tainted(self, format, exponent, limit):
        """A float contribution with an element that its format rejects."""
        return (((format == Format.WINDOW64) & (exponent >= limit)) | ((format == Format.FP32) & (exponent == 255)))

    def _work(self, m, decision, stays, ring, kind, membership, rows, frame, work, admitted):
        """The operation on the slot as the slot will be, or as it `stays`."""
        job, uplinks = rows.job_row, self.config.uplinks
        slot = Signal(slot_row(self.config))
        forces, leaf = membership.forces, kind.leaf
        again = ~forces & (decision.operation == Operation.SEND_UP)
        m.d.comb += slot.eq(Mux(forces, membership.closed.as_value(), Mux(stays, rows.slot_row.as_value(), decision.slot_next.as_value())))
        lacks = (slot.expected & ~slot.members).any()
        partial = slot.partial | lacks & ~(leaf & (slot.state == SlotState.COMPLETE)) if uplinks else lacks
        flags = (Mux(partial, ResultFlag.PARTIAL, 0) | Mux(decision.resend & ~forces, ResultFlag.RESENT, 0)
                 | Mux(slot.tainted.any(), ResultFlag.TAINTED, 0) | Mux(slot.change, ResultFlag.CHANGE, 0))
        first = Mux(forces, slot.members == 0, decision.first)
        operation = Mux(forces, Operation.FORCE, decision.operation)
        m.d.comb += [
            work.operation.eq(operation),
            work.slot.eq(Mux(forces, membership.tables.slot, rows.slot)),
            work.first.eq(first & (operation != Operation.RESEND) & (operation != Operation.SEND_UP)),
            work.include.eq((operation == Operation.CONTRIBUTE) | (operation == Operation.INSTALL_DOWN)),
            work.write.eq(work.include | ((operation == Operation.FORCE) & first)),
            work.emit.eq((operation != Operation.CONTRIBUTE) | decision.emit),
            work.fraction.eq(job.fraction), work.limit.eq(job.limit),
            work.result.job.eq(frame.job), work.result.epoch.eq(job.epoch), work.result.seq.eq(slot.seq),
            work.result.numeric.eq(slot.numeric), work.result.flags.eq(flags), work.result.members.eq(slot.ranks if uplinks else slot.members),
            work.result.tainted.eq(slot.tainted), work.result.length.eq(slot.length),
            work.result.recipients.eq(Mux(operation == Operation.RESEND, 1 << frame.member,
                                          job.live | Mux(forces, membership.admitted, admitted))),
        ]
        if uplinks:
            adds = ~forces & (operation == Operation.CONTRIBUTE)
            installs = ~forces & (operation == Operation.INSTALL_DOWN)
            up = Mux(forces, leaf, decision.up)
            m.d.comb += [
                work.wide.eq(adds & kind.uplink & (slot.numeric == Format.WINDOW64)), work.tailed.eq(adds & kind.uplink | installs),
                work.as_is.eq(leaf & (installs | (operation == Operation.RESEND))),
                work.result.up.eq(up), work.result.member.eq(job.up_member), work.result.token.eq(job.up_token),
                work.result.behind.eq(slot.seq - ring.lowest), work.result.partial.eq(partial),
            ]
            with m.If(up):
                m.d.comb += [
                    work.result.flags.eq(Mux(again, ContributionFlag.RETRANSMISSION, 0) | Mux(slot.boundary, ContributionFlag.BOUNDARY, 0)
                                         | Mux(slot.whole, ContributionFlag.WHOLE, 0)),
                    work.result.recipients.eq(1 << self.config.members),
                ]
                with m.If(slot.numeric == Format.WINDOW64):
                    m.d.comb += work.result.numeric.eq(Format.FIXED64)

    def _grant(self, m, given, rows, frame, work):
        """A frame to its receivers without numbers, in the order of results."""
        m.d.comb += [
            work.operation.eq(Operation.GRANT), work.first.eq(0), work.include.eq(0), work.write.eq(0), work.emit.eq(1),
            work.result.eq(0), work.result.job.eq(frame.job), work.result.epoch.eq(rows.job_row.epoch), work.result.seq.eq(given.base),
            work.result.members.eq(given.members), work.result.recipients.eq(given.receivers),
        ]

    def _reply(self, m, held, rows, outcome, membership, control):
        reply, frame = self.replies.payload, held.frame
        exists = (frame.job < self.config.jobs) & (rows.job_row.state != JobState.NONE)
        m.d.comb += [
            reply.port.eq(held.arrival.port), reply.address.mac.eq(frame.eth_src), reply.address.ip.eq(frame.ip_src),
            reply.address.udp.eq(frame.udp_src), reply.acknowledges.eq(control),
            reply.header.version_type.eq(Mux(control, VERSION << 4 | Type.ACK, VERSION << 4 | Type.NOTICE)),
            reply.header.job.eq(frame.job), reply.header.seq.eq(frame.seq), reply.body.eq(membership.body),
            reply.header.epoch.eq(Mux(exists, rows.job_row.epoch, 0)),
            reply.header.member.eq(Mux(control, membership.member, frame.member)),
            reply.header.token.eq(Mux(control, membership.token, frame.token)),
        ]
        with m.If(~control):
            for name, reason in NOTICES.items():
                with m.If(outcome == name):
                    m.d.comb += reply.header.count.eq(reason)

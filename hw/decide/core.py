"""Looks up, checks, decides and writes each frame, in order. The switch's protocol state machine."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.bridge.forwarder import Forwarder
from hw.decide.checks import Checks
from hw.decide.claims import Claims
from hw.decide.held_frame import HeldFrame
from hw.decide.membership.membership import Membership
from hw.decide.reply import NOTICES, build_parent_request, build_refusal, build_reply
from hw.decide.ring import Ring
from hw.decide.rule_inputs import connect_inputs
from hw.decide.rules.completion import admit_joining
from hw.decide.tables.checked_memory import REGISTERS_MAX
from hw.decide.tables.tables import Tables
from hw.decide.work import build_work
from hw.decide.xorshift import DEFAULT_SEED, Xorshift64
from hw.interface.address import Binding, Parent
from hw.interface.expense import CYCLES_SAVED, DECISION_CYCLES, PROCEDURE_COST, RESEND_COST, Expense
from hw.interface.headers import Headers, format_of, type_of
from hw.interface.reply import Reply
from hw.interface.rows import TICK_BITS, slot_number
from hw.interface.verdict import Verdict
from hw.numeric.formats import is_binary16, is_half
from hw.stream.reduction import lowest_set, reaches
from iswitch.config import Config
from iswitch.wire import (
    NOTICE_INTERVAL_US,
    SILENCE_TICK_US,
    SILENCE_TICKS_MAX,
    STALENESS_MAX,
    Action,
    MemberState,
    Operation,
    Outcome,
    Reason,
    Stat,
    Type,
)

__all__ = ["Core", "Trace"]


class Trace(data.Struct):
    """The outcome of a frame and the header fields that identify it, for simulation."""

    outcome: Outcome
    port: 4
    job: 8
    member: 8
    seq: 32


class Core(wiring.Component):
    """Takes one frame's headers at a time and gives exactly one outcome and one verdict for each, in order.

    Latency from headers to verdict, and cycles until the next headers are accepted:

    - 2 and 2 for an ordinary frame;
    - 3 and 4 for a request to the replay service;
    - 5 and 6 for a contribution, a receipt or a claim; 5 and 9 while a member waits to join an asynchronous job;
    - 5 and 3 for a contribution, if the next frame enters early;
    - as long as the procedure of `Membership` takes for a control message, and for a frame that causes an eviction.

    A frame enters when the one before is written. It enters early, while the core decides about the one before, only if
    both are contributions to different slots, the slot takes the one before, no member of its job is joining or joined
    at the last boundary, that job has no parent, and the next headers are there a cycle before. Of what the frame
    before writes, the next one then reads only, if it is of the same job, what its sender acknowledged and when it was
    heard, and the ring takes both from that frame (`FrameBefore`). `_may_enter_early` says why these conditions
    suffice.

    Back-pressure: `headers` stalls while a verdict or a reply cannot be accepted. A verdict and its reply are offered
    in the same cycle, each only while the other's receiver is ready. So a receiver that is ready must stay ready until
    it accepts an item, as `SkidBuffer` and `ReplyComposer` do. While a verdict waits, all of it stays, except the work
    of a verdict without `works`, which means nothing. A Join or Leave for the parent in `parents` follows the
    frame that caused it. After a reset the core accepts no headers until the tables and the `MacTable` are erased.

    If a row of the frame's job has a bit error, the frame has the outcome CORRUPT and no other effect, and the job is
    wiped. Wiping takes a cycle for each member or slot of a job, whichever are more, and 5. If a procedure finds the
    error, its answer and the slots that it completes do not leave.

    `expense`: what the frame costs of the pipeline's time. That is its words (twice as many for a contribution of
    two-byte elements, which pass as words of four-byte ones), the cycles of a decision on a frame with fewer words
    (those on a longer frame pass beside its words), for each cycle of a procedure `PROCEDURE_COST`, and for each word
    of a stored sum that is sent again `RESEND_COST`. Cycles in which the frame waits for an older one are not its own.
    `decided` with `trace`, `claimed` with `age`, and `stats` describe the previous cycle. Golden model:
    `host/iswitch/golden/tree_switch.py`. Rules: docs/protocol.md, section 3.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "headers": In(stream.Signature(Headers)),
                "verdicts": Out(stream.Signature(Verdict(config))),
                "replies": Out(stream.Signature(Reply)),
                "now_us": In(32),
                "link": In(config.ports, init=(1 << config.ports) - 1),
                "seed": In(64),
                "operator_key": In(64),
                "own_mac": In(48),
                "own_ip": In(32),
                "parents": In(Parent).array(config.jobs),
                "bind": Out(stream.Signature(Binding(config), always_ready=True)),
                "read_address": Out(32),
                "read_value": In(32),
                "decided": Out(1),
                "trace": Out(Trace),
                "claimed": Out(1),
                "age": Out(range(STALENESS_MAX + 1)),
                "stats": Out(1).array(len(Stat)),
                "expense": Out(Expense),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.tables = tables = Tables(config)
        m.submodules.checks = checks = Checks(config)
        m.submodules.ring = ring = Ring(config)
        m.submodules.claims = claims = Claims(config)
        m.submodules.random = random = Xorshift64()
        m.submodules.membership = membership = Membership(config)
        m.submodules.forwarder = forwarder = Forwarder(config)
        connect(m, membership.tables, tables.membership)
        connect(m, membership.binding, flipped(self.bind))

        held, rows, verdict = HeldFrame.create(config), tables.frames, self.verdicts.payload
        frame, kind, claimed, decision, decided = held.frame, held.kind, held.claim, held.decision, held.decided
        entered_early, follows_in_job = Signal(), Signal()
        connect_inputs(m, held, self.parents, rows=rows, checks=checks, ring=ring, claims=claims)
        m.d.sync += [kind.eq(checks.kind), claimed.eq(claims.decision)]
        m.d.comb += [
            random.seed.eq(self.seed),
            random.draw.eq(membership.draw),
            membership.random.eq(random.value),
            membership.headers.eq(held.headers),
            membership.operator_key.eq(self.operator_key),
            membership.offered_challenge.eq((random.value ^ DEFAULT_SEED) >> 32),
            membership.parent.eq(held.parent),
            membership.is_leaf.eq(kind.is_leaf),
            ring.departs.eq(membership.active),
            self.read_address.eq(membership.read_address),
            membership.read_value.eq(self.read_value),
            ring.tick.eq(held.now_us >> exact_log2(SILENCE_TICK_US)),
            tables.tick.eq(ring.tick),
            tables.written_job.eq(decided.job),
            tables.written_slot.eq(decided.slot),
            ring.before.valid.eq(follows_in_job),
            ring.before.member.eq(decided.member),
            ring.before.tick.eq(decided.tick),
            ring.before.advances.eq(decided.advances),
            ring.before.low.eq(decided.low),
            membership.tick.eq(ring.tick),
            checks.corrupt.eq(tables.corrupt),
            membership.row_corrupt.eq(tables.corrupt),
        ]
        goes_up = verdict.work.result.up if config.uplinks else Const(0)
        verdict_taken, operation = Signal(), verdict.work.operation
        m.d.comb += verdict_taken.eq(self.verdicts.valid & self.verdicts.ready)
        m.d.sync += [
            self.decided.eq(0),
            self.claimed.eq(0),
            self.age.eq(claims.age),
            *(stat.eq(0) for stat in self.stats),
            self.trace.port.eq(held.headers.arrival.port),
            self.trace.job.eq(frame.job),
            self.trace.member.eq(frame.member),
            self.trace.seq.eq(frame.seq),
            self.stats[Stat.RESULTS].eq(
                verdict_taken
                & verdict.works
                & verdict.work.emit
                & ~goes_up
                & (operation != Operation.RESEND)
                & (operation != Operation.GRANT)
            ),
            self.stats[Stat.RESENT].eq(verdict_taken & verdict.works & (operation == Operation.RESEND)),
            self.stats[Stat.FORCED].eq(verdict_taken & verdict.works & (operation == Operation.FORCE)),
        ]
        m.d.comb += [
            forwarder.headers.eq(self.headers.payload),
            forwarder.lookup.eq(self.headers.valid & self.headers.ready),
            forwarder.own_mac.eq(self.own_mac),
            forwarder.own_ip.eq(self.own_ip),
            forwarder.now_us.eq(self.now_us),
            forwarder.link.eq(self.link),
            checks.spoofed.eq(forwarder.spoofed | forwarder.group_source),
        ]
        completed = membership.completed.valid & membership.completed.ready & ~membership.corrupt
        fault, outcome, ordinary = Signal(), Signal(Outcome), Signal()
        victim = Signal(range(config.members))
        m.d.comb += [membership.victim.eq(victim), membership.stale.eq(ring.stale)]

        word_shift = exact_log2(config.bus_bytes)
        is_short = ~(held.headers.arrival.scan.length >> (word_shift + exact_log2(DECISION_CYCLES))).any()
        # Pointers: from the next frame while it may enter, from the held one otherwise.
        upcoming = self.headers.payload.frame
        may_enter, may_enter_early = Signal(), self._may_enter_early(m, held, rows=rows)
        enters_early = may_enter_early & ring.accepts & ~fault
        decides, same_job = Signal(), Signal()
        m.d.sync += same_job.eq(upcoming.job == frame.job)
        admitted = admit_joining(m, decision.completes, decision.slot_next, decides, held.job_row, rows)
        work = build_work(m, held, rows=rows, membership=membership, admitted=admitted, lowest=ring.lowest)
        with m.If(~ordinary):  # beside an ordinary frame's verdict the rows are already those of the next
            m.d.comb += verdict.work.eq(work)
        if config.half_width:
            format = format_of(frame)
            m.d.comb += [
                verdict.form.half.eq((kind.contribution | kind.parent_result) & is_half(decided.format)),
                verdict.form.binary16.eq(is_binary16(decided.format)),
                verdict.form.as_is.eq(kind.parent_result),
            ]
        m.d.comb += [
            rows.job.eq(frame.job),
            rows.member.eq(frame.member),
            rows.slot.eq(slot_number(config, frame.job, frame.seq)),
            rows.slot_next.eq(decision.slot_next),
            rows.acknowledged_next.eq(decided.low),
            verdict.frame.eq(1),
            verdict.host_reply.eq(forwarder.route.host_reply),
            verdict.host_reply.valid.eq(0),
            verdict.length.eq(held.headers.arrival.scan.length),
            self.expense.port.eq(held.headers.arrival.port),
        ]

        # Asynchronous jobs: the members for which a claim or a joining member waits, and whether this is a boundary.
        claim, has_joining = Signal(), Signal()
        late_members, silent_awaited, join_waiting = (
            Signal(config.members),
            Signal(config.members, reset_less=True),
            Signal(),
        )
        m.d.comb += [
            claim.eq(kind.claim & ~fault if config.staleness else 0),
            has_joining.eq(rows.job_row.segments.any() & rows.job_row.joining.any()),
            late_members.eq(Mux(join_waiting, claims.behind & ring.silent, silent_awaited)),
        ]
        if config.staleness:
            # The row is ready a cycle before ISSUE. It is long, and its parity stands behind it.
            claims_next = Signal.like(claims.row_next, reset_less=True)
            m.d.sync += claims_next.eq(claims.row_next)
            m.d.comb += rows.claims_next.eq(claims_next)
        m.d.sync += victim.eq(lowest_set(late_members))
        silent_claimants = claimed.waits & ~(1 << frame.member) & ring.silent

        ports = max(2, config.ports)
        attrs = {"ram_style": "registers"} if ports <= REGISTERS_MAX else {}
        m.submodules.noticed_us = times = Memory(shape=32, depth=ports, init=[], attrs=attrs)
        noticed_us, notice_time = times.read_port(domain="comb"), times.write_port()
        port, noticed, last_us = held.headers.arrival.port, Signal(config.ports), Signal(32)
        sends_notice, suppresses_notice, sends_reply, updates_ring, evicts = (
            Signal(name=name) for name in ("sends_notice", "suppresses_notice", "sends_reply", "updates_ring", "evicts")
        )
        final_outcome, works, issued = Signal(Outcome), Signal(), Signal()
        notice, conflicts, may_notice, from_member = Signal(), Signal(), Signal(), Signal()
        # A member always gets its notice; the other hosts of a port share one in an interval.
        m.d.comb += [noticed_us.addr.eq(port), notice_time.addr.eq(port), notice_time.data.eq(held.now_us)]
        m.d.sync += [
            notice.eq(0),
            last_us.eq(noticed_us.data),
            may_notice.eq(
                checks.from_member
                | ~noticed.bit_select(port, 1)
                | reaches((held.now_us - last_us)[:32], NOTICE_INTERVAL_US)
            ),
        ]
        for name in NOTICES:
            with m.If(fault & (outcome == name) & ~kind.parent_reply & ~kind.parent_result & ~kind.parent_conflict):
                m.d.sync += notice.eq(1)

        def charge_words():
            m.d.comb += self.expense.cycles.eq((held.headers.arrival.scan.length >> word_shift) + 1)

        def compare():
            m.d.sync += [fault.eq(checks.fault), outcome.eq(checks.outcome)]
            # A payload that is widened takes twice the cycles of its words.
            widened = held.headers.arrival.scan.length >> word_shift if config.half_width else 0
            beside = Mux(kind.contribution & is_half(format), widened, 0) if config.half_width else 0
            cycles = Mux(entered_early, DECISION_CYCLES - CYCLES_SAVED, DECISION_CYCLES)
            m.d.comb += self.expense.cycles.eq(Mux(is_short, cycles, beside))

        # The silence of the members of one job after another is pinned, once a tick, before it wraps.
        swept_job, swept_tick = Signal(range(config.jobs)), Signal(TICK_BITS)
        present_tick = self.now_us >> exact_log2(SILENCE_TICK_US)

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(
                ~fsm.ongoing("IDLE") | ordinary | forwarder.busy | self.decided | Cat(self.stats).any()
            )
            with m.State("ERASE_TABLES"):
                m.d.comb += tables.control.eq(1)
                with m.If(membership.erased & forwarder.wiped):
                    m.next = "IDLE"
            with m.State("IDLE"):
                # The route of an ordinary frame is valid while the next headers are accepted.
                m.d.comb += [self.headers.ready.eq(~ordinary | self.verdicts.ready), may_enter.eq(1)]
                with m.If(ordinary):
                    m.d.comb += [
                        self.verdicts.valid.eq(1),
                        forwarder.takes.eq(self.verdicts.ready),
                        verdict.ports.eq(forwarder.route.ports),
                        verdict.host_reply.valid.eq(forwarder.route.host_reply.valid),
                    ]
                    m.d.sync += [self.trace.outcome.eq(forwarder.route.outcome), self.decided.eq(self.verdicts.ready)]
                with m.If(self.verdicts.ready):
                    m.d.sync += ordinary.eq(0)
                with m.If(self.headers.valid & self.headers.ready):
                    m.next = "READ_ROWS"
                with m.Elif(~self.headers.valid & ~ordinary & (present_tick[:TICK_BITS] != swept_tick)):
                    m.d.sync += [held.now_us.eq(self.now_us), swept_tick.eq(present_tick)]
                    m.next = "READ_SILENCES"
            with m.State("READ_SILENCES"):
                m.d.comb += rows.job.eq(swept_job)
                m.next = "CHECK_SILENCES"
            with m.State("CHECK_SILENCES"):
                m.d.comb += rows.job.eq(swept_job)
                m.next = "PIN_SILENCES"
            with m.State("PIN_SILENCES"):
                m.d.comb += [
                    rows.job.eq(swept_job),
                    tables.written_job.eq(swept_job),
                    # A row with a bit error stays as it is, for the next frame to find it.
                    tables.pins.eq(
                        Cat(reaches(silence, SILENCE_TICKS_MAX) & ~tables.heard_corrupt for silence in ring.silences)
                    ),
                ]
                m.d.sync += swept_job.eq(swept_job + 1)
                m.next = "IDLE"
            with m.State("READ_ROWS"):
                # The rows are valid; checks and differences are registered.
                charge_words()
                m.next = "COMPARE"
                with m.If(~held.headers.ours):
                    m.d.sync += ordinary.eq(1)
                    m.next = "IDLE"
            with m.State("COMPARE"):
                compare()
                m.next = "CLASSIFY"
                with m.If((kind.control | kind.parent_reply) & ~checks.fault):
                    m.next = "MEMBERSHIP"
                with m.Elif(kind.replay_request & ~checks.fault):
                    m.next = "ISSUE_REPLAY"
            with m.State("CLASSIFY"):
                # Reasons for and against the frame are registered, each by itself.
                m.d.sync += [
                    entered_early.eq(enters_early),
                    follows_in_job.eq(enters_early & same_job),
                    decided.port.eq(held.headers.arrival.port),
                    decided.member.eq(frame.member),
                    decided.seq.eq(frame.seq),
                    decided.length.eq(held.headers.arrival.scan.length),
                    decided.format.eq(format_of(frame)),
                    decided.slot.eq(slot_number(config, frame.job, frame.seq)),
                    decided.advances.eq(ring.advances),
                    decided.low.eq(ring.low),
                    decided.tick.eq(ring.tick),
                ]
                m.d.comb += [may_enter.eq(may_enter_early), self.headers.ready.eq(enters_early)]
                m.next = "DECIDE"
            with m.State("ISSUE_REPLAY"):
                m.d.comb += self.verdicts.valid.eq(1)
                m.d.sync += [self.trace.outcome.eq(Outcome.REPLAY), self.decided.eq(self.verdicts.ready)]
                if config.replay:
                    m.d.comb += [verdict.replay.eq(1), verdict.port.eq(held.headers.arrival.port)]
                with m.If(self.verdicts.ready):
                    m.next = "IDLE"
            with m.State("DECIDE"):
                reports_conflict = ~fault & ~claim & ring.decision.conflicts
                m.d.sync += [
                    from_member.eq(checks.from_member),
                    conflicts.eq(reports_conflict),
                    decision.eq(ring.decision),
                    held.keeps_slot.eq(ring.decision.resend | (ring.decision.operation == Operation.SEND_UP)),
                    sends_reply.eq(
                        (notice | reports_conflict) & may_notice
                        | ~fault & ring.decision.reports
                        | claim & (claimed.outcome == Outcome.REFUSED)
                    ),
                    sends_notice.eq((notice | reports_conflict) & may_notice),
                    suppresses_notice.eq((notice | reports_conflict) & ~may_notice),
                    final_outcome.eq(Mux(fault, outcome, Mux(claim, claimed.outcome, ring.decision.outcome))),
                    works.eq(~fault & Mux(claim, claimed.grants, ring.decision.works)),
                    updates_ring.eq(~fault & ~claim),
                    evicts.eq(Mux(claim, silent_claimants.any(), ~fault & ring.evicts)),
                    silent_awaited.eq(Mux(claim, silent_claimants, ring.late)),
                ]
                with m.If(entered_early):
                    charge_words()
                m.next = "ISSUE"
            with m.State("ISSUE"):
                # The frame stalls here until its notice is accepted; nothing is decided twice.
                m.d.comb += [
                    self.verdicts.valid.eq(~sends_reply | self.replies.ready),
                    self.replies.valid.eq(sends_reply & self.verdicts.ready),
                    issued.eq((~sends_reply | self.replies.ready) & self.verdicts.ready),
                    verdict.works.eq(works),
                    verdict.length.eq(decided.length),
                    tables.tick.eq(decided.tick),
                ]
                m.d.sync += [
                    self.trace.outcome.eq(final_outcome),
                    self.trace.port.eq(decided.port),
                    self.trace.job.eq(decided.job),
                    self.trace.member.eq(decided.member),
                    self.trace.seq.eq(decided.seq),
                ]
                with m.If(issued & works & held.keeps_slot):
                    m.d.comb += self.expense.cycles.eq((work.result.length >> word_shift) * RESEND_COST)
                with m.If(issued):
                    m.d.comb += [
                        rows.slot_write.eq(updates_ring & decision.slot_write),
                        rows.acknowledged_write.eq(Mux(updates_ring & decision.advance, 1 << decided.member, 0)),
                        rows.heard_write.eq(
                            Mux(
                                fault & (outcome != Outcome.HALTED) | kind.parent_result | kind.parent_conflict,
                                0,
                                1 << decided.member,
                            )
                        ),
                        decides.eq(updates_ring),
                        rows.claims_write.eq(claim & claimed.write),
                    ]
                    m.d.sync += [
                        self.decided.eq(1),
                        self.claimed.eq(claim & (claimed.outcome == Outcome.CONTROL)),
                        self.stats[Stat.ADMITTED].eq(updates_ring & admitted.any()),
                        self.stats[Stat.EVICTED].eq(evicts),
                        self.stats[Stat.NOTICES].eq(sends_notice),
                        self.stats[Stat.NOTICES_SUPPRESSED].eq(suppresses_notice),
                    ]
                    with m.If(sends_notice & ~from_member):
                        m.d.comb += notice_time.en.eq(1)
                        m.d.sync += noticed.bit_select(port, 1).eq(1)
                    m.next = "IDLE"
                    with m.If(fault & (outcome == Outcome.CORRUPT)):
                        m.next = "END_JOB"
                    with m.Elif(evicts):
                        m.next = "EVICT"
                    if config.staleness:
                        with m.Elif(~fault & has_joining):
                            m.next = "READ_ACKNOWLEDGED"
                    with m.If(entered_early):
                        # The held frame is the next one, and its rows are compared.
                        compare()
                        m.next = "CLASSIFY"
            with m.State("EVICT"):
                m.d.comb += [
                    tables.control.eq(1),
                    membership.active.eq(1),
                    membership.evicts.eq(1),
                    verdict.frame.eq(0),
                    verdict.works.eq(1),
                    self.verdicts.valid.eq(membership.completed.valid & ~membership.corrupt),
                    membership.completed.ready.eq(self.verdicts.ready | membership.corrupt),
                ]
                m.d.sync += self.stats[Stat.ADMITTED].eq(completed & membership.admitted.any())
                with m.If(membership.done):
                    m.d.sync += join_waiting.eq(0)
                    m.next = "IDLE"
                    with m.If(membership.corrupt):
                        m.next = "END_JOB"
                    if config.staleness:
                        with m.Elif(has_joining):
                            m.next = "READ_ACKNOWLEDGED"
            if config.staleness:
                with m.State("READ_ACKNOWLEDGED"):
                    # The row of acknowledged seqs includes this frame's in the next cycle; `claims.behind` follows one
                    # cycle later.
                    m.next = "CHECK_LATE"
                with m.State("CHECK_LATE"):
                    m.next = "ADMIT"
                    # If all live members are silent, they may be dead, or the switch may not have heard them.
                    with m.If((rows.job_row.live & ~ring.stale) == 0):
                        m.d.sync += join_waiting.eq(0)
                        m.next = "IDLE"
                    with m.Elif(join_waiting & late_members.any()):
                        m.d.sync += self.stats[Stat.EVICTED].eq(1)
                        m.next = "EVICT"
                with m.State("ADMIT"):
                    # At a boundary of an asynchronous job the switch admits all joining members. They lack no result
                    # below the base of the next update.
                    m.d.sync += join_waiting.eq(0)
                    m.next = "IDLE"
                    with m.If(~claims.behind.any()):
                        job = rows.job_row
                        m.d.comb += [
                            rows.roster_write.eq(1),
                            rows.roster_next.live.eq(job.live | job.joining),
                            rows.roster_next.joining.eq(0),
                            rows.roster_next.admitted.eq(job.admitted),
                            rows.roster_next.admitted_seq.eq(job.admitted_seq),
                            rows.admitted_seq_write.eq(job.joining),
                            rows.admitted_seq_next.eq(rows.claims_row.base),
                        ]
                        m.d.sync += self.stats[Stat.ADMITTED].eq(1)
            with m.State("MEMBERSHIP"):
                # `Membership` uses the tables until it answers; departures emit operations meanwhile.
                answers = membership.answers & ~membership.corrupt
                m.d.comb += [
                    tables.control.eq(1),
                    membership.active.eq(1),
                    self.verdicts.valid.eq(
                        membership.completed.valid & ~membership.corrupt
                        | (membership.done & (self.replies.ready | ~answers))
                    ),
                    verdict.frame.eq(~membership.completed.valid),
                    verdict.works.eq(membership.completed.valid),
                    membership.completed.ready.eq(self.verdicts.ready | membership.corrupt),
                    self.replies.valid.eq(membership.done & self.verdicts.ready & answers),
                ]
                m.d.sync += [
                    self.stats[Stat.ADMITTED].eq(completed & membership.admitted.any()),
                    self.trace.outcome.eq(Mux(membership.reason == Reason.DONE, Outcome.CONTROL, Outcome.REFUSED)),
                ]
                with m.If(~membership.answers):
                    m.d.sync += self.trace.outcome.eq(Mux(membership.unknown, Outcome.TOKEN, Outcome.CONTROL))
                with m.If(membership.corrupt):
                    m.d.sync += self.trace.outcome.eq(Outcome.CORRUPT)
                with m.If(membership.done & self.verdicts.ready & (self.replies.ready | ~answers)):
                    m.d.sync += self.decided.eq(1)
                    m.next = "IDLE"
                    with m.If(membership.corrupt):
                        m.next = "END_JOB"
                    with m.Elif(membership.requests_parent):
                        m.next = "REQUEST_PARENT"
                    if config.staleness:
                        with m.Elif(has_joining):
                            m.d.sync += join_waiting.eq(
                                (held.headers.body.action == Action.JOIN)
                                & (membership.body.standing == MemberState.JOINING)
                            )
                            m.next = "READ_ACKNOWLEDGED"
            with m.State("REQUEST_PARENT"):
                m.d.comb += [tables.control.eq(1), membership.active.eq(1), self.replies.valid.eq(1)]
                with m.If(self.replies.ready):
                    m.next = "IDLE"
            with m.State("END_JOB"):
                # `Membership` leaves its last request.
                m.next = "WIPE_JOB"
            with m.State("WIPE_JOB"):
                m.d.comb += [tables.control.eq(1), membership.active.eq(1), membership.wipes.eq(1)]
                with m.If(membership.done):
                    m.d.sync += self.stats[Stat.CORRUPT_JOBS].eq(1)
                    m.next = "IDLE"
        with m.If(may_enter):
            m.d.comb += [
                rows.job.eq(upcoming.job),
                rows.member.eq(upcoming.member),
                rows.slot.eq(slot_number(config, upcoming.job, upcoming.seq)),
            ]
        with m.If(self.headers.valid & self.headers.ready):
            m.d.sync += [held.headers.eq(self.headers.payload), held.now_us.eq(self.now_us)]
        # In DECIDE the rows may be those of the next frame, and in ISSUE the headers, too.
        with m.If(~fsm.ongoing("DECIDE") & ~fsm.ongoing("ISSUE")):
            m.d.sync += [held.job_row.eq(rows.job_row), decided.job.eq(frame.job), decided.is_leaf.eq(kind.is_leaf)]
        with m.If((fsm.ongoing("MEMBERSHIP") | fsm.ongoing("EVICT")) & ~membership.done):
            m.d.comb += self.expense.cycles.eq(PROCEDURE_COST)
        reply = self.replies.payload
        build_reply(
            m,
            held,
            reply,
            outcome,
            rows=rows,
            membership=membership,
            control=fsm.ongoing("MEMBERSHIP"),
            conflicts=conflicts & fsm.ongoing("ISSUE"),
        )
        if config.uplinks:
            build_parent_request(
                m,
                held,
                reply,
                job=rows.job_row,
                operator_key=self.operator_key,
                leaves=membership.requests_leave,
                requests_parent=fsm.ongoing("REQUEST_PARENT"),
                reports=~fault & decision.reports & fsm.ongoing("ISSUE"),
            )
        if config.staleness:
            with m.If(claim):
                build_refusal(m, reply, rows.claims_row.base)
        return m

    def _may_enter_early(self, m, held: HeldFrame, *, rows):
        """Return whether the next frame may enter while the core decides about the held one, if the slot takes that.

        The next frame's rows are read in CLASSIFY even if the slot does not take the held frame, whose own rows are
        needed again in ISSUE only. They are read before the held frame is written, so these must not meet; frames of
        different jobs have no row in common:

        - The row of the slot: the frames are for different slots.
        - What a procedure does after the held frame, its answer, and the notices of its port: the slot takes the held
          frame, so there are none. A frame for which the core wipes the job is a fault.
        - The rows of claims: the held frame is no claim.
        - The job's row: a frame writes its roster at a boundary. If no member is joining, and none was admitted at the
          boundary before, that changes only `admitted_seq`, which counts for members that were admitted.
        - What members acknowledged, and when they were heard: the ring takes both from the held frame. Receipts to a
          parent depend on what all members acknowledged, so the held frame's job has no parent.
        - The rows of senders and entries, and all rows of a job that ends or begins: only control messages write them,
          and these are no contributions.
        """
        follows, is_settled = Signal(), Signal()
        next_frame, frame = self.headers.payload, held.frame
        slot_bits = exact_log2(self.config.slots)
        # The next headers stay, so that these conditions are in registers when the ring accepts the held frame.
        m.d.sync += [
            follows.eq(
                self.headers.valid
                & next_frame.ours
                & (type_of(next_frame.frame) == Type.CONTRIBUTION)
                & ((next_frame.frame.job != frame.job) | (next_frame.frame.seq[:slot_bits] != frame.seq[:slot_bits]))
            ),
            is_settled.eq(
                held.kind.contribution & ~held.kind.is_leaf & ~(rows.job_row.joining | rows.job_row.admitted).any()
            ),
        ]
        return follows & is_settled

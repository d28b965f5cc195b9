"""The rules of the ring; golden model: `host/iswitch/golden/decide/ring.py`."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.decide.lowest_missing import LowestMissing
from hw.decide.rules.completion import has_enough, is_complete
from hw.interface.rows import COLLECTIVE_BITS, DIGEST_BITS, SEQ_BITS, TICK_BITS, job_row, slot_row
from hw.numeric.formats import is_half
from hw.stream.reduction import popcount, reaches
from hw.stream.stages import delayed
from iswitch.config import Config
from iswitch.wire import SILENCE_TICK_US, SILENCE_TICKS_MAX, Operation, Outcome, SlotState

__all__ = ["FrameBefore", "Report", "Ring", "RingDecision", "RingRequest"]

FRAME_SEQ = ("seq", "incarnation")
"""Fields of a slot that are those of the frame's seq whenever a frame writes the slot."""


class RingRequest(data.Struct):
    """The fields of a contribution, a receipt, an uplink or a result of the parent that the ring decides on.

    In an asynchronous job `requires_all` is 1 and `boundary` is 0, and `covered` is 1 if the seq belongs to a granted
    update. In trees the frame may be an `uplink`, or a result from the parent to `install`. `ranks` contribute the
    elements; the elements of `tainted_ranks` were rejected. Or the frame is the parent's notice about another
    `collective`, to `contest` the slot. A result to install has collective 0, and its identity is the digest.
    """

    receipt: 1
    want: 1
    boundary: 1
    requires_all: 1
    seq: 32
    behind: 16
    numeric: 4
    length: 14
    tainted: 1
    covered: 1
    collective: COLLECTIVE_BITS
    digest: DIGEST_BITS
    uplink: 1
    install: 1
    contest: 1
    ranks: 32
    tainted_ranks: 32
    partial: 1


class Report(data.Struct):
    """A receipt to the parent: no member lacks a result before `seq - behind`; with `want`, one wants that of `seq`."""

    seq: SEQ_BITS
    behind: 16
    want: 1


class FrameBefore(data.StructLayout):
    """A frame of the same job that is written while the ring decides, if `valid`, so that the rows may not show it yet.

    The switch heard its `member` at `tick`. If it `advances`, the member acknowledged all results before `low`.
    """

    def __init__(self, config: Config):
        super().__init__(
            {"valid": 1, "member": range(config.members), "tick": TICK_BITS, "advances": 1, "low": SEQ_BITS}
        )


class RingDecision(data.StructLayout):
    """The outcome of a contribution or a receipt, and what the switch does with it.

    `advance`: the sender acknowledges more results than before. `slot_write`: the slot becomes `slot_next`. `works`:
    the aggregator carries out `operation`. `first`: the sum begins with it. `emit`: the sum leaves after it. `resend`:
    the stored result goes to the sender. `completes`: this frame completes the slot. `conflicts`: the slot has met two
    collectives, and the sender gets a notice: about the slot's if the outcome is COLLECTIVE, else about its rival. In
    trees, `up`: the sum goes to the parent instead of the members. `reports`: the receipt `report` goes to the parent.
    """

    def __init__(self, config: Config):
        super().__init__(
            {
                "outcome": Outcome,
                "advance": 1,
                "slot_write": 1,
                "slot_next": slot_row(config),
                "works": 1,
                "operation": Operation,
                "first": 1,
                "emit": 1,
                "resend": 1,
                "completes": 1,
                "conflicts": 1,
                "up": 1,
                "reports": 1,
                "report": Report,
            }
        )


class Ring(wiring.Component):
    """Decides one contribution or receipt from its job's and slot's rows and from what the members acknowledged.

    This is the longest logic of the core, so it takes four cycles: (1) differences of serial numbers and times, (2) the
    consequences of one difference, (3) the consequences of several, (4) the decision. Steps 1 to 3 end in registers;
    step 4 is combinational. Hold all inputs for three cycles. Exceptions: `is_leaf` and `request.length` are read from
    the second cycle on, `is_leaf` up to the fourth; `granted` and `request.covered` are read in the third. `accepts` is
    valid in the third cycle; `decision`, `evicts` and `late` in the fourth, in which the inputs may be those of the
    next frame. Latency 3 cycles; one frame in 3 cycles, without stalls. What `acknowledged` and `heard` say of the
    member of the frame `before` does not count, and may change.

    `granted`: the members to which an asynchronous job granted the seq. `low`: the first seq whose result the sender
    lacks. `silences`: the ticks since the switch last `heard` from each member, combinationally. `silent`: the members
    from which nothing has arrived for `evict_us`; valid 1 cycle after `heard`. `stale`: the same, and those from which
    nothing has arrived for 2^29 us. `evicts`: the sender waits for at least one silent member; `late` is the set of
    those members. `accepts`: the frame is a contribution or an uplink that the slot takes. Then the frame waits for no
    member and has no answer, and `advances` says in the third cycle what `decision.advance` says in the fourth.

    In trees, the slot that a frame completes goes to the parent if `is_leaf`. A leaf also `reports` to its parent if a
    receipt or a retransmission gives the aggregator no operation. `lowest` is the lowest seq whose result a live member
    lacks, 4 cycles after `acknowledged` and the job's row. While a member `departs`, what the frame acknowledges does
    not count for `lowest`. Source: `host/iswitch/golden/decide/ring.py` and `tree.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "request": In(RingRequest),
                "member": In(range(config.members)),
                "job": In(job_row(config)),
                "slot": In(slot_row(config)),
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "heard": In(data.ArrayLayout(TICK_BITS, config.members)),
                "now_us": In(32),
                "tick": In(TICK_BITS),
                "before": In(FrameBefore(config)),
                "granted": In(config.members),
                "decision": Out(RingDecision(config)),
                "low": Out(32),
                "silences": Out(data.ArrayLayout(TICK_BITS, config.members)),
                "silent": Out(config.members),
                "stale": Out(config.members),
                "evicts": Out(1),
                "accepts": Out(1),
                "advances": Out(1),
                "late": Out(config.members),
                "is_leaf": In(1),
                "departs": In(1),
                "lowest": Out(SEQ_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, slot, job, decision = self.request, self.slot, self.job, self.decision
        uplinks = self.config.uplinks
        uplink, installing, contests = (
            (request.uplink, request.install, request.contest) if uplinks else (Const(0), Const(0), Const(0))
        )
        slots, window = self.config.slots, self.config.window

        # First, serial distances, modulo 2^32 and signed (RFC 1982).
        low = Signal(32)
        m.d.comb += low.eq(request.seq - request.behind)
        ahead, gain = Signal(signed(32)), Signal(signed(32))
        acknowledged_low = Signal(32)
        before, known_before, silence_before = self.before, Signal(signed(32)), Signal(TICK_BITS)
        repeats_sender = before.valid & before.advances & (before.member == self.member)
        m.d.comb += [
            acknowledged_low.eq(Mux(repeats_sender, before.low, self.acknowledged[self.member])),
            known_before.eq(before.low - slot.seq),
            silence_before.eq(self.tick - before.tick),
        ]
        behind_bad, early, overdue = Signal(), Signal(), Signal()
        lacks_result, is_silent, is_stale = [], [], []
        allowed = job.evict_us >> exact_log2(SILENCE_TICK_US)
        exceeds = lambda silence: (allowed != 0) & (silence > allowed)
        for k in range(self.config.members):
            known, silence = Signal(signed(32), name=f"known_{k}"), self.silences[k]
            m.d.comb += [known.eq(self.acknowledged[k] - slot.seq), silence.eq(self.tick - self.heard[k])]
            is_before = before.valid & (before.member == k)
            lacks_result.append(job.live[k] & Mux(is_before & before.advances, known_before <= 0, known <= 0))
            is_silent.append(Mux(is_before, exceeds(silence_before), exceeds(silence)))
            is_stale.append(
                is_silent[k]
                | Mux(is_before, reaches(silence_before, SILENCE_TICKS_MAX), reaches(silence, SILENCE_TICKS_MAX))
            )
        lacks, before_start, age, bit = (
            Signal(self.config.members),
            Signal(signed(32)),
            Signal(32),
            Signal(self.config.members),
        )
        same, rejects, tally = Signal(), Signal(), Signal(range(self.config.members + 1))
        # An empty slot stands one lap before the first seq, whatever its row says.
        index_bits = exact_log2(slots)
        laps_after_empty, empty = Signal(signed(SEQ_BITS - index_bits)), Signal()
        m.d.comb += [
            laps_after_empty.eq(request.seq[index_bits:] - job.empty_lap),
            empty.eq(slot.state == SlotState.EMPTY),
        ]
        differs, has_rival = Signal(), Signal()
        m.d.comb += [before_start.eq(request.seq - job.admitted_seq), age.eq(self.now_us - slot.opened_us)]
        m.d.sync += [
            bit.eq(Mux(installing, 0, 1 << self.member)),
            ahead.eq(Mux(empty, laps_after_empty << index_bits, request.seq - slot.seq)),
            same.eq(Mux(empty, laps_after_empty == 0, request.seq == slot.seq)),
            differs.eq((request.collective != slot.collective) | (request.digest != slot.digest)),
            has_rival.eq(slot.rival != 0),
            gain.eq(low - acknowledged_low),
            self.low.eq(low),
            behind_bad.eq(
                Mux(
                    request.receipt,
                    reaches(request.behind, window + 1),
                    Mux(uplink, reaches(request.behind, slots), reaches(request.behind, window)),
                )
            ),
            lacks.eq(Cat(*lacks_result)),
            self.silent.eq(Cat(*is_silent)),
            self.stale.eq(Cat(*is_stale)),
            early.eq(before_start < 0),
            overdue.eq((job.deadline_us != 0) & (age >= job.deadline_us)),
            tally.eq(popcount(slot.members)),
            rejects.eq(Mux(uplink, request.ranks == 0, request.tainted & ~job.mode)),
        ]

        # Second, the consequences of each difference. The slot `opens` for a later lap or `grows`. From here on the
        # frame's kind is in registers.
        after = decision.slot_next
        leaf, receipt, installs = self.is_leaf if uplinks else Const(0), Signal(), Signal()
        m.d.sync += [receipt.eq(request.receipt), installs.eq(installing)]
        opens, grows, vacant, collecting, complete, sent_up, stored = (
            Signal(),
            Signal(slot_row(self.config)),
            Signal(),
            Signal(),
            Signal(),
            Signal(),
            Signal(),
        )
        count = Signal.like(tally)
        m.d.sync += [
            vacant.eq(empty),
            collecting.eq(slot.state == SlotState.COLLECTING),
            complete.eq(slot.state == SlotState.COMPLETE),
            sent_up.eq((slot.state == SlotState.SENT_UP) if uplinks else 0),
        ]
        m.d.comb += [
            opens.eq((ahead >= 0) & ~same),
            grows.arrived.eq(Mux(opens, 0, slot.arrived) | bit),
            grows.members.eq(Mux(opens, 0, slot.members) | Mux(rejects, 0, bit)),
            grows.expected.eq(Mux(opens, job.live & ~Mux(early, job.admitted, 0), slot.expected)),
            grows.requires_all.eq(Mux(installs, ~opens & slot.requires_all, request.requires_all)),
            count.eq(Mux(opens, 0, tally) + (~rejects & bit.any())),  # the sender is not in the slot yet
        ]
        advance_too_far, beyond_ring, next_lap, is_async, opens_update = (
            Signal(name=name) for name in ("advance_too_far", "beyond_ring", "next_lap", "is_async", "opens_update")
        )
        arrived, members, expected = (
            Signal(self.config.members, name=name) for name in ("arrived", "members", "expected")
        )
        requires_all, already_arrived, result_held, enough = (
            Signal(name=name) for name in ("requires_all", "already_arrived", "result_held", "enough")
        )
        closes, other_collective, other_format, other_length = (
            Signal(name=name) for name in ("closes", "other_collective", "other_format", "other_length")
        )
        m.d.sync += [
            self.advances.eq(gain > 0),
            advance_too_far.eq((gain >= 0) & reaches(gain.as_unsigned(), slots + 1)),
            beyond_ring.eq((ahead >= 0) & reaches(ahead.as_unsigned(), slots + 1)),
            next_lap.eq(ahead == slots),
            is_async.eq(job.segments.any()),
            opens_update.eq(opens & job.segments.any()),
            arrived.eq(grows.arrived),
            members.eq(grows.members),
            expected.eq(grows.expected),
            requires_all.eq(grows.requires_all),
            already_arrived.eq((slot.arrived & bit).any()),
            result_held.eq(collecting | sent_up | (complete & (lacks & ~bit).any())),
            stored.eq(complete & same),
            enough.eq(has_enough(grows.requires_all, count, job.threshold, overdue & ~opens)),
            closes.eq(
                is_complete(slot.expected, slot.arrived, has_enough(slot.requires_all, tally, job.threshold, overdue))
            ),
            # A result that was installed does not carry collective, boundary and requires_all.
            other_collective.eq(~opens & differs & ~installs & ~(leaf & complete)),
            other_format.eq(
                ~opens
                & (
                    (request.numeric != slot.numeric)
                    | ((request.boundary != slot.boundary) | (request.requires_all != slot.requires_all))
                    & ~installs
                    & ~(leaf & complete)
                )
            ),
            other_length.eq(~opens & (request.length != slot.length)),
        ]

        # Third: the expected members, whether all have arrived, and the reasons to refuse the frame.
        awaits = Mux(opens_update, self.granted, expected)
        (
            full,
            fresh,
            any_joining,
            out_of_window,
            stale,
            slot_held,
            not_expected,
            repeated,
            wants_unopened_lap,
            any_granted,
        ) = (
            Signal(name=name)
            for name in (
                "full",
                "fresh",
                "any_joining",
                "out_of_window",
                "stale",
                "slot_held",
                "not_expected",
                "repeated",
                "wants_unopened_lap",
                "any_granted",
            )
        )
        awaited, expects, late, granted_late = (
            Signal(self.config.members, name=name) for name in ("awaited", "expects", "late", "granted_late")
        )
        silent_others = self.silent & ~bit
        m.d.comb += awaited.eq(Mux(collecting, slot.expected & ~slot.arrived, lacks))
        m.d.sync += [
            expects.eq(awaits),
            full.eq(is_complete(awaits, arrived, enough)),
            fresh.eq(opens | (slot.members == 0)),
            any_joining.eq(job.joining.any()),
            late.eq(awaited & silent_others),
            granted_late.eq(self.granted & silent_others),
            any_granted.eq(self.granted.any()),
            # The receipt wants the result of a granted segment whose slot no member has opened.
            wants_unopened_lap.eq(request.want & is_async & request.covered & next_lap),
        ]
        refusals = [
            (out_of_window, ~installs & (behind_bad | advance_too_far) | (~receipt & beyond_ring)),
            (stale, (ahead < 0) | (same & vacant)),
            # A sender that opens a slot inside its window already holds the result of the previous lap.
            (slot_held, opens & result_held),
            (not_expected, is_async & (opens | collecting) & ~(awaits & bit).any()),
            (repeated, ~opens & ~installs & (already_arrived | ~collecting)),
        ]
        m.d.sync += [refusal.eq(holds) for refusal, holds in refusals]
        refused = Cat(holds for _, holds in refusals).any() | other_collective | other_format | other_length

        # Fourth: the decision, and the next row of the slot. The inputs may be those of the next frame.
        request, slot, incarnation, numeric, now_us = (
            delayed(m, f"{name}_before", value)
            for name, value in (
                ("request", request),
                ("slot", slot),
                ("incarnation", job.incarnation),
                ("numeric", job.numeric),
                ("now_us", self.now_us),
            )
        )
        if uplinks:
            uplink, contests = request.uplink, request.contest
        # Of the third step, from registers like the reasons to refuse.
        m.d.comb += self.accepts.eq(~refused & ~receipt & ~installs & ~contests)
        closed = Mux(leaf, SlotState.SENT_UP, SlotState.COMPLETE)
        waits = Signal()
        m.d.comb += [
            after.arrived.eq(arrived),
            after.members.eq(members),
            after.expected.eq(expects),
            decision.emit.eq(full),
            self.late.eq(late),
            decision.first.eq(fresh),
            after.seq.eq(request.seq),
            after.incarnation.eq(incarnation),
            after.numeric.eq(request.numeric),
            after.length.eq(request.length),
            after.boundary.eq(Mux(installs, ~opens & slot.boundary, request.boundary)),
            after.requires_all.eq(requires_all),
            after.opened_us.eq(Mux(opens, Mux(installs, 0, now_us), slot.opened_us)),
            after.collective.eq(Mux(opens | installs, request.collective, slot.collective)),
            after.digest.eq(Mux(opens | installs, request.digest, slot.digest)),
            after.rival.eq(Mux(opens | installs, 0, slot.rival)),
            after.state.eq(Mux(installs, SlotState.COMPLETE, Mux(decision.emit, closed, SlotState.COLLECTING))),
            decision.completes.eq(decision.slot_write & (after.state == SlotState.COMPLETE) & ~installs),
            after.members_changed.eq(decision.completes & after.boundary & any_joining),
        ]
        if uplinks:
            m.d.comb += [
                after.ranks.eq(Mux(opens | installs, 0, slot.ranks) | Mux(rejects & ~installs, 0, request.ranks)),
                after.tainted.eq(Mux(opens | installs, 0, slot.tainted) | request.tainted_ranks),
                after.partial.eq(request.partial & (uplink | installs) | slot.partial & ~opens & ~installs),
            ]
        else:
            m.d.comb += after.tainted.eq(Mux(opens, 0, slot.tainted) | Mux(request.tainted, bit, 0))

        m.d.comb += [decision.advance.eq(self.advances & ~installs), decision.operation.eq(Operation.CONTRIBUTE)]
        contested = Signal(slot_row(self.config))
        m.d.comb += [contested.eq(slot), contested.rival.eq(request.collective)]
        # A slot with another collective keeps all but `rival`. Its seq and incarnation are those of the frame.
        with m.If(contests | other_collective):
            m.d.comb += [after[name].eq(contested[name]) for name in contested.shape().members if name not in FRAME_SEQ]
        with m.If(contests):
            holds = sent_up & same
            m.d.comb += [
                decision.outcome.eq(Mux(holds, Outcome.CONTROL, Outcome.STALE)),
                decision.advance.eq(0),
                decision.slot_write.eq(holds),
            ]
        with m.Elif(out_of_window):
            m.d.comb += [decision.outcome.eq(Outcome.WINDOW), decision.advance.eq(0)]
        with m.Elif(receipt):
            m.d.comb += [
                decision.outcome.eq(Outcome.RECEIPT),
                decision.resend.eq(request.want & stored),
                waits.eq(request.want & collecting & same),
            ]
            with m.If(request.want & sent_up & same):
                m.d.comb += [decision.works.eq(1), decision.operation.eq(Operation.SEND_UP)]
            with m.Elif(wants_unopened_lap):
                with m.If(result_held):
                    m.d.comb += waits.eq(1)
                with m.Elif(any_granted):
                    m.d.comb += [waits.eq(1), self.late.eq(granted_late)]
                with m.Else():
                    m.d.comb += [
                        decision.works.eq(1),
                        decision.operation.eq(Operation.FORCE),
                        decision.slot_write.eq(1),
                        after.arrived.eq(0),
                        after.members.eq(0),
                        after.tainted.eq(0),
                        after.numeric.eq(numeric),
                        after.length.eq(Mux(is_half(numeric), 8, 4) if self.config.half_width else 4),
                        after.opened_us.eq(0),
                        after.collective.eq(0),
                        after.digest.eq(0),
                        after.state.eq(SlotState.COMPLETE),
                        decision.emit.eq(1),
                    ]
                    if uplinks:
                        m.d.comb += [after.ranks.eq(0), after.partial.eq(0)]
        with m.Elif(stale):
            m.d.comb += decision.outcome.eq(Outcome.STALE)
        with m.Elif(slot_held):
            m.d.comb += [decision.outcome.eq(Outcome.SLOT_HELD), waits.eq(~installs)]
        with m.Elif(not_expected):
            m.d.comb += decision.outcome.eq(Outcome.WINDOW)
        with m.Elif(other_collective):
            m.d.comb += [
                decision.outcome.eq(Outcome.COLLECTIVE),
                decision.conflicts.eq(1),
                decision.slot_write.eq(collecting | sent_up),
            ]
        with m.Elif(other_format):
            m.d.comb += decision.outcome.eq(Outcome.FORMAT)
        with m.Elif(other_length):
            m.d.comb += decision.outcome.eq(Outcome.LENGTH)
        with m.Elif(installs & stored):
            m.d.comb += decision.outcome.eq(Outcome.DUPLICATE)
        with m.Elif(repeated):
            m.d.comb += [
                decision.outcome.eq(Mux(already_arrived, Outcome.DUPLICATE, Outcome.LATE)),
                decision.resend.eq(stored),
            ]
            # If SET_H lowered the threshold, or the deadline has passed, a retransmission completes the open slot.
            with m.If(collecting & closes):
                m.d.comb += [
                    decision.works.eq(1),
                    decision.operation.eq(Operation.FORCE),
                    decision.slot_write.eq(1),
                    after.members.eq(slot.members),
                    after.tainted.eq(slot.tainted),
                    after.state.eq(closed),
                ]
                if uplinks:
                    m.d.comb += [after.ranks.eq(slot.ranks), after.partial.eq(slot.partial)]
            with m.Elif(sent_up):
                m.d.comb += [
                    decision.works.eq(1),
                    decision.operation.eq(Operation.SEND_UP),
                    decision.conflicts.eq(has_rival),
                ]
            with m.Else():
                m.d.comb += [waits.eq(collecting), decision.conflicts.eq(collecting & has_rival)]
        with m.Else():
            m.d.comb += [
                decision.outcome.eq(Mux(rejects, Outcome.QUARANTINED, Outcome.ADDED)),
                decision.slot_write.eq(1),
                decision.works.eq(~rejects | decision.emit),
                decision.operation.eq(Mux(rejects, Operation.FORCE, Operation.CONTRIBUTE)),
            ]
            with m.If(installs):
                m.d.comb += [
                    decision.outcome.eq(Outcome.ADDED),
                    decision.works.eq(1),
                    decision.operation.eq(Operation.INSTALL_DOWN),
                    decision.first.eq(1),
                ]
        with m.If(decision.resend):
            m.d.comb += [decision.works.eq(1), decision.operation.eq(Operation.RESEND)]

        m.d.comb += self.evicts.eq(waits & self.late.any())
        if uplinks:
            m.submodules.lowest = lowest_missing = LowestMissing(self.config)
            least, distance = Signal(SEQ_BITS), Signal(signed(32))
            in_window = receipt & request.want & (distance >= 0) & (distance <= window)
            repeats = (decision.outcome == Outcome.DUPLICATE) & ~installs & ~decision.conflicts
            m.d.sync += self.lowest.eq(least)
            m.d.comb += [
                lowest_missing.acknowledged.eq(self.acknowledged),
                lowest_missing.live.eq(job.live),
                lowest_missing.member.eq(self.member),
                lowest_missing.gain.eq(Mux((gain >= 0) & ~self.departs, gain, 0)),
                least.eq(lowest_missing.lowest),
                distance.eq(request.seq - least),
                decision.up.eq(
                    leaf
                    & decision.works
                    & (
                        (decision.operation == Operation.CONTRIBUTE) & decision.emit
                        | (decision.operation == Operation.FORCE)
                        | (decision.operation == Operation.SEND_UP)
                    )
                ),
                decision.reports.eq(leaf & ((decision.outcome == Outcome.RECEIPT) | repeats) & ~decision.works),
                decision.report.want.eq(in_window),
                decision.report.seq.eq(Mux(in_window, request.seq, least)),
                decision.report.behind.eq(Mux(in_window, distance, 0)),
            ]
        return m

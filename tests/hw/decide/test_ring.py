"""The ring's logic against the golden model, state by random state; every plausible mutant is killed."""

import dataclasses
import itertools
import random
from functools import cache
from typing import NamedTuple

import pytest
from amaranth.hdl import Value
from amaranth.lib import data

import hw.decide.ring
import hw.decide.rules.completion
from hw.decide.ring import FrameBefore, RingRequest
from hw.interface.rows import job_row, slot_row
from iswitch.config import Config
from iswitch.golden.decide import ring as model
from iswitch.golden.decide.slot import Ring, Slot, Work
from iswitch.wire import SILENCE_TICKS_MAX, Operation, Outcome, SlotState
from sim.bench.mutant import mutant
from sim.bench.on_demand import OnDemand
from sim.bench.stream import Bench, pack

CONFIG = Config(ports=2, bus_bits=64, members=5, jobs=2, window=4, elements=64, queue_bytes=4096, uplinks=False)
WITH_TREES = dataclasses.replace(CONFIG, uplinks=True)
SERIAL = 1 << 32
MASKS = range(1 << CONFIG.members)


class Case(NamedTuple):
    """One question to the ring and what it knows. Of the model's slots only the one asked about matters. `granted`: as
    the model's, in an asynchronous job."""

    ring: Ring
    receipt: bool
    member: int
    seq: int
    behind: int
    format: int = 0
    length: int = 0
    tainted: bool = False
    quarantine: bool = True
    want: bool = False
    boundary: bool = False
    requires_all: bool = False
    now_us: int = 0
    evict_us: int = 0
    heard: tuple[int, ...] = ()
    asynchronous: bool = False
    granted: int | None = None
    collective: int = 0
    digest: int = 0

    @property
    def index(self):
        return self.seq % CONFIG.slots

    def step(self):
        if self.receipt:
            return model.receipt(
                self.ring,
                member=self.member,
                seq=self.seq,
                behind=self.behind,
                want=self.want,
                granted=self.granted,
                format=3,
                length=4,
            )
        granted = self.granted or 0 if self.asynchronous else None
        return model.contribute(
            self.ring,
            member=self.member,
            seq=self.seq,
            behind=self.behind,
            format=self.format,
            length=self.length,
            tainted=self.tainted,
            quarantine=self.quarantine,
            boundary=self.boundary,
            requires_all=self.requires_all,
            now_us=self.now_us,
            granted=granted,
            collective=self.collective,
            digest=self.digest,
        )

    def victim(self, waits):
        """Return the first awaited member that has been silent for longer than `evict_us`, or None."""
        late = [
            m
            for m, tick in enumerate(self.heard)
            if waits >> m & 1
            and m != self.member
            and self.evict_us >> 14
            and ((self.now_us >> 14) - tick) % 2**16 > self.evict_us >> 14
        ]
        return late[0] if late else None


def case(rng):
    """Mostly states that a ring can be in and questions at the edge of what it allows; some are plain noise."""
    slots, window = CONFIG.slots, CONFIG.window
    start = rng.choice([0, SERIAL - slots, SERIAL // 2, SERIAL // 2 - slots, rng.randrange(SERIAL // slots) * slots])
    here = (start + rng.randrange(slots)) % SERIAL
    arrived, expected = rng.choice(MASKS), rng.choice(MASKS)
    slot = Slot(
        here,
        rng.choice(list(SlotState)[:3]),
        arrived,
        arrived & rng.choice(MASKS),
        arrived & rng.choice(MASKS),
        expected,
        rng.randrange(1, 4),
        4 * rng.randrange(1, 65),
        rng.random() < 0.4,
        rng.random() < 0.2,
        opened_us=rng.randrange(SERIAL),
        collective=rng.randrange(SERIAL),
        digest=rng.randrange(2**16),
        rival=rng.choice([0, 0, rng.randrange(SERIAL)]),
    )
    if slot.state == SlotState.COMPLETE and rng.random() < 0.3:
        slot = slot._replace(arrived=slot.expected | slot.arrived)
    laps = rng.choice([0, 0, 0, 1, 1, 1, 2, -1, -2, SERIAL // slots // 2, rng.randrange(-9, 9)])
    seq, behind = (
        (here + laps * slots) % SERIAL,
        rng.choice([0, 1, window - 1, window, window + 1, rng.randrange(65536)]),
    )
    low, member = seq - behind, rng.randrange(CONFIG.members)
    known = [
        here + rng.choice([1, 1, 2, slots, 0, -1, rng.randrange(-slots, 2 * slots)]) for _ in range(CONFIG.members)
    ]
    known[member] = rng.choice([known[member], low, low - 1, low + 1, low - slots, low - slots - 1, here, here + 1])
    if rng.random() < 0.4:
        known = [here + 1 + rng.randrange(3) if m != member else at for m, at in enumerate(known)]
    live, joining = rng.choice(MASKS), rng.choice([0, 0, rng.choice(MASKS)])
    ring = Ring(
        (slot,) * slots,
        tuple(at % SERIAL for at in known),
        live,
        rng.randint(1, CONFIG.members),
        joining & ~(live | 1 << member),
        rng.choice(MASKS),
        (seq + rng.choice([0, 1, -1, slots, -slots])) % SERIAL,
        rng.choice([0, 0, 1, 50, 2**31 - 1]),
    )
    now_us = (slot.opened_us + rng.choice([0, 1, 49, 50, 2**31, rng.randrange(SERIAL)])) % SERIAL
    evict_us = rng.choice([0, 2**14, 5 * 2**14 + 3, 2**29 - 1])
    heard = tuple(
        ((now_us >> 14) - rng.choice([0, evict_us >> 14, (evict_us >> 14) + 1, rng.randrange(2**16)])) % 2**16
        for _ in range(CONFIG.members)
    )
    asynchronous, granted = rng.random() < 0.4, None
    if asynchronous:
        slot = slot._replace(boundary=False, requires_all=True)
        ring = ring._replace(slots=(slot,) * slots)
        granted = rng.choice([None, 0, 1 << member | rng.choice(MASKS), rng.choice(MASKS)])
    same = rng.random() < 0.8
    kind = (
        (slot.boundary, slot.requires_all)
        if asynchronous or rng.random() < 0.7
        else (rng.random() < 0.5, rng.random() < 0.5)
    )
    return Case(
        ring,
        rng.random() < 0.25,
        member,
        seq,
        behind,
        slot.format if same else rng.randrange(1, 4),
        slot.length if same or rng.random() < 0.5 else 4 * rng.randrange(1, 65),
        rng.random() < 0.4,
        rng.random() < 0.6,
        rng.random() < (0.85 if asynchronous else 0.5),
        *kind,
        now_us,
        evict_us,
        heard,
        asynchronous,
        granted,
        slot.collective ^ rng.choice([0, 0, 0, 0, 0, 0, 1, 1 << 31]),
        slot.digest ^ rng.choice([0, 0, 0, 0, 0, 0, 0, 1 << 15]),
    )


def row(layout, value):
    return {name: value >> field.offset & (1 << field.width) - 1 for name, field in layout}


INCARNATION = 5

NAMES = {"format": "numeric"}
"""Fields of the model's slots that have another name in the gateware."""


def inputs(one, config=CONFIG, **more):
    """Return what goes in, with `more` fields of the slot's row in this configuration."""
    slot = one.ring.slots[one.index]
    return {
        "request": pack(
            RingRequest,
            dict(
                receipt=one.receipt,
                want=one.want,
                seq=one.seq,
                behind=one.behind,
                numeric=one.format,
                length=one.length,
                tainted=one.tainted,
                boundary=one.boundary,
                requires_all=one.requires_all,
                covered=one.granted is not None,
                collective=one.collective,
                digest=one.digest,
                ranks=1 << one.member,
                tainted_ranks=one.tainted << one.member,
            ),
        ),
        "member": one.member,
        "job": pack(
            job_row(config),
            {
                "threshold": one.ring.threshold,
                "live": one.ring.live,
                "mode": not one.quarantine,
                "joining": one.ring.joining,
                "admitted": one.ring.admitted,
                "admitted_seq": one.ring.admitted_seq,
                "deadline_us": one.ring.deadline_us,
                "evict_us": one.evict_us,
                "segments": 3 * one.asynchronous,
                "numeric": 3,
                "incarnation": INCARNATION,
                "empty_lap": slot.seq // CONFIG.slots,
            },
        ),
        "slot": pack(
            slot_row(config),
            {NAMES.get(name, name): value for name, value in slot._asdict().items()}
            | {"incarnation": INCARNATION, **more}
            # An empty slot has whatever an older incarnation left there, but for its state.
            | ({"seq": slot.seq ^ 0xA5A5A5A5} if slot.state == SlotState.EMPTY else {}),
        ),
        "acknowledged": sum(at << 32 * m for m, at in enumerate(one.ring.acknowledged)),
        "heard": sum(at << 16 * m for m, at in enumerate(one.heard)),
        "now_us": one.now_us,
        "tick": one.now_us >> 14,
        "granted": one.granted or 0,
    }


@cache
def cases(count=4000):
    """Cases, what goes in, and what the model says."""
    rng = random.Random(1)
    some = OnDemand(case(rng) for _ in range(count))
    overdue = (late for one in some if (late := just_overdue(one)) is not None)
    return OnDemand((one, list(inputs(one).items()), one.step()) for one in itertools.chain(some, overdue))


def just_overdue(one):
    """The case at the first microsecond at which its open slot is overdue, or None if it has no such slot."""
    slot, deadline_us = one.ring.slots[one.index], one.ring.deadline_us
    opens_later = slot.state != SlotState.COLLECTING or one.seq != slot.seq
    if not deadline_us or opens_later or slot.requires_all or one.receipt:
        return None
    return one._replace(now_us=(slot.opened_us + deadline_us) % SERIAL)


@cache
def followers():
    return OnDemand(follower_cases())


def follower_cases(count=1500):
    """Yield cases behind a frame of any member whose writes the rows do not show, what goes in, and what the model says
    of the rows that do."""
    rng = random.Random(2)
    for one, *_ in itertools.islice(cases(), count):
        member, advances, slot = rng.randrange(CONFIG.members), rng.random() < 0.5, one.ring.slots[one.index]
        if rng.random() < 0.3:
            # This member alone may lack the slot's result.
            own = [slot.seq + 1 + (m == member) * rng.choice([0, -1]) for m in range(CONFIG.members)]
            one = one._replace(ring=one.ring._replace(acknowledged=tuple(at % SERIAL for at in own)))
        stale_ack = (one.ring.acknowledged[member] - rng.choice([1, 1, CONFIG.slots, rng.randrange(SERIAL)])) % SERIAL
        low = one.ring.acknowledged[member] if advances else (slot.seq + rng.randrange(2)) % SERIAL
        before = {"valid": 1, "member": member, "tick": one.heard[member], "advances": advances, "low": low}
        acknowledged, heard = list(one.ring.acknowledged), list(one.heard)
        acknowledged[member] = stale_ack if advances else acknowledged[member]
        heard[member] = rng.choice([one.now_us >> 14, rng.randrange(1 << 16)]) % 2**16
        rows = inputs(one._replace(heard=tuple(heard), ring=one.ring._replace(acknowledged=tuple(acknowledged))))
        yield one, [*rows.items(), ("before", pack(FrameBefore(CONFIG), before))], one.step()


def told(got, slot):
    """Return the collective that the notice to the sender contains, or None."""
    return (slot.collective if got["outcome"] == Outcome.COLLECTIVE else slot.rival) if got["conflicts"] else None


def check(ring, some):
    """Every output that means something in the case, or an AssertionError. A case comes every third cycle."""
    dut = ring(CONFIG)
    ports = {
        name: Value.cast(dut.decision[name] if name in dut.decision.shape().members else getattr(dut, name))
        for name in (
            "outcome",
            "advance",
            "low",
            "slot_write",
            "slot_next",
            "works",
            "operation",
            "first",
            "emit",
            "resend",
            "completes",
            "conflicts",
            "evicts",
            "late",
        )
    }
    row_layout = data.Layout.cast(slot_row(CONFIG))

    def show(ctx, given):
        for name, value in given:
            ctx.set(Value.cast(getattr(dut, name)), value)

    async def bench(ctx):
        show(ctx, next(iter(some))[1])
        for (one, _, step), (_, next_given, _) in itertools.pairwise(itertools.chain(some, itertools.islice(some, 1))):
            await ctx.tick().repeat(2)
            accepts, advances = ctx.get(dut.accepts), ctx.get(dut.advances)
            await ctx.tick()
            show(ctx, next_given)
            got = {name: ctx.get(port) for name, port in ports.items()}
            assert accepts == (step.outcome in (Outcome.ADDED, Outcome.QUARANTINED)), f"{one}: accepts"
            assert not accepts or advances == got["advance"], f"{one}: advances"
            assert got["outcome"] == step.outcome, f"{one}: {Outcome(got['outcome'])!r}, not {step.outcome!r}"
            known = got["low"] if got["advance"] else one.ring.acknowledged[one.member]
            assert known == step.ring.acknowledged[one.member], f"{one}: have {known:#x}"
            slot = step.ring.slots[one.index]
            expected = {NAMES.get(name, name): int(value) for name, value in slot._asdict().items()}
            assert not got["slot_write"] or row(row_layout, got["slot_next"])["incarnation"] == INCARNATION
            got["slot_next"] &= ~(INCARNATION << row_layout["incarnation"].offset)
            before = {NAMES.get(name, name): int(value) for name, value in one.ring.slots[one.index]._asdict().items()}
            before["incarnation"] = expected["incarnation"] = 0
            assert (row(row_layout, got["slot_next"]) if got["slot_write"] else before) == expected, f"{one}: slot"
            work = None
            if got["works"]:
                resend = got["operation"] == Operation.RESEND
                assert got["resend"] == resend
                work = Work(
                    Operation(got["operation"]),
                    one.index,
                    not resend and bool(got["first"]),
                    not resend and bool(got["emit"]),
                    step.work.receivers if step.work else 0,
                )
            assert work == step.work, f"{one}: {work}, not {step.work}"
            assert told(got, one.ring.slots[one.index]) == step.differs_from, f"{one}: conflicts"
            assert got["completes"] == bool(step.work and step.work.emit), f"{one}: completes"
            assert ((got["late"] & -got["late"]).bit_length() - 1 if got["evicts"] else None) == one.victim(
                step.waits_for
            ), f"{one}: evicts"

    Bench(dut).drive(bench)


def test_ring_decides_as_the_model():
    check(hw.decide.ring.Ring, cases())


def test_what_the_frame_before_wrote_counts_although_the_rows_do_not_show_it():
    check(hw.decide.ring.Ring, followers())


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("Mux(repeats_sender, before.low, self.acknowledged[self.member])", "self.acknowledged[self.member]"),
        ("before.advances & (before.member == self.member)", "(before.member == self.member)"),
        ("before.advances & (before.member == self.member)", "before.advances"),
        ("Mux(is_before & before.advances, known_before <= 0, known <= 0)", "(known <= 0)"),
        (
            "Mux(is_before & before.advances, known_before <= 0, known <= 0)",
            "Mux(is_before, known_before <= 0, known <= 0)",
        ),
        ("known_before <= 0", "known_before < 0"),
        ("Mux(is_before, exceeds(silence_before), exceeds(silence))", "exceeds(silence)"),
        ("Mux(is_before, exceeds(silence_before), exceeds(silence))", "(~is_before & exceeds(silence))"),
    ],
)
def test_a_mutant_of_what_the_frame_before_wrote_is_noticed(sound, wrong):
    ring = mutant(hw.decide.ring, sound, wrong).Ring
    with pytest.raises(AssertionError):
        check(ring, followers())


def test_a_member_is_silent_after_evict_us_and_stale_after_2_to_the_29_us_at_the_latest():
    """What the row says of the member of the frame before does not count."""
    dut, rng, members = hw.decide.ring.Ring(CONFIG), random.Random(3), range(CONFIG.members)

    async def bench(ctx):
        for _ in range(300):
            evict_us = rng.choice([0, 2**14 - 1, 5 * 2**14 + 3, 2**29 - 1])
            near = [0, evict_us >> 14, (evict_us >> 14) + 1, SILENCE_TICKS_MAX - 1, SILENCE_TICKS_MAX, 2**16 - 1]
            tick, member, valid = rng.randrange(2**16), rng.choice(members), rng.randrange(2)
            silences, before = [rng.choice(near) for _ in members], rng.choice(near)
            heard = [(tick - silence) % 2**16 for silence in silences]
            ctx.set(dut.job.evict_us, evict_us)
            ctx.set(dut.tick, tick)
            ctx.set(Value.cast(dut.heard), sum(at << 16 * m for m, at in enumerate(heard)))
            ctx.set(dut.before.valid, valid)
            ctx.set(dut.before.member, member)
            ctx.set(dut.before.tick, (tick - before) % 2**16)
            assert [ctx.get(dut.silences[m]) for m in members] == silences
            await ctx.tick()
            known = [before if valid and m == member else silences[m] for m in members]
            silent = [0 < evict_us >> 14 < silence for silence in known]
            stale = [is_silent or silence >= SILENCE_TICKS_MAX for is_silent, silence in zip(silent, known)]
            assert ctx.get(dut.silent) == sum(is_silent << m for m, is_silent in enumerate(silent))
            assert ctx.get(dut.stale) == sum(is_stale << m for m, is_stale in enumerate(stale))

    Bench(dut).drive(bench)


def test_the_result_of_a_segment_that_no_member_sends_is_of_no_rank_in_a_switch_that_knows_trees():
    dut = hw.decide.ring.Ring(WITH_TREES)
    some = [(one, step) for one, _, step in cases() if one.receipt and step.work and step.work.emit][:8]

    async def bench(ctx):
        for one, step in some:
            for name, value in inputs(one, WITH_TREES, ranks=0b10110, partial=1).items():
                ctx.set(Value.cast(getattr(dut, name)), value)
            await ctx.tick().repeat(3)
            found = row(data.Layout.cast(slot_row(WITH_TREES)), ctx.get(Value.cast(dut.decision.slot_next)))
            slot = {NAMES.get(name, name): int(value) for name, value in step.ring.slots[one.index]._asdict().items()}
            assert found == slot | {"incarnation": INCARNATION, "ranks": 0, "partial": 0}
            assert ctx.get(dut.decision.operation) == Operation.FORCE and not ctx.get(dut.decision.up)

    assert len(some) == 8
    Bench(dut).drive(bench)


def test_cases_meet_every_outcome_and_operation():
    steps = [step for *_, step in cases()]
    assert {step.outcome for step in steps} == {
        Outcome.ADDED,
        Outcome.QUARANTINED,
        Outcome.RECEIPT,
        Outcome.DUPLICATE,
        Outcome.LATE,
        Outcome.STALE,
        Outcome.WINDOW,
        Outcome.SLOT_HELD,
        Outcome.FORMAT,
        Outcome.LENGTH,
        Outcome.COLLECTIVE,
    }
    assert {(step.outcome, step.differs_from is None) for step in steps} >= {
        (Outcome.COLLECTIVE, False),
        (Outcome.DUPLICATE, False),
        (Outcome.DUPLICATE, True),
    }
    assert {step.work and (step.work.operation, step.work.first, step.work.emit) for step in steps} == {
        None,
        (Operation.RESEND, False, False),
        *((Operation.CONTRIBUTE, first, emit) for first in (True, False) for emit in (True, False)),
        (Operation.FORCE, True, True),
        (Operation.FORCE, False, True),
    }


MUTANTS = [
    ("Mux(empty, laps_after_empty << index_bits, request.seq - slot.seq)", "request.seq - slot.seq"),
    ("Mux(empty, laps_after_empty == 0, request.seq == slot.seq)", "request.seq == slot.seq"),
    ("after.incarnation.eq(incarnation),", ""),
    ("reaches(request.behind, window + 1)", "reaches(request.behind, window)"),
    ("reaches(request.behind, window))", "reaches(request.behind, window + 1))"),
    ("reaches(gain.as_unsigned(), slots + 1)", "reaches(gain.as_unsigned(), slots)"),
    ("reaches(ahead.as_unsigned(), slots + 1)", "reaches(ahead.as_unsigned(), slots)"),
    ("~receipt & beyond_ring", "beyond_ring"),
    ("ahead < 0", "ahead <= 0"),
    (", known <= 0)", ", known < 0)"),
    ("known, silence = Signal(signed(32),", "known, silence = Signal(32,"),
    ("(lacks & ~bit)", "lacks"),
    ("job.live[k] & Mux(", "Mux("),
    ("silence > allowed", "silence >= allowed"),
    ("(allowed != 0) & ", ""),
    ("before_start < 0", "before_start <= 0"),
    ("job.live & ~Mux(early, job.admitted, 0)", "job.live"),
    ("age >= job.deadline_us", "age > job.deadline_us"),
    ("(job.deadline_us != 0) & ", ""),
    ("overdue & ~opens", "overdue"),
    ("tally, job.threshold, overdue)", "tally, job.threshold, 0)"),
    ("Mux(opens, 0, tally)", "tally"),
    ("(~rejects & bit.any())", "bit.any()"),
    ("has_enough(grows.requires_all", "has_enough(slot.requires_all"),
    ("Mux(opens, Mux(installs, 0, now_us), slot.opened_us)", "now_us"),
    ("Mux(opens, Mux(installs, 0, now_us)", "Mux(opens, Mux(installs, 0, self.now_us)"),
    ("after.requires_all.eq(requires_all)", "after.requires_all.eq(grows.requires_all)"),
    ('delayed(m, f"{name}_before", value)', "value"),
    ("any() | other_collective | other_format | other_length", "any() | other_format | other_length"),
    ("any() | other_collective | other_format | other_length", "any() | other_collective | other_length"),
    ("any() | other_collective | other_format | other_length", "any() | other_collective | other_format"),
    ("~refused & ~receipt", "~refused"),
    ("Cat(holds for _, holds in refusals).any()", "out_of_window"),
    (" & any_joining)", ")"),
    ("decision.completes & after.boundary", "after.boundary"),
    ("((request.boundary != slot.boundary) | ", "("),
    (" | (request.requires_all != slot.requires_all)", ""),
    ("Mux(collecting, slot.expected & ~slot.arrived, lacks)", "slot.expected & ~slot.arrived"),
    ("Mux(collecting, slot.expected & ~slot.arrived, lacks)", "lacks"),
    ("self.silent & ~bit", "self.silent"),
    ("waits.eq(request.want & collecting & same)", "waits.eq(collecting & same)"),
    ("waits.eq(request.want & collecting & same)", "waits.eq(request.want & collecting)"),
    ("waits.eq(collecting)", "waits.eq(0)"),
    ("decision.outcome.eq(Outcome.SLOT_HELD), waits.eq(~installs)", "decision.outcome.eq(Outcome.SLOT_HELD)"),
    ("Signal(signed(32)), Signal(signed(32))", "Signal(32), Signal(signed(32))"),
    ("Signal(signed(32)), Signal(signed(32))", "Signal(signed(32)), Signal(32)"),
    ("advances.eq(gain > 0)", "advances.eq(gain > 1)"),
    ("Mux(opens, 0, slot.arrived)", "slot.arrived"),
    ("Mux(opens, 0, slot.members) | ", "slot.members | "),
    ("Mux(opens, 0, slot.tainted)", "slot.tainted"),
    ("Mux(opens, job.live", "Mux(0, job.live"),
    ("Mux(opens, job.live", "Mux(1, job.live"),
    ("Mux(opens_update, self.granted, ", "Mux(0, self.granted, "),
    ("opens_update.eq(opens & ", "opens_update.eq("),
    (" & ~(awaits & bit).any()", " & ~(self.granted & bit).any()"),
    ("is_async & (opens | collecting) &", "is_async & opens &"),
    ("is_async & (opens | collecting) &", "is_async &"),
    ("self.granted & silent_others", "awaited & silent_others"),
    ("request.want & is_async & request.covered & next_lap", "request.want & is_async & request.covered"),
    ("request.want & is_async & request.covered & next_lap", "request.want & is_async & next_lap"),
    ("request.want & is_async & request.covered & next_lap", "is_async & request.covered & next_lap"),
    ("with m.If(result_held):", "with m.If(0):"),
    (", self.late.eq(granted_late)]", "]"),
    ("with m.Elif(any_granted):", "with m.Elif(0):"),
    ("after.arrived.eq(0), ", ""),
    ("after.members.eq(0), ", ""),
    ("after.tainted.eq(0), ", ""),
    ("after.numeric.eq(numeric), ", ""),
    ("after.length.eq(Mux(is_half(numeric), 8, 4) if self.config.half_width else 4),", ""),
    ("after.opened_us.eq(0), ", ""),
    ("Mux(rejects, 0, bit)", "bit"),
    ("request.tainted & ~job.mode", "request.tainted"),
    ("opens | (slot.members == 0)", "opens | (slot.arrived == 0)"),
    ("opens | (slot.members == 0)", "slot.members == 0"),
    ("(complete & (lacks", "((lacks"),
    ("result_held.eq(collecting | ", "result_held.eq("),
    ("opens & result_held", "result_held"),
    ("| (same & vacant)", ""),
    ("request.want & stored", "stored"),
    ("complete & same", "complete"),
    ("complete & same", "same"),
    ("already_arrived | ~collecting", "already_arrived"),
    ("already_arrived | ~collecting", "~collecting"),
    ("Mux(already_arrived, Outcome.DUPLICATE, Outcome.LATE)", "Outcome.DUPLICATE"),
    ("decision.resend.eq(stored)]", "decision.resend.eq(0)]"),
    ("~rejects | decision.emit", "1"),
    ("~rejects | decision.emit", "~rejects"),
    ("~opens & ((request.numeric", "((request.numeric"),
    ("~opens & (request.length", "(request.length"),
    (", decision.advance.eq(0)]", "]"),
    ("request.seq - request.behind", "request.seq"),
    ("Mux(decision.emit, closed, SlotState.COLLECTING)", "SlotState.COLLECTING"),
    ("after.members.eq(slot.members), ", ""),
    ("after.tainted.eq(slot.tainted),\n", "\n"),
    ("(request.collective != slot.collective) | ", ""),
    (" | (request.digest != slot.digest)", ""),
    ("~opens & differs", "differs"),
    ("decision.slot_write.eq(collecting | sent_up)", "decision.slot_write.eq(0)"),
    ("decision.slot_write.eq(collecting | sent_up)", "decision.slot_write.eq(1)"),
    ("contested.rival.eq(request.collective)", "contested.rival.eq(slot.collective)"),
    ("decision.conflicts.eq(collecting & has_rival)", "decision.conflicts.eq(collecting)"),
    ("decision.conflicts.eq(collecting & has_rival)", "decision.conflicts.eq(has_rival)"),
    ("decision.conflicts.eq(1)", "decision.conflicts.eq(0)"),
    ("Mux(opens | installs, 0, slot.rival)", "slot.rival"),
    ("Mux(opens | installs, request.collective, slot.collective)", "slot.collective"),
    ("Mux(opens | installs, request.digest, slot.digest)", "slot.digest"),
    ("after.collective.eq(0),", ""),
    ("after.digest.eq(0),", ""),
    ("decision.slot_write.eq(1),\n                             after.members.eq(slot", "after.members.eq(slot"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.decide.ring, sound, wrong).Ring
    with pytest.raises(AssertionError):
        check(broken, cases())


COMPLETION_MUTANTS = [
    ("~requires_all & (", "("),
    ("| overdue)", ")"),
    ("count >= threshold", "count > threshold"),
    ("~(expected & ~arrived)", "~expected"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), COMPLETION_MUTANTS)
def test_check_notices_a_mutant_of_the_completion_rules(sound, wrong, monkeypatch):
    changed = mutant(hw.decide.rules.completion, sound, wrong)
    for name in ("has_enough", "is_complete"):
        monkeypatch.setattr(hw.decide.ring, name, getattr(changed, name))
    with pytest.raises(AssertionError):
        check(hw.decide.ring.Ring, cases())

"""The ring's logic in a tree against the golden model, state by random state; every plausible mutant is killed."""

import random
from functools import cache
from typing import NamedTuple

import pytest
from amaranth.hdl import Value
from amaranth.lib import data

import hw.decide.ring
from hw.decide.ring import RingRequest
from hw.interface.rows import job_row, slot_row
from iswitch.config import Config
from iswitch.golden.decide import tree
from iswitch.golden.decide.slot import Contributors, Ring, Slot, Step
from iswitch.golden.interface.serial import ahead
from iswitch.wire import Operation, Outcome, SlotState
from sim.bench.mutant import mutant
from sim.bench.on_demand import OnDemand
from sim.bench.stream import Bench, pack

CONFIG = Config(ports=2, bus_bits=64, members=5, jobs=2, window=4, elements=64, queue_bytes=4096)
SERIAL = 1 << 32
MASKS = range(1 << CONFIG.members)
WORKER, UPLINK, RECEIPT, RESULT, CONFLICT = range(5)
INCARNATION = 5

NAMES = {"format": "numeric"}
"""Fields of the model's slots that have another name in the gateware."""


class Case(NamedTuple):
    """One question to the ring of a switch and what it knows. Of the model's slots only the one asked about matters."""

    kind: int
    leaf: bool
    ring: Ring
    member: int
    seq: int
    behind: int
    format: int
    length: int
    boundary: bool
    requires_all: bool
    want: bool
    rejected: bool
    quarantine: bool
    ranks: int
    tainted: int
    partial: bool
    now_us: int
    collective: int
    digest: int

    @property
    def index(self):
        return self.seq % CONFIG.slots

    def step(self):
        """What the model does, and what a leaf reports."""
        if self.kind == RECEIPT:
            return tree.receipt(
                self.ring, leaf=self.leaf, member=self.member, seq=self.seq, behind=self.behind, want=self.want
            )
        if self.kind == CONFLICT:
            ring, outcome = tree.contest(self.ring, seq=self.seq, collective=self.collective)
            return Step(ring, outcome), None
        if self.kind == RESULT:
            return tree.install(
                self.ring,
                seq=self.seq,
                ranks=self.ranks,
                tainted=self.tainted,
                partial=self.partial,
                format=self.format,
                length=self.length,
                identity=self.digest,
            ), None
        about = {
            "leaf": self.leaf,
            "member": self.member,
            "seq": self.seq,
            "behind": self.behind,
            "format": self.format,
            "length": self.length,
            "boundary": self.boundary,
            "requires_all": self.requires_all,
            "now_us": self.now_us,
            "collective": self.collective,
            "digest": self.digest,
        }
        if self.kind == UPLINK:
            step = tree.contribute(
                self.ring, ranks=self.ranks, tainted=self.tainted, partial=self.partial, uplink=True, **about
            )
        else:
            rank = 1 << self.member
            step = tree.contribute(
                self.ring, ranks=0 if self.rejected and self.quarantine else rank, tainted=rank * self.rejected, **about
            )
        return step, tree.keepalive(step, leaf=self.leaf)


def case(rng):
    """States that a ring can be in, mostly, and questions at the edge of what it allows."""
    slots, window, members = CONFIG.slots, CONFIG.window, CONFIG.members
    leaf = rng.random() < 0.6
    start = rng.choice([0, SERIAL - slots, SERIAL // 2 - slots, rng.randrange(SERIAL // slots) * slots])
    here = (start + rng.randrange(slots)) % SERIAL
    live, member = rng.choice(MASKS), rng.randrange(members)
    live |= 1 << member
    expected = live & rng.choice([~0, rng.choice(MASKS)])
    arrived = expected & rng.choice([~0, rng.choice(MASKS)])
    state = rng.choice(
        [SlotState.COLLECTING, SlotState.COMPLETE, SlotState.COMPLETE, SlotState.SENT_UP if leaf else SlotState.EMPTY]
    )
    slot = Slot(
        here,
        state,
        arrived,
        arrived & rng.choice([~0, 0, rng.choice(MASKS)]),
        0,
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
    names = Contributors(rng.choice(MASKS), rng.choice(MASKS), rng.random() < 0.3)
    laps = rng.choice([0, 0, 0, 1, 1, -1, 2])
    seq, behind = (
        (here + laps * slots) % SERIAL,
        rng.choice([0, 1, window - 1, window, window + 1, slots - 1, slots, rng.randrange(65536)]),
    )
    centre = rng.choice([here, here + 1, seq, seq - behind])
    known = [(centre + rng.choice([0, 1, -1, rng.randint(-2 * window, 2 * window)])) % SERIAL for _ in range(members)]
    known[member] = (centre + rng.choice([0, 0, 1, -1, window])) % SERIAL
    ring = Ring(
        (slot,) * slots, tuple(known), live, members, deadline_us=rng.choice([0, 0, 50]), contributors=(names,) * slots
    )
    same = rng.random() < 0.85
    return Case(
        rng.choice([WORKER, UPLINK, UPLINK, RECEIPT, *([RESULT, RESULT, CONFLICT] if leaf else [])]),
        leaf,
        ring,
        member,
        seq,
        behind,
        slot.format if same else rng.randrange(1, 4),
        slot.length if rng.random() < 0.85 else 4 * rng.randrange(1, 65),
        *((slot.boundary, slot.requires_all) if rng.random() < 0.7 else (rng.random() < 0.5, rng.random() < 0.5)),
        rng.random() < 0.6,
        rng.random() < 0.3,
        rng.random() < 0.6,
        rng.choice([0, rng.choice(MASKS)]),
        rng.choice(MASKS),
        rng.random() < 0.3,
        (slot.opened_us + rng.choice([0, 49, 50, 2**31])) % SERIAL,
        slot.collective ^ rng.choice([0, 0, 0, 0, 0, 0, 1, 1 << 31]),
        slot.digest ^ rng.choice([0, 0, 0, 0, 0, 0, 0, 1 << 15]),
    )


def inputs(one):
    slot, names = one.ring.slots[one.index], one.ring.contributors[one.index]
    worker = one.kind == WORKER
    ranks, tainted = (1 << one.member, (1 << one.member) * one.rejected) if worker else (one.ranks, one.tainted)
    return {
        "request": pack(
            RingRequest,
            {
                "receipt": one.kind == RECEIPT,
                "want": one.want,
                "seq": one.seq,
                "behind": one.behind,
                "numeric": one.format,
                "length": one.length,
                "tainted": one.kind in (WORKER, RESULT) and one.rejected,
                "boundary": one.boundary,
                "requires_all": one.requires_all,
                "uplink": one.kind == UPLINK,
                "install": one.kind == RESULT,
                "contest": one.kind == CONFLICT,
                "collective": 0 if one.kind == RESULT else one.collective,
                "digest": one.digest,
                "ranks": ranks,
                "tainted_ranks": tainted,
                "partial": one.partial and not worker,
            },
        ),
        "member": one.member,
        "is_leaf": one.leaf,
        "departs": 0,
        "job": pack(
            job_row(CONFIG),
            {
                "threshold": one.ring.threshold,
                "live": one.ring.live,
                "mode": not one.quarantine,
                "deadline_us": one.ring.deadline_us,
                "incarnation": INCARNATION,
                "empty_lap": slot.seq // CONFIG.slots,
            },
        ),
        "slot": pack(
            slot_row(CONFIG),
            {NAMES.get(name, name): value for name, value in slot._asdict().items()}
            | names._asdict()
            | {"incarnation": INCARNATION},
        ),
        "acknowledged": sum(at << 32 * m for m, at in enumerate(one.ring.acknowledged)),
        "heard": 0,
        "now_us": one.now_us,
        "tick": 0,
    }


def repeat(rng):
    """Return a repeat for a slot that still waits for another member."""
    one = case(rng)
    slot, bit = one.ring.slots[one.index], 1 << one.member
    expected = slot.expected | bit | 1 << rng.randrange(CONFIG.members)
    slot = slot._replace(
        seq=one.seq, state=SlotState.COLLECTING, arrived=slot.arrived & expected | bit, expected=expected
    )
    acknowledged = tuple(one.seq if m == one.member else at for m, at in enumerate(one.ring.acknowledged))
    ring = one.ring._replace(
        slots=(slot,) * CONFIG.slots, acknowledged=acknowledged, live=one.ring.live | expected, deadline_us=0
    )
    return one._replace(
        kind=rng.choice([WORKER, UPLINK]),
        ring=ring,
        behind=0,
        format=slot.format,
        length=slot.length,
        boundary=slot.boundary,
        requires_all=slot.requires_all,
        collective=slot.collective,
        digest=slot.digest,
    )


@cache
def cases(count=2500):
    rng = random.Random(1)
    return OnDemand(
        (one, list(inputs(one).items()), one.step())
        for one in (repeat(rng) if k % 10 == 0 else case(rng) for k in range(count))
    )


def near(ring):
    """Members lack results within 4W of each other's, as in a ring that honest members use."""
    live = [acknowledged for m, acknowledged in enumerate(ring.acknowledged) if ring.live >> m & 1]
    return all(abs(ahead(a, b)) <= 2 * CONFIG.slots for a in live for b in live)


def fields(layout, value):
    return {name: value >> field.offset & (1 << field.width) - 1 for name, field in layout}


def check(ring, some):
    """Every output that means something in the case, or an AssertionError."""
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
            "up",
            "lowest",
            "reports",
            "report",
            "conflicts",
        )
    }
    layout = data.Layout.cast(slot_row(CONFIG))

    async def bench(ctx):
        for one, given, (step, report) in some:
            for name, value in given:
                ctx.set(Value.cast(getattr(dut, name)), value)
            await ctx.tick().repeat(3)
            got = {name: ctx.get(port) for name, port in ports.items()}
            await ctx.tick()
            got["lowest"] = ctx.get(ports["lowest"])
            assert got["outcome"] == step.outcome, f"{one}: {Outcome(got['outcome'])!r}, not {step.outcome!r}"
            known = got["low"] if got["advance"] else one.ring.acknowledged[one.member]
            assert known == step.ring.acknowledged[one.member], f"{one}: have {known:#x}"
            slot, names = step.ring.slots[one.index], tree.contributors(step.ring, one.index)
            expected = {NAMES.get(name, name): int(value) for name, value in slot._asdict().items()} | {
                name: int(value) for name, value in names._asdict().items()
            }
            expected["incarnation"] = INCARNATION
            found = fields(layout, got["slot_next"] if got["slot_write"] else dict(given)["slot"])
            assert found == expected, f"{one}: slot {found}, not {expected}"
            assert bool(got["works"]) == bool(step.work), f"{one}: works"
            if work := step.work:
                assert got["operation"] == work.operation, f"{one}: operation"
                if work.operation not in (Operation.RESEND, Operation.SEND_UP):
                    assert got["first"] == work.first, f"{one}: first"
                assert got["up"] == (one.leaf and work.emit and slot.state == SlotState.SENT_UP), f"{one}: up"
            about = one.ring.slots[one.index]
            told = about.collective if got["outcome"] == Outcome.COLLECTIVE else about.rival
            assert (told if got["conflicts"] else None) == step.differs_from, f"{one}: conflicts"
            assert one.kind not in (RESULT, CONFLICT) or not got["reports"], f"{one}: reports"
            if step.outcome == Outcome.WINDOW or one.kind in (RESULT, CONFLICT) or not near(step.ring):
                continue
            assert got["lowest"] == tree.lowest_acknowledged(step.ring), f"{one}: lowest"
            assert bool(got["reports"]) == bool(report), f"{one}: reports"
            if report:
                said = dut.decision.report.shape().from_bits(got["report"])
                assert (said.seq, said.behind, said.want) == report, f"{one}: report"

    Bench(dut).drive(bench)


def test_a_ring_in_a_tree_decides_as_the_model():
    check(hw.decide.ring.Ring, cases())


def test_cases_meet_every_outcome_and_operation():
    steps = [(one.kind, step.outcome, step.work and step.work.operation) for one, _, (step, _) in cases()]
    assert {operation for _, _, operation in steps} == {None, *Operation} - {
        Operation.GRANT
    }  # which is of asynchronous jobs, and takes no slot
    assert {outcome for kind, outcome, _ in steps if kind == RESULT} == {
        Outcome.ADDED,
        Outcome.DUPLICATE,
        Outcome.STALE,
        Outcome.WINDOW,
        Outcome.SLOT_HELD,
        Outcome.FORMAT,
        Outcome.LENGTH,
    }
    assert {(one.kind, report.want) for one, _, (_, report) in cases() if report} == {
        (RECEIPT, False),
        (RECEIPT, True),
        (WORKER, False),
        (UPLINK, False),
    }


MUTANTS = [
    ("differs & ~installs & ~(leaf & complete)", "differs & ~(leaf & complete)"),
    ("differs & ~installs & ~(leaf & complete)", "differs & ~installs"),
    ("decision.slot_write.eq(collecting | sent_up)", "decision.slot_write.eq(collecting)"),
    ("decision.conflicts.eq(has_rival)", "decision.conflicts.eq(0)"),
    ("& ~installs & ~decision.conflicts", "& ~installs"),
    ("holds = sent_up & same", "holds = sent_up"),
    ("holds = sent_up & same", "holds = same"),
    ("decision.slot_write.eq(holds)", "decision.slot_write.eq(0)"),
    ("Mux(uplink, reaches(request.behind, slots), ", "Mux(uplink, reaches(request.behind, window), "),
    ("Mux(installing, 0, 1 << self.member)", "1 << self.member"),
    ("Mux(uplink, request.ranks == 0, request.tainted & ~job.mode)", "request.tainted & ~job.mode"),
    ("Mux(leaf, SlotState.SENT_UP, SlotState.COMPLETE)", "SlotState.COMPLETE"),
    ("Mux(installs, SlotState.COMPLETE, ", "Mux(0, SlotState.COMPLETE, "),
    ("Mux(installs, ~opens & slot.boundary, request.boundary)", "request.boundary"),
    ("Mux(installs, ~opens & slot.requires_all, request.requires_all)", "request.requires_all"),
    ("Mux(installs, 0, now_us)", "now_us"),
    ("Mux(opens | installs, 0, slot.ranks)", "Mux(opens, 0, slot.ranks)"),
    ("Mux(opens | installs, 0, slot.ranks)", "slot.ranks"),
    ("Mux(rejects & ~installs, 0, request.ranks)", "request.ranks"),
    ("Mux(rejects & ~installs, 0, request.ranks)", "Mux(rejects, 0, request.ranks)"),
    ("Mux(opens | installs, 0, slot.tainted)", "Mux(installs, 0, slot.tainted)"),
    ("slot.partial & ~opens & ~installs", "slot.partial & ~installs"),
    ("slot.partial & ~opens & ~installs", "slot.partial & ~opens"),
    ("advances & ~installs", "advances"),
    ("~installs & (behind_bad", "(behind_bad"),
    ("request.want & sent_up & same", "sent_up & same"),
    ("request.want & sent_up & same", "request.want & sent_up"),
    ("result_held.eq(collecting | sent_up | (", "result_held.eq(collecting | ("),
    (") & ~installs & ~(leaf & complete)", ") & ~(leaf & complete)"),
    (") & ~installs & ~(leaf & complete)", ") & ~installs"),
    (") & ~installs & ~(leaf & complete)", ") & ~installs & ~leaf"),
    ("installs & stored", "installs & ~collecting"),
    ("installs & stored", "installs & 0"),
    ("m.Elif(sent_up)", "m.Elif(0)"),
    ("after.state.eq(closed)", "after.state.eq(SlotState.COMPLETE)"),
    ("after.ranks.eq(slot.ranks), ", ""),
    (", after.partial.eq(slot.partial)", ""),
    ("(distance <= window)", "(distance < window)"),
    ("(distance >= 0)", "(distance > 0)"),
    ("request.want & (distance", "1 & (distance"),
    ("Mux(in_window, request.seq, least)", "request.seq"),
    ("Mux(in_window, distance, 0)", "distance"),
    ("| repeats) & ~decision.works", "| repeats)"),
    ("== Outcome.RECEIPT) | repeats)", "== Outcome.RECEIPT))"),
    ("DUPLICATE) & ~installs", "DUPLICATE)"),
    ("in_window = receipt & request.want", "in_window = request.want"),
    ("(gain >= 0) & ~self.departs", "(gain > 1) & ~self.departs"),
    ("decision.reports.eq(leaf & ", "decision.reports.eq("),
    ("decision.up.eq(leaf & ", "decision.up.eq("),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.decide.ring, sound, wrong).Ring
    with pytest.raises(AssertionError):
        check(broken, cases())

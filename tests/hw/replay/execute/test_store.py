"""Executors of WRITE, ADD and UPDATE alone: what they write, command and wait for; every plausible mutant is killed."""

import random

import pytest

import hw.replay.execute.store
from hw.replay.execute.store import AddItems, UpdatePriorities, WriteLog
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import Kind
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS

REPLAY = Replay(
    tables=2, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, record_bytes=128, sample_count_bits=3
)
RECORD_ROWS = 16


class Surroundings:
    """What stands around an executor that stores: each step of the units and commands ends some cycles later."""

    def __init__(self, bench, *, seed=1):
        self.dut, self.rng = bench.dut, random.Random(seed)
        self.members = self.dut.signature.members
        self.written = bench.sink(self.dut.rows) if "rows" in self.members else None
        self.commands = bench.sink(self.dut.commands) if "commands" in self.members else None
        self.ranges = []
        bench.process(self.follow)

    async def follow(self, ctx):
        dut, adds = self.dut, 1000
        left = {name: 0 for name in ("sequencer_idle", "writer_busy", "pending") if name in self.members}
        events = [dut.done]
        if "rows" in self.members:
            ctx.set(dut.sequencer_idle, 1)
            events += [dut.load, dut.range, dut.rows.valid & dut.rows.ready]
        if "commands" in self.members:
            events += [dut.commands.valid & dut.commands.ready]
        if "adds" in self.members:
            ctx.set(dut.adds, adds)
        async for _, _, done, *event in ctx.tick().sample(*events):
            assert not (done and any(left.values())), "nothing may be pending when it is done"
            left = {name: max(cycles - 1, 0) for name, cycles in left.items()}
            if "rows" in self.members:
                load, span, sent, *event = event
                if load:
                    assert not left["sequencer_idle"], "a range may replace another only when its addresses are taken"
                    self.ranges.append((span.in_record, span.index, span.start, span.count))
                    left["sequencer_idle"] = self.rng.choice([1, 40])
                if load or sent:
                    left["writer_busy"] = self.rng.randint(1, 30)
            if event and event[0]:
                left["pending"] = self.rng.choice([1, 100])
                if "adds" in self.members:
                    adds += 1
                    ctx.set(dut.adds, adds)
            for name, cycles in left.items():
                ctx.set(getattr(dut, name), (cycles == 0) if name == "sequencer_idle" else (cycles > 0))


def check_write(executor=WriteLog, *, stalls=0.0, units=3):
    rng, dut = random.Random(units), executor(REPLAY)
    rows = [rng.getrandbits(64) for _ in range(8 * units)]
    request = {"frame": {"kind": Kind.WRITE, "count": units}, "session": 2, "parameters": 61 | 7 << 32}
    bench = ExecutorBench(dut, rows=rows, inputs=[(dut.request, request)], stalls=stalls)
    around = Surroundings(bench)
    bench.execute()
    assert around.written.items == rows and around.ranges == [(0, 2, 61, units)]


def check_add(executor=AddItems, *, stalls=0.0, items=4):
    rng, dut = random.Random(items), executor(REPLAY)
    priorities = [rng.getrandbits(32) for _ in range(items)]
    records = [[rng.getrandbits(64) for _ in range(RECORD_ROWS)] for _ in range(items)]
    rows = [row for priority, record in zip(priorities, records) for row in (priority | 0xABC << 32, *record)]
    bench = ExecutorBench(dut, rows=rows, stalls=stalls)
    around = Surroundings(bench, seed=items)
    bench.execute()
    assert around.written.items == [row for record in records for row in record]
    assert [(item.kind, item.priority, item.retire) for item in around.commands.items] == [
        (CommandKind.ADD, priority, 0) for priority in priorities
    ]
    assert around.ranges == [(1, (1000 + k) % 64, 0, 2) for k in range(items)]


def check_update(executor=UpdatePriorities, *, stalls=0.0, times=0, rows=9):
    """The count of an item is looked up while its row waits: the bench calls items with odd handles exhausted."""
    rng, dut = random.Random(rows), executor(REPLAY)
    updates = [(rng.getrandbits(32), rng.getrandbits(32)) for _ in range(rows)]
    bench = ExecutorBench(
        dut,
        rows=[item | priority << 32 for item, priority in updates],
        inputs=[(dut.limited, times != 0)],
        stalls=stalls,
    )
    around = Surroundings(bench)

    async def look_up(ctx):
        first = second = 0
        async for _, _, row in ctx.tick().sample(dut.body.payload):
            first, second = row & 1, first
            ctx.set(dut.exhausted, second and times != 0)

    bench.process(look_up)
    cycles, _ = bench.execute()
    assert [(item.kind, item.item, item.priority, item.retire) for item in around.commands.items] == [
        (CommandKind.UPDATE, item, priority, times != 0 and item & 1) for item, priority in updates
    ]
    gaps = [after - before for before, after in zip(around.commands.times, around.commands.times[1:])]
    assert stalls or gaps == [3 if times else 1] * (rows - 1)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("units", [1, 3, 22])
def test_a_log_is_written_and_confirmed(units, stalls):
    check_write(units=units, stalls=stalls)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("items", [1, 2, 7])
def test_items_are_added_with_their_records(items, stalls):
    check_add(items=items, stalls=stalls)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("times", [0, 5])
def test_priorities_are_updated_in_order(times, stalls):
    check_update(times=times, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "name", "sound", "wrong"),
    [
        (check_write, "WriteLog", "self.ended & self.sequencer_idle & ~self.writer_busy)", "self.ended)"),
        (check_write, "WriteLog", "self.sequencer_idle & ~self.writer_busy)", "self.sequencer_idle)"),
        (check_write, "WriteLog", "self.range.index.eq(self.request.session)", "self.range.index.eq(0)"),
        (check_write, "WriteLog", "self.load.eq(self.start)", "self.load.eq(active)"),
        (check_add, "AddItems", "~self.writer_busy & ~self.pending", "~self.writer_busy"),
        (check_add, "AddItems", "~self.writer_busy & ~self.pending", "~self.pending"),
        (check_add, "AddItems", "at_priority & self.body.valid & self.sequencer_idle", "at_priority & self.body.valid"),
        (check_add, "AddItems", "at_priority.eq(rows_left == 0)", "at_priority.eq(rows_left == 1)"),
        (check_add, "AddItems", "record_bytes // UNIT_BYTES", "1"),
        (check_add, "AddItems", "self.range.in_record.eq(1)", "self.range.in_record.eq(0)"),
        (check_update, "UpdatePriorities", "self.ended & ~self.pending", "self.ended"),
        (check_update, "UpdatePriorities", "LOOKUP_CYCLES = 2", "LOOKUP_CYCLES = 1"),
        (check_update, "UpdatePriorities", "command.retire.eq(self.exhausted)", "command.retire.eq(0)"),
        (check_update, "UpdatePriorities", "limited & (waited", "(waited"),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.store, sound, wrong), name)
    with pytest.raises(AssertionError):
        for stalls in STALLS:
            check(broken, stalls=stalls)
            if check is check_update:
                check(broken, stalls=stalls, times=3)
            if check is check_add:
                for items in (1, 2, 3):
                    check(broken, stalls=stalls, items=items)

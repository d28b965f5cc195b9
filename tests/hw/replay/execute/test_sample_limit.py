"""Counts of samples, and the end of items that were sampled too often, against a list; every plausible mutant is
killed."""

import random

import pytest
from amaranth.hdl import Value

import hw.replay.execute.sample_limit
from hw.replay.execute.sample_limit import RetireItems, SampleCounts
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS, Bench

REPLAY = Replay(tables=2, capacity=16, sessions=2, cached_answers=2, log_bytes=4096, sample_count_bits=2)


def check_counts(component=SampleCounts, *, steps=1500, memories=None):
    """Look a count up, and count or clear it; counts are 0 only after they were cleared. If the list of `memories` is
    given, bits of the counts flip."""
    rng, dut, model, damaged = random.Random(1), component(REPLAY), {}, set()

    async def drive(ctx):
        for table in range(2):
            for slot in range(16):
                ctx.set(dut.table, table)
                ctx.set(dut.clear, 1)
                ctx.set(dut.clear_slot, slot)
                model[table, slot] = 0
                await ctx.tick()
        ctx.set(dut.clear, 0)
        await ctx.tick()
        for _ in range(steps):
            table, slot, times = rng.randrange(2), rng.randrange(16), rng.randrange(4)
            if memories and rng.random() < 0.2:
                flip(ctx, memories[0], table << 4 | slot, rng.randrange(3))
                damaged.symmetric_difference_update({(table, slot)})  # two errors in a word are not found
                if (table, slot) not in damaged:
                    model[table, slot] = ctx.get(Value.cast(memories[0].data[table << 4 | slot])) % 4
            filled = rng.randrange(17)
            ctx.set(dut.filled, filled)
            ctx.set(dut.table, table)
            ctx.set(dut.slot, slot)
            limited = rng.random() < 0.8
            ctx.set(dut.times, times)
            ctx.set(dut.limited, limited)
            await ctx.tick().repeat(2)
            count = 3 if (table, slot) in damaged else model[table, slot]
            assert ctx.get(dut.corrupt) == ((table, slot) in damaged and slot < filled)
            assert ctx.get(dut.exhausted) == (limited and (count == 3 or times != 0 and count >= times))
            last = ctx.get(dut.last)
            assert last == ((table, slot) in damaged or times != 0 and count + 1 >= times)
            action = rng.choice(["count", "count", "clear"])
            if action == "clear":
                slot = rng.randrange(16)
                ctx.set(dut.clear_slot, slot)
                ctx.set(dut.clear, 1)
                model[table, slot] = 0
            else:
                ctx.set(dut.count, 1)
                model[table, slot] = 3 if last else min(count + 1, 3)
            damaged.discard((table, slot))
            await ctx.tick()
            ctx.set(dut.clear, 0)
            ctx.set(dut.count, 0)
            await ctx.tick()

    Bench(dut).drive(drive)


def check_retire(executor=RetireItems, *, stalls=0.0, times=2, items=9, corrupt=()):
    """Each item is counted once, and every third one reaches `times`. Rows at `corrupt` have a bit error."""
    rng, dut = random.Random(items), executor(REPLAY)
    rows = [rng.getrandbits(64) for _ in range(items)]
    bench = ExecutorBench(dut, inputs=[(dut.items, items), (dut.times, times)], stalls=stalls)
    commands, counted, found = bench.sink(dut.commands), [], []

    async def follow(ctx):
        address = cycle = left = 0
        ctx.set(dut.list_in_use, 1)
        async for _, _, position, slot, count, done, asked, corrupted in ctx.tick().sample(
            dut.position, dut.slot, dut.count, dut.done, dut.commands.valid & dut.commands.ready, dut.found_corrupt
        ):
            if corrupted:
                found.append(position)
            ctx.set(dut.row_corrupt, address in corrupt)
            assert not (done and left), "no command may be pending when it is done"
            cycle, left = cycle + 1, 12 if asked else max(left - 1, 0)
            ctx.set(dut.list_in_use, cycle < 20)
            ctx.set(dut.pending, left > 0)
            ctx.set(dut.row, dut.row.shape().from_bits(rows[address] if address < items and cycle > 20 else 0))
            if count:
                counted.append(slot)
            address = position
            ctx.set(dut.last, position % 3 == 0)

    bench.process(follow)
    cycles, _ = bench.execute()
    sound = [k for k in range(items) if times and k not in corrupt]
    due = [rows[k] for k in sound if k % 3 == 0]
    assert counted == [rows[k] % 16 for k in sound] and found == sorted(corrupt)
    assert [(item.kind, item.item, item.priority) for item in commands.items] == [
        (CommandKind.UPDATE, row % 2**32, 0) for row in due
    ]
    assert times or cycles == 2


def test_counts_stop_at_their_largest_value_which_a_retired_item_has():
    check_counts()


def some_rows_are_corrupt(executor=RetireItems, **options):
    for corrupt in ((0, 4), (3, 8), (1, 2, 3)):
        check_retire(executor, corrupt=corrupt, **options)


@pytest.mark.parametrize("stalls", STALLS)
def test_a_row_with_a_bit_error_counts_for_no_item(stalls):
    some_rows_are_corrupt(stalls=stalls)


def test_an_item_whose_count_has_a_bit_error_is_retired(monkeypatch):
    check_counts(memories=keep_memories(monkeypatch, hw.replay.execute.sample_limit))


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(("times", "items"), [(2, 9), (1, 1), (0, 9)])
def test_each_item_is_counted_and_some_are_retired(stalls, times, items):
    check_retire(stalls=stalls, times=times, items=items)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "name", "sound", "wrong"),
    [
        (check_counts, "SampleCounts", "count.all() | self.last", "count.all()"),
        (check_counts, "SampleCounts", "self.limited & (wrong", "(wrong"),
        (check_counts, "SampleCounts", "| count.all() | (self.times", "| (self.times"),
        (check_counts, "SampleCounts", "(self.times != 0) & ", ""),
        (check_counts, "SampleCounts", "count >= self.times", "count > self.times"),
        (check_counts, "SampleCounts", "count >= times_less_1", "count > times_less_1"),
        (check_counts, "SampleCounts", "count.all() | self.last", "self.last"),
        (check_counts, "SampleCounts", "Mux(self.clear, 0, counted)", "counted"),
        (check_counts, "SampleCounts", "Mux(self.clear, self.clear_slot, self.slot)", "self.slot"),
        (check_counts, "SampleCounts", "read.addr.eq(Cat(self.slot, self.table))", "read.addr.eq(self.slot)"),
        (check_retire, "RetireItems", "with m.Elif(~self.list_in_use)", "with m.Else()"),
        (check_retire, "RetireItems", "self.commands.valid.eq(self.last &", "self.commands.valid.eq("),
        (check_retire, "RetireItems", "self.count.eq(self.commands.ready &", "self.count.eq("),
        (some_rows_are_corrupt, "RetireItems", "self.last & ~self.row_corrupt", "self.last"),
        (some_rows_are_corrupt, "RetireItems", "self.commands.ready & ~self.row_corrupt", "self.commands.ready"),
        (some_rows_are_corrupt, "RetireItems", "self.found_corrupt.eq(self.row_corrupt)", "self.found_corrupt.eq(0)"),
        (check_retire, "RetireItems", "| (self.times == 0)", ""),
        (check_retire, "RetireItems", "with m.If(~self.pending)", "with m.If(1)"),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.sample_limit, sound, wrong), name)
    with pytest.raises(AssertionError):
        check(broken)
        if check is check_retire:
            check(broken, stalls=0.5)
            check(broken, times=0)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("read.data.xor()", "0"),
        ("read.data.xor()", "read.data[:-1].xor()"),
        ("self.limited & (wrong |", "self.limited & ("),
        ("self.last.eq(wrong |", "self.last.eq("),
        ("wrong & (self.slot < self.filled)", "wrong"),
        ("wrong & (self.slot < self.filled)", "wrong & (self.slot <= self.filled)"),
        ("wrong & (self.slot < self.filled)", "0"),
        ("with_parity(written)", "written"),
    ],
)
def test_a_mutant_of_the_parity_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.replay.execute.sample_limit, sound, wrong)
    with pytest.raises(AssertionError):
        check_counts(broken.SampleCounts, memories=keep_memories(monkeypatch, broken))

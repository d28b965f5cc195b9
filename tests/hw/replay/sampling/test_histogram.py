# amaranth: UnusedElaboratable=no
"""The histogram of priorities, cycle for cycle against numpy; every plausible mutant is killed."""

import random

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.sim import Simulator

import hw.replay.sampling.histogram
from hw.replay.sampling.histogram import Histogram
from sim.bench.compiled import Compiled
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

PRIORITY_BITS = [4, 5, 18, 27, 32]
STARTS = np.array([*range(16), *(m << e for e in range(1, 29) for m in range(8, 16))], np.uint64)
"""The least priority of each bucket, by docs/replay.md, section 5."""


def buckets(priorities):
    return np.searchsorted(STARTS, priorities, side="right") - 1


def random_walk(rng, capacity, priority_bits, count):
    """Any item to any priority, half of them near a bucket's border."""
    top = (1 << priority_bits) - 1
    for _ in range(count):
        near = (m << e for m in (8, 15, 16) for e in [rng.randrange(priority_bits - 3)])
        yield (
            rng.randrange(capacity),
            rng.choice([0, 1, top, rng.getrandbits(priority_bits), *(min(p - rng.randrange(2), top) for p in near)]),
        )


def few_items(rng, capacity, priority_bits, count):
    """So that the ends move with nearly every change."""
    for item, priority in random_walk(rng, capacity, priority_bits, count):
        yield item % 2, priority


def same_bucket(rng, capacity, priority_bits, count):
    """In, out and about the same bucket again and again, back to back."""
    top = (1 << priority_bits) - 1
    for _ in range(count):
        yield rng.randrange(min(capacity, 3)), rng.choice([0, top, top - 1, top >> 1])


def full(rng, capacity, priority_bits, count):
    """All items in one bucket, then all in another, then none."""
    for priority in (1, (1 << priority_bits) - 1, 0, 1):
        for item in range(capacity):
            yield item, priority


def there_and_back(rng, capacity, priority_bits, count):
    """One item through the borders of all buckets, up and down, with one that stays."""
    yield 1, 7
    for start in (*STARTS.tolist(), *STARTS[::-1].tolist()):
        for priority in (start - 1, start):
            if 0 <= priority < 1 << priority_bits:
                yield 0, priority


WALKS = [random_walk, few_items, same_bucket, full, there_and_back]


def check(histogram=Histogram, *, walk=random_walk, capacity=64, priority_bits=27, count=400, stalls=0.0):
    rng = random.Random(capacity + priority_bits)
    priorities, changes, expected = np.zeros(capacity, np.uint64), [], [(0, 0)]
    for item, priority in walk(rng, capacity, priority_bits, count):
        changes.append({"old": int(priorities[item]), "new": priority})
        priorities[item] = priority
        there = buckets(priorities[priorities > 0])
        expected.append((int(there.min()), int(there.max())) if len(there) else (0, 0))
    bench = Bench(dut := histogram(capacity=capacity, priority_bits=priority_bits), stalls=stalls)
    source, seen = bench.source(dut.changes, changes), []

    async def follow(ctx):
        async for _, _, lowest, highest in ctx.tick().sample(dut.lowest, dut.highest):
            seen.append((lowest, highest))

    bench.process(follow)
    bench.run()
    states, taken = [], 0
    for cycle in range(len(seen)):
        while taken < len(changes) and source.times[taken] + dut.LATENCY <= cycle:
            taken += 1
        states.append(expected[taken])
    assert seen == states and taken == len(changes)
    return source


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("priority_bits", PRIORITY_BITS)
def test_ends_are_exact_in_every_cycle(priority_bits, walk):
    check(walk=walk, priority_bits=priority_bits)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("capacity", [2, 16, 1 << 20])
def test_capacities(capacity, stalls):
    check(capacity=capacity, stalls=stalls, walk=few_items)


def test_counts_go_round():
    """Far more come and go than there are items, up to which is counted."""
    check(capacity=2, walk=same_bucket, count=200)
    check(capacity=4, walk=full, count=0)


def test_a_change_a_cycle_as_soon_as_counts_are_wiped():
    source = check(walk=same_bucket)
    assert source.times[0] == 256 and source.times[-1] - source.times[0] == len(source.times) - 1


def restart(histogram=Histogram, *, priority_bits=18, seed=1):
    """A reset with something in all buckets, in counts and on its way: then everything begins at 0."""
    dut, restarts = histogram(capacity=256, priority_bits=priority_bits), Signal()
    top = Module()
    top.submodules.histogram = ResetInserter(restarts)(dut)
    simulator = Simulator(top)
    simulator.add_clock(1e-8)
    there = [start for start in STARTS.tolist() if 0 < start < 1 << priority_bits]

    async def change(ctx, old, new):
        ctx.set(dut.changes.payload, {"old": old, "new": new})
        ctx.set(dut.changes.valid, 1)
        await ctx.tick()

    async def play(ctx):
        await ctx.tick().repeat(256)
        for priority in there:
            await change(ctx, 0, priority)
        assert ctx.get(dut.lowest) and ctx.get(dut.highest)
        ctx.set(restarts, 1)
        await ctx.tick()
        ctx.set(restarts, 0)
        for _ in range(256):
            assert not ctx.get(dut.changes.ready | dut.lowest | dut.highest)
            await ctx.tick()
        for bucket, priority in enumerate(there, start=1):
            await change(ctx, 0, priority)
            await change(ctx, priority, 0)
            ctx.set(dut.changes.valid, 0)
            seen = []
            for _ in range(dut.LATENCY):
                seen.append((ctx.get(dut.lowest), ctx.get(dut.highest)))
                await ctx.tick()
            assert seen[-2:] == [(bucket, bucket), (0, 0)]

    simulator.add_testbench(play)
    simulator.run()


def test_a_reset_wipes_all():
    restart()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 12}, "Histogram capacity must be a power of two from 2 to 16777216, not 12"),
        ({"capacity": 16, "priority_bits": 3}, "Histogram priority_bits must be 4 to 32, not 3"),
        ({"capacity": 16, "priority_bits": 33}, "Histogram priority_bits must be 4 to 32, not 33"),
    ],
)
def test_parameters_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        Histogram(**wrong)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # counts
        ("transparent_for=[write]", ""),
        ("of_counted + 1", "of_counted"),
        ("departed + 1", "departed"),
        ("departures == arrived", "departed == arrived"),
        ("departures == arrived", "0"),
        ("departures == arrived", "1"),
        ("moved = entered != left", "moved = Const(1)"),
        ("bits = exact_log2(self.capacity)", "bits = exact_log2(self.capacity) - 1 or 1"),
        ("Mux(wiped, Cat(after, after.xor()), 0)", "Cat(after, after.xor())"),
        ("wipe == -1 % (1 << BUCKET_BITS)", "wipe == 100"),
        # buckets
        ("held.eq(Mux(valid, priority, 0))", "held.eq(priority)"),
        ("position + 1", "position"),
        ("(exponent << 3)", "(exponent << 2)"),
        ("[:MANTISSA_BITS]", "[:MANTISSA_BITS - 1]"),
        ("8 * priority_bits - 16", "8 * priority_bits - 17"),
        # the search
        ("& ~(1 << empties | 1)", ""),
        ("(1 << empties | 1)", "(1 << empties)"),
        ("group_bits != 0", "group_bits[1:] != 0"),
        ("group_used != 0, Cat", "1, Cat"),
        ("Mux(low[0], low[1], high[1])", "Mux(high[0], high[1], low[1])"),
        ("Mux(high[0], high[1], low[1])", "Mux(low[0], low[1], high[1])"),
        ("LATENCY = 7", "LATENCY = 6"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.sampling.histogram, sound, wrong).Histogram
    with pytest.raises((AssertionError, TimeoutError)):
        for walk in (same_bucket, there_and_back, random_walk, full):
            check(broken, walk=walk, count=100)
        restart(broken)
        check(broken, capacity=4, walk=full)
        check(broken, capacity=2, walk=few_items, stalls=0.5)


def at_length(histogram=Histogram, *, capacity=1 << 12, count=400_000):
    """Compiled: runs of changes of few and of many items, half of which leave or come back."""
    rng, run = np.random.default_rng(1), np.arange(count) // 1000 % 2
    items, gone = np.where(run, rng.integers(0, capacity, count), rng.integers(0, 5, count)), rng.random(count) < 0.5
    new = np.where(gone, 0, rng.integers(1, 1 << 27, count) >> rng.integers(0, 27, count))
    items[-2 * capacity : -capacity], new[-2 * capacity : -capacity] = (
        range(capacity),
        0,
    )  # at last all leave, and what comes then is alone
    old, ends, priorities, counts, there = (
        np.zeros_like(new),
        np.zeros((count, 2), np.int64),
        [0] * capacity,
        [0] * 256,
        0,
    )
    code = buckets(np.arange(1 << 16)).tolist()
    bucket = lambda p: code[p] if p < 1 << 16 else code[p >> 12] + 8 * 12
    for k, (item, priority) in enumerate(zip(items.tolist(), new.tolist())):
        old[k], priorities[item] = priorities[item], priority
        for changed, by in ((int(old[k]), -1), (priority, 1)):
            if changed:
                counts[bucket(changed)] += by
                there = there & ~(1 << bucket(changed)) | (counts[bucket(changed)] > 0) << bucket(changed)
        ends[k] = (there & -there).bit_length() - 1 if there else 0, max(there.bit_length() - 1, 0)
    part = Compiled(histogram(capacity=capacity, priority_bits=27))
    part.run(part.rows(256))  # counts are wiped
    rows = part.rows(count + Histogram.LATENCY, changes_valid=np.arange(count + Histogram.LATENCY) < count)
    rows["changes_payload_old"][:count], rows["changes_payload_new"][:count] = old, new
    seen = part.run(rows)[Histogram.LATENCY :]
    assert np.array_equal(seen["lowest"], ends[:, 0]) and np.array_equal(seen["highest"], ends[:, 1])
    assert len(np.unique(ends[:, 0])) > 100 and len(np.unique(ends[:, 1])) > 100


def test_ends_are_exact_at_length():
    at_length()


@pytest.mark.mutant
def test_the_check_at_length_notices_a_mutant():
    with pytest.raises(AssertionError):
        at_length(mutant(hw.replay.sampling.histogram, "transparent_for=[write]", "").Histogram)

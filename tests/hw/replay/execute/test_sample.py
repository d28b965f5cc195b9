"""Executors of SAMPLE and LIST alone; every plausible mutant is killed."""

import random
from types import SimpleNamespace

import pytest

import hw.replay.execute.sample
from hw.replay.execute.sample import ListItems, SampleItems
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import Kind
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS

REPLAY = Replay(tables=1, capacity=64, sessions=2, cached_answers=2, log_bytes=4096, samples_per_request=256)


def surround(bench, *, in_use=20):
    """The list is in use at first; a result comes 12 cycles after its command. Returns when things happened."""
    dut = bench.executor
    seen = SimpleNamespace(commands=bench.sink(dut.commands), waited=0)

    async def follow(ctx):
        left = 0
        ctx.set(dut.list_in_use, 1)
        cycle = 0
        async for _, _, done, asked in ctx.tick().sample(dut.done, dut.commands.valid & dut.commands.ready):
            assert not (done and left), "no command may be pending when it is done"
            cycle, left = cycle + 1, 12 if asked else max(left - 1, 0)
            assert cycle > in_use or not asked, "the list must not be written while it is being sent"
            ctx.set(dut.list_in_use, cycle < in_use)
            ctx.set(dut.pending, left > 0)

    bench.process(follow)
    return seen


def check_sample(executor=SampleItems, *, count=9, stalls=0.0):
    rng, dut = random.Random(count), executor(REPLAY)
    fractions = [rng.getrandbits(64) for _ in range(count)]
    stride, seed = rng.getrandbits(64), rng.getrandbits(128)
    request = {"frame": {"kind": Kind.SAMPLE, "count": count}, "parameters": 7 | stride << 64 | seed << 128}
    bench = ExecutorBench(dut, inputs=[(dut.request, request)], stalls=stalls)
    batches = bench.sink(dut.batches)
    bench.source(dut.fractions, [{"fraction": fraction} for fraction in fractions])
    seen = surround(bench)
    bench.execute()
    (batch,) = batches.items
    assert (batch.count, batch.stride, batch.seed) == (count, stride, seed) and batches.times[0] >= 20
    assert [(item.kind, item.fraction) for item in seen.commands.items] == [
        (CommandKind.SAMPLE, fraction) for fraction in fractions
    ]


def check_list(executor=ListItems, *, count=9, stalls=0.0):
    dut = executor(REPLAY)
    request = {"frame": {"kind": Kind.LIST, "count": count}, "parameters": 60 | 3 << 32}
    bench = ExecutorBench(dut, inputs=[(dut.request, request)], stalls=stalls)
    seen = surround(bench)
    bench.execute()
    assert [(item.kind, item.item) for item in seen.commands.items] == [
        (CommandKind.READ, (60 + k) % 64) for k in range(count)
    ]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("check", [check_sample, check_list])
def test_one_command_for_each_item(check, count, stalls):
    check(count=count, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "name", "sound", "wrong"),
    [
        (check_sample, "SampleItems", "self.batches.valid.eq(~self.list_in_use)", "self.batches.valid.eq(1)"),
        (check_sample, "SampleItems", "(left == 0) & ~self.pending", "left == 0"),
        (check_sample, "SampleItems", "batch.seed.eq(Cat(sample.seed))", "batch.seed.eq(sample.seed[0])"),
        (check_sample, "SampleItems", "batch.stride.eq(sample.stride)", "batch.stride.eq(0)"),
        (check_list, "ListItems", "self.commands.valid.eq(~self.list_in_use)", "self.commands.valid.eq(1)"),
        (check_list, "ListItems", "with m.If(left == 1)", "with m.If(left == 0)"),
        (check_list, "ListItems", "slot.eq(slot + 1)]", "slot.eq(slot)]"),
        (check_list, "ListItems", "with m.If(~self.pending)", "with m.If(1)"),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.sample, sound, wrong), name)
    with pytest.raises(AssertionError):
        check(broken)

"""The executor of REBUILD alone; every plausible mutant is killed."""

import pytest

import hw.replay.execute.rebuild
from hw.replay.execute.rebuild import RebuildTree
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import Kind
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS

REPLAY = Replay(tables=1, capacity=64, sessions=2, cached_answers=2, log_bytes=4096, samples_per_request=256)


def check(executor=RebuildTree, *, slot=0, count=9, stalls=0.0):
    dut = executor(REPLAY)
    request = {"frame": {"kind": Kind.REBUILD, "count": count}, "parameters": slot | 1 << 32}
    bench = ExecutorBench(dut, inputs=[(dut.request, request)], stalls=stalls)
    commands, restarts = bench.sink(dut.commands), []

    async def follow(ctx):
        left = 0
        async for _, _, done, restart, start, taken in ctx.tick().sample(
            dut.done, dut.restart, dut.start, dut.commands.valid & dut.commands.ready
        ):
            assert not (done and left), "no command may be pending when it is done"
            assert start or not restart, "the sums are emptied before a slot is restored"
            restarts.extend([1] * restart)
            left = 12 if taken else max(left - 1, 0)
            ctx.set(dut.pending, left > 0)

    bench.process(follow)
    bench.execute()
    assert [item.kind for item in commands.items] == [CommandKind.RESTORE] * count
    assert len(restarts) == (slot == 0)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("slot", [0, 1, 1 << 31])
def test_as_many_slots_are_restored_as_the_request_counts(slot, count, stalls):
    check(slot=slot, count=count, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        (".slot == 0", ".slot != 0"),
        ("self.start & (view_as", "(view_as"),
        ("with m.If(left == 1)", "with m.If(left == 0)"),
        ("with m.If(~self.pending)", "with m.If(1)"),
        ("CommandKind.RESTORE)", "CommandKind.READ)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.rebuild, sound, wrong).RebuildTree
    with pytest.raises(AssertionError):
        for slot in (0, 1):
            check(broken, slot=slot)

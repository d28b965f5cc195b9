# amaranth: UnusedElaboratable=no
"""Bit errors in the engine's memories of priorities: what clients are answered is what the model answers."""

import pytest
from amaranth.hdl import Value
from amaranth.lib.memory import Memory

import hw.replay.engine
import hw.replay.execute.execution
import hw.replay.sampling.slots
import hw.replay.sampling.sum_tree
from hw.replay.engine import Engine
from iswitch.wire.replay import ReplayOutcome
from sim.bench.engine import Scenario
from sim.bench.engine_bench import EngineBench
from sim.bench.mutant import mutant
from sim.bench.replay_client import ReplayClient
from sim.bench.replay_traffic import NARROW

LEAVES, PRIORITIES = hw.replay.sampling.sum_tree, hw.replay.sampling.slots


def check(monkeypatch, holder, *, engine=Engine, found_by="sample"):
    """Flip a bit of the first table's memory, and compare the answers with those of a model that is told the moment at
    which the engine finds it."""
    memories: list[Memory] = []
    monkeypatch.setattr(holder, "Memory", lambda **options: memories.append(Memory(**options)) or memories[-1])
    alone, scenario = EngineBench(NARROW, engine=engine), Scenario(NARROW)
    client, corrupted = ReplayClient(0, port=0, nonce=1 << 32 | 1), []
    client.session, client.token = 0, 1
    service, capacity = scenario.service, NARROW.replay.capacity
    table = service.tables[0]

    async def watch(ctx):
        async for _, _, now in ctx.tick().sample(alone.dut.corrupted):
            corrupted.extend([1] * now)

    async def run(ctx):
        await alone.quiet(ctx)

        async def answered(*frames):
            scenario.now_us += 1000
            burst = scenario.burst((0, frame) for frame in frames)
            assert await alone.exchange(ctx, burst.now_us, burst.requests) == burst.answers

        def seq(more=0):
            return service.sessions[0].next + more

        def corrupt():
            table.sums = table.sums._replace(corrupt=True)

        await answered(client.open())
        for _ in range(4):
            await answered(client.add(seq(), [(5 + k, bytes(64)) for k in range(16)]))
        await answered(client.limit(seq(), ratio=1 << 16, behind=100, ahead=60, times=7))
        await answered(client.sample(seq(), 16, 1), client.list(0, 64))
        row = Value.cast(memories[0].data[3])  # of the first table
        ctx.set(row, ctx.get(row) ^ 1 << 4)
        if found_by == "sample":
            corrupt()
            await answered(client.sample(seq(), 60, 2))  # reads every row, so it finds the error
        else:
            await answered(client.sample(seq(), 16, 2))  # the sum tree has a copy of its own
            corrupt()
            await answered(client.list(0, 64))
        assert len(corrupted) >= 1
        # It stays so, also for copies of a request; credit and counts are what they were; the other table is served.
        await answered(client.sample(seq(-1), 60, 2), client.sample(seq(), 2, 3), client.list(0, 4))
        await answered(client.list(0, 4, table=1), client.look())
        assert service.outcomes[ReplayOutcome.CORRUPT] >= 3
        if found_by == "list":
            table.damaged.add(3)
            return
        item = table.adds + capacity - 1
        await answered(client.update(seq(), [(item - k, 9) for k in range(40)]))
        while service.outcomes[ReplayOutcome.RATE] == 0:
            await answered(client.add(seq(), [(1, bytes(64))] * 19))

    async def rebuild(ctx):
        await run(ctx)
        found = len(corrupted)
        # From now on the model has the priorities that the engine has, and every answer is the model's again.
        for slot, count in ((0, 20), (20, 44)):
            scenario.now_us += 1000
            burst = scenario.burst([(0, client.rebuild(service.sessions[0].next, slot, count))])
            assert await alone.exchange(ctx, burst.now_us, burst.requests) == burst.answers
            scenario.now_us += 1000
            burst = scenario.burst([(0, client.sample(service.sessions[0].next, 2, 7))])
            assert await alone.exchange(ctx, burst.now_us, burst.requests) == burst.answers
        assert table.is_intact and len(corrupted) == found + (found_by == "list")
        for seed in range(3):
            scenario.now_us += 1000
            frames = [client.sample(service.sessions[0].next, 10, seed), client.list(0, 64)]
            burst = scenario.burst((0, frame) for frame in frames)
            assert await alone.exchange(ctx, burst.now_us, burst.requests) == burst.answers

    alone.bench.process(watch)
    alone.bench.drive(rebuild)
    assert alone.outcomes == scenario.outcomes


@pytest.mark.parametrize(("holder", "found_by"), [(LEAVES, "sample"), (PRIORITIES, "list")])
def test_a_bit_error_is_answered_and_counted_and_a_rebuild_makes_it_right(holder, found_by, monkeypatch):
    check(monkeypatch, holder, found_by=found_by)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("module", "sound", "wrong"),
    [
        (hw.replay.engine, "m.d.sync += table.eq(Array(tables)[request.table])\n", "pass\n"),
        (hw.replay.engine, "m.d.comb += execution.clear.eq(1)", "pass"),
        (hw.replay.engine, "execution.corrupt.eq(samplers.corrupt)", "execution.corrupt.eq(0)"),
        (hw.replay.engine, "self.corrupted.eq(samplers.corrupted)", "self.corrupted.eq(0)"),
        (hw.replay.engine, "self.admission.intact.eq(samplers.intact)", "self.admission.intact.eq(1)"),
    ],
)
def test_a_mutant_is_noticed(module, sound, wrong, monkeypatch):
    broken = mutant(module, sound, wrong)
    with pytest.raises(AssertionError):
        check(monkeypatch, LEAVES, engine=broken.Engine)

"""The buffer of verdicts: all arrive in order, and a work stays until it is handed over."""

import random

import pytest

import hw.decide.verdict_buffer
from hw.decide.verdict_buffer import VerdictBuffer
from iswitch.config import Config
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

CONFIG = Config(ports=3, bus_bits=64, members=4, jobs=2, window=2, elements=32, queue_bytes=4096)


def cases(count=60, seed=1):
    rng = random.Random(seed)
    made = []
    for k in range(count):
        work = {"slot": k % 8, "include": rng.randrange(2), "bindings": k, "result": {"seq": k}}
        made.append({"frame": 1, "length": k, "works": rng.randrange(2), "work": work})
    return made


def play(component=VerdictBuffer, *, stalls=0.0, cycles_max=12, seed=2):
    """Take each verdict as the gate does: first its work, if it has one, and the verdict some cycles later.

    Return what was taken: the lengths of verdicts with `include`, and the works; and the source of the verdicts.
    """
    dut, rng = component(CONFIG), random.Random(seed)
    verdicts, works = [], []
    top = Bench(dut, stalls=stalls)
    source = top.source(dut.i, cases())

    async def gate(ctx):
        while len(verdicts) < len(cases()):
            while not ctx.get(dut.valid):
                await ctx.tick()
                top.cycles += 1
                assert top.cycles < 5000
            shown = ctx.get(dut.verdict)
            if shown.works:
                await ctx.tick().repeat(rng.randrange(1, 4))
                assert ctx.get(dut.valid)
                work = ctx.get(dut.verdict).work
                works.append((work.slot, work.include, work.bindings, work.result.seq))
                ctx.set(dut.handed, 1)
                await ctx.tick()
                ctx.set(dut.handed, 0)
            await ctx.tick().repeat(rng.randrange(1, cycles_max + 1))
            assert ctx.get(dut.valid)
            shown = ctx.get(dut.verdict)
            verdicts.append((shown.length, shown.works, shown.work.include))
            ctx.set(dut.ready, 1)
            await ctx.tick()
            ctx.set(dut.ready, 0)

    top.drive(gate)
    return verdicts, works, source


def expected():
    works = [case["work"] for case in cases() if case["works"]]
    return (
        [(case["length"], case["works"], case["work"]["include"]) for case in cases()],
        [(work["slot"], work["include"], work["bindings"], work["result"]["seq"]) for work in works],
    )


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("cycles_max", [1, 12])
def test_verdicts_and_works_arrive_in_order(stalls, cycles_max):
    *taken, source = play(stalls=stalls, cycles_max=cycles_max)
    assert tuple(taken) == expected()
    assert source.done


def test_it_takes_one_cycle_and_one_verdict_without_a_work_per_cycle():
    dut, times = VerdictBuffer(CONFIG), []
    bench = Bench(dut, inputs=[(dut.ready, 1)])
    source = bench.source(dut.i, [{"frame": 1, "length": k} for k in range(30)])

    async def gate(ctx):
        cycle = 0
        async for _, _, valid, verdict in ctx.tick().sample(dut.valid, dut.verdict):
            if valid:
                assert verdict.length == len(times)
                times.append(cycle)
            cycle += 1

    bench.process(gate)
    bench.run()
    assert times == [taken + 1 for taken in source.times]
    assert source.times == list(range(source.times[0], source.times[0] + 30))


def test_the_next_work_enters_while_the_frame_of_the_last_one_passes():
    dut, taken = VerdictBuffer(CONFIG), []
    bench = Bench(dut)
    source = bench.source(dut.i, [{"frame": 1, "works": 1, "length": k} for k in range(3)])

    async def gate(ctx):
        await ctx.tick().repeat(10)
        taken.append(len(source.times))
        ctx.set(dut.handed, 1)
        await ctx.tick()
        ctx.set(dut.handed, 0)
        await ctx.tick().repeat(10)
        taken.append(len(source.times))

    bench.drive(gate)
    assert taken == [1, 2]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("buffer.i.ready & ~waits", "buffer.i.ready"),
        ("buffer.i.ready & ~waits", "~waits"),
        ("shown.work.include.eq(buffer.o.payload.include)", "shown.work.include.eq(work.include)"),
        ("m.d.sync += waits.eq(0)", "pass"),
        ("waits.eq(given.works)", "waits.eq(1)"),
    ],
)
def test_a_mutant_of_the_buffer_is_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        *taken, _ = play(mutant(hw.decide.verdict_buffer, sound, wrong).VerdictBuffer)
        assert tuple(taken) == expected()

"""Commands by item and what comes of them, against the golden handles; every plausible mutant is killed."""

import random

import pytest
from amaranth.hdl import Value

import hw.replay.execute.commands
from hw.replay.execute.commands import CommandEncoder, ResultRecorder
from hw.replay.reply.cache import list_rows
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

REPLAY = Replay(
    tables=1, capacity=64, sessions=2, cached_answers=2, log_bytes=4096, priority_bits=20, samples_per_request=16
)
MOST = (1 << 20) - 1


def check_encoder(encoder=CommandEncoder, *, stalls=0.0):
    rng, dut = random.Random(1), encoder(REPLAY)
    given = [
        {
            "kind": rng.choice(list(CommandKind)),
            "item": rng.getrandbits(32),
            "priority": rng.choice([0, MOST, MOST + 1, 1 << 31, rng.getrandbits(32)]),
            "retire": rng.random() < 0.2,
            "fraction": rng.getrandbits(64),
        }
        for _ in range(200)
    ]
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.i, given)
    sink, saturated = bench.sink(dut.o, beside=[dut.saturated]), 0
    strobes = []

    async def count(ctx):
        async for _, _, strobe in ctx.tick().sample(dut.saturated):
            strobes.append(strobe)

    bench.process(count)
    bench.run()
    for item, command, (saturated,) in zip(given, sink.items, sink.besides, strict=True):
        assert (command.kind, command.slot, command.generation) == (item["kind"], item["item"] % 64, item["item"] >> 6)
        assert command.priority == (0 if item["retire"] else min(item["priority"], MOST))
        assert command.fraction == item["fraction"] and saturated == (item["priority"] > MOST)
    assert sum(strobes) == sum(item["priority"] > MOST for item in given)


def check_recorder(recorder=ResultRecorder):
    """Several requests, each with results in any cycles."""
    rng, dut = random.Random(2), recorder(REPLAY)

    async def drive(ctx):
        for _ in range(40):
            samples, begin = rng.getrandbits(1), rng.randrange(list_rows(REPLAY) - 16)
            ctx.set(dut.samples, samples)
            ctx.set(dut.list, begin)
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            done = stale = 0
            for _ in range(rng.randrange(16)):
                valid, kind, refused = rng.random() < 0.7, rng.choice(list(CommandKind)), rng.getrandbits(1)
                refused = refused and kind in (CommandKind.UPDATE, CommandKind.READ)
                result = {
                    "kind": kind,
                    "stale": refused,
                    "slot": rng.randrange(64),
                    "generation": rng.getrandbits(26),
                    "priority": rng.randrange(MOST),
                    "total": rng.getrandbits(26),
                }
                lists = kind in (CommandKind.SAMPLE, CommandKind.READ)
                ctx.set(dut.results.valid, valid)
                ctx.set(dut.results.payload, result)
                assert ctx.get(dut.write_row) == (valid and lists)
                assert ctx.get(dut.total_changed) == (valid and not lists)
                if valid and lists:
                    item = 0 if kind == CommandKind.READ and refused else result["slot"] | result["generation"] << 6
                    assert ctx.get(dut.row_address) == begin + done
                    assert ctx.get(Value.cast(dut.row)) == item | result["priority"] << 32
                elif valid:
                    assert ctx.get(dut.total) == result["total"]
                if valid and (lists or not samples):
                    done, stale = done + (lists or not refused), stale + (not lists and refused)
                await ctx.tick()
            ctx.set(dut.results.valid, 0)
            assert (ctx.get(dut.done), ctx.get(dut.stale)) == (done, stale)

    Bench(dut).drive(drive)


@pytest.mark.parametrize("stalls", STALLS)
def test_commands_have_slot_generation_and_a_priority_in_range(stalls):
    check_encoder(stalls=stalls)


def test_results_are_counted_and_listed():
    check_recorder()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "name", "sound", "wrong"),
    [
        (check_encoder, "CommandEncoder", "given.priority > most", "given.priority >= most"),
        (check_encoder, "CommandEncoder", "Mux(given.retire, 0, ", "Mux(0, 0, "),
        (check_encoder, "CommandEncoder", "self.i.valid & self.i.ready & too_large", "self.i.valid & too_large"),
        (check_encoder, "CommandEncoder", "given.item >> exact_log2(self.replay.capacity)", "given.item >> 7"),
        (check_recorder, "ResultRecorder", "~self.samples | lists", "1"),
        (check_recorder, "ResultRecorder", "self.list + self.done", "self.list"),
        (check_recorder, "ResultRecorder", "Mux(never_filled, 0,", "Mux(0, 0,"),
        (check_recorder, "ResultRecorder", "valid & ~lists)", "valid)"),
        (check_recorder, "ResultRecorder", "[self.done.eq(0), self.stale.eq(0)]", "self.done.eq(0)"),
        (check_recorder, "ResultRecorder", "counted & (lists | ~result.stale)", "counted"),
        (check_encoder, "CommandEncoder", "Mux(too_large, most, given.priority)", "given.priority"),
        (check_recorder, "ResultRecorder", "counted & ~lists & result.stale", "counted & ~lists"),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.commands, sound, wrong), name)
    with pytest.raises(AssertionError):
        check(broken)
        if check is check_encoder:
            check(broken, stalls=0.5)

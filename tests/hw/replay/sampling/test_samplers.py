"""Samplers behind one entry: what goes to one table leaves the others as they are; every plausible mutant is killed."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Value

import hw.replay.sampling.samplers
from hw.replay.sampling.samplers import HANDLE_BITS, Samplers
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.golden.replay.histogram import bucket
from iswitch.golden.replay.slots import Handle
from iswitch.golden.replay.slots import Slots as Model
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, pack

REPLAY = Replay(tables=2, capacity=32, priority_bits=7)
SIZES = [
    REPLAY,
    replace(REPLAY, tables=1, capacity=16),
    replace(REPLAY, tables=3),
    replace(REPLAY, tables=4, capacity=64, priority_bits=32),
    replace(REPLAY, single_copy=True),
    replace(REPLAY, tables=3, capacity=16, single_copy=True),
]


def carried_out(model, rng, given):
    """A command for one table and what the model makes of it."""
    kind, bits = (
        rng.choice([*[CommandKind.ADD] * 3, CommandKind.UPDATE, CommandKind.SAMPLE, CommandKind.READ]),
        model.tree.priority_bits,
    )
    priority, fraction = rng.choice([0, 1, (1 << bits) - 1, rng.getrandbits(bits)]), rng.getrandbits(64)
    handle, stale, empty = rng.choice(given[-40:] or [Handle(0, 1)]), False, False
    command = {
        "kind": kind.value,
        "slot": handle.slot,
        "generation": handle.generation,
        "priority": priority,
        "fraction": fraction,
    }
    if kind == CommandKind.ADD:
        handle = model.add(priority)
        given.append(handle)
    elif kind == CommandKind.UPDATE:
        stale = not model.update(handle, priority)
        handle, priority = Handle(handle.slot, 0 if stale else handle.generation), model.tree.priorities[handle.slot]
    elif kind == CommandKind.READ:
        there = model.read(handle.slot)
        stale, (handle, priority) = there is None, there or (Handle(handle.slot, 0), 0)
    else:
        drawn = model.sample(fraction)
        empty, handle, priority = drawn is None, drawn.handle if drawn else Handle(0, 0), drawn.priority if drawn else 0
    return command, (kind, stale, empty, *handle, priority, model.tree.total)


def check(replay=REPLAY, *, part=Samplers, bursts=60, stalls=0.0, seed=1):
    """Bursts of commands, each for one table, none before the last burst is over. Everything that can be seen of each
    table is the model's."""
    rng, dut = random.Random(seed), part(replay)
    bits = replay.capacity.bit_length() - 1
    models = [
        Model(capacity=replay.capacity, priority_bits=replay.priority_bits, generation_bits=HANDLE_BITS - bits)
        for _ in range(replay.tables)
    ]
    given = [[] for _ in models]
    found, waiting = [], 0

    async def follow(ctx):
        nonlocal waiting
        results = dut.results
        async for _, _, valid, ready, comes, result, pending in ctx.tick().sample(
            dut.commands.valid, dut.commands.ready, results.valid, results.payload, dut.pending
        ):
            assert pending == (waiting > 0), f"{waiting} commands have no result yet, and pending is {pending}"
            waiting += (valid and ready) - comes
            if comes:
                found.append(
                    (
                        result.kind,
                        bool(result.stale),
                        bool(result.empty),
                        result.slot,
                        result.generation,
                        result.priority,
                        result.total,
                    )
                )

    def shown(ctx):
        return ctx.get(dut.filled), ctx.get(dut.lowest), ctx.get(dut.highest)

    async def drive(ctx):
        ctx.set(dut.table, replay.tables - 1)
        ctx.set(dut.commands.valid, 1)  # not taken before all is wiped
        cycles = 0
        while not ctx.get(dut.ready):
            await ctx.tick()
            cycles += 1
        assert cycles == max(256, replay.capacity)
        ctx.set(dut.commands.valid, 0)
        for _ in range(bursts):
            table = rng.randrange(replay.tables)
            ctx.set(dut.table, table)
            expected = []
            for _ in range(rng.choice([0, 1, 2, 5, 60])):
                command, made = carried_out(models[table], rng, given[table])
                expected.append(made)
                ctx.set(Value.cast(dut.commands.payload), pack(dut.commands.payload.shape(), command))
                ctx.set(dut.commands.valid, 1)
                assert ctx.get(dut.commands.ready) or replay.single_copy, "a command a cycle"
                while not ctx.get(dut.commands.ready):
                    await ctx.tick()
                await ctx.tick()
                ctx.set(dut.commands.valid, 0)
                while rng.random() < stalls:
                    await ctx.tick()
            cycles = 0
            while ctx.get(dut.pending):
                await ctx.tick()
                cycles += 1
                assert cycles < 100, "commands must have results"
            assert found == expected
            found.clear()
            for k, model in enumerate(models):
                ctx.set(dut.table, k)
                there = [bucket(priority) for priority in model.tree.priorities if priority]
                assert shown(ctx) == (model.filled, min(there, default=0), max(there, default=0))

    bench = Bench(dut)
    bench.process(follow)
    bench.drive(drive)
    assert all(given) and waiting == 0


@pytest.mark.parametrize("stalls", [0, 0.5])
@pytest.mark.parametrize(
    "replay", SIZES, ids=lambda replay: f"{replay.tables}-{replay.capacity}{'-phased' * replay.single_copy}"
)
def test_each_table_is_the_models_whatever_the_others_do(replay, stalls):
    check(replay, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("buffer.o.valid & (self.table == k)", "buffer.o.valid"),
        ("buffer.o.valid & (self.table == k)", "buffer.o.valid & (k == 0)"),
        ("[self.table] for name in", "[0] for name in"),
        ("results.valid for sampler in self.samplers)[self.table]", "results.valid for sampler in self.samplers)[0]"),
        (
            "results.payload for sampler in self.samplers)[self.table]",
            "results.payload for sampler in self.samplers)[0]",
        ),
        ("(pending != 0) | buffer", "(pending > 1) | buffer"),
        ("(pending != 0) | buffer.o.valid", "pending != 0"),
        (" - self.results.valid)", ")"),
        ("(buffer.o.valid & sampler_ready)", "buffer.o.valid"),
        ("self.ready.eq(was_ready | sampler_ready)", "self.ready.eq(1)"),
        ("buffer.i.ready & self.ready", "buffer.i.ready"),
        ("HANDLE_BITS - exact_log2", "8 - exact_log2"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.sampling.samplers, sound, wrong).Samplers
    with pytest.raises((AssertionError, ValueError)):
        check(part=broken, bursts=30)
        check(SIZES[-1], part=broken, bursts=30)
        check(part=broken, bursts=30, stalls=0.5)

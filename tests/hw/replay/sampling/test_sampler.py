"""The sampler against the golden model: every handle, sample, sum and stale handle; every plausible mutant is
killed."""

import random

import pytest

import hw.replay.sampling.sampler
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.slots import CommandKind
from iswitch.golden.replay.histogram import bucket
from iswitch.golden.replay.slots import Handle
from iswitch.golden.replay.slots import Slots as Model
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

MIX = (CommandKind.ADD, CommandKind.UPDATE, CommandKind.SAMPLE, CommandKind.READ)


def scenario(model, *, count, kinds=MIX, seed=1):
    """Random commands, and what the model makes of them. Handles of long ago, and slots that are filled again while
    draws of them are under way."""
    rng, given = random.Random(seed), [Handle(0, 0)]
    capacity, priority_bits = len(model.generations), model.tree.priority_bits
    for _ in range(count):
        kind, priority = rng.choice(kinds), rng.choice([0, 1, (1 << priority_bits) - 1, rng.getrandbits(priority_bits)])
        handle = rng.choice([given[-1], rng.choice(given[-capacity:]), rng.choice(given)])
        fraction = rng.choice([0, 2**64 - 1, rng.getrandbits(64)])
        command = {
            "kind": kind.value,
            "slot": handle.slot,
            "generation": handle.generation,
            "priority": priority,
            "fraction": fraction,
        }
        stale = empty = False
        if kind == CommandKind.ADD:
            given.append(handle := model.add(priority))
        elif kind == CommandKind.UPDATE:
            stale = not model.update(handle, priority)
            handle = Handle(handle.slot, 0) if stale else handle
            priority = model.tree.priorities[handle.slot]
        elif kind == CommandKind.READ:
            there = model.read(handle.slot)
            stale = there is None
            handle, priority = there or (Handle(handle.slot, 0), 0)
        else:
            drawn = model.sample(fraction)
            empty = drawn is None
            handle, priority = (drawn.handle, drawn.priority) if drawn else (Handle(0, 0), 0)
        there = [bucket(p) for p in model.tree.priorities if p]
        yield (
            command,
            (kind, stale, empty, *handle, priority, model.tree.total, min(there, default=0), max(there, default=0)),
        )


def check(
    sampler=Sampler,
    *,
    capacity=32,
    priority_bits=7,
    generation_bits=3,
    arity=4,
    count=1000,
    kinds=MIX,
    stalls=0.0,
    single_copy=False,
):
    dut = sampler(
        capacity=capacity,
        priority_bits=priority_bits,
        generation_bits=generation_bits,
        arity=arity,
        single_copy=single_copy,
    )
    model = Model(capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits)
    expected_results = list(scenario(model, count=count, kinds=kinds))
    bench = Bench(dut, stalls=stalls)
    source, sink = (
        bench.source(dut.commands, [command for command, _ in expected_results]),
        bench.sink(dut.results, beside=[dut.lowest, dut.highest]),
    )
    (filled,) = bench.run(read=[dut.filled], quiet=50)
    found = [
        (item.kind, bool(item.stale), bool(item.empty), item.slot, item.generation, item.priority, item.total, *ends)
        for item, ends in zip(sink.items, sink.besides, strict=True)
    ]
    assert found == [expected for _, expected in expected_results]
    assert filled == model.filled
    latencies = {out - into for into, out in zip(source.times, sink.times, strict=True)}
    assert min(latencies) == dut.latency and (single_copy or len(latencies) == 1)
    return source


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(
    ("capacity", "arity", "priority_bits", "generation_bits"),
    [(8, 2, 4, 1), (32, 4, 7, 3), (32, 16, 18, 8), (1024, 16, 27, 8)],
)
def test_every_handle_draw_and_sum_is_the_models(capacity, arity, priority_bits, generation_bits, stalls):
    check(capacity=capacity, arity=arity, priority_bits=priority_bits, generation_bits=generation_bits, stalls=stalls)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(
    ("capacity", "arity", "priority_bits", "generation_bits"), [(8, 2, 4, 1), (32, 16, 18, 8), (1024, 16, 27, 22)]
)
def test_without_a_second_copy_of_priorities_all_is_the_models_too(
    capacity, arity, priority_bits, generation_bits, stalls
):
    check(
        capacity=capacity,
        arity=arity,
        priority_bits=priority_bits,
        generation_bits=generation_bits,
        stalls=stalls,
        single_copy=True,
        count=500,
    )


@pytest.mark.parametrize(
    "kinds",
    [
        (CommandKind.ADD,),
        (CommandKind.ADD, CommandKind.SAMPLE),
        (CommandKind.ADD, CommandKind.READ),
        (CommandKind.ADD, CommandKind.SAMPLE, CommandKind.SAMPLE, CommandKind.UPDATE),
    ],
)
def test_a_command_a_cycle_in_every_mix(kinds):
    source = check(capacity=8, arity=4, kinds=kinds, count=600)
    assert source.times[-1] - source.times[0] == len(source.times) - 1


@pytest.mark.parametrize("kinds", [(CommandKind.ADD, CommandKind.UPDATE, CommandKind.READ), (CommandKind.SAMPLE,)])
def test_a_command_a_cycle_without_a_second_copy_as_long_as_draws_are_apart(kinds):
    source = check(capacity=8, arity=4, kinds=kinds, count=300, single_copy=True)
    assert source.times[-1] - source.times[1] == len(source.times) - 2  # the first is taken while memories are wiped


def test_what_is_no_longer_there_is_drawn_with_its_own_generation():
    """Of eight slots each is filled again every eighth cycle, while a draw is under way for longer: its handle is that
    of its time."""
    check(
        capacity=8, arity=4, generation_bits=8, kinds=(CommandKind.ADD, CommandKind.ADD, CommandKind.SAMPLE), count=600
    )


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("found.empty | command.stale", "command.stale"),
        ("found.empty | command.stale", "found.empty"),
        ("generation(command.adds, found", "generation(placed.adds, found"),
        ("generation(command.adds, found.leaf", "generation(command.adds, 0"),
        ("range(tree.latency + 1)", "range(tree.latency)"),
        ("operation.new.eq(placed.new)", "operation.new.eq(placed.old)"),
        ("operation.old.eq(placed.old)", "operation.old.eq(0)"),
        ("result.stale.eq(command.stale)", "result.stale.eq(placed.stale)"),
        ("+ 1 - tree.entry", "- tree.entry"),
        ("- tree.entry", ""),
        ("operation.keeps.eq(~placed.changes)", "operation.keeps.eq(placed.stale)"),
        ("slots.commands.ready & histogram.changes.ready", "slots.commands.ready"),
        ("slots.placed.ready.eq(tree.operations.ready)", "slots.placed.ready.eq(1)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.sampling.sampler, sound, wrong).Sampler
    with pytest.raises(AssertionError):
        check(broken, count=300)
        check(broken, count=200, single_copy=True)
        check(broken, count=400, capacity=8, arity=4, stalls=0.5)
        check(
            broken,
            count=300,
            capacity=8,
            arity=4,
            generation_bits=8,
            kinds=(CommandKind.ADD, CommandKind.ADD, CommandKind.SAMPLE),
        )

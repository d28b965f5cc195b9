# amaranth: UnusedElaboratable=no
"""The slot table against the golden model; every plausible mutant is killed."""

import random

import pytest

import hw.replay.sampling.slots
from hw.replay.sampling.slots import CommandKind, SlotTable
from iswitch.golden.replay.slots import Handle
from iswitch.golden.replay.slots import Slots as Model
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench


def check(slots=SlotTable, *, capacity=8, priority_bits=5, generation_bits=3, count=600, stalls=0.0, single_copy=False):
    """Handles of what was added lately or long ago, or of nothing; the same slot again and again."""
    rng = random.Random(capacity)
    dut = slots(
        capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits, single_copy=single_copy
    )
    model = Model(capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits)
    commands, expected, given, adds = [], [], [Handle(0, 0)], 0
    for k in range(count):
        kind = rng.choice(
            [kind for kind in CommandKind if kind != CommandKind.RESTORE]
            if k > 20
            else [CommandKind.UPDATE, CommandKind.SAMPLE, CommandKind.READ]
        )  # at first there is nothing to update
        priority, fraction = rng.getrandbits(priority_bits), rng.getrandbits(64)
        handle = rng.choice(
            [
                given[-1],
                rng.choice(given),
                Handle(rng.randrange(capacity), rng.randrange(1 << generation_bits) * (k > 20)),
            ]
        )
        commands.append(
            {
                "kind": kind.value,
                "slot": handle.slot,
                "generation": handle.generation,
                "priority": priority,
                "fraction": fraction,
            }
        )
        if kind == CommandKind.SAMPLE:
            expected.append((kind, adds % (capacity << generation_bits), fraction))
            continue
        old = model.tree.priorities[model.next if kind == CommandKind.ADD else handle.slot]
        if kind == CommandKind.ADD:
            given.append(handle := model.add(priority))
            adds += 1
            expected.append((kind, False, *handle, old, priority))
        elif kind == CommandKind.READ:
            there = model.read(handle.slot)
            expected.append((kind, there is None, *(there[0] if there else (handle.slot, 0)), old, old))
        else:
            good = model.update(handle, priority)
            known = model.generations[handle.slot]
            expected.append((kind, not good, handle.slot, known, old, priority if good else old))
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.commands, commands), bench.sink(dut.placed)
    (filled,) = bench.run(read=[dut.filled])
    lap = lambda item: (item.adds // capacity + (item.slot < item.adds % capacity)) % (1 << generation_bits)
    found = [
        (item.kind, item.adds, item.fraction)
        if item.kind == CommandKind.SAMPLE
        else (item.kind, bool(item.stale), item.slot, lap(item), item.old, item.new)
        for item in sink.items
    ]
    assert [bool(item.changes) for item in sink.items] == [
        kind == CommandKind.ADD or kind == CommandKind.UPDATE and not stale for kind, stale, *_ in expected
    ]
    if single_copy:  # priorities are not its affair
        found, expected = (
            [
                known if known[0] == CommandKind.SAMPLE else (*known[:4], known[5] * item.changes)
                for known, item in zip(whole, sink.items)
            ]
            for whole in (found, expected)
        )
    assert found == expected
    assert filled == model.filled
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("capacity", [2, 8, 64])
def test_slots_are_filled_and_handles_are_good_as_in_the_model(capacity, stalls):
    check(capacity=capacity, stalls=stalls)


def test_a_command_a_cycle_each_two_cycles_on_the_way():
    source, sink = check()
    assert {out - into for into, out in zip(source.times, sink.times, strict=True)} == {2}
    assert source.times[-1] - source.times[0] == len(source.times) - 1


@pytest.mark.parametrize("stalls", STALLS)
def test_without_priorities_handles_are_good_as_in_the_model(stalls):
    source, sink = check(single_copy=True, stalls=stalls)
    assert stalls or {out - into for into, out in zip(source.times, sink.times, strict=True)} == {1}


def test_generations_go_round():
    check(capacity=2, generation_bits=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 12}, "SlotTable capacity must be a power of two from 2 to 16777216, not 12"),
        ({"capacity": 8, "priority_bits": 37}, "SlotTable priority_bits must be 1 to 36, not 37"),
        ({"capacity": 8, "generation_bits": 0}, "SlotTable generation_bits must be 1 to 32, not 0"),
    ],
)
def test_parameters_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        SlotTable(**wrong)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("transparent_for=[write]", ""),
        ("was_filled & Mux(", "Mux("),
        ("command.generation == laps", "1"),
        ("(laps + 1)[", "laps["),
        ("command.slot < adds", "command.slot <= adds"),
        ("adding | (command.kind == CommandKind.UPDATE) & handle_valid", "adding"),
        ("adding | (command.kind == CommandKind.UPDATE) & handle_valid", "adding | handle_valid"),
        (
            "adding | (command.kind == CommandKind.UPDATE) & handle_valid",
            "(command.kind == CommandKind.UPDATE) & handle_valid",
        ),
        ("CommandKind.UPDATE) & handle_valid), checked", "CommandKind.UPDATE)), checked"),
        ("held_valid & held.changes", "held.changes"),
        (" | (command.kind == CommandKind.READ) & ~was_filled", ""),
        ("CommandKind.READ) & ~was_filled", "CommandKind.READ) & ~handle_valid"),
        ("(self.filled != self.capacity)", "1"),
        ("with m.If(~held.changes):", "with m.If(held.stale):"),
        ("slot.eq(Mux(adding, adds", "slot.eq(Mux(0, adds"),
        ("~self.placed.valid | self.placed.ready", "1"),
        ("checked.adds.eq(adds + adding)", "checked.adds.eq(adds)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.sampling.slots, sound, wrong).SlotTable
    with pytest.raises(AssertionError):
        check(broken)
        check(broken, stalls=0.5)
        check(broken, stalls=0.5, single_copy=True, count=100)

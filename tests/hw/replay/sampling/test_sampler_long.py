"""Millions of commands of a compiled sampler in any mix: every draw, every sum and every refusal is the model's."""

import numpy as np
import pytest

import hw.replay.sampling.sampler
import hw.replay.sampling.slots
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.slots import CommandKind
from iswitch.golden.replay.slots import Handle
from iswitch.golden.replay.slots import Slots as Model
from sim.bench.compiled import Compiled
from sim.bench.mutant import mutant
from sim.bench.sumtree import fractions

MIXES = {
    "in any mix": (0.25, 0.3, 0.35, 0.1),
    "adds": (0.9, 0, 0.1, 0),
    "updates": (0.02, 0.88, 0.1, 0),
    "sampled": (0.02, 0.1, 0.88, 0),
}
PART = 20_000


def answers(model, commands):
    """What the model makes of each: stale, empty, slot, generation, priority, total; None where a result says
    nothing."""
    columns = (commands[name].tolist() for name in ("kind", "slot", "generation", "priority", "fraction"))
    for kind, slot, generation, priority, fraction in zip(*columns):
        if kind == CommandKind.ADD:
            handle = model.add(priority)
            yield 0, 0, *handle, priority, model.tree.total
        elif kind == CommandKind.UPDATE:
            good = model.update(Handle(slot, generation), priority)
            yield not good, 0, slot, generation if good else 0, model.tree.priorities[slot], model.tree.total
        elif kind == CommandKind.SAMPLE:
            drawn = model.sample(fraction)
            yield (0, 0, *drawn.handle, drawn.priority, drawn.total) if drawn else (0, 1, 0, 0, None, 0)
        else:
            found = model.read(slot)
            yield (0, 0, *found[0], found[1], None) if found else (1, 0, slot, 0, None, None)


def commands_of(rng, model, capacity, bits, generation_bits, mix, count):
    """Handles are mostly those that are good when the part begins; slots crowd, so that neighbours in time meet."""
    commands = {
        "kind": rng.choice(4, count, p=mix),
        "slot": rng.integers(0, capacity, count),
        "priority": np.where(rng.random(count) < 0.3, 0, rng.integers(0, 1 << bits, count)),
        "fraction": fractions(count, int(rng.integers(1 << 60))),
    }
    near = rng.random(count) < 0.4
    commands["slot"][near] = commands["slot"][0] % max(capacity - 8, 1) + rng.integers(0, min(8, capacity), near.sum())
    generations = np.array(model.generations)[commands["slot"]]
    commands["generation"] = np.where(rng.random(count) < 0.8, generations, generations - 1) % (1 << generation_bits)
    return commands


def run(
    count, *, capacity=1 << 16, priority_bits=27, generation_bits=16, mix=MIXES["in any mix"], seed=0, sampler=Sampler
):
    gateware = sampler(capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits)
    engine, model = (
        Compiled(gateware),
        Model(capacity=capacity, priority_bits=priority_bits, generation_bits=generation_bits),
    )
    rng = np.random.default_rng(seed)
    engine.run(engine.rows(max(capacity, 1 << 8) + 8))
    stale = empty = draws = 0
    for _ in range(0, count, PART):
        commands = commands_of(rng, model, capacity, priority_bits, generation_bits, mix, PART)
        rows = engine.rows(
            PART, commands_valid=1, **{f"commands_payload_{name}": column for name, column in commands.items()}
        )
        seen = np.concatenate([engine.run(rows), engine.run(engine.rows(gateware.latency + 1))])
        taken, came = np.flatnonzero(seen["commands_ready"][:PART]), np.flatnonzero(seen["results_valid"])
        assert len(taken) == PART and np.array_equal(came, taken + gateware.latency)  # one each cycle, whatever comes
        found = seen[came]
        expected = [*zip(*answers(model, commands))]
        for name, values in zip(("stale", "empty", "slot", "generation", "priority", "total"), expected):
            known = np.array([value is not None for value in values])
            wanted = np.array([value for value in values if value is not None], np.uint64)
            assert np.array_equal(found[f"results_payload_{name}"][known], wanted), name
        drawn = found[(found["results_payload_kind"] == CommandKind.SAMPLE) & (found["results_payload_empty"] == 0)]
        assert drawn["results_payload_priority"].all()
        stale, draws = stale + int(found["results_payload_stale"].sum()), draws + len(drawn)
        empty += int(found["results_payload_empty"].sum())
    return stale, draws, empty


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_draws_sums_and_refusals_are_the_models(mix):
    stale, draws, _ = run(100_000, mix=mix)
    assert draws > 5_000 and (stale > 1_000 or not mix[1])


@pytest.mark.slow
def test_draws_sums_and_refusals_are_the_models_at_length():
    stale, draws, _ = run(10_000_000, capacity=1 << 20, priority_bits=18, generation_bits=12, seed=1)
    assert stale > 500_000 and draws > 3_000_000


@pytest.mark.mutant
@pytest.mark.parametrize(
    "sound,wrong",
    [
        ("memory.read_port(transparent_for=[write])", "memory.read_port()"),
        ("handle_valid = was_filled &", "handle_valid ="),
        ("command.slot < adds", "command.slot <= adds"),
    ],
)
def test_the_check_notices_a_mutant(sound, wrong, monkeypatch):
    slots = mutant(hw.replay.sampling.slots, sound, wrong)
    monkeypatch.setattr(hw.replay.sampling.sampler, "SlotTable", slots.SlotTable)
    with pytest.raises(AssertionError):
        run(40_000, capacity=64, priority_bits=8, generation_bits=4)

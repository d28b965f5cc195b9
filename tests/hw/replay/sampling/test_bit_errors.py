# amaranth: UnusedElaboratable=no
"""Bit errors in the memories of priorities and sums: no wrong result without `corrupt`, until the tree is
rebuilt."""

import random

import pytest
from amaranth.hdl import Value
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

import hw.replay.sampling.histogram
import hw.replay.sampling.sampler
import hw.replay.sampling.slots
import hw.replay.sampling.sum_tree
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.slots import CommandKind
from iswitch.golden.replay.histogram import bucket
from iswitch.golden.replay.slots import Handle
from iswitch.golden.replay.slots import Slots as Model
from sim.bench.mutant import mutant
from sim.bench.stream import pack

CAPACITY, ARITY, PRIORITY_BITS = 32, 4, 5
HOLDERS = {
    "slots": hw.replay.sampling.slots,
    "tree": hw.replay.sampling.sum_tree,
    "counts": hw.replay.sampling.histogram,
}
CLASSES = {"slots": "SlotTable", "tree": "SumTree", "counts": "Histogram"}
MEMORIES = {
    "priorities": ("slots", 0, False),
    "leaves": ("tree", 0, False),
    "inner sums": ("tree", 1, False),
    "arrivals": ("counts", 0, False),
    "departures": ("counts", 1, False),
    "leaves of a single copy": ("tree", 0, True),
    "inner sums above a single copy": ("tree", 1, True),
}
"""A memory's holder, its place among the holder's memories, and whether the sampler is a `single_copy`."""


class Errors:
    """A sampler whose memories can be reached, beside its model."""

    def __init__(self, monkeypatch, *, single_copy: bool, seed: int, **modules) -> None:
        self.memories: dict[str, list[Memory]] = {name: [] for name in HOLDERS}
        for name, holder in HOLDERS.items():
            module = modules.get(name, holder)

            def keep(name=name, **options):
                self.memories[name].append(Memory(**options))
                return self.memories[name][-1]

            monkeypatch.setattr(module, "Memory", keep)
            monkeypatch.setattr(hw.replay.sampling.sampler, CLASSES[name], getattr(module, CLASSES[name]))
        sampler = modules.get("sampler", hw.replay.sampling.sampler).Sampler
        self.dut: Sampler = sampler(
            capacity=CAPACITY, arity=ARITY, priority_bits=PRIORITY_BITS, generation_bits=8, single_copy=single_copy
        )
        self.model = Model(capacity=CAPACITY, priority_bits=PRIORITY_BITS, generation_bits=8)
        self.rng, self.found, self.corrupted, self.restored = random.Random(seed), [], 0, CAPACITY

    async def tick(self, ctx):
        dut = self.dut
        _, _, valid, result, corrupt, corrupted, lowest, highest = await ctx.tick().sample(
            dut.results.valid, dut.results.payload, dut.corrupt, dut.corrupted, dut.lowest, dut.highest
        )
        self.corrupted += corrupted
        if valid:
            self.found.append((result, corrupt, (lowest, highest)))

    async def run(self, ctx, commands):
        """Return the result of each command, with `corrupt` and the ends of the histogram."""
        self.found = []
        for command in commands:
            ctx.set(Value.cast(self.dut.commands.payload), pack(self.dut.commands.payload.shape(), command))
            ctx.set(self.dut.commands.valid, 1)
            while not ctx.get(self.dut.commands.ready):
                await self.tick(ctx)
            await self.tick(ctx)
            ctx.set(self.dut.commands.valid, 0)
        while len(self.found) < len(commands):
            await self.tick(ctx)
        for _ in range(3):
            await self.tick(ctx)
        return self.found

    def priority(self):
        return self.rng.choice([1, 31, self.rng.randint(1, 31)])

    def expect(self, kind):
        """Return a random command of a kind, and what the model finds."""
        model, slot = self.model, self.rng.randrange(CAPACITY)
        priority = self.priority()
        if kind == CommandKind.ADD:
            handle = model.add(priority)
        elif kind == CommandKind.SAMPLE:
            fraction = self.rng.getrandbits(64)
            handle, priority, _ = model.sample(fraction)
            return {"kind": kind.value, "fraction": fraction}, handle, priority
        else:
            handle = Handle(slot, model.generations[slot])
            if kind == CommandKind.UPDATE:
                model.update(handle, priority)
            else:
                priority = model.tree.priorities[slot]
        command = {"kind": kind.value, "slot": slot, "generation": handle.generation, "priority": priority}
        return command, handle, priority

    def summary(self):
        """Return the total and the ends of the histogram that the sums have now."""
        priorities = self.model.tree.priorities[: self.restored]
        there = [bucket(priority) for priority in priorities if priority]
        return sum(priorities), (min(there, default=0), max(there, default=0))

    async def check(self, ctx, kinds, count):
        """Run random commands. Each result is the model's, unless the sampler says that it is corrupt."""
        commands, expected = [], []
        for _ in range(count):
            command, *result = self.expect(self.rng.choice(kinds))
            commands.append(command)
            expected.append((*result, *self.summary()))
        results = await self.run(ctx, commands)
        for (result, corrupt, ends), (handle, priority, total, bounds) in zip(results, expected, strict=True):
            shown = Handle(result.slot, result.generation), result.priority, result.total, ends
            assert corrupt or shown == (handle, priority, total, bounds)

    async def rebuild(self, ctx, *, changes=40):
        """Rebuild the sums in three parts, with changes after each. Return the slots whose priority was lost."""
        ctx.set(self.dut.restart, 1)
        await self.tick(ctx)
        ctx.set(self.dut.restart, 0)
        lost, self.restored = [], 0
        for count in (1, 13, CAPACITY - 14):
            results = await self.run(ctx, [{"kind": CommandKind.RESTORE.value}] * count)
            lost_now = [result.slot for result, _, _ in results if result.stale]
            for slot in lost_now:
                self.model.tree.update(slot, 0)
            lost += lost_now
            self.restored += count
            assert ctx.get(self.dut.restored) == self.restored and not ctx.get(self.dut.corrupt)
            result, _, ends = results[-1]
            assert (result.total, ends) == self.summary()
            await self.check(ctx, [CommandKind.ADD, CommandKind.UPDATE], changes)
        assert not ctx.get(self.dut.corrupt)
        return lost


ALL = [CommandKind.ADD, CommandKind.UPDATE, CommandKind.SAMPLE, CommandKind.READ]


def check_flips(monkeypatch, name, *, flips=5, seed=1, **modules):
    """Flip a bit of a memory, use it until the error is found, and rebuild; several times."""
    holder, place, single_copy = MEMORIES[name]
    errors = Errors(monkeypatch, single_copy=single_copy, seed=seed, **modules)
    holds_priorities = name in ("priorities", "leaves of a single copy")

    async def drive(ctx):
        dut, rng = errors.dut, errors.rng
        await errors.check(ctx, [CommandKind.ADD], CAPACITY)
        await errors.check(ctx, ALL, 40)
        memory = errors.memories[holder][place]
        for k in range(flips):
            assert not ctx.get(dut.corrupt)
            rows = range(memory.depth)
            if holder == "counts":
                rows = sorted({bucket(priority) for priority in errors.model.tree.priorities if priority})
            row, counted = Value.cast(memory.data[rng.choice(rows)]), errors.corrupted
            ctx.set(row, ctx.get(row) ^ 1 << rng.randrange(len(row)))
            if k or not holds_priorities:
                kinds = [CommandKind.SAMPLE]
                if holder == "counts" or holds_priorities:
                    kinds = [CommandKind.UPDATE if k % 2 == 0 or holder == "counts" else CommandKind.READ]
                await errors.check(ctx, kinds, 250)
                assert ctx.get(dut.corrupt) and errors.corrupted > counted
                lost = await errors.rebuild(ctx)
                assert len(lost) <= (kinds == [CommandKind.READ])
            else:  # nothing has read the priority before the rebuild
                lost = await errors.rebuild(ctx, changes=0)
                assert len(lost) == 1 and errors.corrupted == counted + 1
            await errors.check(ctx, ALL, 60)
            assert not ctx.get(dut.corrupt)

    simulator = Simulator(errors.dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


@pytest.mark.parametrize("name", MEMORIES)
def test_no_result_is_wrong_after_a_bit_error_unless_the_table_is_corrupt_and_a_rebuild_makes_it_right(
    name, monkeypatch
):
    check_flips(monkeypatch, name)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("part", "sound", "wrong", "name"),
    [
        ("slots", "wrong & ~restores & ~held.early", "0", "priorities"),
        ("slots", "wrong & ~restores & ~held.early", "wrong & ~held.early", "priorities"),
        ("slots", "wrong & ~restores & ~held.early", "wrong & ~restores", "priorities"),
        ("slots", "self.lost.eq(restores & wrong)", "self.lost.eq(0)", "priorities"),
        ("slots", "Mux(restores & wrong, 0, old)", "old", "priorities"),
        ("slots", "Mux(held.early & held.changes, held.new, old)", "old", "leaves"),
        ("slots", "Mux(restores, 0,", "Mux(0, 0,", "leaves"),
        ("slots", "checked.slot >= self.restored", "checked.slot > self.restored", "leaves"),
        ("tree", "checks & Cat", "0 & Cat", "inner sums"),
        ("tree", "here.valid & ~here.early & ~begins & ~bypassed", "here.valid & ~begins & ~bypassed", "inner sums"),
        (
            "tree",
            "here.valid & ~here.early & ~begins & ~bypassed",
            "here.valid & ~here.early & ~bypassed",
            "inner sums",
        ),
        ("tree", "here.valid & ~here.early & ~begins & ~bypassed", "here.valid & ~here.early & ~begins", "inner sums"),
        ("tree", "with m.If(begins):", "with m.If(0):", "inner sums"),
        ("tree", "m.d.sync += [old.eq(0) for old in sums]", "m.d.sync += []", "leaves"),
        (
            "tree",
            "errors.append(self._leaf(m, step, leaves, wiped, wipe))",
            "self._leaf(m, step, leaves, wiped, wipe)",
            "leaves",
        ),
        ("tree", "corrupted.eq(wrong & ~held.restores & ~held.early)", "corrupted.eq(0)", "leaves of a single copy"),
        ("tree", "self.lost.eq(wrong & held.restores)", "self.lost.eq(0)", "leaves of a single copy"),
        ("tree", "with m.If(held.early):", "with m.If(0):", "leaves of a single copy"),
        ("tree", "Mux(held.restores, 0, old)", "old", "leaves of a single copy"),
        ("counts", "self.corrupted.eq(", "Signal().eq(", "arrivals"),
        ("counts", "(arrival_reads[1].xor() | departure_reads[0].xor())", "arrival_reads[1].xor()", "departures"),
        ("counts", "m.d.sync += [wipe.eq(0), wiped.eq(0)]", "m.d.sync += []", "arrivals"),
        ("sampler", "~self.restart & (self.corrupt | found_errors)", "~self.restart & found_errors", "inner sums"),
        ("sampler", "(self.corrupt | found_errors)", "self.corrupt", "leaves"),
        ("sampler", "delayed[tree.entry].stale | tree.lost", "delayed[tree.entry].stale", "leaves of a single copy"),
        ("sampler", "found_errors | slots.lost | tree.lost", "found_errors", "priorities"),
        ("sampler", "(slots, tree, histogram)", "(slots, tree)", "arrivals"),
    ],
)
def test_a_mutant_of_the_parity_is_noticed(part, sound, wrong, name, monkeypatch):
    broken = mutant(HOLDERS.get(part, hw.replay.sampling.sampler), sound, wrong)
    with pytest.raises(AssertionError):
        check_flips(monkeypatch, name, **{part: broken})

# amaranth: UnusedElaboratable=no
"""A sum tree that is rebuilt, and bit errors in its memories: each result, and when `corrupted` and `lost` are 1."""

import random
from collections.abc import Callable, Coroutine, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
from amaranth.hdl import Value
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

import hw.replay.sampling.sum_tree
from hw.replay.sampling.sum_tree import SumTree
from iswitch.golden.replay.tree import FRACTION_BITS
from sim.bench.stream import pack

CAPACITY, ARITY, PRIORITY_BITS = 128, 4, 5
"""The root has two children. Below it are two levels of nodes with four children each, and the leaves."""
LEAVES, *SUMS = range(3)
"""The memories, in the order in which the tree builds them."""
ROWS = [4, 64, 16]
"""Leaves below a row of each memory."""
COPIES = pytest.mark.parametrize("single_copy", [False, True])


class Step(NamedTuple):
    """An operation, what `entered` says of it, if it is an update, and what `found` says."""

    fields: dict[str, int]
    entered: tuple[int, int] | None
    found: dict[str, int]


class Tree:
    """A sum tree whose memories can be reached, and the priorities that its leaves have.

    Parameters
    ----------
    single_copy : bool
        Whether the tree reads old priorities from its own leaves.
    seed : int
        Seed of the priorities, and of the fields that an operation ignores.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, single_copy: bool, seed: int = 1) -> None:
        self.memories: list[Memory] = []

        def keep(**options: Any) -> Memory:
            self.memories.append(Memory(**options))
            return self.memories[-1]

        monkeypatch.setattr(hw.replay.sampling.sum_tree, "Memory", keep)
        self.dut = SumTree(capacity=CAPACITY, arity=ARITY, priority_bits=PRIORITY_BITS, single_copy=single_copy)
        self.rng, self.single_copy = random.Random(seed), single_copy
        self.priorities, self.restored = [0] * CAPACITY, CAPACITY

    @property
    def total(self) -> int:
        """The sum of the priorities that the sums include."""
        return sum(self.priorities[: self.restored])

    def noise(self) -> dict[str, int]:
        """Return random values of all fields."""
        payload = self.dut.operations.payload
        return {name: self.rng.getrandbits(len(Value.cast(payload[name]))) for name in payload.shape().members}

    def priority(self) -> int:
        return self.rng.choice([0, 1, 31, self.rng.randint(1, 31)])

    def update(self, leaf: int, new: int | None = None) -> Step:
        """Change a priority; without a new one, the update changes nothing."""
        keeps, early, old = new is None, leaf >= self.restored, self.priorities[leaf]
        new = old if new is None else new
        fields = self.noise() | {"is_sample": 0, "restores": 0, "early": early, "leaf": leaf}
        if not self.single_copy:
            fields |= {"old": new if early else old, "new": new}
        elif keeps:
            fields |= {"keeps": 1}
        else:
            fields |= {"keeps": 0, "new": new}
        self.priorities[leaf] = new
        found = {"is_sample": 0, "empty": 0, "leaf": leaf, "priority": new, "total": self.total}
        return Step(fields, (new if early else old, new), found)

    def restore(self, *, lost: bool = False) -> Step:
        """Return the next leaf to the sums; if it is `lost`, with priority 0."""
        leaf, self.restored = self.restored, self.restored + 1
        if lost:
            self.priorities[leaf] = 0
        new = self.priorities[leaf]
        fields = self.noise() | {"is_sample": 0, "restores": 1, "early": 0, "leaf": leaf}
        if not self.single_copy:
            fields |= {"old": 0, "new": new}
        found = {"is_sample": 0, "empty": 0, "leaf": leaf, "priority": new, "total": self.total}
        return Step(fields, (0, new), found)

    def sample(self, leaf: int, *, last: bool = False) -> Step:
        """Sample the first position of a leaf, whose priority is not 0, or the last one."""
        *begins, total = accumulate(self.priorities, initial=0)
        position = begins[leaf] + (self.priorities[leaf] - 1) * last
        fields = self.noise() | {"is_sample": 1, "fraction": -(-(position << FRACTION_BITS) // total)}
        found = {"is_sample": 1, "empty": 0, "leaf": leaf, "priority": self.priorities[leaf], "total": total}
        return Step(fields, None, found)

    def sample_all(self) -> Iterator[Step]:
        """Sample both ends of each leaf's interval."""
        for leaf, priority in enumerate(self.priorities):
            if priority:
                yield from (self.sample(leaf), self.sample(leaf, last=True))

    async def fill(self, ctx, priority: Callable[[], int]) -> None:
        """Set all priorities."""
        assert await self.run(ctx, [self.update(leaf, priority()) for leaf in range(CAPACITY)]) == ([], [])

    async def restart(self, ctx) -> None:
        """Begin a rebuild. The total is 0 in the next cycle."""
        ctx.set(self.dut.restart, 1)
        await ctx.tick()
        ctx.set(self.dut.restart, 0)
        assert ctx.get(self.dut.total) == 0
        self.restored = 0

    def flip(self, ctx, memory: int, row: int, place: int, bit: int) -> int:
        """Flip a bit of a word, and return the row as it was."""
        words = self.memories[memory].data[row]
        before = ctx.get(Value.cast(words))
        ctx.set(Value.cast(words), before ^ 1 << place * len(Value.cast(words[0])) + bit)
        return before

    def repair(self, ctx, memory: int, row: int, words: int) -> None:
        """Write a row."""
        ctx.set(Value.cast(self.memories[memory].data[row]), words)

    async def run(self, ctx, steps: list[Step], *, unknown: bool = False) -> tuple[list[int], list[int]]:
        """Run operations back to back until all results are there. `entered`, `found` and `total` are those of the
        steps, unless they are `unknown`.

        Returns
        -------
        corrupted : list of int
            The cycles in which `corrupted` is 1, counted from the one in which the first operation is taken. There
            are none before it, and none after the last result.
        lost : list of int
            The leaves for whose update `lost` is 1.
        """
        dut, taken, entered, found, corrupted, lost, totals = self.dut, [], [], [], [], [], []
        items = [pack(dut.operations.payload.shape(), step.fields) for step in steps]
        updated = [step.fields["leaf"] for step in steps if step.entered]
        cycle = 0
        while len(found) < len(steps) or cycle < taken[-1] + dut.latency + 4:
            assert cycle < 4 * dut.latency + dut.drain * len(steps)
            ctx.set(dut.operations.valid, len(taken) < len(steps))
            ctx.set(Value.cast(dut.operations.payload), items[min(len(taken), len(items) - 1)])
            _, _, ready, enters, change, shown, result, is_corrupted, is_lost, total = await ctx.tick().sample(
                dut.operations.ready,
                dut.entered.valid,
                dut.entered.payload,
                dut.found.valid,
                dut.found.payload,
                dut.corrupted,
                dut.lost,
                dut.total,
            )
            assert enters or not is_lost
            if ready and len(taken) < len(steps):
                taken.append(cycle)
            if enters:
                entered.append((cycle, change.old, change.new))
                lost += [updated[len(entered) - 1]] * is_lost
            if shown:
                found.append((cycle, result))
            totals.append(total)
            corrupted += [cycle - taken[0]] * is_corrupted
            cycle += 1
        assert [time for time, _ in found] == [time + dut.latency for time in taken]
        if not unknown:
            assert [{name: result[name] for name in step.found} for (_, result), step in zip(found, steps)] == [
                step.found for step in steps
            ]
            assert entered == [
                (time + dut.entry, *step.entered) for time, step in zip(taken, steps, strict=True) if step.entered
            ]
            assert [totals[time + dut.entry + 1] for time in taken] == [step.found["total"] for step in steps]
        assert not corrupted or corrupted[-1] + taken[0] <= found[-1][0]
        return corrupted, lost

    def simulate(self, testbench: Callable[[Any], Coroutine]) -> None:
        async def play(ctx):
            await ctx.tick().repeat(CAPACITY // ARITY)  # the memories are wiped
            await testbench(ctx)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(play)
        simulator.run()


@COPIES
def test_restores_return_the_leaves_to_the_sums_and_an_early_update_changes_a_leaf_and_no_sum(single_copy, monkeypatch):
    """Each sum from before the rebuild has a bit error, so the tree may use none of them."""
    tree = Tree(monkeypatch, single_copy=single_copy)

    async def rebuild(ctx):
        await tree.fill(ctx, tree.priority)
        for level in SUMS:
            for row in range(CAPACITY // ROWS[level]):
                for place in range(ARITY - 1):
                    tree.flip(ctx, level, row, place, tree.rng.randrange(PRIORITY_BITS))
        await tree.restart(ctx)
        for count in (1, 15, 16, 31, 33, 32):
            steps = []
            for _ in range(20):
                near = min(tree.restored + tree.rng.randrange(-2, 3), CAPACITY - 1)  # the next node is among them
                leaf = tree.rng.choice([max(near, 0), tree.rng.randrange(CAPACITY)])
                steps.append(tree.update(leaf, tree.rng.choice([None, tree.priority()])))
            steps += [tree.restore() for _ in range(count)]
            assert await tree.run(ctx, steps) == ([], [])
        assert await tree.run(ctx, list(tree.sample_all())) == ([], [])

    tree.simulate(rebuild)


@COPIES
def test_a_sample_of_a_row_with_a_bit_error_is_corrupted_and_no_other_sample_is(single_copy, monkeypatch):
    tree = Tree(monkeypatch, single_copy=single_copy)

    async def sample(ctx):
        await tree.fill(ctx, lambda: tree.rng.randint(1, 31))
        for bit in range(PRIORITY_BITS + 1):
            row, place = 5 * bit, bit % ARITY  # row 0 is what an idle port reads
            words = tree.flip(ctx, LEAVES, row, place, bit)
            same = tree.sample(row * ARITY + (place + bit) % ARITY)
            others = [step for step in tree.sample_all() if step.found["leaf"] // ARITY != row]
            assert await tree.run(ctx, tree.rng.sample(others, 8)) == ([], [])
            (once,), _ = await tree.run(ctx, [same], unknown=True)
            assert 0 < once <= tree.dut.latency
            corrupted, _ = await tree.run(ctx, [others[1], same, same, others[2]], unknown=True)
            assert corrupted == [once + 1, once + 2]
            other = tree.update(others[0].found["leaf"])
            corrupted, _ = await tree.run(ctx, [other, same, others[3], same, other], unknown=True)
            assert len(corrupted) == 2
            tree.repair(ctx, LEAVES, row, words)

    tree.simulate(sample)


@COPIES
def test_an_update_is_corrupted_by_a_bit_error_of_its_own_leaf_if_it_reads_the_leaf(single_copy, monkeypatch):
    """A tree with two copies does not read the leaf: it writes the leaf, and the error is gone."""
    tree = Tree(monkeypatch, single_copy=single_copy)

    async def update(ctx):
        await tree.fill(ctx, lambda: tree.rng.randint(1, 31))
        for bit in range(PRIORITY_BITS + 1):
            leaf = tree.rng.randrange(CAPACITY)
            words = tree.flip(ctx, LEAVES, *divmod(leaf, ARITY), bit)
            assert await tree.run(ctx, [tree.update(leaf ^ 1), tree.update(leaf ^ ARITY, 5)]) == ([], [])
            if single_copy:
                (once,), _ = await tree.run(ctx, [tree.update(leaf)], unknown=True)
                assert once <= tree.dut.latency
                tree.repair(ctx, LEAVES, leaf // ARITY, words)
            else:
                assert await tree.run(ctx, [tree.update(leaf, 9)]) == ([], [])
            assert await tree.run(ctx, [tree.sample(leaf)]) == ([], [])

    tree.simulate(update)


@COPIES
@pytest.mark.parametrize("level", SUMS)
def test_an_operation_is_corrupted_by_a_bit_error_of_a_sum_unless_an_update_has_written_the_row(
    level, single_copy, monkeypatch
):
    tree = Tree(monkeypatch, single_copy=single_copy)

    async def operate(ctx):
        await tree.fill(ctx, lambda: tree.rng.randint(1, 31))
        row, width = 1, len(Value.cast(tree.memories[level].data[0][0]))
        leaf, other = ROWS[level] + 1, ROWS[level] - 1
        update, update_other = tree.update(leaf), tree.update(other)

        async def corrupted(steps: list[Step], bit: int) -> list[int]:
            words = tree.flip(ctx, level, row, *divmod(bit, width))
            cycles, _ = await tree.run(ctx, steps, unknown=True)
            tree.repair(ctx, level, row, words)
            return cycles

        for bit in range((ARITY - 1) * width):
            assert await corrupted([update_other, tree.sample(other)], bit) == []
            (once,) = await corrupted([tree.sample(leaf) if bit % 2 else update], bit)
            assert 0 < once <= tree.dut.latency
        for count in range(5):
            between = [update_other] * count
            assert await corrupted([update, *between, update], count) == [once]
            assert await corrupted([update, *between, tree.sample(leaf)], count) == [once]
            assert await corrupted([*between, update, tree.sample(other)], count) == [once + count]
        assert await corrupted([tree.sample(leaf), tree.sample(leaf)], 0) == [once, once + 1]
        assert await tree.run(ctx, list(tree.sample_all())) == ([], [])

    tree.simulate(operate)


def test_a_leaf_with_a_bit_error_is_lost_when_it_is_restored_and_has_priority_0_from_then_on(monkeypatch):
    """Early updates find no bit error. One that keeps the leaf keeps the error, and one with a new priority ends it."""
    tree = Tree(monkeypatch, single_copy=True)

    async def rebuild(ctx):
        for _ in range(2):
            await tree.fill(ctx, lambda: tree.rng.randint(1, 31))
            wrong = [*tree.rng.sample(range(12), 5), 12, 13, 14, *tree.rng.sample(range(15, CAPACITY), 5)]
            for k, leaf in enumerate(wrong):
                tree.flip(ctx, LEAVES, *divmod(leaf, ARITY), k % (PRIORITY_BITS + 1))
            await tree.restart(ctx)
            kept, written, *_ = wrong
            assert await tree.run(ctx, [tree.update(kept)], unknown=True) == ([], [])
            assert await tree.run(ctx, [tree.update(written, 7)]) == ([], [])
            lost = sorted(set(wrong) - {written})
            steps = [tree.restore(lost=leaf in lost) for leaf in range(CAPACITY)]
            assert await tree.run(ctx, steps) == ([], lost)
            assert await tree.run(ctx, list(tree.sample_all())) == ([], [])
            assert await tree.run(ctx, [tree.update(leaf) for leaf in range(CAPACITY)]) == ([], [])

    tree.simulate(rebuild)

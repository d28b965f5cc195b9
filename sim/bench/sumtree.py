"""A compiled sum tree, mixes of operations for it, and the figures of `make bench`."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hw.replay.sampling.sum_tree import SumTree
from iswitch.golden.replay.fractions import fractions as of_a_batch
from iswitch.golden.replay.tree import SumTree as Model
from sim.bench.compiled import Compiled

__all__ = [
    "FOUND",
    "OPERATION",
    "CompiledTree",
    "Played",
    "answer",
    "fractions",
    "mixes",
    "ops_per_cycle",
    "some",
    "step_cycles",
]

OPERATION = np.dtype([("is_sample", "?"), ("leaf", "<u8"), ("old", "<u8"), ("new", "<u8"), ("fraction", "<u8")])
FOUND = np.dtype([("is_sample", "?"), ("empty", "?"), ("leaf", "<u8"), ("priority", "<u8"), ("total", "<u8")])
BATCH = 512
"""Samples in a learner's step of Ape-X."""


class Played(NamedTuple):
    """Results of operations, and the cycles in which operations were taken and results came."""

    found: np.ndarray
    taken: np.ndarray
    came: np.ndarray


class CompiledTree:
    """A tree whose memories are wiped."""

    def __init__(self, *, tree: type[SumTree] = SumTree, **parameters: int):
        self.tree = tree(**parameters)
        self.engine = Compiled(self.tree)
        self.cycles = 0
        self._run(self.tree.capacity // self.tree.arity)

    def play(self, operations: np.ndarray) -> Played:
        """Offer operations back to back, and return when all results have come."""
        columns = {f"operations_payload_{name}": operations[name] for name in OPERATION.names}
        begun, rows = self.cycles, self.engine.rows(len(operations), operations_valid=1, **columns)
        moving = self._run(rows, held_by="operations_ready", cycles=len(rows) * self.tree.drain + self.tree.latency)
        seen = np.concatenate([moving, self._run(self.tree.latency + 1)])
        came = np.flatnonzero(seen["found_valid"])
        found = np.empty(len(came), FOUND)
        for name in FOUND.names:
            found[name] = seen[f"found_payload_{name}"][came]
        return Played(found, np.flatnonzero(moving["operations_ready"]) + begun, came + begun)

    def _run(self, rows, **options) -> np.ndarray:
        """Run rows of inputs, or a number of cycles without an operation."""
        seen = self.engine.run(self.engine.rows(rows) if isinstance(rows, int) else rows, **options)
        self.cycles += len(seen)
        return seen


def fractions(count: int, seed: int = 1) -> np.ndarray:
    """Return the fractions of a batch, as `hw/replay/sampling/fractions.py` makes them."""
    return np.array(of_a_batch(seed, count), np.uint64)


def answer(model: Model, operations: np.ndarray) -> np.ndarray:
    """Return the results of the model, and fill in the old priorities."""
    olds, finds = [], []
    for draws, leaf, _, new, fraction in operations.tolist():
        if draws:
            drawn = model.sample(fraction)
            olds.append(0)
            finds.append((True, drawn is None, *(drawn or (0, 0, 0))))
        else:
            olds.append(model.update(leaf, new))
            finds.append((False, False, leaf, new, model.total))
    operations["old"] = olds
    return np.array(finds, FOUND)


def mixes(
    capacity: int, priority_bits: int, count: int, *, seed: int = 0, batch: int = 1 << 16
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of operations with the model's results: runs of updates and of samples, on a few leaves and on all.
    About an eighth of the leaves has priority 0."""
    rng, model = np.random.default_rng(seed), Model(capacity=capacity, priority_bits=priority_bits)
    top, few = (1 << priority_bits) - 1, rng.integers(0, capacity, 16)
    for begin in range(0, count, batch):
        size = min(batch, count - begin)
        operations = np.empty(size, OPERATION)
        operations["is_sample"] = np.logical_xor.accumulate(rng.random(size) < 0.4)
        near = (rng.choice(few, size) + rng.integers(0, 2, size)) % capacity
        operations["old"] = 0
        operations["leaf"] = np.where(rng.random(size) < 0.5, near, rng.integers(0, capacity, size))
        operations["new"] = np.where(
            rng.random(size) < 0.25, rng.choice([0, 0, 1, top], size), rng.integers(0, top, size, endpoint=True)
        )
        operations["fraction"] = rng.integers(0, (1 << 64) - 1, size, np.uint64, endpoint=True)
        operations["fraction"][rng.random(size) < 0.02] = 0
        operations["fraction"][rng.random(size) < 0.02] = (1 << 64) - 1
        yield operations, answer(model, operations)


def some(count: int, draws, leaf, *, seed: int = 0) -> np.ndarray:
    """Operations with priorities of 18 bits, of which none is 0, and fractions at random."""
    rng, operations = np.random.default_rng(seed), np.zeros(count, OPERATION)
    operations["is_sample"], operations["leaf"] = draws, leaf
    operations["new"], operations["fraction"] = (
        rng.integers(1, 1 << 18, count),
        rng.integers(0, (1 << 64) - 1, count, np.uint64, endpoint=True),
    )
    return operations


def played(tree: CompiledTree, model: Model, operations: np.ndarray) -> Played:
    """RuntimeError unless it is what the model finds."""
    expected, made = answer(model, operations), tree.play(operations)
    if not np.array_equal(made.found, expected):
        raise RuntimeError("the tree does not find what the model does")
    return made


def ops_per_cycle(count: int, *, capacity: int, priority_bits: int = 18, **parameters: int) -> float:
    """In the worst of these: updates of one leaf, draws of it, both by turns, both by turns of any leaves."""
    tree, model = (
        CompiledTree(capacity=capacity, priority_bits=priority_bits, **parameters),
        Model(capacity=capacity, priority_bits=priority_bits),
    )
    turns, any_leaf = np.arange(count) % 2 == 1, np.random.default_rng(1).integers(0, capacity, count)
    runs = [
        played(tree, model, some(count, draws, leaf))
        for draws, leaf in ((False, 5), (True, 5), (turns, 5), (turns, any_leaf))
    ]
    return min(count / int(run.taken[-1] - run.taken[0] + 1) for run in runs)


def step_cycles(*, capacity: int, priority_bits: int = 18, **parameters: int) -> int:
    """Of 512 draws and the updates of what they found: from the first operation's cycle to that of the last thing
    found, both counted."""
    tree, model = (
        CompiledTree(capacity=capacity, priority_bits=priority_bits, **parameters),
        Model(capacity=capacity, priority_bits=priority_bits),
    )
    played(tree, model, some(1 << 14, False, np.random.default_rng(1).integers(0, capacity, 1 << 14)))
    draws = some(BATCH, True, 0, seed=1)
    run = played(tree, model, np.concatenate([draws, some(BATCH, False, answer(model, draws)["leaf"], seed=2)]))
    return int(run.came[-1] - run.taken[0] + 1)

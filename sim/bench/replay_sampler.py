"""How many cycles the sampler of `hw/replay/sampling/sampler.py` takes for a batch, compiled; all that it finds is compared with
sums by numpy."""

from typing import NamedTuple

import numpy as np

from hw.replay.sampling.histogram import BUCKET_BITS
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.slots import CommandKind
from sim.bench.compiled import Compiled
from sim.bench.sumtree import fractions

__all__ = ["Cycles", "CompiledSampler", "sampler_cycles"]


WIPED = 1 << BUCKET_BITS
"""Cycles until the histogram of even the smallest is ready."""


class Cycles(NamedTuple):
    """For a batch of `batch`, from its first command to its last result, both counted. step: `sample`, then `update` of
    what was drawn, which begins when the last draw is there."""

    capacity: int
    batch: int
    sample: int
    update: int
    step: int
    add: int


class CompiledSampler:
    """One sampler, filled with items, and what numpy makes of the same commands: RuntimeError unless they agree."""

    def __init__(self, *, sampler: type[Sampler] = Sampler, seed: int = 1, **parameters: int):
        self.sampler = sampler(**parameters)
        self.engine = Compiled(self.sampler)
        self.rng, self.adds = np.random.default_rng(seed), 0
        capacity = self.sampler.capacity
        self.priorities, self.generations = np.zeros(capacity, np.uint64), np.zeros(capacity, np.uint64)
        self.engine.run(self.engine.rows(max(capacity, WIPED)))
        self.add(capacity)

    def add(self, count: int) -> int:
        """Cycles for so many new items, at most `capacity`."""
        slots, priorities = np.arange(self.adds, self.adds + count) % self.sampler.capacity, self._some(count)
        self.generations[slots] = (self.generations[slots] + 1) % (1 << self.sampler.generation_bits)
        return self._set(CommandKind.ADD, slots, priorities)

    def update(self, slots: np.ndarray) -> int:
        """Cycles for new priorities of the items in these slots."""
        return self._set(CommandKind.UPDATE, slots, self._some(len(slots)))

    def sample(self, count: int) -> tuple[np.ndarray, int]:
        """The slots of what is drawn, and cycles."""
        drawn, cycles = self._play(
            count, kind=CommandKind.DRAW, fraction=(asked := fractions(count, int(self.rng.integers(1 << 62))))
        )
        ends = np.cumsum(self.priorities)
        total = int(ends[-1])
        slots = np.searchsorted(ends, np.array([int(fraction) * total >> 64 for fraction in asked], np.uint64), "right")
        self._demand(
            drawn, slot=slots, priority=self.priorities[slots], generation=self.generations[slots], total=total, empty=0
        )
        return slots, cycles

    def step(self, count: int) -> int:
        slots, cycles = self.sample(count)
        return cycles + self.update(slots)

    def _some(self, count: int) -> np.ndarray:
        return self.rng.integers(1, 1 << self.sampler.slots.priority_bits, count, np.uint64)

    def _set(self, kind: CommandKind, slots: np.ndarray, priorities: np.ndarray) -> int:
        done, cycles = self._play(
            len(slots), kind=kind, slot=slots, generation=self.generations[slots], priority=priorities
        )
        self.priorities[slots] = priorities
        self.adds += len(slots) * (kind == CommandKind.ADD)
        self._demand(done, slot=slots, priority=priorities, generation=self.generations[slots], stale=0)
        self._demand(done[-1:], total=int(self.priorities.sum()))
        return cycles

    def _play(self, count: int, **columns) -> tuple[np.ndarray, int]:
        """Results of commands that are offered back to back, and cycles."""
        rows = self.engine.rows(
            count, commands_valid=1, **{f"commands_payload_{name}": value for name, value in columns.items()}
        )
        begun = self.engine.run(rows, held_by="commands_ready", cycles=count + self.sampler.latency)
        seen = np.concatenate([begun, self.engine.run(self.engine.rows(self.sampler.latency + 1))])
        came = np.flatnonzero(seen["results_valid"])
        if len(came) != count:
            raise RuntimeError(f"the sampler gives {len(came)} results for {count} commands")
        return seen[came], int(came[-1] - np.flatnonzero(begun["commands_ready"])[0] + 1)

    def _demand(self, results: np.ndarray, **columns) -> None:
        for name, values in columns.items():
            if not np.array_equal(
                results[f"results_payload_{name}"], np.broadcast_to(np.asarray(values, np.uint64), results.shape)
            ):
                raise RuntimeError(f"the sampler's {name} is not what numpy finds")


def sampler_cycles(capacity: int, batches: tuple[int, ...], **parameters: int) -> list[Cycles]:
    """Of a sampler in which all slots are filled."""
    sampler = CompiledSampler(capacity=capacity, **parameters)
    found = []
    for batch in batches:
        slots, sample = sampler.sample(batch)
        found.append(Cycles(capacity, batch, sample, sampler.update(slots), sampler.step(batch), sampler.add(batch)))
    return found

"""Cycles of the compiled sampler (`hw/replay/sampling/sampler.py`) for a batch. All results are compared with
cumulative sums by numpy."""

from typing import NamedTuple

import numpy as np

from hw.replay.sampling.histogram import BUCKET_BITS
from hw.replay.sampling.sampler import Sampler
from hw.replay.sampling.slots import CommandKind
from sim.bench.compiled import Compiled
from sim.bench.sumtree import fractions

__all__ = ["Cycles", "CompiledSampler", "sampler_cycles"]


WIPED = 1 << BUCKET_BITS
"""Cycles until the histogram of any sampler is ready."""


class Cycles(NamedTuple):
    """Cycles for a batch, from its first command to its last result, both counted. `step` is a sample and an update of
    the sampled items, which begins with the last sample's result."""

    capacity: int
    batch: int
    sample: int
    update: int
    step: int
    add: int


class CompiledSampler:
    """A sampler that is filled with items. Raises `RuntimeError` if numpy finds other results for the same commands."""

    def __init__(self, *, sampler: type[Sampler] = Sampler, seed: int = 1, **parameters: int):
        self.sampler = sampler(**parameters)
        self.engine = Compiled(self.sampler)
        self.rng, self.adds = np.random.default_rng(seed), 0
        capacity = self.sampler.capacity
        self.priorities, self.generations = np.zeros(capacity, np.uint64), np.zeros(capacity, np.uint64)
        self.engine.run(self.engine.rows(max(capacity, WIPED)))
        self.add(capacity)

    def add(self, count: int) -> int:
        """Add `count` items, at most `capacity`, and return the cycles."""
        slots, priorities = np.arange(self.adds, self.adds + count) % self.sampler.capacity, self._some(count)
        self.generations[slots] = (self.generations[slots] + 1) % (1 << self.sampler.generation_bits)
        return self._set(CommandKind.ADD, slots, priorities)

    def update(self, slots: np.ndarray) -> int:
        """Update the priorities of the items in these slots, and return the cycles."""
        return self._set(CommandKind.UPDATE, slots, self._some(len(slots)))

    def sample(self, count: int) -> tuple[np.ndarray, int]:
        """Sample items, and return their slots and the cycles."""
        drawn, cycles = self._play(
            count, kind=CommandKind.SAMPLE, fraction=(asked := fractions(count, int(self.rng.integers(1 << 62))))
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
        """Offer commands back to back, and return their results and the cycles."""
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
    """Return the cycles of each batch for a sampler whose slots are all filled."""
    sampler = CompiledSampler(capacity=capacity, **parameters)
    found = []
    for batch in batches:
        slots, sample = sampler.sample(batch)
        found.append(Cycles(capacity, batch, sample, sampler.update(slots), sampler.step(batch), sampler.add(batch)))
    return found

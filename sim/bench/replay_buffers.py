"""Prioritized replay in a learner's own memory, as one finds it, behind one interface: what the replay service is
compared with.

numpy: a sum tree of our own, 32 children to a node, which on a processor is faster than two by a factor of 3 to 8.
cpprb (MIT licence): buffer and tree in C++. TorchRL (MIT licence): buffer in Python, tree in C++, which
`sim.bench.torchrl_compiled` builds for the installed torch.

All hold a record of bytes with each item, draw one item to a stratum (TorchRL: anywhere), and hand out importance
weights and copies of the records. What the service gets is p^alpha; here the buffers are given p, and take the power
themselves.
"""

from typing import Any, Protocol

import numpy as np

from sim.bench.torchrl_compiled import load_compiled_torchrl

__all__ = ["ALPHA", "BETA", "BUFFERS", "Buffer", "CpprbBuffer", "NumpyBuffer", "SumTree", "TorchrlBuffer"]

ALPHA, BETA = 0.6, 0.4
"""The exponents of Ape-X (Horgan et al., ICLR 2018)."""


class Buffer(Protocol):
    """A replay buffer, empty at first. New items overwrite the oldest."""

    def __init__(self, capacity: int, record_bytes: int) -> None: ...

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        """Add items, at most `capacity` at once."""

    def sample(self, count: int) -> np.ndarray:
        """Sample items and return their indices for `update`. Records and weights are computed, too, and dropped."""

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Set priorities. If an index occurs more than once, its last priority holds."""


class Tree(Protocol):
    @property
    def total(self) -> float: ...
    def update(self, leaves: np.ndarray, priorities: np.ndarray) -> None: ...
    def find(self, places: np.ndarray) -> np.ndarray: ...
    def priorities(self, leaves: np.ndarray) -> np.ndarray: ...


class SumTree:
    """A sum tree of `capacity` leaves, a power of two from `arity`; all priorities are 0 at first.

    Each level holds the sums of `arity` nodes of the level below. The top level, of at most `arity`^2 / 2 nodes, is
    searched as a whole. Sums are binary64 and computed anew from the leaves, so they do not drift: they are exact while
    priorities are integers and their total is at most 2^53.
    """

    def __init__(self, capacity: int, arity: int = 32) -> None:
        if arity < 2 or arity & (arity - 1):
            raise ValueError(f"SumTree arity must be a power of two from 2, not {arity!r}")
        if capacity < arity or capacity & (capacity - 1):
            raise ValueError(f"SumTree capacity must be a power of two from {arity}, not {capacity!r}")
        self.arity, self.levels = arity, [np.zeros(capacity)]
        while self.levels[-1].size // arity >= arity:
            self.levels.append(np.zeros(self.levels[-1].size // arity))

    @property
    def total(self) -> float:
        return float(np.cumsum(self.levels[-1])[-1])

    def update(self, leaves: np.ndarray, priorities: np.ndarray) -> None:
        self.levels[0][leaves] = priorities
        for below, level in zip(self.levels, self.levels[1:]):
            leaves = leaves // self.arity
            level[leaves] = below.reshape(-1, self.arity)[leaves].sum(axis=1)

    def priorities(self, leaves: np.ndarray) -> np.ndarray:
        return self.levels[0][leaves]

    def find(self, places: np.ndarray) -> np.ndarray:
        """Return the leaves in whose half-open intervals of the running sum the `places` lie, each from 0 to below the
        total."""
        ends = np.cumsum(self.levels[-1])
        node = np.minimum(np.searchsorted(ends, places, "right"), ends.size - 1)
        rest, every = places - np.where(node > 0, ends[node - 1], 0), np.arange(places.size)
        for level in self.levels[-2::-1]:
            ends = level.reshape(-1, self.arity)[node].cumsum(axis=1)
            # Rounding may move a place to the end of its node.
            child = np.minimum((ends <= rest[:, None]).sum(axis=1), self.arity - 1)
            rest = rest - np.where(child > 0, ends[every, child - 1], 0)
            node = node * self.arity + child
        return node


class NumpyBuffer:
    """A `Buffer` in numpy. `tree` replaces `SumTree`."""

    def __init__(self, capacity: int, record_bytes: int, *, tree: Tree | None = None, seed: int = 1) -> None:
        self.tree, self.records = tree or SumTree(capacity), np.zeros((capacity, record_bytes), np.uint8)
        self.rng, self.capacity, self.adds = np.random.default_rng(seed), capacity, 0
        self.drawn, self.weights = self.records[:0], np.empty(0)

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        slots = np.arange(self.adds, self.adds + len(records)) % self.capacity
        self.records[slots] = records
        self.update(slots, priorities)
        self.adds += len(records)

    def sample(self, count: int) -> np.ndarray:
        total = self.tree.total
        if not total:
            raise ValueError("sample must come after items with priorities, not before")
        leaves = self.tree.find((np.arange(count) + self.rng.random(count)) * (total / count))
        likely = self.tree.priorities(leaves) * (min(self.adds, self.capacity) / total)
        weights = likely**-BETA
        self.drawn, self.weights = self.records[leaves], weights / weights.max()
        return leaves

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        self.tree.update(indices, priorities**ALPHA)


class CpprbBuffer:
    """See `Buffer`."""

    def __init__(self, capacity: int, record_bytes: int) -> None:
        from cpprb import PrioritizedReplayBuffer

        self.buffer = PrioritizedReplayBuffer(
            capacity, {"record": {"shape": record_bytes, "dtype": np.uint8}}, alpha=ALPHA
        )

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        self.buffer.add(record=records, priorities=priorities)

    def sample(self, count: int) -> np.ndarray:
        return np.asarray(self.buffer.sample(count, BETA)["indexes"])

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        self.buffer.update_priorities(indices, priorities)


class TorchrlBuffer:
    """See `Buffer`."""

    def __init__(self, capacity: int, record_bytes: int) -> None:
        # TorchRL itself only warns if its compiled part does not load, and complains of something else later.
        load_compiled_torchrl()
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

        self.batch: Any = TensorDict
        # The batch here is a default that `sample` overrides.
        self.buffer = TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, storage=LazyTensorStorage(capacity), batch_size=32
        )

    def add(self, records: np.ndarray, priorities: np.ndarray) -> None:
        import torch

        indices = self.buffer.extend(self.batch({"record": torch.from_numpy(records)}, batch_size=[len(records)]))
        self.buffer.update_priority(indices, torch.from_numpy(priorities).float())  # its tree takes nothing else

    def sample(self, count: int) -> np.ndarray:
        return np.asarray(self.buffer.sample(count)["index"])

    def update(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        import torch

        self.buffer.update_priority(torch.from_numpy(indices), torch.from_numpy(priorities).float())


BUFFERS: dict[str, type[Buffer]] = {"numpy": NumpyBuffer, "cpprb": CpprbBuffer, "torchrl": TorchrlBuffer}

"""Flow trees that grow: many copies of one broadcast at once, advanced flow by flow and round by round.

Every server begins with its own chunk. A workload is a hop and a chunk, that the hop's source has and its target lacks;
it makes the target part of the chunk's flow tree. A round is over when no workload is left whose links are free; what
arrived can be sent on from the next round. When every server has every chunk the mirror of the broadcast is the
reduction, so an AllReduce takes twice the rounds.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule, mirrored

__all__ = ["FLOW_FEATURES", "TREE_FEATURES", "Growth", "Wiring"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

FLOW_FEATURES = (
    "copies of the chunk",  # all are shares: of the servers, neighbours or links that there are; several paths to a neighbour count each
    "workloads that want the link into the target",
    "workloads that want the link out of the source",
    "sources of the chunk on the same link",
    "sources of the chunk on the target's other links",
    "neighbours of the target that lack the chunk",
    "neighbours that lack it and have no source yet",
    "servers to which the chunk comes nearer",
    "way left for the chunk",
    "chunks that the target lacks",
    "chunks that the target lacks beyond the average",
    "targets of the chunk at the source",
    "length of the path",
    "tree selected",
)
TREE_FEATURES = (
    "copies",
    "copies beyond the average",
    "workloads ready",
    "servers that can be reached now",
    "way left",
    "rounds over",
    "units left",
)


class Wiring:
    """Index arrays of a network that the copies share."""

    def __init__(self, network: Network) -> None:
        self.network = network
        links = network.hop_links
        first, last = links[:, 0], np.array([row[row >= 0][-1] for row in links])
        self.into, self.into_count = _numbered(last)
        self.out_of, self.out_count = _numbered(first)
        self.into_sum = _one_hot(self.into, self.into_count)
        self.out_sum = _one_hot(self.out_of, self.out_count)
        self.target_sum = _one_hot(network.target, network.size)
        self.source_sum = _one_hot(network.source, network.size)
        self.neighbours = ((self.source_sum @ self.target_sum.T) > 0).astype(np.float32)
        self.length = (links >= 0).sum(1) / links.shape[1]
        self.diameter = int(network.distance.max())
        self.degree = self.neighbours.sum(1)
        self.fan_in = self.target_sum.sum(1)

    @cached_property
    def conflicts(self) -> Bools:
        """Whether two hops share a link."""
        links = self.network.hop_links
        uses = np.zeros((len(links), len(self.network.links)), np.float32)
        for column in links.T:
            uses[np.arange(len(links))[column >= 0], column[column >= 0]] = 1
        return (uses @ uses.T) > 0


class Growth:
    """`copies` broadcasts on one network, in step. `have[copy, server, chunk]` counts what arrives in this round,
    `held` does not."""

    def __init__(self, wiring: Wiring, copies: int) -> None:
        self.wiring, self.copies, self.network = wiring, copies, wiring.network
        self.size = self.network.size
        self.reset()

    def reset(self) -> None:
        """All copies from the start."""
        size = self.size
        self.have = np.zeros((self.copies, size, size), bool)
        self.held = np.zeros_like(self.have)
        self.near = np.zeros(
            (self.copies, size, size), np.int64
        )  # [copy, server, chunk]: hops from the nearest that has it
        self.open = np.zeros((self.copies, len(self.network.hops), size), bool)
        self.pool = np.ones((self.copies, size), bool)
        self.rounds = np.zeros(self.copies, np.int64)
        self.log: list[list[list[tuple[int, int]]]] = [[] for _ in range(self.copies)]
        self.restart(np.ones(self.copies, bool))

    def restart(self, which: Bools) -> None:
        """Some copies from the start; the others stay where they are."""
        self.have[which] = np.eye(self.size, dtype=bool)
        self.near[which] = self.network.distance.T
        self.rounds[which] = 0
        for copy in np.flatnonzero(which):
            self.log[copy] = []
        self._begin(which)

    def _begin(self, which: Bools) -> None:
        network = self.network
        self.held[which] = held = self.have[which]
        self.open[which] = held[:, network.source] & ~held[:, network.target]
        self.pool[which] = True
        for copy in np.flatnonzero(which & ~self.done):
            self.log[copy].append([])

    @property
    def done(self) -> Bools:
        return np.asarray(self.have.all((1, 2)))

    def select(self, pool: Bools) -> None:
        """The flow trees (of chunks) whose workloads come first in this round; what they leave free the others may
        use."""
        self.pool = pool.astype(bool)

    @property
    def candidates(self) -> Bools:
        """[copy, hop, chunk]: workloads that may be taken now: those of selected trees, or, when there are none, the
        others."""
        chosen = self.open & self.pool[:, None, :]
        some = np.asarray(chosen.any((1, 2)))
        return np.where(some[:, None, None], chosen, self.open)

    def take(self, which: Ints, hop: Ints, chunk: Ints) -> None:
        """One workload in each of the copies `which`. Callers take candidates only."""
        target = self.network.target[hop]
        self.put(which, hop, chunk)
        self.open[which] &= ~self.wiring.conflicts[hop][:, :, None]
        same = self.wiring.target_sum[target].astype(bool)
        self.open[which[:, None], np.arange(same.shape[1])[None], chunk[:, None]] &= ~same

    def put(self, which: Ints, hop: Ints, chunk: Ints) -> None:
        """As `take`, by a caller who keeps account himself of what is left to take."""
        self.have[which, self.network.target[hop], chunk] = True
        for copy, h, c in zip(which.tolist(), hop.tolist(), chunk.tolist()):
            self.log[copy][-1].append((h, c))

    def end_round(self, which: Bools | None = None) -> Floats:
        """Closes the round of those copies (all, unless given) that are not done; the share of server ports that each
        left idle, else 0."""
        which = (np.ones(self.copies, bool) if which is None else which) & ~self.held.all((1, 2))
        new = self.have & ~self.held & which[:, None, None]
        idle = np.where(which, 1 - new.sum((1, 2)) / self.network.ports.sum(), 0).astype(np.float32)
        for copy, server, chunk in np.argwhere(new):
            self.near[copy, :, chunk] = np.minimum(self.near[copy, :, chunk], self.network.distance[server])
        self.rounds += which
        self._begin(which)
        return idle

    def flow_features(self, which: Bools | slice = slice(None)) -> Floats:
        """[copy, hop, chunk, feature] at the begin of a round, in the order of FLOW_FEATURES; of the copies `which`."""
        wiring, network, size = self.wiring, self.network, self.size
        ready, held, near = self.open[which].astype(np.float32), self.held[which], self.near[which]
        lacks = (~held).astype(np.float32)
        per_hop = ready.sum(2)
        into = (per_hop @ wiring.into_sum.T)[:, wiring.into, None] / size
        out = (per_hop @ wiring.out_sum.T)[:, wiring.out_of, None] / (size * wiring.degree.max())
        same = (wiring.into_sum @ ready)[:, wiring.into]
        sources = wiring.target_sum @ ready
        alone = lacks * (sources == 0)
        nearer = np.zeros_like(lacks)
        for server in range(size):
            nearer[:, server] = (network.distance[server][None, :, None] < near).sum(1)
        copies = held.sum(1, dtype=np.float32)[:, None, :] / size
        behind = lacks.sum(2, keepdims=True) / size
        degree = wiring.degree[None, :, None]
        fan_in = wiring.fan_in[network.target][None, :, None]
        shape = ready.shape
        parts = (
            copies,
            into,
            out,
            same / fan_in,
            (sources[:, network.target] - same) / fan_in,
            ((wiring.neighbours @ lacks) / degree)[:, network.target],
            ((wiring.neighbours @ alone) / degree)[:, network.target],
            (nearer / size)[:, network.target],
            near.max(1)[:, None, :] / wiring.diameter,
            behind[:, network.target],
            (behind - behind.mean(1, keepdims=True))[:, network.target],
            ((wiring.source_sum @ ready) / degree)[:, network.source],
            wiring.length[None, :, None],
            self.pool[which][:, None, :],
        )
        features = np.empty((*shape, len(parts)), np.float32)
        for column, part in enumerate(parts):
            features[..., column] = part
        return features

    def tree_features(self) -> Floats:
        """[copy, chunk, feature] at the begin of a round, in the order of TREE_FEATURES."""
        size, wiring = self.size, self.wiring
        copies = self.held.sum(1) / size
        reach = ((wiring.target_sum @ self.open.astype(np.float32)) > 0).sum(1) / size
        ready = self.open.sum(1) / len(self.network.hops)
        least = (size - 1) * size / self.network.ports.sum()
        parts = (
            copies,
            copies - copies.mean(1, keepdims=True),
            ready,
            reach,
            self.near.max(1) / wiring.diameter,
            self.rounds[:, None] / least,
            1 - copies.mean(1, keepdims=True),
        )
        return np.stack([np.broadcast_to(part, copies.shape) for part in parts], -1).astype(np.float32)

    def broadcast(self, copy: int) -> list[list[Flow]]:
        """The rounds of one copy so far."""
        hops = self.network.hops
        return [
            [Flow(chunk, hops[hop], Op.COPY, hops[hop][0]) for hop, chunk in taken] for taken in self.log[copy] if taken
        ]

    def schedule(self, copy: int, name: str) -> Schedule:
        """AllReduce from one copy that is done: its mirror, then itself."""
        if not self.done[copy]:
            raise ValueError(f"copy {copy} is not done")
        rounds = self.broadcast(copy)
        return Schedule(name, self.size, mirrored(rounds) + rounds)


def _numbered(values: Ints) -> tuple[Ints, int]:
    kinds, index = np.unique(values, return_inverse=True)
    return index, len(kinds)


def _one_hot(index: Ints, count: int) -> Floats:
    table = np.zeros((count, len(index)), np.float32)
    table[index, np.arange(len(index))] = 1
    return table

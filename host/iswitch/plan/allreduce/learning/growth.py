"""Flow trees that grow: many parallel broadcasts on one network, advanced workload by workload and round by round.

Every server begins with its own chunk. A workload is a hop and a chunk that the hop's source has and its target lacks;
placing it makes the target part of the chunk's flow tree. A round is over when no workload is left whose links are
free. What arrived can be forwarded from the next round on. When every server has every chunk, the mirror of the
broadcast is the reduction, so an AllReduce takes twice the rounds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule, mirror

__all__ = ["FLOW_FEATURES", "TREE_FEATURES", "TreeGrowth"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

FLOW_FEATURES = (
    "copies of the chunk",
    "workloads that want the link into the target",
    "workloads that want the link out of the source",
    "sources of the chunk on the same link",
    "sources of the chunk on the target's other links",
    "neighbours of the target that lack the chunk",
    "neighbours that lack it and have no source yet",
    "servers to which the chunk comes nearer",
    "remaining distance of the chunk",
    "chunks that the target lacks",
    "chunks that the target lacks beyond the average",
    "targets of the chunk at the source",
    "length of the path",
    "tree selected",
)
"""Features of a workload, all as fractions of the servers, neighbours or links. Several paths to a neighbour count
separately."""

TREE_FEATURES = (
    "copies",
    "copies beyond the average",
    "workloads ready",
    "servers that can be reached now",
    "remaining distance",
    "elapsed rounds",
    "units left",
)
"""Features of a flow tree, all as fractions; rounds are relative to the bound of ports."""


class TreeGrowth:
    """Parallel environments, each with one broadcast on the same network.

    Parameters
    ----------
    arrays : NetworkArrays
        The network.
    num_envs : int
        Number of environments.

    Attributes
    ----------
    present : array of bool, shape (env, server, chunk)
        True if the server has the chunk, or receives it in this round. `present_at_start` is its value at the beginning
        of the round.
    hops_left : array of int, shape (env, server, chunk)
        Hops to the server from the nearest one that has the chunk.
    ready : array of bool, shape (env, hop, chunk)
        Workloads whose links are free in this round.
    selected : array of bool, shape (env, chunk)
        Flow trees whose workloads come first in this round.
    rounds : array of int, shape (env,)
        Rounds that are over.
    log : list
        For each environment and round the workloads (hop, chunk) that were placed.
    """

    def __init__(self, arrays: NetworkArrays, num_envs: int) -> None:
        self.arrays, self.num_envs, self.network = arrays, num_envs, arrays.network
        self.size = self.network.size
        self.reset()

    def reset(self) -> None:
        """Begin all broadcasts anew."""
        size = self.size
        self.present = np.zeros((self.num_envs, size, size), bool)
        self.present_at_start = np.zeros_like(self.present)
        self.hops_left = np.zeros((self.num_envs, size, size), np.int64)
        self.ready = np.zeros((self.num_envs, len(self.network.hops), size), bool)
        self.selected = np.ones((self.num_envs, size), bool)
        self.rounds = np.zeros(self.num_envs, np.int64)
        self.log: list[list[list[tuple[int, int]]]] = [[] for _ in range(self.num_envs)]
        self.restart(np.ones(self.num_envs, bool))

    def restart(self, envs: Bools) -> None:
        """Begin the broadcasts of some environments anew, where the mask `envs` is True."""
        self.present[envs] = np.eye(self.size, dtype=bool)
        self.hops_left[envs] = self.network.hop_distance.T
        self.rounds[envs] = 0
        for env in np.flatnonzero(envs):
            self.log[env] = []
        self._begin_round(envs)

    def _begin_round(self, envs: Bools) -> None:
        network = self.network
        self.present_at_start[envs] = present = self.present[envs]
        self.ready[envs] = present[:, network.source] & ~present[:, network.target]
        self.selected[envs] = True
        for env in np.flatnonzero(envs & ~self.done):
            self.log[env].append([])

    @property
    def done(self) -> Bools:
        """True where every server has every chunk; [env]."""
        return np.asarray(self.present.all((1, 2)))

    def select(self, trees: Bools) -> None:
        """Select the flow trees whose workloads come first in this round; [env, chunk].

        Workloads of other trees may use the links that are left.
        """
        self.selected = trees.astype(bool)

    @property
    def candidates(self) -> Bools:
        """Workloads that may be placed now, [env, hop, chunk]: of selected trees, or else of the others."""
        chosen = self.ready & self.selected[:, None, :]
        some = np.asarray(chosen.any((1, 2)))
        return np.where(some[:, None, None], chosen, self.ready)

    def place(self, envs: Ints, hop: Ints, chunk: Ints) -> None:
        """Place one workload, which must be a candidate, in each of the environments `envs` (their numbers)."""
        target = self.network.target[hop]
        self.place_unchecked(envs, hop, chunk)
        self.ready[envs] &= ~self.arrays.conflicts[hop][:, :, None]
        same_target = self.arrays.target_sum[target].astype(bool)
        self.ready[envs[:, None], np.arange(same_target.shape[1])[None], chunk[:, None]] &= ~same_target

    def place_unchecked(self, envs: Ints, hop: Ints, chunk: Ints) -> None:
        """Place workloads without updating `ready`, for a caller that keeps track of it."""
        self.present[envs, self.network.target[hop], chunk] = True
        for env, h, c in zip(envs.tolist(), hop.tolist(), chunk.tolist()):
            self.log[env][-1].append((h, c))

    def end_round(self, envs: Bools | None = None) -> Floats:
        """End the round of the environments in the mask `envs`, by default of all; those that are done stay.

        Returns
        -------
        array of float, shape (env,)
            The fraction of server ports that the round left idle; 0 if no round ended.
        """
        envs = (np.ones(self.num_envs, bool) if envs is None else envs) & ~self.present_at_start.all((1, 2))
        new = self.present & ~self.present_at_start & envs[:, None, None]
        idle = np.where(envs, 1 - new.sum((1, 2)) / self.network.ports.sum(), 0).astype(np.float32)
        for env, server, chunk in np.argwhere(new):
            nearer = self.network.hop_distance[server]
            self.hops_left[env, :, chunk] = np.minimum(self.hops_left[env, :, chunk], nearer)
        self.rounds += envs
        self._begin_round(envs)
        return idle

    def replay(self, rounds: Sequence[Sequence[Sequence[tuple[int, int]]]]) -> None:
        """Place the workloads of earlier rounds, in environments that are in their first round.

        Parameters
        ----------
        rounds : sequence of rounds
            For each environment its rounds, as in `log`.
        """
        for at in range(max(map(len, rounds))):
            for env, earlier in enumerate(rounds):
                if at < len(earlier):
                    hop, chunk = np.array(earlier[at]).T
                    self.place_unchecked(np.full(len(hop), env), hop, chunk)
            self.end_round(np.array([at < len(earlier) for earlier in rounds]))

    def flow_features(self, envs: Bools | slice = slice(None)) -> Floats:
        """Return the features of all workloads at the beginning of a round; [env, hop, chunk, feature]."""
        arrays, network, size = self.arrays, self.network, self.size
        ready, present = self.ready[envs].astype(np.float32), self.present_at_start[envs]
        hops_left = self.hops_left[envs]
        lacks = (~present).astype(np.float32)
        per_hop = ready.sum(2)
        into = (per_hop @ arrays.into_sum.T)[:, arrays.into, None] / size
        out = (per_hop @ arrays.out_sum.T)[:, arrays.out_of, None] / (size * arrays.degree.max())
        same = (arrays.into_sum @ ready)[:, arrays.into]
        sources = arrays.target_sum @ ready
        without_source = lacks * (sources == 0)
        nearer = np.zeros_like(lacks)
        for server in range(size):
            nearer[:, server] = (network.hop_distance[server][None, :, None] < hops_left).sum(1)
        copies = present.sum(1, dtype=np.float32)[:, None, :] / size
        lacking = lacks.sum(2, keepdims=True) / size
        degree = arrays.degree[None, :, None]
        fan_in = arrays.fan_in[network.target][None, :, None]
        parts = (
            copies,
            into,
            out,
            same / fan_in,
            (sources[:, network.target] - same) / fan_in,
            ((arrays.neighbours @ lacks) / degree)[:, network.target],
            ((arrays.neighbours @ without_source) / degree)[:, network.target],
            (nearer / size)[:, network.target],
            hops_left.max(1)[:, None, :] / arrays.diameter,
            lacking[:, network.target],
            (lacking - lacking.mean(1, keepdims=True))[:, network.target],
            ((arrays.source_sum @ ready) / degree)[:, network.source],
            arrays.length[None, :, None],
            self.selected[envs][:, None, :],
        )
        features = np.empty((*ready.shape, len(parts)), np.float32)
        for column, part in enumerate(parts):
            features[..., column] = part
        return features

    def tree_features(self) -> Floats:
        """Return the features of all flow trees at the beginning of a round; [env, chunk, feature]."""
        size, arrays = self.size, self.arrays
        copies = self.present_at_start.sum(1) / size
        reach = ((arrays.target_sum @ self.ready.astype(np.float32)) > 0).sum(1) / size
        ready = self.ready.sum(1) / len(self.network.hops)
        port_bound = (size - 1) * size / self.network.ports.sum()
        parts = (
            copies,
            copies - copies.mean(1, keepdims=True),
            ready,
            reach,
            self.hops_left.max(1) / arrays.diameter,
            self.rounds[:, None] / port_bound,
            1 - copies.mean(1, keepdims=True),
        )
        return np.stack([np.broadcast_to(part, copies.shape) for part in parts], -1).astype(np.float32)

    def broadcast(self, env: int) -> list[list[Flow]]:
        """Return the rounds of one environment so far."""
        hops = self.network.hops
        return [
            [Flow(chunk, hops[hop], Op.COPY, hops[hop][0]) for hop, chunk in placed]
            for placed in self.log[env]
            if placed
        ]

    def schedule(self, env: int, name: str) -> Schedule:
        """Return the AllReduce of one environment: the mirror of its broadcast, then the broadcast.

        Raises
        ------
        ValueError
            If the broadcast is not complete.
        """
        if not self.done[env]:
            raise ValueError(f"the broadcast of environment {env} is not complete")
        rounds = self.broadcast(env)
        return Schedule(name, self.size, mirror(rounds) + rounds)

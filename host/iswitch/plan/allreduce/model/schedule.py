"""A schedule: rounds of flows. A flow carries a chunk from node to node, where it is merged, copied or held."""

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

__all__ = ["Flow", "Op", "Path", "Schedule", "list_schedule", "mirror"]

Path = tuple[Hashable, ...]
"""Nodes from the sender to the receiver, with both."""


class Op(StrEnum):
    """What the receiver of a flow does with the value."""

    MERGE = "merge"  # add it to its own value
    COPY = "copy"  # replace its own value
    HOLD = "hold"  # store it beside its own value, by origin, to forward it


@dataclass(frozen=True)
class Flow:
    """One unit of a chunk along a path.

    Parameters
    ----------
    chunk : int
        The chunk.
    path : tuple
        Nodes from the sender to the receiver.
    op : Op
        What the receiver does with the value.
    origin : node
        Whose value it is: the sender's own, or one that the sender holds.
    """

    chunk: int
    path: Path
    op: Op
    origin: Hashable

    @property
    def links(self) -> list[tuple[Hashable, Hashable]]:
        """Directed links that the flow occupies for a round."""
        return list(zip(self.path, self.path[1:]))


@dataclass(frozen=True)
class Schedule:
    """Rounds of simultaneous flows. A flow carries the value that its sender has at the beginning of the round.

    Parameters
    ----------
    name : str
        The scheduler, for people.
    chunks : int
        Number of chunks, and of servers.
    rounds : list of list of Flow
        The flows of each round.
    """

    name: str
    chunks: int
    rounds: list[list[Flow]] = field(repr=False)

    @property
    def length(self) -> int:
        """Number of rounds."""
        return len(self.rounds)

    @property
    def flows(self) -> int:
        """Number of flows."""
        return sum(map(len, self.rounds))

    def links_in_use(self) -> list[int]:
        """Return the number of directed links that each round uses."""
        return [sum(len(flow.path) - 1 for flow in flows) for flows in self.rounds]

    def with_name(self, name: str) -> "Schedule":
        """Return the schedule with another name."""
        return replace(self, name=name)


def mirror(broadcast: list[list[Flow]]) -> list[list[Flow]]:
    """Return the reduction that mirrors a broadcast in time and in the direction of links.

    The reduction sums each chunk at the server from which the broadcast copies it. If a server received a chunk in
    round r and forwarded it later, then in the mirror it has all these sums before it sends its own. Flows that share
    no directed link share none in the mirror.

    Raises
    ------
    ValueError
        If the broadcast has flows that do not copy the sender's own value.
    """
    if any(flow.op is not Op.COPY or flow.origin != flow.path[0] for flows in broadcast for flow in flows):
        raise ValueError("only a broadcast of copies has a mirror")
    return [
        [Flow(flow.chunk, flow.path[::-1], Op.MERGE, flow.path[-1]) for flow in flows] for flows in reversed(broadcast)
    ]


def list_schedule(jobs: Sequence[tuple[Path, Sequence[int]]], *, priority: Sequence[Any]) -> list[list[int]]:
    """Assign jobs to rounds by list scheduling.

    Every round takes the ready jobs whose links are still free, in the order of `priority`.

    Parameters
    ----------
    jobs : sequence of (path, predecessors)
        A job occupies the links of its path for a round, after the rounds of its predecessors (indices into `jobs`).
    priority : sequence
        The priority of each job, least first.

    Returns
    -------
    list of list of int
        Indices into `jobs`, by round.

    Raises
    ------
    ValueError
        If predecessors form a cycle.
    """
    waits = [len(predecessors) for _, predecessors in jobs]
    successors: dict[int, list[int]] = {}
    for index, (_, predecessors) in enumerate(jobs):
        for predecessor in predecessors:
            successors.setdefault(predecessor, []).append(index)
    ranked = sorted(range(len(jobs)), key=priority.__getitem__)
    rank_of = {index: rank for rank, index in enumerate(ranked)}
    links: dict[Path, list[tuple[Hashable, Hashable]]] = {path: list(pairwise(path)) for path, _ in jobs}
    # Ranks of the ready jobs, a heap for each path: a round takes at most one job of a path.
    ready: dict[Path, list[int]] = {path: [] for path in links}
    for rank, index in enumerate(ranked):
        if not waits[index]:
            ready[jobs[index][0]].append(rank)
    rounds = []
    while heads := sorted(((heap[0], path) for path, heap in ready.items() if heap), key=lambda head: head[0]):
        used: set[tuple[Hashable, Hashable]] = set()
        taken = []
        for rank, path in heads:
            if used.isdisjoint(links[path]):
                used.update(links[path])
                taken.append(ranked[rank])
                heapq.heappop(ready[path])
        for index in taken:
            for successor in successors.get(index, ()):
                waits[successor] -= 1
                if not waits[successor]:
                    heapq.heappush(ready[jobs[successor][0]], rank_of[successor])
        rounds.append(taken)
    if any(waits):
        raise ValueError("jobs wait for one another in a cycle")
    return rounds

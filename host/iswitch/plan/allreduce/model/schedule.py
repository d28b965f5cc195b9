"""A schedule: rounds of flows, each of which carries one chunk from node to node and is merged, copied or held
there."""

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

__all__ = ["Flow", "Op", "Path", "Schedule", "mirrored", "packed"]

Path = tuple[Hashable, ...]
"""Nodes from the sender to the receiver, both included."""


class Op(StrEnum):
    """What the node at the end of a flow does with the value that arrives."""

    MERGE = "merge"  # adds it to its own
    COPY = "copy"  # takes it for its own
    HOLD = "hold"  # keeps it beside its own, under the origin's name, to send it on


@dataclass(frozen=True)
class Flow:
    """One unit of `chunk` along `path` (nodes, both ends included). The value is that of `origin`: the sender's own, or
    one that it holds."""

    chunk: int
    path: Path
    op: Op
    origin: Hashable

    @property
    def links(self) -> list[tuple[Hashable, Hashable]]:
        """Directed links that the flow fills for a round."""
        return list(zip(self.path, self.path[1:]))


@dataclass(frozen=True)
class Schedule:
    """Rounds of simultaneous flows. What a flow carries is what its sender has when the round begins; `chunks` is the
    number of servers."""

    name: str
    chunks: int
    rounds: list[list[Flow]] = field(repr=False)

    @property
    def length(self) -> int:
        """Rounds."""
        return len(self.rounds)

    @property
    def flows(self) -> int:
        return sum(map(len, self.rounds))

    def links_in_use(self) -> list[int]:
        """Directed links that carry something, round by round."""
        return [sum(len(flow.path) - 1 for flow in flows) for flows in self.rounds]

    def named(self, name: str) -> "Schedule":
        return replace(self, name=name)


def mirrored(broadcast: list[list[Flow]]) -> list[list[Flow]]:
    """Rounds that gather into each chunk's first owner what `broadcast` (COPY alone) spreads from there: time and links
    turned round.

    A server that got a chunk in round r and passed it on later has, in the mirror, all those sums before it sends its
    own. Links are directed pairs, so two flows that share none share none in the mirror.
    """
    if any(flow.op is not Op.COPY or flow.origin != flow.path[0] for flows in broadcast for flow in flows):
        raise ValueError("only a broadcast of copies has a mirror")
    return [
        [Flow(flow.chunk, flow.path[::-1], Op.MERGE, flow.path[-1]) for flow in flows] for flows in reversed(broadcast)
    ]


def packed(jobs: Sequence[tuple[Path, Sequence[int]]], *, priority: Sequence[Any]) -> list[list[int]]:
    """List scheduling: every round takes jobs, least `priority` first, whose links are still free; rounds of indices
    into `jobs`.

    A job is a path and the indices of those that must be over before it starts.
    """
    waits = [len(before) for _, before in jobs]
    after: dict[int, list[int]] = {}
    for index, (_, before) in enumerate(jobs):
        for first in before:
            after.setdefault(first, []).append(index)
    ranked = sorted(range(len(jobs)), key=priority.__getitem__)
    rank = {index: place for place, index in enumerate(ranked)}
    links: dict[Path, list[tuple[Hashable, Hashable]]] = {path: list(pairwise(path)) for path, _ in jobs}
    ready: dict[Path, list[int]] = {
        path: [] for path in links
    }  # ranks, a heap for each path: of jobs on one path a round takes one at most
    for place, index in enumerate(ranked):
        if not waits[index]:
            ready[jobs[index][0]].append(place)
    rounds = []
    while heads := sorted(((heap[0], path) for path, heap in ready.items() if heap), key=lambda head: head[0]):
        used: set[tuple[Hashable, Hashable]] = set()
        taken = []
        for place, path in heads:
            if used.isdisjoint(links[path]):
                used.update(links[path])
                taken.append(ranked[place])
                heapq.heappop(ready[path])
        for index in taken:
            for later in after.get(index, ()):
                waits[later] -= 1
                if not waits[later]:
                    heapq.heappush(ready[jobs[later][0]], rank[later])
        rounds.append(taken)
    if any(waits):
        raise ValueError("jobs wait for one another in a circle")
    return rounds

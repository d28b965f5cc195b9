"""Flow trees: the hops by which a chunk spreads from its root to every server, and in reverse is summed at the root."""

import random
from dataclasses import dataclass
from functools import cached_property

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Path, list_schedule

__all__ = ["FlowTree", "Load", "balanced_tree", "broadcast"]

Load = list[int]
"""Units on each directed link, over all trees so far."""


@dataclass(frozen=True)
class FlowTree:
    """The tree of one chunk.

    Parameters
    ----------
    network : Network
        The network.
    chunk, root : int
        The chunk, and the server from which it spreads.
    hops : tuple of int
        For each server the hop by which it receives the chunk; -1 for the root.
    order : tuple of int
        Servers, parents before children.
    """

    network: Network
    chunk: int
    root: int
    hops: tuple[int, ...]
    order: tuple[int, ...]

    def parent(self, server: int) -> int:
        """Return the server from which `server` receives the chunk."""
        return int(self.network.source[self.hops[server]])

    @cached_property
    def height(self) -> list[int]:
        """Hops from each server down to the deepest one below it."""
        height = [0] * len(self.hops)
        for server in reversed(self.order[1:]):
            height[self.parent(server)] = max(height[self.parent(server)], height[server] + 1)
        return height

    @cached_property
    def subtree_size(self) -> list[int]:
        """Number of servers in the subtree of each server, itself included."""
        size = [1] * len(self.hops)
        for server in reversed(self.order[1:]):
            size[self.parent(server)] += size[server]
        return size


def balanced_tree(network: Network, root: int, chunk: int, load: Load, rng: random.Random | None = None) -> FlowTree:
    """Return a flow tree that uses the least loaded links.

    The nearest servers come first. Each receives the chunk from a server nearer to the root, by a shortest hop whose
    links carry the least so far.

    Parameters
    ----------
    network : Network
        The network.
    root, chunk : int
        The root of the tree, and its chunk.
    load : list of int
        Units on each link. The tree's units are added.
    rng : random.Random, optional
        Decides between equals; by default the lowest number does.
    """
    # If all servers have one port, all are one hop apart, so links count.
    distance = (network.hop_distance if network.hop_distance.max() > 1 else network.link_distance)[root]
    hops, order = [-1] * network.size, [root]
    rest = [server for server in range(network.size) if server != root]
    if rng:
        rng.shuffle(rest)
    for server in sorted(rest, key=distance.__getitem__):
        nearer = [hop for hop in network.incoming_hops[server] if distance[network.source[hop]] < distance[server]]
        length = min(len(network.hops[hop]) for hop in nearer)
        choices = [hop for hop in nearer if len(network.hops[hop]) == length]
        costs = []
        for hop in choices:
            loads = [load[link] for link in network.hop_links[hop] if link >= 0]
            costs.append((max(loads), sum(loads), rng.random() if rng else 0))
        best = choices[min(range(len(choices)), key=costs.__getitem__)]
        hops[server] = best
        order.append(server)
        for link in network.hop_links[best]:
            if link >= 0:
                load[link] += 1
    return FlowTree(network, chunk, root, tuple(hops), tuple(order))


def broadcast(trees: list[FlowTree], *, rng: random.Random | None = None) -> list[list[Flow]]:
    """Return the rounds that copy the chunk of each tree from its root to all servers.

    Hops with the deepest subtree come first, then those with the larger one; `rng` decides between equals.
    """
    jobs: list[tuple[Path, list[int]]] = []
    priority: list[tuple[float, ...]] = []
    chunks: list[int] = []
    for tree in trees:
        first = len(jobs) - 1
        job_of = {server: first + at for at, server in enumerate(tree.order)}
        for server in tree.order[1:]:
            parent = tree.parent(server)
            jobs.append((tree.network.hops[tree.hops[server]], [job_of[parent]] if parent != tree.root else []))
            priority.append((-tree.height[server], -tree.subtree_size[server], rng.random() if rng else tree.chunk))
            chunks.append(tree.chunk)
    return [
        [Flow(chunks[index], jobs[index][0], Op.COPY, jobs[index][0][0]) for index in taken]
        for taken in list_schedule(jobs, priority=priority)
    ]

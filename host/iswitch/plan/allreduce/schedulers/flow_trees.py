"""Flow trees: along which hops a chunk spreads from its root to every server, and, turned round, along which it is
summed there."""

import random
from dataclasses import dataclass
from functools import cached_property

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Path, packed

__all__ = ["FlowTree", "Load", "balanced_tree", "spread"]

Load = list[int]
"""Units that trees so far send over each directed link."""


@dataclass(frozen=True)
class FlowTree:
    """`hops[s]`: the hop by which the chunk reaches server s, -1 at the root; `order`: servers, parents before
    children."""

    network: Network
    chunk: int
    root: int
    hops: tuple[int, ...]
    order: tuple[int, ...]

    def parent(self, server: int) -> int:
        return int(self.network.source[self.hops[server]])

    @cached_property
    def height(self) -> list[int]:
        """Hops from each server down to the deepest below it."""
        height = [0] * len(self.hops)
        for server in reversed(self.order[1:]):
            height[self.parent(server)] = max(height[self.parent(server)], height[server] + 1)
        return height

    @cached_property
    def below(self) -> list[int]:
        """Servers of each subtree, its top included."""
        below = [1] * len(self.hops)
        for server in reversed(self.order[1:]):
            below[self.parent(server)] += below[server]
        return below


def balanced_tree(network: Network, root: int, chunk: int, load: Load, draw: random.Random | None = None) -> FlowTree:
    """Nearest servers first, each below a server nearer to the root, by a shortest hop whose links carry least so far.
    Adds itself to `load`.

    `draw` settles the order of equals and ties; without it the lowest number does.
    """
    far = (network.distance if network.distance.max() > 1 else network.far)[
        root
    ]  # between one-port servers all is one hop, so links count
    hops, order = [-1] * network.size, [root]
    rest = [server for server in range(network.size) if server != root]
    if draw:
        draw.shuffle(rest)
    for server in sorted(rest, key=far.__getitem__):
        nearer = [hop for hop in network.arriving[server] if far[network.source[hop]] < far[server]]
        length = min(len(network.hops[hop]) for hop in nearer)
        choices = [hop for hop in nearer if len(network.hops[hop]) == length]
        costs = []
        for hop in choices:
            loads = [load[link] for link in network.hop_links[hop] if link >= 0]
            costs.append((max(loads), sum(loads), draw.random() if draw else 0))
        best = choices[min(range(len(choices)), key=costs.__getitem__)]
        hops[server] = best
        order.append(server)
        for link in network.hop_links[best]:
            if link >= 0:
                load[link] += 1
    return FlowTree(network, chunk, root, tuple(hops), tuple(order))


def spread(trees: list[FlowTree], *, draw: random.Random | None = None) -> list[list[Flow]]:
    """Rounds that copy each tree's chunk from its root to all servers: deepest remaining way first, then the larger
    subtree."""
    jobs: list[tuple[Path, list[int]]] = []
    ranks: list[tuple[float, ...]] = []
    chunks: list[int] = []
    for tree in trees:
        first = len(jobs) - 1
        place = {server: first + at for at, server in enumerate(tree.order)}
        for server in tree.order[1:]:
            parent = tree.parent(server)
            jobs.append((tree.network.hops[tree.hops[server]], [place[parent]] if parent != tree.root else []))
            ranks.append((-tree.height[server], -tree.below[server], draw.random() if draw else tree.chunk))
            chunks.append(tree.chunk)
    return [
        [Flow(chunks[index], jobs[index][0], Op.COPY, jobs[index][0][0]) for index in taken]
        for taken in packed(jobs, priority=ranks)
    ]

"""Least rounds that any AllReduce of N chunks among N servers needs, when switches forward and do not sum."""

from dataclasses import dataclass

import numpy as np

from iswitch.plan.allreduce.model.network import Network

__all__ = ["Bounds", "bounds"]


@dataclass(frozen=True)
class Bounds:
    """Each holds for every schedule that `replay` accepts without aggregating switches; so does the largest, `best`.

    ports: a chunk's sum takes N-1 transfers at least, and N-1 more take it everywhere, so 2 N (N-1) must come in by all
    servers' ports. inlet: all N chunks must come in by the ports of each server. spread: with p ports at most, what a
    server has can be at (p+1)^r servers after r rounds. distance: hops between the two servers that are farthest apart.
    two_phases: least for a schedule that ends its reductions before any broadcast begins (not a bound of others). Each
    phase moves
        N (N-1) units, takes a chunk from one server to all or back, and over the hops of the least remote server at
        least.
    """

    ports: int
    inlet: int
    spread: int
    distance: int
    two_phases: int

    @property
    def best(self) -> int:
        return max(self.ports, self.inlet, self.spread, self.distance)


def bounds(network: Network) -> Bounds:
    """Bounds of a network, in rounds."""
    size, ports = network.size, network.ports
    total = int(ports.sum())
    reached, spread = 1, 0
    while reached < size:
        reached, spread = reached * (int(ports.max()) + 1), spread + 1
    distance = int(network.distance.max())
    phase = max(-(-size * (size - 1) // total), spread, int(network.distance.max(1).min()))
    return Bounds(-(-2 * size * (size - 1) // total), int(np.max(-(-size // ports))), spread, distance, 2 * phase)

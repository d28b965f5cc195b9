"""Arrays of a network, for computing with many environments at once."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.model.network import Network

__all__ = ["NetworkArrays"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class NetworkArrays:
    """Arrays of a network that all environments share.

    Parameters
    ----------
    network : Network
        The network.

    Attributes
    ----------
    into, out_of : array of int, shape (hop,)
        The last and the first link of each hop, numbered from 0; `into_count` and `out_count` are how many there are.
    into_sum, out_sum, target_sum, source_sum : array of float, shape (group, hop)
        Matrices that sum over the hops with the same last link, first link, target, or source.
    neighbours : array of float, shape (server, server)
        1 if a hop leads from one server to the other. `degree` is the number of neighbours.
    length : array of float, shape (hop,)
        Links of each hop as a fraction of the longest.
    diameter : int
        The greatest distance of two servers in hops.
    fan_in : array of float, shape (server,)
        Hops into each server.
    """

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
        self.diameter = int(network.hop_distance.max())
        self.degree = self.neighbours.sum(1)
        self.fan_in = self.target_sum.sum(1)

    @cached_property
    def conflicts(self) -> Bools:
        """True where two hops share a link; [hop, hop]."""
        links = self.network.hop_links
        uses = np.zeros((len(links), len(self.network.links)), np.float32)
        for column in links.T:
            uses[np.arange(len(links))[column >= 0], column[column >= 0]] = 1
        return (uses @ uses.T) > 0


def _numbered(values: Ints) -> tuple[Ints, int]:
    """Return the values numbered from 0 without gaps, and how many different ones there are."""
    kinds, index = np.unique(values, return_inverse=True)
    return index, len(kinds)


def _one_hot(index: Ints, count: int) -> Floats:
    """Return a matrix [count, len(index)] that is 1 where the row is the index of the column."""
    table = np.zeros((count, len(index)), np.float32)
    table[index, np.arange(len(index))] = 1
    return table

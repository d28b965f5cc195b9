"""Lower bounds on the rounds of an AllReduce of N chunks among N servers, if switches forward and do not sum."""

from dataclasses import dataclass

import numpy as np

from iswitch.plan.allreduce.model.network import Network

__all__ = ["Bounds", "find_bounds"]


@dataclass(frozen=True)
class Bounds:
    """Lower bounds in rounds.

    All but `two_phases` hold for every schedule that `verify` accepts without aggregating switches.

    Parameters
    ----------
    ports : int
        A sum needs N-1 transfers of its chunk, and N-1 more distribute it. So 2 N (N-1) units must enter by the ports
        of all servers.
    inlet : int
        All N chunks must enter each server by its ports.
    spread : int
        With at most p ports per server, a value is at no more than (p+1)^r servers after r rounds.
    distance : int
        Hops between the two remotest servers.
    two_phases : int
        Bound for schedules that finish all sums before any broadcast begins. Each phase moves N (N-1) units, brings a
        chunk from one server to all or back, and crosses at least the hops around the most central server.
    """

    ports: int
    inlet: int
    spread: int
    distance: int
    two_phases: int

    @property
    def best(self) -> int:
        """The highest bound that holds for every schedule."""
        return max(self.ports, self.inlet, self.spread, self.distance)


def find_bounds(network: Network) -> Bounds:
    """Return the bounds of a network."""
    size, ports = network.size, network.ports
    total = int(ports.sum())
    reached, spread = 1, 0
    while reached < size:
        reached, spread = reached * (int(ports.max()) + 1), spread + 1
    distance = int(network.hop_distance.max())
    phase = max(-(-size * (size - 1) // total), spread, int(network.hop_distance.max(1).min()))
    return Bounds(-(-2 * size * (size - 1) // total), int(np.max(-(-size // ports))), spread, distance, 2 * phase)

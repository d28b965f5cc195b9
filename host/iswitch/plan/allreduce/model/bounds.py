"""Lower bounds on the rounds of an AllReduce of N chunks among N servers, if switches forward and do not sum."""

from dataclasses import dataclass, replace

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
        All N chunks must enter each server by its ports, each with the gradient of the remotest server. That
        gradient needs a round for each of the d hops, so the first of these chunks comes in round d.
    spread : int
        With at most p ports per server, a value is at no more than (p+1)^r servers after r rounds.
    two_phases : int
        Bound for schedules that finish all sums before any broadcast begins. Each phase moves N (N-1) units, brings a
        chunk from one server to all or back, and crosses at least the hops around the most central server. The bounds
        of all schedules hold for these, too.
    """

    ports: int
    inlet: int
    spread: int
    two_phases: int

    @property
    def best(self) -> int:
        """The highest bound that holds for every schedule."""
        return max(self.ports, self.inlet, self.spread)


def find_bounds(network: Network) -> Bounds:
    """Return the bounds of a network."""
    size, ports = network.size, network.ports
    total = int(ports.sum())
    reached, spread = 1, 0
    while reached < size:
        reached, spread = reached * (int(ports.max()) + 1), spread + 1
    remotest = network.hop_distance.max(1)
    inlet = int(np.max(remotest - 1 + -(-size // ports)))
    phase = max(-(-size * (size - 1) // total), spread, int(remotest.min()))
    found = Bounds(-(-2 * size * (size - 1) // total), inlet, spread, 2 * phase)
    return replace(found, two_phases=max(found.two_phases, found.best))

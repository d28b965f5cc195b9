"""The fewest possible rounds on tiny networks, proved by HiGHS: a binary variable for every hop, chunk and round."""

from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from iswitch.plan.allreduce.model.bounds import find_bounds
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram

__all__ = ["FewestRounds", "find_fewest_rounds"]


@dataclass(frozen=True)
class FewestRounds:
    """A schedule with `least` rounds, or None if none was found in time. No schedule of this kind has fewer rounds."""

    schedule: Schedule | None
    least: int


class _Failure(Enum):
    """Why there is no schedule."""

    INFEASIBLE = "no such schedule exists"
    UNDECIDED = "the time limit was reached"


class _RoundsProgram(LinearProgram):
    """A program whose variables are arrays over hops, chunks and rounds."""

    def add_binaries(self, *shape: int) -> np.ndarray:
        """Add variables that are 0 or 1, and return their numbers in this shape."""
        return np.array([self.add_variable(0, 1, integer=True) for _ in range(prod(shape))]).reshape(shape)

    def add_sum(self, low: float, high: float, plus: np.ndarray, minus: np.ndarray | None = None) -> None:
        """Demand low <= sum of `plus` - sum of `minus` <= high. Each variable occurs once."""
        less = {} if minus is None else dict.fromkeys(minus.ravel().tolist(), -1.0)
        self.add_row(dict.fromkeys(plus.ravel().tolist(), 1.0) | less, low, high)


def find_fewest_rounds(network: Network, *, time_s: float = 60.0, rounds_max: int | None = None) -> FewestRounds:
    """Find the fewest rounds of a schedule that sums chunk c once, at server c, and copies it from there.

    Broadcasts may begin before all sums are complete. Numbers of rounds are tried upwards from the lower bound, until
    one is feasible or is not decided in time.

    Parameters
    ----------
    network : Network
        The network.
    time_s : float
        Time limit for each number of rounds, in seconds.
    rounds_max : int, optional
        The last number of rounds to try.
    """
    least = find_bounds(network).best
    while rounds_max is None or least <= rounds_max:
        found = _within(network, least, time_s) if time_s > 0 else _Failure.UNDECIDED
        if isinstance(found, Schedule):
            return FewestRounds(found, least)
        if found is _Failure.UNDECIDED:
            break
        least += 1
    return FewestRounds(None, least)


def _within(network: Network, rounds: int, time_s: float) -> Schedule | _Failure:
    size, hops = network.size, len(network.hops)
    source, target = network.source, network.target
    program = _RoundsProgram()
    gather, spread = program.add_binaries(hops, size, rounds), program.add_binaries(hops, size, rounds)
    for root in range(size):
        program.add_sum(0, 0, gather[source == root, root])
        program.add_sum(0, 0, spread[target == root, root])
        for server in range(size):
            if server == root:
                continue
            program.add_sum(1, 1, gather[source == server, root])
            program.add_sum(1, 1, spread[target == server, root])
            for at in range(rounds):
                sent = gather[source == server, root, : at + 1]
                for hop in np.flatnonzero(target == server):
                    program.add_sum(
                        -INFINITY, 1, np.append(gather[hop, root, at], sent)
                    )  # a server that has sent its sum receives no more
                for hop in np.flatnonzero(source == server):  # a server sends what it has received
                    program.add_sum(-INFINITY, 0, spread[hop, root, at], spread[target == server, root, :at])
                for hop in np.flatnonzero(source == root):  # the root sends when all servers have sent
                    program.add_sum(-INFINITY, 0, spread[hop, root, at], gather[source == server, root, :at])
    for link in range(len(network.links)):
        using = (network.hop_links == link).any(1)
        for at in range(rounds):
            program.add_sum(-INFINITY, 1, np.append(gather[using, :, at], spread[using, :, at]))
    found = program.solve(time_s=time_s)
    if found.status != "optimal":
        return _Failure.INFEASIBLE if found.status == "infeasible" else _Failure.UNDECIDED
    taken = np.array(found.values) > 0.5
    return Schedule(
        "exact",
        size,
        [
            [
                Flow(chunk, network.hops[hop], op, network.hops[hop][0])
                for op, numbers in ((Op.MERGE, gather), (Op.COPY, spread))
                for hop, chunk in np.argwhere(taken[numbers[:, :, at]]).tolist()
            ]
            for at in range(rounds)
        ],
    )

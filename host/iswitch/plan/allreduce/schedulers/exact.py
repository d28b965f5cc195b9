"""The fewest rounds there can be, proved by HiGHS, on tiny networks: time is spread out, a binary for every hop, chunk
and round."""

from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from iswitch.plan.allreduce.model.bounds import bounds
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram

__all__ = ["Exact", "exact"]


@dataclass(frozen=True)
class Exact:
    """`schedule`: of as many rounds as `least` if something was found; `least`: no schedule of the kind has fewer
    rounds."""

    schedule: Schedule | None
    least: int


class _No(Enum):
    """Why there is no schedule."""

    INFEASIBLE = "none exists"
    UNDECIDED = "not known in time"


class _RoundsProgram(LinearProgram):
    """Rows of hops, chunks and rounds."""

    def binaries(self, *shape: int) -> np.ndarray:
        return np.array([self.add_variable(0, 1, integer=True) for _ in range(prod(shape))]).reshape(shape)

    def sums(self, low: float, high: float, plus: np.ndarray, minus: np.ndarray | None = None) -> None:
        """low <= sum of `plus` less that of `minus` <= high; each variable once."""
        less = {} if minus is None else dict.fromkeys(minus.ravel().tolist(), -1.0)
        self.add_row(dict.fromkeys(plus.ravel().tolist(), 1.0) | less, low, high)


def exact(network: Network, *, time_limit_s: float = 60.0, most: int | None = None) -> Exact:
    """Fewest rounds of a schedule that sums chunk c once, at server c, and copies it from there; broadcasts may begin
    before all sums are done.

    Tries one round more after the other from the bound on, `time_limit_s` for each, and ends at the first that is
    feasible, at one not decided in time, or after `most`.
    """
    least = bounds(network).best
    while most is None or least <= most:
        found = _within(network, least, time_limit_s) if time_limit_s > 0 else _No.UNDECIDED
        if isinstance(found, Schedule):
            return Exact(found, least)
        if found is _No.UNDECIDED:
            break
        least += 1
    return Exact(None, least)


def _within(network: Network, rounds: int, time_limit_s: float) -> Schedule | _No:
    size, hops = network.size, len(network.hops)
    source, target = network.source, network.target
    program = _RoundsProgram()
    gather, spread = program.binaries(hops, size, rounds), program.binaries(hops, size, rounds)
    for root in range(size):
        program.sums(0, 0, gather[source == root, root])
        program.sums(0, 0, spread[target == root, root])
        for server in range(size):
            if server == root:
                continue
            program.sums(1, 1, gather[source == server, root])
            program.sums(1, 1, spread[target == server, root])
            for at in range(rounds):
                sent = gather[source == server, root, : at + 1]
                for hop in np.flatnonzero(target == server):
                    program.sums(-INFINITY, 1, np.append(gather[hop, root, at], sent))  # nothing comes to who has sent
                for hop in np.flatnonzero(source == server):  # who sends has got
                    program.sums(-INFINITY, 0, spread[hop, root, at], spread[target == server, root, :at])
                for hop in np.flatnonzero(source == root):  # the root begins when all have sent
                    program.sums(-INFINITY, 0, spread[hop, root, at], gather[source == server, root, :at])
    for link in range(len(network.links)):
        using = (network.hop_links == link).any(1)
        for at in range(rounds):
            program.sums(-INFINITY, 1, np.append(gather[using, :, at], spread[using, :, at]))
    found = program.solve(time_s=time_limit_s)
    if found.status != "optimal":
        return _No.INFEASIBLE if found.status == "infeasible" else _No.UNDECIDED
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

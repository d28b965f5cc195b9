"""The fewest rounds there can be, proved by HiGHS, on tiny networks: time is spread out, a binary for every hop, chunk and round."""

from dataclasses import dataclass
from enum import Enum

import highspy
import numpy as np

from iswitch.plan.allreduce.bounds import bounds
from iswitch.plan.allreduce.network import Network
from iswitch.plan.allreduce.schedule import Flow, Op, Schedule

__all__ = ["Exact", "exact"]


@dataclass(frozen=True)
class Exact:
    """`schedule`: of as many rounds as `least` if something was found; `least`: no schedule of the kind has fewer rounds."""
    schedule: Schedule | None
    least: int


class _No(Enum):
    """Why there is no solution."""
    INFEASIBLE = "none exists"
    UNDECIDED = "not known in time"


class _Program:
    """Rows and columns as HiGHS wants them."""

    def __init__(self) -> None:
        self.columns = 0
        self.rows: list[tuple[float, float, list[int], list[float]]] = []

    def binaries(self, *shape: int) -> np.ndarray:
        first = self.columns
        self.columns += int(np.prod(shape))
        return np.arange(first, self.columns).reshape(shape)

    def row(self, low: float, high: float, plus: np.ndarray, minus: np.ndarray | None = None) -> None:
        indices = plus.ravel().tolist()
        values = [1.0] * len(indices)
        if minus is not None:
            indices += minus.ravel().tolist()
            values += [-1.0] * minus.size
        self.rows.append((low, high, indices, values))

    def solve(self, time_limit_s: float) -> np.ndarray | _No:
        """A bool for each column, or why not."""
        model = highspy.Highs()
        model.setOptionValue("output_flag", False)
        model.setOptionValue("threads", 1)
        model.setOptionValue("time_limit", time_limit_s)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = self.columns, len(self.rows)
        program.col_cost_ = np.zeros(self.columns)
        program.col_lower_, program.col_upper_ = np.zeros(self.columns), np.ones(self.columns)
        program.row_lower_ = np.array([low for low, _, _, _ in self.rows])
        program.row_upper_ = np.array([high for _, high, _, _ in self.rows])
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.cumsum([0, *(len(indices) for _, _, indices, _ in self.rows)])
        program.a_matrix_.index_ = np.array([index for _, _, indices, _ in self.rows for index in indices])
        program.a_matrix_.value_ = np.array([value for _, _, _, values in self.rows for value in values])
        program.integrality_ = [highspy.HighsVarType.kInteger] * self.columns
        model.passModel(program)
        model.run()
        status = model.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return _No.INFEASIBLE
        if status == highspy.HighsModelStatus.kOptimal:
            return np.array(model.getSolution().col_value) > 0.5
        return _No.UNDECIDED


def exact(network: Network, *, time_limit_s: float = 60.0, most: int | None = None) -> Exact:
    """Fewest rounds of a schedule that sums chunk c once, at server c, and copies it from there; broadcasts may begin before all sums are done.

    Tries one round more after the other from the bound on, `time_limit_s` for each, and ends at the first that is feasible, at one not
    decided in time, or after `most`.
    """
    least = bounds(network).best
    while most is None or least <= most:
        found = _within(network, least, time_limit_s)
        if isinstance(found, Schedule):
            return Exact(found, least)
        if found is _No.UNDECIDED:
            break
        least += 1
    return Exact(None, least)


def _within(network: Network, rounds: int, time_limit_s: float) -> Schedule | _No:
    size, hops = network.size, len(network.hops)
    source, target = network.source, network.target
    program = _Program()
    gather, spread = program.binaries(hops, size, rounds), program.binaries(hops, size, rounds)
    for root in range(size):
        program.row(0, 0, gather[source == root, root])
        program.row(0, 0, spread[target == root, root])
        for server in range(size):
            if server == root:
                continue
            program.row(1, 1, gather[source == server, root])
            program.row(1, 1, spread[target == server, root])
            for at in range(rounds):
                sent = gather[source == server, root, :at + 1]
                for hop in np.flatnonzero(target == server):
                    program.row(-np.inf, 1, np.append(gather[hop, root, at], sent))       # nothing comes to who has sent
                for hop in np.flatnonzero(source == server):                              # who sends has got
                    program.row(-np.inf, 0, spread[hop, root, at], spread[target == server, root, :at])
                for hop in np.flatnonzero(source == root):                                # the root begins when all have sent
                    program.row(-np.inf, 0, spread[hop, root, at], gather[source == server, root, :at])
    for link in range(len(network.links)):
        using = (network.hop_links == link).any(1)
        for at in range(rounds):
            program.row(-np.inf, 1, np.append(gather[using, :, at], spread[using, :, at]))
    solution = program.solve(time_limit_s)
    if isinstance(solution, _No):
        return solution
    return Schedule("exact", size, [
        [Flow(chunk, network.hops[hop], op, network.hops[hop][0]) for op, numbers in ((Op.MERGE, gather), (Op.COPY, spread))
         for hop, chunk in np.argwhere(solution[numbers[:, :, at]]).tolist()] for at in range(rounds)])

"""Linear programs, some of whose variables may be integers, built row by row and solved by HiGHS on one thread."""

import ctypes
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import highspy
import numpy as np

from iswitch.plan.solver.clock import is_stoppable, stop_requested

__all__ = ["INFINITY", "LinearProgram", "Solution"]

INFINITY = float("inf")
_SEED = 1
_C = ctypes.CDLL(None)


@contextmanager
def _without_output() -> Iterator[None]:
    """Keep what C code prints out of standard output: HiGHS 1.16 prints its version before it takes options."""
    _C.fflush(None)
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        _C.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class Solution(NamedTuple):
    """What the solver found.

    status : ``"optimal"``, ``"time"`` (the time limit was reached, or Ctrl-C pressed), ``"infeasible"``, or
        ``"unknown"`` (the solver could not decide).
    objective : the value of the best solution; infinite if there is none.
    bound : no solution has a smaller objective.
    values : values of the variables, by number; empty if there is no solution.
    duals : by row, how much the objective changes if the row's upper limit grows by 1. Empty if variables are integers.
    seconds : time to solve.
    """

    status: str
    objective: float
    bound: float
    values: list[float]
    duals: list[float]
    seconds: float


def _interrupt_if_stopped(event: Any) -> None:
    if stop_requested():
        event.interrupt()


class LinearProgram:
    """A program that minimises. Variables and rows are numbered in the order in which they are added."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.integer: list[bool] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def add_variable(
        self, low: float = 0.0, high: float = INFINITY, *, integer: bool = False, cost: float = 0.0
    ) -> int:
        """Add a variable from `low` to `high`, `cost` times which is part of the objective, and return its number."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.integer.append(integer)
        return len(self.cost) - 1

    def add_row(self, terms: Mapping[int, float], low: float, high: float) -> int:
        """Demand low <= sum of factor x variable <= high for these factors, and return the row's number."""
        self.rows.append(({at: factor for at, factor in terms.items() if factor}, low, high))
        return len(self.rows) - 1

    def solve(self, *, time_s: float = INFINITY, start: list[float] | None = None, relaxed: bool = False) -> Solution:
        """Solve the program.

        Parameters
        ----------
        time_s : float
            Time limit in seconds.
        start : list of float, optional
            A solution to start from.
        relaxed : bool
            Ignore that variables must be integers.

        Raises
        ------
        RuntimeError
            If HiGHS ends for another reason than those of `Solution.status`.
        """
        began = time.perf_counter()
        solver = self._solver(relaxed)
        if time_s < INFINITY:
            solver.setOptionValue("time_limit", max(time_s, 0.01))
        if start:
            given = highspy.HighsSolution()
            given.col_value = start
            solver.setSolution(given)
        solver.run()
        undecided = (highspy.HighsModelStatus.kUnknown, highspy.HighsModelStatus.kSolveError)
        if solver.getModelStatus() in undecided:  # a solve error: presolve made a solution that breaks a row
            solver.clearSolver()
            solver.setOptionValue("presolve", "off")
            solver.run()
        status, info, found = solver.getModelStatus(), solver.getInfo(), solver.getSolution()
        seconds = time.perf_counter() - began
        mixed = any(self.integer) and not relaxed
        if status == highspy.HighsModelStatus.kOptimal:
            duals = [] if mixed else [float(value) for value in found.row_dual]
            bound = info.mip_dual_bound if mixed else info.objective_function_value
            return Solution("optimal", info.objective_function_value, bound, list(found.col_value), duals, seconds)
        if status in (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt):
            feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
            bound = info.mip_dual_bound if mixed else -INFINITY
            return Solution(
                "time",
                info.objective_function_value if feasible else INFINITY,
                bound,
                list(found.col_value) if feasible else [],
                [],
                seconds,
            )
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return Solution("infeasible", INFINITY, INFINITY, [], [], seconds)
        if status in undecided:
            return Solution("unknown", INFINITY, -INFINITY, [], [], seconds)
        raise RuntimeError(f"HiGHS ended with {solver.modelStatusToString(status)}")

    def objectives(self, changes: Iterable[tuple[int, float]]) -> list[float]:
        """Return the optimum, and the optimum after each change alone of a row's upper limit.

        Variables are not integers here. Each program starts from the basis of the one before.
        """
        solver = self._solver(relaxed=True)
        solver.run()
        found = [solver.getInfo().objective_function_value]
        for row, high in changes:
            _, low, before = self.rows[row]
            solver.changeRowBounds(row, low, high)
            solver.run()
            if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                raise RuntimeError(f"HiGHS ended with {solver.modelStatusToString(solver.getModelStatus())}")
            found.append(solver.getInfo().objective_function_value)
            solver.changeRowBounds(row, low, before)
        return found

    def _solver(self, relaxed: bool) -> highspy.Highs:
        with _without_output():
            solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("random_seed", _SEED)
        solver.setOptionValue("mip_rel_gap", 1e-7)
        solver.setOptionValue("mip_feasibility_tolerance", 1e-8)
        solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
        solver.passModel(self._model(relaxed))
        if is_stoppable():
            solver.cbSimplexInterrupt.subscribe(_interrupt_if_stopped)
            solver.cbMipInterrupt.subscribe(_interrupt_if_stopped)
        return solver

    def _model(self, relaxed: bool) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.cost), len(self.rows)
        model.col_cost_, model.col_lower_, model.col_upper_ = (
            np.array(each, float) for each in (self.cost, self.low, self.high)
        )
        model.row_lower_ = np.array([low for _, low, _ in self.rows], float)
        model.row_upper_ = np.array([high for _, _, high in self.rows], float)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.num_col_, model.a_matrix_.num_row_ = len(self.cost), len(self.rows)
        model.a_matrix_.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self.rows)]).astype(np.int32)
        model.a_matrix_.index_ = np.array([at for terms, _, _ in self.rows for at in terms], np.int32)
        model.a_matrix_.value_ = np.array([factor for terms, _, _ in self.rows for factor in terms.values()], float)
        if any(self.integer) and not relaxed:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[integer] for integer in self.integer]
        return model

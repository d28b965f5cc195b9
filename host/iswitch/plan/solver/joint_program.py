"""One tree for each of several jobs as one integer program: the program of each job, and rows for what they share."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.fair_rates import resource_gbps
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.single_tree_model import EQUAL, SingleTreeModel
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.tree import Resource, Tree
from iswitch.plan.topology.shared_fabric import FabricJob

__all__ = ["JointProgram"]


class JointProgram:
    """The program.

    Parameters
    ----------
    jobs : sequence of FabricJob
        The jobs.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    clock : Clock
        A time limit to build the program.

    Raises
    ------
    OutOfTime
        If the program was not built in time.
    """

    def __init__(self, jobs: Sequence[FabricJob], *, levels: int | None, adjacent: bool, clock: Clock):
        self.jobs, self.program = list(jobs), LinearProgram()
        self._models: list[SingleTreeModel] = []
        self._first: list[int] = []
        shared: dict[Resource, list[tuple[int, dict[int, float], float]]] = defaultdict(list)
        for number, job in enumerate(self.jobs):
            sites = find_sites(job.topology)
            model = SingleTreeModel(
                job.topology, sites, levels=levels, adjacent=adjacent, upgrades=0, clock=clock, keep=None
            )
            first = self._append(model.program)
            self._models.append(model)
            self._first.append(first)
            for resource, (terms, _, _) in zip(model.limited, model.limits):
                if (gbps := resource_gbps(job.topology, resource)) < INFINITY:
                    shared[resource].append((number, _shift(terms, first), gbps))
        self._shared = [users for users in shared.values() if len(users) > 1]

    def _append(self, other: LinearProgram) -> int:
        """Append the variables and rows of a program, and return the number of its first variable."""
        program, first = self.program, len(self.program.cost)
        program.cost += other.cost
        program.low += other.low
        program.high += other.high
        program.integer += other.integer
        program.rows += [(_shift(terms, first), low, high) for terms, low, high in other.rows]
        return first

    def bound_of_least(self, time_s: float) -> float:
        """Return a rate/weight that no plan gives to every job, by the linear relaxation; infinite if the time ends."""
        program, rows = self.program, len(self.program.rows)
        least = max(job.weight * model.t_min for job, model in zip(self.jobs, self._models))
        t = program.add_variable(least, cost=1.0)
        for job, model, first in zip(self.jobs, self._models, self._first):
            for terms, gbps, _ in model.limits:
                scaled = {variable: job.weight * size for variable, size in _shift(terms, first).items()}
                program.add_row(scaled | {t: -gbps}, -INFINITY, 0)
        for users in self._shared:
            program.add_row(self._joint(users, [job.weight for job in self.jobs]) | {t: -1.0}, -INFINITY, 0)
        found = program.solve(relaxed=True, time_s=time_s)
        del program.rows[rows:]
        for each in (program.cost, program.low, program.high, program.integer):
            del each[t]
        return 1 / (found.objective * (1 - EQUAL)) if found.status == "optimal" and found.objective > 0 else INFINITY

    def trees_at(self, rates: Sequence[float], time_s: float, *, tidy: bool = False) -> tuple[str, list[Tree]]:
        """Look for a tree for each job, at these rates.

        Parameters
        ----------
        rates : sequence of float
            Gb/s of each job, above 0.
        time_s : float
            Time limit in seconds.
        tidy : bool
            Return the trees with the least traffic on cables, as far as they are found in time.

        Returns
        -------
        status : str
            That of `Solution`: ``"infeasible"`` if it is proved that there are no such trees.
        trees : list of Tree
            The trees, at rate 0; none if none were found.
        """
        program, rows, cost = self.program, len(self.program.rows), self.program.cost
        for rate, model, first in zip(rates, self._models, self._first):
            if 1 / rate < model.t_min * (1 - EQUAL):
                return "infeasible", []
            program.rows += [(_shift(terms, first), low, high) for terms, low, high in model.rows_within(1 / rate)]
        for users in self._shared:
            program.add_row(self._joint(users, rates), -INFINITY, 1 + EQUAL)
        if tidy:
            program.cost = self._traffic(rates)
        found = program.solve(time_s=time_s)
        del program.rows[rows:]
        program.cost = cost
        if not found.values:
            return found.status, []
        return found.status, [model.tree(found.values[first:]) for model, first in zip(self._models, self._first)]

    def _joint(self, users: Sequence[tuple[int, dict[int, float], float]], rates: Sequence[float]) -> dict[int, float]:
        """Return the parts of a resource that streams of several jobs take at these rates, by variable."""
        return {
            variable: rates[job] * size / gbps if gbps else size
            for job, terms, gbps in users
            for variable, size in terms.items()
        }

    def _traffic(self, rates: Sequence[float]) -> list[float]:
        """Return the cost of each variable: the Gb/s of its streams on a cable."""
        cost = [0.0] * len(self.program.cost)
        for rate, model, first in zip(rates, self._models, self._first):
            job = model.topology.job
            for flow, size in ((model.gradient_flow, job.gradient_size), (model.partial_flow, job.partial_size)):
                for variable in flow.values():
                    cost[first + variable] = size * rate
            for variable in model.result_flow.values():
                cost[first + variable] = job.result_size * rate
            for variable in model.used:
                cost[first + variable] = 1e-3 * rate
        return cost


def _shift(terms: Mapping[int, float], first: int) -> dict[int, float]:
    return {first + variable: factor for variable, factor in terms.items()}

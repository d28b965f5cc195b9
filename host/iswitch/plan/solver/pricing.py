"""The pricing problem: the cheapest tree at given prices of resources.

Without capacities each stream takes a shortest path. Only the choice of the node that sums each
worker is left: a facility-location program with few variables.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from iswitch.plan.solver.arcs import Arc, can_sum_at
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.paths import ShortestPaths
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Resource, Tree
from iswitch.plan.topology.topology import Topology, TopologyError, natural_key

__all__ = ["PricingProblem"]

COST_MAX = 1e9
"""A cost for the solver instead of an infinite one, whose variable is 0 anyway."""


class _Variables(NamedTuple):
    """Numbers of the program's variables; g is a group of workers, a and b are positions in `ends`.

    homes : workers of group g whose home is a. used : 1 if site a sums. parents : 1 if b is the parent of site a.
    roots : 1 if site a is the root; empty if the topology has a ps.
    """

    homes: dict[tuple[int, int], int]
    used: list[int]
    parents: dict[tuple[int, int], int]
    roots: list[int]


class _Paths(NamedTuple):
    """Cheapest paths by the place where they end: of gradients, partial sums and results."""

    gradients: Mapping[str, ShortestPaths]
    partial_sums: Mapping[str, ShortestPaths]
    results: Mapping[str, ShortestPaths]


class PricingProblem:
    """Finds the tree whose loads cost the least.

    Parameters
    ----------
    topology : Topology
        The topology.
    sites : sequence of Site
        Places where sums can be formed, beside the ps.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    """

    def __init__(self, topology: Topology, sites: Sequence[Site], levels: int | None, adjacent: bool = False):
        self.topology, self.sites, self.levels, self.adjacent = topology, list(sites), levels, adjacent
        self.arcs, self.groups = PathTable.of(topology).arcs, topology.groups()
        self.ends = [*self.sites, Site(topology.ps)] if topology.ps else self.sites
        pairs = [[a, b] for b in range(len(self.sites)) for a in range(b)]
        self.known_cycles: list[list[int]] = [] if levels == 1 else pairs
        """Cycles of parents that earlier solutions had. They are cut off at all later prices."""

    def cheapest_tree(self, prices: Mapping[Resource, float], time_s: float = INFINITY) -> tuple[Tree, float] | None:
        """Return the cheapest tree, and a bound below the cost of every tree.

        Parameters
        ----------
        prices : mapping of Resource to float
            The price of 1 Gb/s of each resource; a resource without a price is free.
        time_s : float
            Time limit in seconds.

        Returns
        -------
        tuple of Tree and float, or None
            None if no tree was found in time.

        Raises
        ------
        TopologyError
            If no tree reaches all workers.
        """
        price = lambda kind, at, to="": max(prices.get(Resource(kind, at, to), 0.0), 0.0)
        paths = self._cheapest_paths(price)
        program = LinearProgram()
        variables = self._add_variables(program, price, paths)
        self._add_rows(program, variables)
        for cycle in self.known_cycles:
            self._cut_off(program, cycle, variables)
        began = time.perf_counter()
        found = program.solve(time_s=time_s)
        while found.values and (cycles := self._parent_cycles(found.values, variables)):
            for cycle in cycles:
                self._cut_off(program, cycle, variables)
            self.known_cycles += cycles
            found = program.solve(time_s=max(time_s - (time.perf_counter() - began), 0.0))
        if found.status == "infeasible":
            raise TopologyError(
                "no tree reaches all workers: raise `members` of the switches, or free bandwidth of cables"
            )
        if not found.values:
            return None
        return self._tree(found.values, variables, paths), found.bound + self._fixed_cost(price, paths)

    def _cheapest_paths(self, price: Callable[..., float]) -> _Paths:
        job = self.topology.job

        def toward_ends(size: float) -> dict[str, ShortestPaths]:
            result_size = job.result_size if job.multicast else 0.0
            cost: Callable[[Arc], float] = lambda arc: (
                size * price("link", *arc) + result_size * price("link", arc[1], arc[0])
            )
            return {end.at: ShortestPaths(end.at, self.arcs.toward(end.at, self.adjacent), cost) for end in self.ends}

        gradients, partial_sums = toward_ends(job.gradient_size), toward_ends(job.partial_size)
        results: dict[str, ShortestPaths] = {}
        if job.unicast:
            backward = [(to, at) for at, to in self.arcs.down]
            cost: Callable[[Arc], float] = lambda arc: job.result_size * price("link", arc[1], arc[0])
            results = {end.at: ShortestPaths(end.at, backward, cost) for end in self.ends}
        return _Paths(gradients, partial_sums, results)

    def _result_cost(self, root: str, paths: _Paths) -> float:
        """Return the cost of unicast results from a root to all groups; infinite if a group cannot be reached."""
        if not paths.results:
            return 0.0
        return sum(paths.results[root].cost.get(group.at, INFINITY) * len(group.workers) for group in self.groups)

    def _add_variables(self, program: LinearProgram, price: Callable[..., float], paths: _Paths) -> _Variables:
        topology, job, count = self.topology, self.topology.job, len(self.sites)
        sum_price = [price("ingress" if end.at == topology.ps else "capacity", end.at) for end in self.ends]
        homes = {}
        for g, group in enumerate(self.groups):
            for a, end in enumerate(self.ends):
                if group.at in paths.gradients[end.at].cost and can_sum_at(group, end.at, self.adjacent):
                    cost = paths.gradients[end.at].cost[group.at] + job.gradient_size * sum_price[a]
                    homes[g, a] = program.add_variable(0, len(group.workers), integer=True, cost=cost)
        used = [program.add_variable(0, 1, integer=True, cost=price("slots", site.at)) for site in self.sites]
        parents = {
            (a, b): program.add_variable(
                0, 1, integer=True, cost=paths.partial_sums[other.at].cost[site.at] + job.partial_size * sum_price[b]
            )
            for a, site in enumerate(self.sites)
            for b, other in enumerate(self.ends)
            if site.at != other.at
            and (self.levels != 1 or b == count or not topology.ps)
            and site.at in paths.partial_sums[other.at].cost
        }
        roots = []
        if not topology.ps:
            for site in self.sites:
                cost = self._result_cost(site.at, paths)
                reachable = 1 if cost < INFINITY else 0
                roots.append(program.add_variable(0, reachable, integer=True, cost=min(cost, COST_MAX)))
        return _Variables(homes, used, parents, roots)

    def _add_rows(self, program: LinearProgram, variables: _Variables) -> None:
        homes, used, parents, roots = variables
        count, row = len(self.sites), program.add_row
        for g, group in enumerate(self.groups):
            workers = len(group.workers)
            row({homes[g, a]: 1.0 for a in range(len(self.ends)) if (g, a) in homes}, workers, workers)
            for a in range(count):
                if (g, a) in homes:
                    row({homes[g, a]: 1.0, used[a]: -workers}, -INFINITY, 0)
        for a, site in enumerate(self.sites):
            above = {variable: 1.0 for (child, _), variable in parents.items() if child == a}
            row(above | {used[a]: -1.0} | ({roots[a]: 1.0} if roots else {}), 0, 0)
            if site.members is not None:
                into = {variable: 1.0 for pairs in (homes, parents) for (_, b), variable in pairs.items() if b == a}
                row(into, 0, site.members)
        if roots:
            row(dict.fromkeys(roots, 1.0), 1, 1)
        limited = self.levels is not None and self.levels > 1
        level = [program.add_variable(0, self.levels or 0) for _ in range(count)] if limited else []
        for (a, b), variable in parents.items():
            if b < count:
                row({variable: 1.0, (roots[b] if roots and self.levels == 1 else used[b]): -1.0}, -INFINITY, 0)
                if level:
                    row({level[a]: 1.0, level[b]: -1.0, variable: -(len(level) + 1.0)}, -len(level), INFINITY)

    def _fixed_cost(self, price: Callable[..., float], paths: _Paths) -> float:
        """Return the cost that every tree has: the cables of workers, and a ps's results."""
        job = self.topology.job
        fixed = self._result_cost(self.topology.ps, paths) if self.topology.ps else 0.0
        for group in self.groups:
            if group.at not in self.arcs.multi_homed:
                for worker in group.workers:
                    up, down = price("link", worker, group.at), price("link", group.at, worker)
                    fixed += job.gradient_size * up + job.result_size * down
        return fixed

    def _parent_cycles(self, values: list[float], variables: _Variables) -> list[list[int]]:
        """Return the cycles of parents in a solution.

        Rows against all possible cycles would be too many, and other rows against cycles are too weak.
        """
        parent = {a: b for (a, b), variable in variables.parents.items() if round(values[variable])}
        found: list[list[int]] = []
        done: set[int] = set()
        for start in parent:
            seen: list[int] = []
            while start in parent and start not in seen and start not in done:
                seen.append(start)
                start = parent[start]
            if start in seen:
                found.append(seen[seen.index(start) :])
            done.update(seen)
        return found

    def _cut_off(self, program: LinearProgram, cycle: list[int], variables: _Variables) -> None:
        """Demand that if one of these sites is used, one of them has a parent outside, or is the root."""
        inside = {variable: 1.0 for (a, b), variable in self._pairs(cycle, variables)}
        every = {variables.used[site]: -1.0 for site in cycle}
        for site in cycle:
            program.add_row(inside | every | {variables.used[site]: 0.0}, -INFINITY, 0)

    def _pairs(self, cycle: list[int], variables: _Variables) -> list[tuple[tuple[int, int], int]]:
        pairs = [(a, b) for a in cycle for b in cycle if (a, b) in variables.parents]
        return [(pair, variables.parents[pair]) for pair in pairs]

    def _tree(self, values: list[float], variables: _Variables, paths: _Paths) -> Tree:
        """Return the tree of a solution."""
        homes: dict[str, str] = {}
        up: dict[str, tuple[str, ...]] = {}
        down: dict[str, tuple[str, ...]] = {}
        root = self.topology.ps or next(
            site.at for site, variable in zip(self.sites, variables.roots) if round(values[variable])
        )
        for g, group in enumerate(self.groups):
            waiting = list(group.workers)
            nearest_first = sorted(
                enumerate(self.ends), key=lambda item: (item[1].at != group.at, natural_key(item[1].at))
            )
            for a, end in nearest_first:
                for _ in range(round(values[variables.homes[g, a]]) if (g, a) in variables.homes else 0):
                    worker = waiting.pop(0)
                    homes[worker] = end.at
                    path = paths.gradients[end.at].path(group.at)
                    up[worker] = path if group.at == worker else (worker, *path)
                    if paths.results:
                        path = paths.results[root].path(group.at)[::-1]
                        down[worker] = path if group.at == worker else (*path, worker)
        parent = {
            self.sites[a].at: self.ends[b].at
            for (a, b), variable in variables.parents.items()
            if round(values[variable])
        }
        parents: dict[str, str] = {}
        for switch in homes.values():
            while switch != root and switch not in parents:
                parents[switch] = parent[switch]
                up[switch] = paths.partial_sums[parent[switch]].path(switch)
                switch = parent[switch]
        return Tree(rate_gbps=0.0, root=root, homes=homes, parents=parents, up=up, down=down)

"""The cheapest tree at given prices of resources.

Without capacities each stream takes a shortest way, so what is left is to choose who is summed where: a
facility-location program of few variables.
"""

import time
from collections.abc import Mapping, Sequence

from iswitch.plan.solver.arcs import Arcs, reaches
from iswitch.plan.solver.linear_program import INFINITY, Program
from iswitch.plan.solver.paths import Ways
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Resource, Tree
from iswitch.plan.topology.topology import Topology, TopologyError, natural_key

__all__ = ["Pricing"]


class Pricing:
    """Finds the tree whose loads cost the least."""

    def __init__(self, topology: Topology, sites: Sequence[Site], levels: int | None, adjacent: bool = False):
        self.topology, self.sites, self.levels, self.adjacent = topology, list(sites), levels, adjacent
        self.arcs, self.groups = Arcs(topology), topology.groups()
        self.ends = [*self.sites, Site(topology.ps)] if topology.ps else self.sites
        self.known: list[list[int]] = [] if levels == 1 else [[a, b] for b in range(len(self.sites)) for a in range(b)]
        """Circles that have been met: they are none at other prices either."""

    def cheapest(self, prices: Mapping[Resource, float], time_s: float = INFINITY) -> tuple[Tree, float] | None:
        """(the tree, a bound below which no tree's cost is), or nothing where the time was too short."""
        topology, job = self.topology, self.topology.job
        price = lambda kind, at, to="": max(prices.get(Resource(kind, at, to), 0.0), 0.0)

        def along(size: float) -> "dict[str, Ways]":
            back = job.result_size if job.multicast else 0.0
            cost = lambda arc: size * price("link", *arc) + back * price("link", arc[1], arc[0])
            return {end.at: Ways(end.at, self.arcs.toward(end.at, self.adjacent), cost) for end in self.ends}

        gradients, sums = along(job.gradient_size), along(job.partial_size)
        results: dict[str, Ways] = {}
        if job.unicast:
            turned = lambda arc: job.result_size * price("link", arc[1], arc[0])
            results = {end.at: Ways(end.at, [(to, at) for at, to in self.arcs.down], turned) for end in self.ends}
        taking = [price("ingress" if end.at == topology.ps else "capacity", end.at) for end in self.ends]
        program, count = Program(), len(self.sites)
        x = {}
        for g, group in enumerate(self.groups):
            for a, end in enumerate(self.ends):
                if group.at in gradients[end.at].cost and reaches(group, end.at, self.adjacent):
                    cost = gradients[end.at].cost[group.at] + job.gradient_size * taking[a]
                    x[g, a] = program.variable(0, len(group.workers), integer=True, cost=cost)
        u = [program.variable(0, 1, integer=True, cost=price("slots", site.at)) for site in self.sites]
        y = {
            (a, b): program.variable(
                0, 1, integer=True, cost=sums[other.at].cost[site.at] + job.partial_size * taking[b]
            )
            for a, site in enumerate(self.sites)
            for b, other in enumerate(self.ends)
            if site.at != other.at
            and (self.levels != 1 or b == count or not topology.ps)
            and site.at in sums[other.at].cost
        }
        home = lambda root: (
            sum(results[root].cost.get(group.at, INFINITY) * len(group.workers) for group in self.groups)
            if results
            else 0.0
        )
        z = (
            []
            if topology.ps
            else [
                program.variable(0, 1 if home(site.at) < INFINITY else 0, integer=True, cost=min(home(site.at), 1e9))
                for site in self.sites
            ]
        )
        self._rows(program, x, u, y, z)
        for circle in self.known:
            self._open(program, circle, u, y, z)
        # What is the same for every tree: workers' own cables, and a ps's results
        fixed = home(topology.ps) if topology.ps else 0.0
        for group in self.groups:
            if group.at not in self.arcs.lone:
                for worker in group.workers:
                    fixed += job.gradient_size * price("link", worker, group.at) + job.result_size * price(
                        "link", group.at, worker
                    )
        began = time.perf_counter()
        found = program.solve(time_s=time_s)
        while found.values and (circles := self._circles(found.values, y)):
            for circle in circles:
                self._open(program, circle, u, y, z)
            self.known += circles
            found = program.solve(time_s=max(time_s - (time.perf_counter() - began), 0.0))
        if found.status == "infeasible":
            raise TopologyError(
                "no tree reaches all workers: raise `members` of the switches, or free bandwidth of cables"
            )
        if not found.values:
            return None
        tree = self._tree(found.values, x, y, z, gradients, sums, results)
        return tree, found.bound + fixed

    def _rows(
        self, program: Program, x: dict[tuple[int, int], int], u: list[int], y: dict[tuple[int, int], int], z: list[int]
    ) -> None:
        count, row = len(self.sites), program.row
        for g, group in enumerate(self.groups):
            row({x[g, a]: 1.0 for a in range(len(self.ends)) if (g, a) in x}, len(group.workers), len(group.workers))
            for a in range(count):
                if (g, a) in x:
                    row({x[g, a]: 1.0, u[a]: -len(group.workers)}, -INFINITY, 0)
        for a, site in enumerate(self.sites):
            row(
                {variable: 1.0 for (child, _), variable in y.items() if child == a}
                | {u[a]: -1.0}
                | ({z[a]: 1.0} if z else {}),
                0,
                0,
            )
            if site.members is not None:
                row(
                    {variable: 1.0 for pairs in (x, y) for (_, b), variable in pairs.items() if b == a}, 0, site.members
                )
        if z:
            row(dict.fromkeys(z, 1.0), 1, 1)
        level = [program.variable(0, self.levels) for _ in range(count)] if self.levels and self.levels > 1 else []
        for (a, b), variable in y.items():
            if b < count:
                row({variable: 1.0, (z[b] if z and self.levels == 1 else u[b]): -1.0}, -INFINITY, 0)
                if level:
                    row({level[a]: 1.0, level[b]: -1.0, variable: -(len(level) + 1.0)}, -len(level), INFINITY)

    def _circles(self, values: list[float], y: Mapping[tuple[int, int], int]) -> list[list[int]]:
        """Sites whose parents go round. (Rows against all circles there could be are too many, and others too weak.)"""
        above = {a: b for (a, b), variable in y.items() if round(values[variable])}
        found: list[list[int]] = []
        done: set[int] = set()
        for start in above:
            seen: list[int] = []
            while start in above and start not in seen and start not in done:
                seen.append(start)
                start = above[start]
            if start in seen:
                found.append(seen[seen.index(start) :])
            done.update(seen)
        return found

    def _open(
        self, program: Program, circle: list[int], u: list[int], y: Mapping[tuple[int, int], int], z: list[int]
    ) -> None:
        """If one of these is used, there is a way out of them, or the root is one."""
        out = {variable: 1.0 for (a, b), variable in y.items() if a in circle and b not in circle}
        for one in circle:
            program.row(out | {z[a]: 1.0 for a in circle if z} | {u[one]: -1.0}, 0, INFINITY)

    def _tree(
        self,
        values: list[float],
        x: dict[tuple[int, int], int],
        y: dict[tuple[int, int], int],
        z: list[int],
        gradients: Mapping[str, Ways],
        sums: Mapping[str, Ways],
        results: Mapping[str, Ways],
    ) -> Tree:
        homes: dict[str, str] = {}
        up: dict[str, tuple[str, ...]] = {}
        down: dict[str, tuple[str, ...]] = {}
        root = self.topology.ps or next(site.at for site, variable in zip(self.sites, z) if round(values[variable]))
        for g, group in enumerate(self.groups):
            waiting = list(group.workers)
            for a, end in sorted(
                enumerate(self.ends), key=lambda item: (item[1].at != group.at, natural_key(item[1].at))
            ):
                for _ in range(round(values[x[g, a]]) if (g, a) in x else 0):
                    worker = waiting.pop(0)
                    homes[worker] = end.at
                    path = gradients[end.at].path(group.at)
                    up[worker] = path if group.at == worker else (worker, *path)
                    if results:
                        path = results[root].path(group.at)[::-1]
                        down[worker] = path if group.at == worker else (*path, worker)
        above = {self.sites[a].at: self.ends[b].at for (a, b), variable in y.items() if round(values[variable])}
        parents: dict[str, str] = {}
        for switch in homes.values():
            while switch != root and switch not in parents:
                parents[switch] = above[switch]
                up[switch] = sums[above[switch]].path(switch)
                switch = above[switch]
        return Tree(rate_gbps=0.0, root=root, homes=homes, parents=parents, up=up, down=down)

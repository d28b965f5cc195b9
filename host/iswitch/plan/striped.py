"""Several trees that share the gradient: fragments go along tree k in proportion to its rate.

A packing of trees into resources, solved by generating trees: the linear program over those known gives each resource a price, and the tree that is
cheapest at these prices is added, until none costs less than it brings. Ways then need no capacities, so that tree is a small facility-location
program over shortest ways. Every round proves a bound: rates at which the cheapest tree costs 1 are what no packing exceeds.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from iswitch.plan.exact import Site, sites as all_sites
from iswitch.plan.flow import Arcs
from iswitch.plan.program import INFINITY, Program
from iswitch.plan.prices import fixed_prices
from iswitch.plan.topology import Topology, TopologyError, natural
from iswitch.plan.tree import Plan, Resource, Tree, capacities, fitted, loads
from iswitch.plan.ways import Ways

__all__ = ["Pricing", "several_trees"]

ENOUGH = 1e-7


class Pricing:
    """Finds the tree whose loads cost the least."""

    def __init__(self, topology: Topology, sites: Sequence[Site], levels: int | None):
        self.topology, self.sites, self.levels = topology, list(sites), levels
        self.arcs, self.groups = Arcs(topology), topology.groups()
        self.ends = [*self.sites, Site(topology.ps)] if topology.ps else self.sites

    def cheapest(self, prices: Mapping[Resource, float], time_s: float = INFINITY) -> tuple[Tree, float]:
        """(the tree, a bound below which no tree's cost is)."""
        topology, job = self.topology, self.topology.job
        price = lambda kind, at, to="": max(prices.get(Resource(kind, at, to), 0.0), 0.0)

        def along(size: float) -> "dict[str, Ways]":
            back = job.result_size if job.multicast else 0.0
            cost = lambda arc: size * price("link", *arc) + back * price("link", arc[1], arc[0])
            return {end.at: Ways(end.at, self.arcs.toward(end.at), cost) for end in self.ends}

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
                if group.at in gradients[end.at].cost:
                    cost = gradients[end.at].cost[group.at] + job.gradient_size * taking[a]
                    x[g, a] = program.variable(0, len(group.workers), integer=True, cost=cost)
        u = [program.variable(0, 1, integer=True, cost=price("slots", site.at)) for site in self.sites]
        y = {(a, b): program.variable(0, 1, integer=True, cost=sums[other.at].cost[site.at] + job.partial_size * taking[b])
             for a, site in enumerate(self.sites) for b, other in enumerate(self.ends)
             if site.at != other.at and (self.levels != 1 or b == count or not topology.ps) and site.at in sums[other.at].cost}
        home = lambda root: sum(results[root].cost.get(group.at, INFINITY) * len(group.workers) for group in self.groups) if results else 0.0
        z = [] if topology.ps else [program.variable(0, 1 if home(site.at) < INFINITY else 0, integer=True, cost=min(home(site.at), 1e9)) for site in self.sites]
        self._rows(program, x, u, y, z)
        # What is the same for every tree: workers' own cables, and a ps's results
        fixed = home(topology.ps) if topology.ps else 0.0
        for group in self.groups:
            if group.at not in self.arcs.lone:
                for worker in group.workers:
                    fixed += job.gradient_size * price("link", worker, group.at) + job.result_size * price("link", group.at, worker)
        found = program.solve(time_s=time_s)
        if not found.values:
            raise TopologyError("no tree reaches all workers; look at members, and at cables with nothing left")
        tree = self._tree(found.values, x, y, z, gradients, sums, results)
        return tree, found.bound + fixed

    def _rows(self, program: Program, x: dict[tuple[int, int], int], u: list[int], y: dict[tuple[int, int], int], z: list[int]) -> None:
        count, row = len(self.sites), program.row
        for g, group in enumerate(self.groups):
            row({x[g, a]: 1.0 for a in range(len(self.ends)) if (g, a) in x}, len(group.workers), len(group.workers))
            for a in range(count):
                if (g, a) in x:
                    row({x[g, a]: 1.0, u[a]: -len(group.workers)}, -INFINITY, 0)
        for a, site in enumerate(self.sites):
            row({variable: 1.0 for (child, _), variable in y.items() if child == a} | {u[a]: -1.0} | ({z[a]: 1.0} if z else {}), 0, 0)
            if site.members is not None:
                row({variable: 1.0 for pairs in (x, y) for (_, b), variable in pairs.items() if b == a}, 0, site.members)
        if z:
            row(dict.fromkeys(z, 1.0), 1, 1)
        deepest = min(self.levels or count, count)
        level = [program.variable(0, deepest) for _ in range(count)]
        for (a, b), variable in y.items():
            if b < count:
                row({variable: 1.0, (z[b] if z and self.levels == 1 else u[b]): -1.0}, -INFINITY, 0)
                if self.levels != 1:
                    row({level[a]: 1.0, level[b]: -1.0, variable: -(deepest + 1.0)}, -deepest, INFINITY)

    def _tree(self, values: list[float], x: dict[tuple[int, int], int], y: dict[tuple[int, int], int], z: list[int],
              gradients: Mapping[str, Ways], sums: Mapping[str, Ways], results: Mapping[str, Ways]) -> Tree:
        homes: dict[str, str] = {}
        up: dict[str, tuple[str, ...]] = {}
        down: dict[str, tuple[str, ...]] = {}
        root = self.topology.ps or next(site.at for site, variable in zip(self.sites, z) if round(values[variable]))
        for g, group in enumerate(self.groups):
            waiting = list(group.workers)
            for a, end in sorted(enumerate(self.ends), key=lambda item: (item[1].at != group.at, natural(item[1].at))):
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


def several_trees(topology: Topology, *, levels: int | None = 1, time_s: float = 60.0, start: Sequence[Tree] = (),
                  sites: Sequence[Site] | None = None, scheme: str | None = None) -> Plan:
    """The best packing of trees of at most `levels` switches before the root (None: any number), from `start` and what is found. TopologyError."""
    began = time.perf_counter()
    left = lambda: time_s - (time.perf_counter() - began)
    pricing = Pricing(topology, all_sites(topology) if sites is None else sites, levels)
    room = capacities(topology)
    columns = [*start, pricing.cheapest({resource: 1 / gbps for resource, gbps in room.items() if gbps})[0]]
    known = [loads(topology, tree) for tree in columns]
    bound, rates = INFINITY, [0.0]
    while True:
        program = Program()
        share = [program.variable(cost=-1.0) for _ in columns]
        on: dict[Resource, dict[int, float]] = {}
        for variable, load in zip(share, known):
            for resource, gbps in load.items():
                if resource in room:
                    on.setdefault(resource, {})[variable] = gbps
        rows = {resource: program.row(terms, -INFINITY, room[resource]) for resource, terms in on.items()}
        master = program.solve()
        rates = master.values
        prices = {resource: -master.duals[row] for resource, row in rows.items()}
        if left() <= 0:
            break
        tree, cost = pricing.cheapest(prices, left())
        if cost > 0:
            bound = min(bound, -master.objective / cost)
        load = loads(topology, tree)
        actual = sum(prices.get(resource, 0.0) * gbps for resource, gbps in load.items())
        if actual >= 1 - ENOUGH or load in known:
            break
        columns.append(tree)
        known.append(load)
    seconds = time.perf_counter() - began
    trees = _packed(topology, [replace(tree, rate_gbps=rate) for tree, rate in zip(columns, rates) if rate > ENOUGH])
    rate = sum(tree.rate_gbps for tree in trees)
    name = scheme or ("several trees, one level" if levels == 1 else "several trees, summed again")
    return Plan(scheme=name, trees=trees, bound_gbps=rate if rate <= bound <= rate * (1 + 1e-6) else max(bound, rate),
                prices=fixed_prices(topology, trees), seconds=seconds)


def _packed(topology: Topology, trees: list[Tree]) -> tuple[Tree, ...]:
    """Rates just so that nothing is too full, whatever a solver's tolerance was; the fastest tree first."""
    if len(trees) == 1:
        return (fitted(topology, trees[0]),)
    room, total = capacities(topology), dict[Resource, float]()
    for tree in trees:
        for resource, load in loads(topology, tree).items():
            total[resource] = total.get(resource, 0.0) + load * tree.rate_gbps
    scale = min((room[resource] / load for resource, load in total.items() if resource in room), default=1.0)
    return tuple(sorted((replace(tree, rate_gbps=tree.rate_gbps * min(scale, 1.0)) for tree in trees), key=lambda tree: -tree.rate_gbps))



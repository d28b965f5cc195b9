"""The fastest single tree, proved: a small integer program.

All workers send at one rate r in a best plan, so with t = 1/r every row is linear: streams on a resource, in their sizes, <= what it has x t. Workers
that nothing tells apart are whole numbers, streams to one place a flow of whole numbers, and t is minimised.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from iswitch.plan.flow import Arcs, decompose
from iswitch.plan.prices import fixed_prices
from iswitch.plan.program import INFINITY, Program, Solution
from iswitch.plan.topology import Group, Topology, TopologyError, natural
from iswitch.plan.tree import Plan, Tree, fitted

__all__ = ["Site", "Upgrade", "one_tree"]

TIDY_S = 2.0
"""For the search of a plan of the same rate with the least traffic; the rate is proved before."""


class Upgrade(NamedTuple):
    """At most `count` switches may be made to aggregate with this capacity."""

    count: int
    capacity_gbps: float


class Site(NamedTuple):
    """A place where sums can be formed: a switch, as it is or upgraded, or the ps."""

    at: str
    capacity_gbps: float = INFINITY
    slots: int | None = None
    members: int | None = None
    upgraded: bool = False


class _Model:
    """Variables and rows. `sites` may sum; sums end at the ps, or at one of the sites."""

    def __init__(self, topology: Topology, sites: Sequence[Site], *, levels: int | None, adjacent: bool, upgrades: int):
        self.topology, self.sites, self.groups = topology, list(sites), topology.groups()
        self.arcs = Arcs(topology)
        program = self.program = Program()
        job = topology.job
        self.t = program.variable(cost=1.0)
        ends = [*self.sites, Site(topology.ps)] if topology.ps else self.sites
        self.x = {(g, a): program.variable(0, len(group.workers), integer=True) for g, group in enumerate(self.groups) for a in range(len(ends))}
        self.u = [program.variable(0, 1, integer=True) for _ in self.sites]
        self.z = [] if topology.ps else [program.variable(0, 1, integer=True) for _ in self.sites]
        self.y = {(a, b): program.variable(0, 1, integer=True) for a, site in enumerate(self.sites) for b, other in enumerate(ends)
                  if site.at != other.at and (levels != 1 or b == len(self.sites) or not topology.ps)}
        self.ends = ends
        self._assign(levels)
        places = sorted({end.at for end in ends}, key=natural)
        total = sum(len(group.workers) for group in self.groups)
        arcs = {place: self.arcs.toward(place, adjacent) for place in places}
        self.f = {(place, arc): program.variable(0, total, integer=True) for place in places for arc in arcs[place]}
        self.h = {(place, arc): program.variable(0, len(sites), integer=True) for place in places for arc in arcs[place] if arc[0] not in self.arcs.lone
                  and any(ends[b].at == place for _, b in self.y)}
        for place in places:
            self._flow(self.f, place, {group.at: {self.x[g, a]: 1.0 for a, end in enumerate(ends) if end.at == place}
                                       for g, group in self._merged()}, arcs[place])
            demand: dict[str, dict[int, float]] = defaultdict(dict)
            for (a, b), variable in self.y.items():
                if ends[b].at == place:
                    demand[self.sites[a].at][variable] = 1.0
            self._flow(self.h, place, demand, arcs[place])
        self.d: dict[tuple[str, str], int] = {}
        if job.unicast:
            self._unicast(total)
        self._resources()
        if upgrades:
            program.row({self.u[a]: 1.0 for a, site in enumerate(self.sites) if site.upgraded}, 0, upgrades)

    def _merged(self) -> list[tuple[int, Group]]:
        return list(enumerate(self.groups))

    def _assign(self, levels: int | None) -> None:
        """Each worker has one home, each site that is used one parent or is the root, and no circle of parents."""
        row, count = self.program.row, len(self.sites)
        for g, group in enumerate(self.groups):
            row({self.x[g, a]: 1.0 for a in range(len(self.ends))}, len(group.workers), len(group.workers))
            for a in range(count):
                row({self.x[g, a]: 1.0, self.u[a]: -len(group.workers)}, -INFINITY, 0)
        for a in range(count):
            row({self.y[a, b]: 1.0 for b in range(len(self.ends)) if (a, b) in self.y} | {self.u[a]: -1.0} | ({self.z[a]: 1.0} if self.z else {}), 0, 0)
        if self.z:
            row(dict.fromkeys(self.z, 1.0), 1, 1)
        for a in range(count):
            for b in range(a):
                if self.sites[a].at == self.sites[b].at:
                    row({self.u[a]: 1.0, self.u[b]: 1.0}, -INFINITY, 1)
        deepest = min(levels or count, count)
        level = [self.program.variable(0, deepest) for _ in range(count)]
        for (a, b), variable in self.y.items():
            if b == count:
                continue
            row({variable: 1.0, (self.z[b] if self.z and levels == 1 else self.u[b]): -1.0}, -INFINITY, 0)
            if levels != 1:
                row({level[a]: 1.0, level[b]: -1.0, variable: -(deepest + 1.0)}, -deepest, INFINITY)

    def _flow(self, flow: dict[tuple[str, tuple[str, str]], int], place: str, supply: dict[str, dict[int, float]],
              arcs: list[tuple[str, str]]) -> None:
        """What leaves a node, but for what comes in, is what begins there."""
        terms: dict[str, dict[int, float]] = {node: defaultdict(float) for node in self.arcs.nodes if node != place}
        for at, to in arcs:
            if (variable := flow.get((place, (at, to)))) is not None:
                terms[at][variable] += 1.0
                if to != place:
                    terms[to][variable] -= 1.0
        for node, row in terms.items():
            for variable, factor in supply.get(node, {}).items():
                row[variable] -= factor
            if row:
                self.program.row(row, 0, 0)

    def _unicast(self, total: int) -> None:
        terms: dict[str, dict[int, float]] = {node: {} for node in self.arcs.nodes}
        for arc in self.arcs.down:
            variable = self.d[arc] = self.program.variable(0, total, integer=True)
            terms[arc[0]][variable] = -1.0
            terms[arc[1]][variable] = 1.0
        for a, site in enumerate(self.sites):
            if self.z:
                terms[site.at][self.z[a]] = float(total)
        for node, row in terms.items():
            here = sum(len(group.workers) for group in self.groups if group.at == node)
            wanted = here - (total if node == self.topology.ps else 0)
            if row or wanted:
                self.program.row(row, wanted, wanted)

    def _resources(self) -> None:
        """The rows whose duals are prices: for each, -what it has x t + load <= 0."""
        topology, job, program = self.topology, self.topology.job, self.program
        self.rows: dict[tuple[str, str, str], int] = {}

        def limit(kind: str, at: str, to: str, gbps: float, terms: dict[int, float]) -> None:
            if terms and gbps < INFINITY:
                self.rows[kind, at, to] = program.row(terms | {self.t: -gbps}, -INFINITY, 0)

        on: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for flow, size in ((self.f, job.gradient_size), (self.h, job.partial_size)):
            for (_, (at, to)), variable in flow.items():
                on[at, to][variable] += size
                if job.multicast:
                    on[to, at][variable] += job.result_size
        for arc, variable in self.d.items():
            on[arc][variable] += job.result_size
        for (at, to), terms in on.items():
            limit("link", at, to, topology.free_gbps(at, to), terms)
        for group in self.groups:
            if group.at not in self.arcs.lone:
                program.row({self.t: group.nic_gbps}, job.gradient_size, INFINITY)
        for b, end in enumerate(self.ends):
            into = {self.x[g, b]: job.gradient_size for g in range(len(self.groups))} | {
                variable: job.partial_size for (_, to), variable in self.y.items() if to == b}
            if end.at == topology.ps:
                limit("ingress", end.at, "", topology.graph.nodes[end.at].get("ingress_gbps", INFINITY), into)
                continue
            limit("capacity", end.at, "", end.capacity_gbps, into)
            if end.slots is not None:
                limit("slots", end.at, "", job.slots_gbps(end.slots), {self.u[b]: 1.0})
            if end.members is not None:
                program.row(dict.fromkeys(into, 1.0), 0, end.members)

    def tidy(self, best: Solution) -> Solution:
        """Another solution with the t of `best`, and the least traffic on links."""
        program, cost = self.program, self.program.cost
        job, high = self.topology.job, self.program.high[self.t]
        program.cost, program.high[self.t] = [0.0] * len(cost), best.objective * (1 + 1e-9)
        for flow, size in ((self.f, job.gradient_size), (self.h, job.partial_size)):
            for variable in flow.values():
                program.cost[variable] = size
        for variable in self.d.values():
            program.cost[variable] = job.result_size
        for variable in self.u:
            program.cost[variable] = 1e-3
        found = program.solve(time_s=TIDY_S, start=best.values)
        program.cost, program.high[self.t] = cost, high
        return found if found.values else best

    def tree(self, values: list[float]) -> Tree:
        """What a solution says."""
        whole = lambda variable: round(values[variable])
        root = self.topology.ps or next(site.at for site, variable in zip(self.sites, self.z) if whole(variable))
        homes, up = {}, {}
        streams = {place: {arc: whole(variable) for (to, arc), variable in self.f.items() if to == place} for place in {end.at for end in self.ends}}
        sums = {place: {arc: whole(variable) for (to, arc), variable in self.h.items() if to == place} for place in streams}
        for g, group in enumerate(self.groups):
            waiting = list(group.workers)
            for a, end in sorted(enumerate(self.ends), key=lambda item: (item[1].at != group.at, natural(item[1].at))):
                for _ in range(whole(self.x[g, a])):
                    worker = waiting.pop(0)
                    homes[worker] = end.at
                    path = decompose(streams[end.at], group.at, end.at)
                    up[worker] = path if group.at == worker else (worker, *path)
        above = {self.sites[a].at: self.ends[b].at for (a, b), variable in self.y.items() if whole(variable)}
        alive = _alive(homes, above, root)
        parents = {switch: parent for switch, parent in above.items() if switch in alive}
        for switch, parent in above.items():
            path = decompose(sums[parent], switch, parent)
            if switch in alive:
                up[switch] = path
        down = {}
        if self.topology.job.unicast:
            back = {arc: whole(variable) for arc, variable in self.d.items()}
            for group in self.groups:
                for worker in group.workers:
                    path = decompose(back, root, group.at)
                    down[worker] = path if group.at == worker else (*path, worker)
        order = sorted(homes, key=natural)
        return Tree(rate_gbps=0.0, root=root, homes={worker: homes[worker] for worker in order},
                    parents={switch: parents[switch] for switch in sorted(parents, key=natural)},
                    up={child: up[child] for child in (*order, *sorted(parents, key=natural))}, down={worker: down[worker] for worker in order if down})


def _alive(homes: dict[str, str], parents: dict[str, str], root: str) -> set[str]:
    """Switches that sum anything."""
    found: set[str] = set()
    for switch in homes.values():
        while switch != root and switch not in found:
            found.add(switch)
            switch = parents[switch]
    return found


def sites(topology: Topology, upgrade: Upgrade | None = None) -> list[Site]:
    found = []
    for switch in topology.switches:
        data = topology.graph.nodes[switch]
        now = data["capacity_gbps"] if data["aggregates"] else 0.0
        if now:
            found.append(Site(switch, now, data.get("slots"), data.get("members")))
        if upgrade and upgrade.count and upgrade.capacity_gbps > now:
            found.append(Site(switch, upgrade.capacity_gbps, None, None, True))
    return found


def one_tree(topology: Topology, *, levels: int | None = 1, time_s: float = 60.0, adjacent: bool = False, upgrade: Upgrade | None = None) -> Plan:
    """The best tree in which a gradient is summed by at most `levels` switches before the root (None: any number). adjacent: members are neighbours
    of who sums them, as the emulated fabric needs it. TopologyError if there is none, or none was found in time."""
    if levels is not None and levels < 1:
        raise ValueError(f"levels must be at least 1 or None, not {levels!r}")
    if not time_s > 0:
        raise ValueError(f"time_s must be above 0, not {time_s!r}")
    scheme = "one tree, one level" if levels == 1 else "one tree, summed again"
    model = _Model(topology, sites(topology, upgrade), levels=levels, adjacent=adjacent, upgrades=upgrade.count if upgrade else 0)
    best = model.program.solve(time_s=time_s)
    if best.status == "infeasible":
        raise TopologyError(f"{scheme}: no tree reaches all workers; look at members, and at cables with nothing left")
    if not best.values:
        raise TopologyError(f"{scheme}: no tree was found within {time_s:g} s")
    tree = fitted(topology, model.tree(model.tidy(best).values))
    bound = 1 / best.bound if best.bound > 0 else INFINITY
    return Plan(scheme=scheme, trees=(tree,), bound_gbps=max(bound, tree.rate_gbps) if bound < tree.rate_gbps * (1 + 1e-6) else bound,
                prices=fixed_prices(topology, (tree,)), seconds=best.seconds)

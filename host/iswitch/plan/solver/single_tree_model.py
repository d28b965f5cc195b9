"""One tree as a program of whole numbers: who is summed where, which switch has which parent, over which cables."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from iswitch.plan.solver.arcs import Arcs, decompose, reaches
from iswitch.plan.solver.linear_program import INFINITY, Program, Solution
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Tree
from iswitch.plan.topology.topology import Topology, TopologyError, natural_key

__all__ = ["SAME", "Model"]

SAME = 1e-9
TIDY_S = 2.0
"""For the search of a plan of the same rate with the least traffic; the rate is proved before."""


class Model:
    """Variables and rows. `sites` may sum; sums end at the ps, or at one of the sites."""

    def __init__(self, topology: Topology, sites: Sequence[Site], *, levels: int | None, adjacent: bool, upgrades: int):
        self.topology, self.sites, self.groups = topology, list(sites), topology.groups()
        self.arcs = Arcs(topology)
        program = self.program = Program()
        job = topology.job
        ends = [*self.sites, Site(topology.ps)] if topology.ps else self.sites
        self.x = {
            (g, a): program.variable(0, len(group.workers) if reaches(group, end.at, adjacent) else 0, integer=True)
            for g, group in enumerate(self.groups)
            for a, end in enumerate(ends)
        }
        self.u = [program.variable(0, 1, integer=True) for _ in self.sites]
        self.z = [] if topology.ps else [program.variable(0, 1, integer=True) for _ in self.sites]
        self.y = {
            (a, b): program.variable(0, 1, integer=True)
            for a, site in enumerate(self.sites)
            for b, other in enumerate(ends)
            if site.at != other.at and (levels != 1 or b == len(self.sites) or not topology.ps)
        }
        self.ends = ends
        self._assign(levels)
        places = sorted({end.at for end in ends}, key=natural_key)
        total = sum(len(group.workers) for group in self.groups)
        arcs = {place: self.arcs.toward(place, adjacent) for place in places}
        self.f = {(place, arc): program.variable(0, total, integer=True) for place in places for arc in arcs[place]}
        self.h = {
            (place, arc): program.variable(0, len(sites), integer=True)
            for place in places
            for arc in arcs[place]
            if arc[0] not in self.arcs.lone and any(ends[b].at == place for _, b in self.y)
        }
        for place in places:
            begins: dict[str, dict[int, float]] = defaultdict(dict)
            for (g, a), variable in self.x.items():
                if ends[a].at == place:
                    begins[self.groups[g].at][variable] = 1.0
            self._flow(self.f, place, begins, arcs[place])
            demand: dict[str, dict[int, float]] = defaultdict(dict)
            for (a, b), variable in self.y.items():
                if ends[b].at == place:
                    demand[self.sites[a].at][variable] = 1.0
            self._flow(self.h, place, demand, arcs[place])
        self.d: dict[tuple[str, str], int] = {}
        if job.unicast:
            self._unicast(total)
        self._resources()
        # What a resource can carry: gradients one way, results of all streams the other way, partial sums
        most = 2 * total + len(self.sites)
        streams = (
            np.arange(most + 1)[:, None] * job.gradient_size
            + np.arange(len(self.sites) + 1)[None, :] * job.partial_size
        )
        self.sums = np.unique(np.concatenate((streams.ravel(), [1.0])))
        if upgrades:
            program.row({self.u[a]: 1.0 for a, site in enumerate(self.sites) if site.upgraded}, 0, upgrades)

    def _assign(self, levels: int | None) -> None:
        """Each worker has one home, each site that is used one parent or is the root, and no circle of parents."""
        row, count = self.program.row, len(self.sites)
        for g, group in enumerate(self.groups):
            row({self.x[g, a]: 1.0 for a in range(len(self.ends))}, len(group.workers), len(group.workers))
            for a in range(count):
                row({self.x[g, a]: 1.0, self.u[a]: -len(group.workers)}, -INFINITY, 0)
        for a in range(count):
            above = {self.y[a, b]: 1.0 for b in range(len(self.ends)) if (a, b) in self.y}
            row(above | {self.u[a]: -1.0} | ({self.z[a]: 1.0} if self.z else {}), 0, 0)
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

    def _flow(
        self,
        flow: dict[tuple[str, tuple[str, str]], int],
        place: str,
        supply: dict[str, dict[int, float]],
        arcs: list[tuple[str, str]],
    ) -> None:
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
        """What is to be limited: [(streams and their sizes, Gb/s, the site's `u` if it is one that need not be
        used)]."""
        topology, job = self.topology, self.topology.job
        self.limits: list[tuple[dict[int, float], float, int | None]] = []
        on: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for flow, size in ((self.f, job.gradient_size), (self.h, job.partial_size)):
            for (_, (at, to)), variable in flow.items():
                on[at, to][variable] += size
                if job.multicast:
                    on[to, at][variable] += job.result_size
        for arc, variable in self.d.items():
            on[arc][variable] += job.result_size
        self.limits += [(dict(terms), topology.free_gbps(*arc), None) for arc, terms in on.items()]
        single = [group for group in self.groups if group.at not in self.arcs.lone]
        if any(not group.nic_gbps for group in single):
            raise TopologyError(
                "other traffic has reserved all bandwidth of a worker's cable (reserved_gbps, --reserve)"
            )
        self.least = max((job.gradient_size / group.nic_gbps for group in single), default=0.0)
        for b, end in enumerate(self.ends):
            into = {self.x[g, b]: job.gradient_size for g in range(len(self.groups))} | {
                variable: job.partial_size for (_, to), variable in self.y.items() if to == b
            }
            if end.at == topology.ps:
                self.limits.append((into, topology.graph.nodes[end.at].get("ingress_gbps", INFINITY), None))
                continue
            self.limits.append((into, end.capacity_gbps, self.u[b]))
            if end.slots is not None:
                self.limits.append(({self.u[b]: 1.0}, job.slots_gbps(end.slots), None))
            if end.members is not None:
                self.program.row(dict.fromkeys(into, 1.0), 0, end.members)
        self.limits = [limit for limit in self.limits if limit[0] and limit[1] < INFINITY]

    def steps(self, low: float, high: float) -> list[float]:
        """All t from `low` to below `high` at which some resource can be exactly full, and `low`."""
        found = {low}
        for gbps in {gbps for _, gbps, _ in self.limits}:
            sums = self.sums[(self.sums >= low * gbps) & (self.sums < high * gbps * (1 - SAME))]
            found.update(float(step) for step in sums / gbps)
        steps: list[float] = []
        for step in sorted(found):
            if not steps or step > steps[-1] * (1 + SAME):
                steps.append(step)
        return steps

    @property
    def longest(self) -> float:
        """A t at which every tree fits."""
        return (
            float(self.sums[-1]) / min((gbps for _, gbps, _ in self.limits if gbps), default=1.0) * (1 + 2 * SAME)
            + self.least
        )

    def lowest(self, time_s: float) -> float:
        """A t below which there is no tree, by the linear program."""
        t = self.program.variable(self.least, cost=1.0)
        rows = len(self.program.rows)
        for terms, gbps, _ in self.limits:
            self.program.row(terms | {t: -gbps}, -INFINITY, 0)
        found = self.program.solve(relaxed=True, time_s=time_s)
        del self.program.rows[rows:]
        for each in (self.program.cost, self.program.low, self.program.high, self.program.integer):
            del each[t]
        if found.status == "infeasible":
            return INFINITY
        return max(self.least, found.objective * (1 - SAME)) if found.status == "optimal" else self.least

    def within(self, t: float, time_s: float, start: list[float] | None = None) -> Solution:
        """A tree of at most this t, if there is one."""
        program, rows = self.program, len(self.program.rows)
        for terms, gbps, unless in self.limits:
            most = float(self.sums[np.searchsorted(self.sums, gbps * t * (1 + SAME), side="right") - 1])
            if unless is None:
                program.row(terms, 0, most)
            else:
                program.row(terms | {unless: -most}, -INFINITY, 0)
                for variable, size in terms.items():
                    program.row({variable: 1.0, unless: -min(program.high[variable], most // size)}, -INFINITY, 0)
        found = program.solve(time_s=time_s, start=start)
        del program.rows[rows:]
        return found

    def fewest(self, t: float, values: list[float], time_s: float) -> list[float]:
        """Another tree of this t, with the fewest switches upgraded; what is sought afterwards has no more of them."""
        program, upgrades = self.program, {self.u[a]: 1.0 for a, site in enumerate(self.sites) if site.upgraded}
        while count := len(self.upgraded(values)):
            program.row(upgrades, 0, count - 1)
            found = self.within(t, max(time_s, TIDY_S))
            program.rows.pop()
            if not found.values:
                break
            values = found.values
        if upgrades:
            program.row(upgrades, 0, count)
        return values

    def tidy(self, t: float, values: list[float]) -> list[float]:
        """Another tree of this t, with the least traffic on links."""
        program, job = self.program, self.topology.job
        cost, program.cost = program.cost, [0.0] * len(program.cost)
        for flow, size in ((self.f, job.gradient_size), (self.h, job.partial_size)):
            for variable in flow.values():
                program.cost[variable] = size
        for variable in self.d.values():
            program.cost[variable] = job.result_size
        for site, variable in zip(self.sites, self.u):
            program.cost[variable] = 2e-3 if site.upgraded else 1e-3
        found = self.within(t, TIDY_S, values or None)
        program.cost = cost
        return found.values or values

    def upgraded(self, values: list[float]) -> dict[str, float]:
        """Switches that a solution has upgraded, with their capacities."""
        return {
            site.at: site.capacity_gbps
            for site, variable in zip(self.sites, self.u)
            if site.upgraded and round(values[variable])
        }

    def tree(self, values: list[float]) -> Tree:
        """What a solution says."""
        whole = lambda variable: round(values[variable])
        root = self.topology.ps or next(site.at for site, variable in zip(self.sites, self.z) if whole(variable))
        homes, up = {}, {}
        streams = {
            place: {arc: whole(variable) for (to, arc), variable in self.f.items() if to == place}
            for place in {end.at for end in self.ends}
        }
        sums = {
            place: {arc: whole(variable) for (to, arc), variable in self.h.items() if to == place} for place in streams
        }
        for g, group in enumerate(self.groups):
            waiting = list(group.workers)
            for a, end in sorted(
                enumerate(self.ends), key=lambda item: (item[1].at != group.at, natural_key(item[1].at))
            ):
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
        order = sorted(homes, key=natural_key)
        return Tree(
            rate_gbps=0.0,
            root=root,
            homes={worker: homes[worker] for worker in order},
            parents={switch: parents[switch] for switch in sorted(parents, key=natural_key)},
            up={child: up[child] for child in (*order, *sorted(parents, key=natural_key))},
            down={worker: down[worker] for worker in order if down},
        )


def _alive(homes: dict[str, str], parents: dict[str, str], root: str) -> set[str]:
    """Switches that sum anything."""
    found: set[str] = set()
    for switch in homes.values():
        while switch != root and switch not in found:
            found.add(switch)
            switch = parents[switch]
    return found

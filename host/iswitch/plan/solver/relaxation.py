"""Bounds from the linear relaxation of one tree, with one variable for each orbit of interchangeable variables.

The relaxation is the one of `tree_program`, without levels. An average of trees satisfies it, too. So its optimum
bounds several trees as well as one. For a single tree a given rate has a stronger relaxation: streams are integral, so
each capacity is rounded down to a load that it can have, what a node sums stays within the convex hull of the whole
numbers of streams that fit (`integer_hull`), and a switch that is not used takes nothing. Averages over exchanges of
twins keep to the hull, too, since it is convex.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from iswitch.plan.solver.arcs import Arc, can_sum_at
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.integer_hull import facets
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram, Solution
from iswitch.plan.solver.orbits import Key, Orbits
from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.sites import Site
from iswitch.plan.topology.topology import Group, Topology

__all__ = ["Relaxation", "possible_loads"]

ROUNDING = 1e-7
"""By which part a bound of the solver is weakened, because its arithmetic is not exact."""
STEPS_MAX = 40
HULL_SUMS_MAX = 64
"""Most partial sums that fit a node whose capacity is replaced by the convex hull of whole numbers of streams."""
VARIABLES_MAX = 60_000
"""Most variables of a relaxation; a larger one is not solved, and the workers' cables are the only bound."""


def possible_loads(topology: Topology, sites: int) -> npt.NDArray[np.float64]:
    """Return all loads that a resource can have for 1 Gb/s of rate, in gradients and partial sums, sorted.

    A cable carries gradients and partial sums in one direction, and results of both in the other.
    """
    job = topology.job
    streams = (
        np.arange(2 * len(topology.workers) + sites + 1)[:, None] * job.gradient_size
        + np.arange(sites + 1)[None, :] * job.partial_size
    )
    return np.unique(np.concatenate((streams.ravel(), [1.0])))


class Relaxation:
    """The linear relaxation of one tree by orbits; t is 1 / rate.

    Parameters
    ----------
    topology : Topology
        The topology.
    sites : sequence of Site
        Places where sums can be formed, beside the ps; at most one for each switch.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    """

    def __init__(self, topology: Topology, sites: Sequence[Site], levels: int | None, adjacent: bool = False):
        self.topology, self.levels, self.adjacent = topology, levels, adjacent
        self.arcs = PathTable.of(topology).arcs
        self.orbits = Orbits(topology, self.arcs)
        self.sites = {site.at: site for site in sites}
        self.ends = [*self.sites, *([topology.ps] if topology.ps else [])]
        self.groups: dict[tuple[str, int], Group] = {}
        nics: dict[str, list[float]] = defaultdict(list)
        for group in topology.groups():
            nics[group.at].append(group.nic_gbps)
        for group in topology.groups():
            self.groups[group.at, sorted(nics[group.at]).index(group.nic_gbps)] = group
        self.by_node: dict[str, list[int]] = defaultdict(list)
        for at, number in self.groups:
            self.by_node[at].append(number)
        self.total = sum(len(group.workers) for group in self.groups.values())
        single = [group.nic_gbps for group in self.groups.values() if group.at not in self.arcs.multi_homed]
        self.t_min = max((topology.job.gradient_size / nic if nic else INFINITY for nic in single), default=0.0)
        few, ends = set(self.orbits.few(3)), set(self.ends)
        reduced_arcs = sum(at in few and to in few for at, to in self.arcs.up)
        self.is_small = 2 * reduced_arcs * len(ends & set(self.orbits.few(1))) <= VARIABLES_MAX
        self._loads: npt.NDArray[np.float64] | None = None
        self._program: LinearProgram | None = None

    def least_t(self, clock: Clock) -> float:
        """Return a t below which no tree exists, and no plan of several trees; infinite if no tree exists at all."""
        if not self.is_small or not clock.left or self.t_min == INFINITY:
            return self.t_min
        program, limits = self._build()
        t = program.add_variable(self.t_min, cost=1.0)
        rows = len(program.rows)
        for terms, gbps, _ in limits:
            program.add_row(terms | {t: -gbps}, -INFINITY, 0)
        found = program.solve(time_s=clock.left)
        del program.rows[rows:]
        for each in (program.cost, program.low, program.high, program.integer):
            del each[t]
        if found.status == "infeasible":
            return INFINITY
        return max(self.t_min, found.objective * (1 - ROUNDING)) if found.status == "optimal" else self.t_min

    def least_t_of_one_tree(self, low: float, high: float, clock: Clock) -> float:
        """Return a t of at least `low` below which no single tree exists, given a tree of t = `high`.

        The questions halve the interval, and end where its ends differ by a thousandth or at the time limit.
        """
        if not self.is_small or low >= high:
            return low
        above, best, step = high, low, 0
        if not self._is_infeasible(low * (1 + ROUNDING), clock):
            return low
        while clock.left and above > best * 1.001 and (step := step + 1) < STEPS_MAX:
            middle = (above * best) ** 0.5
            if self._is_infeasible(middle, clock):
                best = middle
            else:
                above = middle
        return self._next_t(best)

    def _next_t(self, infeasible: float) -> float:
        """Return the first t at and above an infeasible one at which some resource can be exactly full."""
        _, limits = self._build()
        assert self._loads is not None
        found = INFINITY
        for gbps in {gbps for _, gbps, _ in limits}:
            at = int(np.searchsorted(self._loads, infeasible * gbps * (1 - ROUNDING), side="left"))
            if at < len(self._loads):
                found = min(found, float(self._loads[at]) / gbps)
        return max(infeasible, found * (1 - ROUNDING)) if found < INFINITY else infeasible

    def _is_infeasible(self, t: float, clock: Clock) -> bool:
        """Return True if it is proved that no single tree has this t or a smaller one."""
        program, limits = self._build()
        rows, job = len(program.rows), self.topology.job
        assert self._loads is not None
        for terms, gbps, used in limits:
            most = float(self._loads[np.searchsorted(self._loads, gbps * t * (1 + ROUNDING), side="right") - 1])
            if used is None:
                program.add_row(terms, -INFINITY, most * (1 + ROUNDING))
            else:
                program.add_row(terms | {used: terms.get(used, 0.0) - most * (1 + ROUNDING)}, -INFINITY, 0)
                for variable, size in self._single_sizes(terms, used).items():
                    program.add_row({variable: 1.0, used: -(most // size)}, -INFINITY, 0)
        for gradients, sums, gbps, used in self._counts:
            for facet in facets(gbps * t, job.gradient_size, job.partial_size, sums_max=HULL_SUMS_MAX):
                terms = {variable: facet.gradients * count for variable, count in gradients.items()}
                terms |= {variable: facet.sums * count for variable, count in sums.items()}
                if used is None:
                    program.add_row(terms, -INFINITY, facet.most)
                else:
                    program.add_row(terms | {used: -float(facet.most)}, -INFINITY, 0)
        found: Solution = program.solve(time_s=max(clock.left, 1e-3))
        del program.rows[rows:]
        return found.status == "infeasible"

    def _single_sizes(self, terms: dict[int, float], used: int) -> dict[int, float]:
        """Return the size of one stream of each variable of a switch's row."""
        return {variable: self._stream_size[variable] for variable in terms if variable != used}

    def _build(self) -> tuple[LinearProgram, list[tuple[dict[int, float], float, int | None]]]:
        """Return the program and the limits of resources, built once."""
        if self._program is None:
            self._program = LinearProgram()
            self._numbers: dict[Key, int] = {}
            self._stream_size: dict[int, float] = {}
            self._limits: list[tuple[dict[int, float], float, int | None]] = []
            self._counts: list[tuple[dict[int, float], dict[int, float], float, int | None]] = []
            self._loads = possible_loads(self.topology, len(self.sites))
            self._into = defaultdict(list)
            self._out = defaultdict(list)
            for at, to in self.arcs.up:
                self._into[to].append(at)
                self._out[at].append(to)
            self._add_assignment()
            self._add_flows()
            if self.topology.job.unicast:
                self._add_unicast()
            self._add_limits()
        return self._program, self._limits

    def _variable(self, kind: str, *nodes: str, number: int = 0, high: float = INFINITY) -> int:
        """Return the variable of an orbit."""
        assert self._program is not None
        key = (kind, number, *self.orbits.key(*nodes))
        if key not in self._numbers:
            self._numbers[key] = self._program.add_variable(0, high)
        return self._numbers[key]

    def _home(self, at: str, number: int, end: str) -> int | None:
        group = self.groups[at, number]
        if not can_sum_at(group, end, self.adjacent):
            return None
        return self._variable("home", at, end, number=number, high=len(group.workers))

    def _parent(self, site: str, end: str) -> int | None:
        if site == end or site not in self.sites:
            return None
        if self.levels == 1 and self.topology.ps and end != self.topology.ps:
            return None
        return self._variable("parent", site, end, high=1)

    def _used(self, site: str) -> int:
        return self._variable("used", site, high=1)

    def _flow(self, kind: str, place: str, at: str, to: str) -> int | None:
        """Return the variable of gradients or partial sums on an arc toward a place; None if it cannot be taken."""
        if at == place or (to != place and (self.adjacent or to == self.topology.ps)):
            return None
        if kind == "sums" and (
            at in self.arcs.multi_homed or (self.levels == 1 and self.topology.ps and place != self.topology.ps)
        ):
            return None
        return self._variable(kind, place, at, to)

    @staticmethod
    def _sum(terms: Iterable[tuple[int | None, float]]) -> dict[int, float]:
        found: dict[int, float] = defaultdict(float)
        for variable, factor in terms:
            if variable is not None:
                found[variable] += factor
        return dict(found)

    def _add_assignment(self) -> None:
        assert self._program is not None
        row, few = self._program.add_row, self.orbits.few(1)
        for at in few:
            for number in self.by_node.get(at, ()):
                workers = len(self.groups[at, number].workers)
                row(self._sum((self._home(at, number, end), 1.0) for end in self.ends), workers, workers)
        two = self.orbits.few(2)
        workers_at, sites = [node for node in two if node in self.by_node], [node for node in two if node in self.sites]
        for at, site in self.orbits.first((at, site) for at in workers_at for site in sites):
            for number in self.by_node[at]:
                if (home := self._home(at, number, site)) is not None:
                    row({home: 1.0, self._used(site): -len(self.groups[at, number].workers)}, -INFINITY, 0)
        for site in few:
            if site in self.sites:
                above = self._sum((self._parent(site, end), 1.0) for end in self.ends)
                root = {} if self.topology.ps else {self._variable("root", site, high=1): 1.0}
                row(above | root | {self._used(site): -1.0}, 0, 0)
        if not self.topology.ps:
            row(self._sum((self._variable("root", site, high=1), 1.0) for site in self.sites), 1, 1)
        for site, other in self.orbits.first((site, other) for site in sites for other in sites):
            if (parent := self._parent(site, other)) is not None:
                rooted = not self.topology.ps and self.levels == 1
                above_other = self._variable("root", other, high=1) if rooted else self._used(other)
                row({parent: 1.0, above_other: -1.0}, -INFINITY, 0)

    def _add_flows(self) -> None:
        """At each node the flow toward a place out of it, less the flow into it, is what starts there."""
        assert self._program is not None
        ends = set(self.ends)
        few = self.orbits.few(2)
        for place, node in self.orbits.first((place, node) for place in few if place in ends for node in few):
            if node == place:
                continue
            for kind in ("gradients", "sums"):
                flow = [(self._flow(kind, place, node, to), 1.0) for to in self._out[node]]
                flow += [(self._flow(kind, place, at, node), -1.0) for at in self._into[node]]
                if kind == "gradients":
                    flow += [(self._home(node, number, place), -1.0) for number in self.by_node.get(node, ())]
                else:
                    flow.append((self._parent(node, place), -1.0))
                if terms := self._sum(flow):
                    self._program.add_row(terms, 0, 0)

    def _add_unicast(self) -> None:
        """Each worker receives one copy of the results from the root."""
        assert self._program is not None
        out, into = defaultdict(list), defaultdict(list)
        for at, to in self.arcs.down:
            out[at].append(to)
            into[to].append(at)
        for node in self.orbits.few(1):
            flow: list[tuple[int | None, float]] = [(self._variable("results", at, node), 1.0) for at in into[node]]
            flow += [(self._variable("results", node, to), -1.0) for to in out[node]]
            if not self.topology.ps and node in self.sites:
                flow.append((self._variable("root", node, high=1), float(self.total)))
            here = sum(len(self.groups[node, number].workers) for number in self.by_node.get(node, ()))
            wanted = here - (self.total if node == self.topology.ps else 0)
            if (terms := self._sum(flow)) or wanted:
                self._program.add_row(terms, wanted, wanted)

    def _on_arc(self, at: str, to: str, up: set[Arc], down: set[Arc]) -> dict[int, float]:
        """Return the load of an arc, by variable."""
        job = self.topology.job
        sizes = (("gradients", job.gradient_size), ("sums", job.partial_size))
        flow: list[tuple[int | None, float]] = []
        for end in self.ends:
            for kind, size in sizes:
                if (at, to) in up:
                    flow.append((self._flow(kind, end, at, to), size))
                if (to, at) in up and job.multicast:
                    flow.append((self._flow(kind, end, to, at), job.result_size))
        if job.unicast and (at, to) in down:
            flow.append((self._variable("results", at, to), job.result_size))
        return self._sum(flow)

    def _add_limits(self) -> None:
        assert self._program is not None
        topology, job = self.topology, self.topology.job
        up, down = set(self.arcs.up), set(self.arcs.down)
        few = set(self.orbits.few(2))
        for at, to in self.orbits.first(arc for arc in sorted(up | {arc[::-1] for arc in up}) if few.issuperset(arc)):
            self._limits.append((self._on_arc(at, to, up, down), topology.free_gbps(at, to), None))
            if to == topology.ps:
                gradients, sums = (self._sum([(self._flow(kind, to, at, to), 1.0)]) for kind in ("gradients", "sums"))
                self._counts.append((gradients, sums, topology.free_gbps(at, to), None))
        for end in (node for node in self.orbits.few(1) if node in set(self.ends)):
            pairs: list[tuple[int | None, float]] = []
            homes: list[tuple[int | None, float]] = []
            parents: list[tuple[int | None, float]] = []
            for at, number in self.groups:
                home = self._home(at, number, end)
                pairs.append((home, job.gradient_size))
                homes.append((home, 1.0))
                if home is not None:
                    self._stream_size[home] = job.gradient_size
            for site in self.sites:
                parent = self._parent(site, end)
                pairs.append((parent, job.partial_size))
                parents.append((parent, 1.0))
                if parent is not None:
                    self._stream_size[parent] = job.partial_size
            into = self._sum(pairs)
            if end == topology.ps:
                ingress = topology.graph.nodes[end].get("ingress_gbps", INFINITY)
                self._limits.append((into, ingress, None))
                if ingress < INFINITY:
                    self._counts.append((self._sum(homes), self._sum(parents), ingress, None))
                continue
            site_of = self.sites[end]
            self._limits.append((into, site_of.capacity_gbps, self._used(end)))
            self._counts.append((self._sum(homes), self._sum(parents), site_of.capacity_gbps, self._used(end)))
            if site_of.slots is not None:
                self._limits.append(({self._used(end): 1.0}, job.slots_gbps(site_of.slots), None))
            if site_of.members is not None:
                counts = self._sum((variable, 1.0) for variable, _ in pairs)
                self._program.add_row(counts, -INFINITY, site_of.members)
        self._limits = [limit for limit in self._limits if limit[0] and limit[1] < INFINITY]

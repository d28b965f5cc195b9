"""One tree as an integer program: which node sums which workers, the parent of each switch, and paths over cables."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from iswitch.plan.solver.arcs import can_sum_at
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.path_table import PathTable
from iswitch.plan.solver.sites import Site
from iswitch.plan.solver.tree import Resource, Tree
from iswitch.plan.topology.topology import Topology, TopologyError, natural_key

__all__ = ["Keep", "TreeProgram"]


class Keep(NamedTuple):
    """A running tree, and the most switches whose role may differ from that in it."""

    tree: Tree
    changes_max: int


class TreeProgram:
    """Variables and rows of the program; t is 1 / rate, see `single_tree`.

    Parameters
    ----------
    topology : Topology
        The topology.
    sites : sequence of Site
        Places where sums can be formed. Sums end at the ps, or at one of the sites.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    upgrades : int
        Most sites that may be upgraded ones.
    clock : Clock, optional
        A time limit to build the program.
    keep : Keep, optional
        A running tree, most of whose roles stay. It is for sites without upgrades.

    Raises
    ------
    OutOfTime
        If the program was not built in time.

    Attributes
    ----------
    ends : list of Site
        The sites, and the ps at the end if there is one. Variables name them by position, a and b; g is a group.
    homes : dict of (g, a) to int
        Variables: workers of group g whose home is a.
    used, roots : list of int
        Variables of each site: 1 if it sums; 1 if it is the root. There are no roots if the topology has a ps.
    parents : dict of (a, b) to int
        Variables: 1 if b is the parent of site a.
    gradient_flow, partial_flow : dict of (place, arc) to int
        Variables: gradients, and partial sums, on an arc toward the place that sums them.
    result_flow : dict of arc to int
        Variables: results on an arc, if each worker gets a copy of its own.
    limits : list of (dict of int to float, float, int or None)
        For each resource the sizes of streams by variable, its Gb/s, and the variable of its site if that need not be
        used.
    limited : list of Resource
        The resources of `limits`.
    stream_sums : array of float
        All loads that a resource can have, in gradients and partial sums, sorted.
    """

    def __init__(
        self,
        topology: Topology,
        sites: Sequence[Site],
        *,
        levels: int | None,
        adjacent: bool,
        upgrades: int,
        clock: Clock | None = None,
        keep: Keep | None = None,
    ):
        self.keep = keep
        self._check = clock.check if clock else lambda: None
        self.topology, self.sites, self.groups = topology, list(sites), topology.groups()
        self.arcs = PathTable.of(topology).arcs
        program = self.program = LinearProgram()
        job = topology.job
        ends = [*self.sites, Site(topology.ps)] if topology.ps else self.sites
        self.homes = {
            (g, a): program.add_variable(
                0, len(group.workers) if can_sum_at(group, end.at, adjacent) else 0, integer=True
            )
            for g, group in enumerate(self.groups)
            for a, end in enumerate(ends)
        }
        self.used = [program.add_variable(0, 1, integer=True) for _ in self.sites]
        self.roots = [] if topology.ps else [program.add_variable(0, 1, integer=True) for _ in self.sites]
        self.parents = {
            (a, b): program.add_variable(0, 1, integer=True)
            for a, site in enumerate(self.sites)
            for b, other in enumerate(ends)
            if site.at != other.at and (levels != 1 or b == len(self.sites) or not topology.ps)
        }
        self.ends = ends
        self._check()
        self._add_assignment(levels)
        self._add_flows(adjacent)
        if keep:
            self._add_changes(keep)
        self.result_flow: dict[tuple[str, str], int] = {}
        total = sum(len(group.workers) for group in self.groups)
        if job.unicast:
            self._add_unicast(total)
        self._collect_limits()
        # A link carries gradients and partial sums in one direction, and results of both in the other.
        most = 2 * total + len(self.sites)
        streams = (
            np.arange(most + 1)[:, None] * job.gradient_size
            + np.arange(len(self.sites) + 1)[None, :] * job.partial_size
        )
        self.stream_sums = np.unique(np.concatenate((streams.ravel(), [1.0])))
        if upgrades:
            program.add_row({self.used[a]: 1.0 for a, site in enumerate(self.sites) if site.upgraded}, 0, upgrades)

    def _add_assignment(self, levels: int | None) -> None:
        """Each worker has one home. Each used site has one parent or is the root. Parents form no cycle."""
        row, count = self.program.add_row, len(self.sites)
        for g, group in enumerate(self.groups):
            row({self.homes[g, a]: 1.0 for a in range(len(self.ends))}, len(group.workers), len(group.workers))
            for a in range(count):
                row({self.homes[g, a]: 1.0, self.used[a]: -len(group.workers)}, -INFINITY, 0)
        for a in range(count):
            self._check()
            above = {self.parents[a, b]: 1.0 for b in range(len(self.ends)) if (a, b) in self.parents}
            row(above | {self.used[a]: -1.0} | ({self.roots[a]: 1.0} if self.roots else {}), 0, 0)
        if self.roots:
            row(dict.fromkeys(self.roots, 1.0), 1, 1)
        for a in range(count):
            for b in range(a):
                if self.sites[a].at == self.sites[b].at:
                    row({self.used[a]: 1.0, self.used[b]: 1.0}, -INFINITY, 1)
        deepest = min(levels or count, count)
        level = [self.program.add_variable(0, deepest) for _ in range(count)]
        for (a, b), variable in self.parents.items():
            if b == count:
                continue
            row({variable: 1.0, (self.roots[b] if self.roots and levels == 1 else self.used[b]): -1.0}, -INFINITY, 0)
            if levels != 1:
                row({level[a]: 1.0, level[b]: -1.0, variable: -(deepest + 1.0)}, -deepest, INFINITY)

    def _add_changes(self, keep: Keep) -> None:
        """A site whose role is another one than in the running tree is a changed one, and few may be."""
        program, tree = self.program, keep.tree
        changed = [program.add_variable(0, 1, integer=True) for _ in self.sites]

        def stay(a: int, variable: int, value: float) -> None:
            """Demand that the variable has this value, or the site is changed."""
            program.add_row({variable: 1.0, changed[a]: -max(program.high[variable] - value, 0.0)}, -INFINITY, value)
            program.add_row({variable: 1.0, changed[a]: value}, value, INFINITY)

        for a, site in enumerate(self.sites):
            if self.roots:
                stay(a, self.roots[a], float(site.at == tree.root))
            members = set(tree.members(site.at))
            for g, group in enumerate(self.groups):
                stay(a, self.homes[g, a], float(len(members.intersection(group.workers))))
            if not members <= set(self.topology.workers):
                program.add_row({changed[a]: 1.0}, 1, 1)
        at = {site.at: a for a, site in enumerate(self.sites)}
        for (a, b), variable in self.parents.items():
            was = float(tree.parents.get(self.sites[a].at) == self.ends[b].at)
            stay(a, variable, was)
            if b < len(self.sites):
                stay(b, variable, was)
        for child, parent in tree.parents.items():
            # What is gone, or can have no such parent any more, is gone for both.
            known = child in at and any(
                (at[child], b) in self.parents for b in range(len(self.ends)) if self.ends[b].at == parent
            )
            for node in (child, parent) if not known else ():
                if node in at:
                    program.add_row({changed[at[node]]: 1.0}, 1, 1)
        program.add_row(dict.fromkeys(changed, 1.0), 0, keep.changes_max)

    def _add_flows(self, adjacent: bool) -> None:
        """Gradients flow to their homes, and partial sums to the parents."""
        places = sorted({end.at for end in self.ends}, key=natural_key)
        total = sum(len(group.workers) for group in self.groups)
        arcs = {place: self.arcs.toward(place, adjacent) for place in places}
        parents = {self.ends[b].at for _, b in self.parents}
        self.gradient_flow = {
            (place, arc): self.program.add_variable(0, total, integer=True) for place in places for arc in arcs[place]
        }
        self.partial_flow = {
            (place, arc): self.program.add_variable(0, len(self.sites), integer=True)
            for place in places
            for arc in arcs[place]
            if arc[0] not in self.arcs.multi_homed and place in parents
        }
        starts_at: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for g, a in self.homes:
            starts_at[self.ends[a].at].append((g, a))
        children_of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for a, b in self.parents:
            children_of[self.ends[b].at].append((a, b))
        for place in places:
            self._check()
            starts: dict[str, dict[int, float]] = defaultdict(dict)
            for g, a in starts_at[place]:
                starts[self.groups[g].at][self.homes[g, a]] = 1.0
            self._add_flow(self.gradient_flow, place, starts, arcs[place])
            partial_starts: dict[str, dict[int, float]] = defaultdict(dict)
            for a, b in children_of[place]:
                partial_starts[self.sites[a].at][self.parents[a, b]] = 1.0
            self._add_flow(self.partial_flow, place, partial_starts, arcs[place])

    def _add_flow(
        self,
        flow: dict[tuple[str, tuple[str, str]], int],
        place: str,
        supply: dict[str, dict[int, float]],
        arcs: list[tuple[str, str]],
    ) -> None:
        """At each node but `place`, the flow out less the flow in is what starts there (`supply`, by variable)."""
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
                self.program.add_row(row, 0, 0)

    def _add_unicast(self, total: int) -> None:
        """Each of `total` workers receives one copy of the results from the root."""
        terms: dict[str, dict[int, float]] = {node: {} for node in self.arcs.nodes}
        for arc in self.arcs.down:
            variable = self.result_flow[arc] = self.program.add_variable(0, total, integer=True)
            terms[arc[0]][variable] = -1.0
            terms[arc[1]][variable] = 1.0
        for a, site in enumerate(self.sites):
            if self.roots:
                terms[site.at][self.roots[a]] = float(total)
        for node, row in terms.items():
            here = sum(len(group.workers) for group in self.groups if group.at == node)
            wanted = here - (total if node == self.topology.ps else 0)
            if row or wanted:
                self.program.add_row(row, wanted, wanted)

    def _collect_limits(self) -> None:
        """Collect the limits of resources, and the least t that workers' cables allow."""
        topology, job = self.topology, self.topology.job
        found: list[tuple[Resource, dict[int, float], float, int | None]] = []
        on: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for flow, size in ((self.gradient_flow, job.gradient_size), (self.partial_flow, job.partial_size)):
            for (_, (at, to)), variable in flow.items():
                on[at, to][variable] += size
                if job.multicast:
                    on[to, at][variable] += job.result_size
        for arc, variable in self.result_flow.items():
            on[arc][variable] += job.result_size
        found += [(Resource("link", *arc), dict(terms), topology.free_gbps(*arc), None) for arc, terms in on.items()]
        single = [group for group in self.groups if group.at not in self.arcs.multi_homed]
        if any(not group.nic_gbps for group in single):
            raise TopologyError(
                "other traffic has reserved all bandwidth of a worker's cable (reserved_gbps, --reserve)"
            )
        self.t_min = max((job.gradient_size / group.nic_gbps for group in single), default=0.0)
        children: dict[int, dict[int, float]] = defaultdict(dict)
        for (_, b), variable in self.parents.items():
            children[b][variable] = job.partial_size
        for b, end in enumerate(self.ends):
            self._check()
            into = {self.homes[g, b]: job.gradient_size for g in range(len(self.groups))} | children[b]
            if end.at == topology.ps:
                ingress_gbps = topology.graph.nodes[end.at].get("ingress_gbps", INFINITY)
                found.append((Resource("ingress", end.at), into, ingress_gbps, None))
                continue
            found.append((Resource("capacity", end.at), into, end.capacity_gbps, self.used[b]))
            if end.slots is not None:
                found.append((Resource("slots", end.at), {self.used[b]: 1.0}, job.slots_gbps(end.slots), None))
            if end.members is not None:
                self.program.add_row(dict.fromkeys(into, 1.0), 0, end.members)
        found = [limit for limit in found if limit[1] and limit[2] < INFINITY]
        self.limited = [resource for resource, *_ in found]
        self.limits = [(terms, gbps, used) for _, terms, gbps, used in found]

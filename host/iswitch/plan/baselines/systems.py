"""What planning is compared with: no aggregation, every worker's own switch (as ATP does), one switch for all (as
SwitchML does)."""

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from iswitch.plan.solver.arcs import Arcs
from iswitch.plan.solver.linear_program import INFINITY, Program
from iswitch.plan.solver.paths import Ways
from iswitch.plan.solver.several_trees import several_trees
from iswitch.plan.solver.shadow_prices import fixed_prices
from iswitch.plan.solver.sites import Site, sites
from iswitch.plan.solver.tree import Plan, Tree, capacities, fitted, loads
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["Nearest", "atp_like", "no_aggregation", "switchml_like", "with_server"]


def with_server(topology: Topology) -> Topology:
    """Where sums end at a switch, the same with a ps, which these schemes need: the worker of the fastest cable, the
    first of these. Its own gradient travels nowhere."""
    if topology.ps:
        return topology
    graph = topology.graph.copy()
    if len(topology.workers) < 2:
        raise TopologyError("without a ps, a topology must have at least two workers")
    fastest = max(topology.workers, key=lambda worker: max(topology.free_gbps(worker, near) for near in graph[worker]))
    graph.nodes[fastest]["role"] = "ps"
    return Topology(graph, topology.job)


def no_aggregation(topology: Topology, *, time_s: float = 60.0) -> Plan:
    """The best of all routings to the ps, each gradient split at will."""
    return several_trees(topology, sites=(), time_s=time_s, scheme="no aggregation")


class Nearest:
    """Trees of ways that are shortest by hops."""

    def __init__(self, topology: Topology):
        if topology.ps is None:
            raise TopologyError("this scheme needs a ps")
        self.topology, self.arcs, self.ps = topology, Arcs(topology), topology.ps
        hop = lambda arc: 0.0
        self.sites: dict[str, Site] = {site.at: site for site in sites(topology)}
        self.ways = {place: Ways(place, self.arcs.toward(place), hop) for place in (*self.sites, self.ps)}
        self.back = Ways(self.ps, [(to, at) for at, to in self.arcs.down], hop)
        self.at = {worker: group.at for group in topology.groups() for worker in group.workers}

    def tree(self, homes: Mapping[str, str]) -> Tree:
        """Of this assignment, every sum going to the ps; its rate is what fits."""
        up, down = {}, {}
        for worker, home in homes.items():
            at = self.at[worker]
            own = () if at == worker else (worker,)
            up[worker] = (*own, *self.ways[home].path(at))
            if self.topology.job.unicast:
                down[worker] = (*self.back.path(at)[::-1], *own)
        parents = {home: self.ps for home in homes.values() if home != self.ps}
        up |= {switch: self.ways[self.ps].path(switch) for switch in parents}
        return fitted(
            self.topology, Tree(rate_gbps=0.0, root=self.ps, homes=dict(homes), parents=parents, up=up, down=down)
        )

    def allowed(self, homes: Mapping[str, str]) -> bool:
        """No switch has more members than it takes."""
        taken = list(homes.values())
        return all(
            taken.count(home) <= (self.sites[home].members or INFINITY) for home in set(taken) & self.sites.keys()
        )


def switchml_like(topology: Topology) -> Plan:
    """All workers at one switch, the best of them, whose sum goes to the ps."""
    began, near = time.perf_counter(), Nearest(topology)
    trees = [near.tree(homes) for site in near.sites if near.allowed(homes := dict.fromkeys(topology.workers, site))]
    if not trees:
        raise TopologyError("no switch has room for all workers (members)")
    best = max(trees, key=lambda tree: tree.rate_gbps)
    return Plan(
        scheme="SwitchML-like",
        trees=(best,),
        bound_gbps=INFINITY,
        prices=fixed_prices(topology, (best,)),
        seconds=time.perf_counter() - began,
    )


def atp_like(topology: Topology) -> Plan:
    """Every worker at its own switch for as much as that can sum; what is more goes to the ps unsummed, along shortest
    ways. How much that is for each switch is the best there is (a linear program). Where a worker's switch does not
    aggregate all of its gradient goes to the ps."""
    began, near = time.perf_counter(), Nearest(topology)
    room = capacities(topology)
    here = {worker: at for worker, at in near.at.items() if at in near.sites}
    if not near.allowed(here):
        raise TopologyError("a switch has no room for all of its workers (members)")
    switches = sorted(set(here.values()))
    direct = dict.fromkeys(topology.workers, near.ps)
    base = loads(topology, near.tree(direct))
    program = Program()
    rate, summed = program.variable(cost=-1.0), {switch: program.variable(cost=-1e-6) for switch in switches}
    rows = {resource: {rate: load} for resource, load in base.items()}
    for switch, variable in summed.items():
        program.row({variable: 1.0, rate: -1.0}, -INFINITY, 0)
        with_it = loads(topology, near.tree(direct | {worker: at for worker, at in here.items() if at == switch}))
        for resource in with_it.keys() | base.keys():
            change = with_it.get(resource, 0.0) - base.get(resource, 0.0)
            if change:
                rows.setdefault(resource, {})[variable] = change
    for resource, terms in rows.items():
        if resource in room:
            program.row(terms, -INFINITY, room[resource])
    found = program.solve().values
    steps = sorted({0.0, found[rate], *(min(found[variable], found[rate]) for variable in summed.values())})
    trees = []
    for low, high in pairwise(steps):
        if high - low > 1e-9:
            homes = direct | {worker: at for worker, at in here.items() if found[summed[at]] >= high - 1e-9}
            trees.append(replace(near.tree(homes), rate_gbps=high - low))
    packed = tuple(sorted(trees, key=lambda tree: -tree.rate_gbps))
    return Plan(
        scheme="ATP-like",
        trees=packed,
        bound_gbps=INFINITY,
        prices=fixed_prices(topology, packed),
        seconds=time.perf_counter() - began,
    )

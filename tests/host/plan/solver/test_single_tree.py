"""The fastest tree, compared with an exhaustive search over trees and paths."""

from itertools import combinations, pairwise, product

import networkx as nx
import pytest

from iswitch.plan.check import check_plan
from iswitch.plan.schemes import make_plan
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.sites import Upgrade
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Job, Topology, TopologyError
from sim.bench.fabrics import random_topology


def fastest(topology, levels):
    """Return the highest rate by trying all homes, parents and simple paths. Uses only the topology of the package."""
    graph, job = topology.graph, topology.job
    head = job.overhead_bytes / job.payload_bytes
    gradient, partial, result = (
        1 + head,
        job.uplink_bytes_per_element / 4 + head,
        (1 + head) * (job.return_path != "none"),
    )
    sites = [node for node, data in graph.nodes(data=True) if data.get("aggregates")]
    workers = [node for node, data in graph.nodes(data=True) if data.get("role") == "worker"]
    switches = {node for node, kind in graph.nodes(data="kind") if kind == "switch"}
    known_paths = {}

    def paths(a, b):
        if (a, b) not in known_paths:
            known_paths[a, b] = list(nx.all_simple_paths(graph.subgraph(switches | {a, b}), a, b)) if a != b else [[a]]
        return known_paths[a, b]

    best = [float("inf")]

    def spread(streams, load, worst):
        """Try every path for each stream; `worst` is the t that is needed so far."""
        if worst >= best[0] * (1 - 1e-12):
            return
        if not streams:
            best[0] = worst
            return
        (a, b, size, back), *rest = streams
        for path in paths(a, b):
            after, now = dict(load), worst
            for hop in pairwise(path):
                for arc, share in ((hop, size), (hop[::-1], back)):
                    if share:
                        after[arc] = after.get(arc, 0) + share
                        cable = graph.edges[arc]
                        rate = cable["sender_gbps"] if cable.get("sender") == arc[0] else cable["bw_gbps"]
                        now = max(now, after[arc] / rate)
            spread(rest, after, now)

    for root in [topology.ps] if topology.ps else sites:
        ends = [root, *(site for site in sites if site != root)]
        for homes in product(ends, repeat=len(workers)):
            for above in product(ends, repeat=len(ends) - 1):
                parents = dict(zip(ends[1:], above))
                used = set()
                for home in homes:
                    chain = []
                    while home != root and home not in chain:
                        chain.append(home)
                        home = parents[home]
                    if home != root or levels and len(chain) > levels:
                        break
                    used |= set(chain)
                else:
                    if any(parents[site] != root for site in ends[1:] if site not in used):
                        continue  # an equal tree was tried
                    worst, taken = 0.0, {}
                    for home in homes:
                        taken[home] = taken.get(home, 0) + gradient
                    for site in used:
                        taken[parents[site]] = taken.get(parents[site], 0) + partial
                    for node, load in taken.items():
                        data = graph.nodes[node]
                        worst = max(
                            worst,
                            load / data.get("capacity_gbps" if node in switches else "ingress_gbps", float("inf")),
                        )
                    back = result if job.return_path == "multicast" else 0
                    streams = [(worker, home, gradient, back) for worker, home in zip(workers, homes)]
                    streams += [(site, parents[site], partial, back) for site in sorted(used)]
                    if job.return_path == "unicast":
                        streams += [(root, worker, result, 0) for worker in workers]
                    spread(streams, {}, worst)
    return 1 / best[0]


@pytest.mark.parametrize("seed", range(24))
def test_an_exhaustive_search_finds_no_faster_tree(seed):
    agrees_with_an_exhaustive_search(random_topology(seed, switches=3, workers=3, least=True))


@pytest.mark.parametrize("seed", range(24))
def test_an_exhaustive_search_over_unlike_rates_finds_no_faster_tree(seed):
    agrees_with_an_exhaustive_search(random_topology(seed, switches=3, workers=3, least=True, unlike=True))


def agrees_with_an_exhaustive_search(topology):
    for levels in (1, None):
        plan = plan_single_tree(topology, levels=levels)
        assert plan.rate_gbps == pytest.approx(fastest(topology, levels), rel=1e-6)
        assert plan.gap < 1e-6


def test_the_example_agrees_with_an_exhaustive_search():
    """Only four of the eight workers, so that the search ends."""
    whole = seed_example(capacity_gbps=4)
    graph = whole.graph.copy()
    graph.remove_nodes_from(["W3", "W4", "W6", "W8"])
    topology = Topology(graph)
    assert plan_single_tree(topology).rate_gbps == pytest.approx(fastest(topology, 1), rel=1e-6)


@pytest.mark.parametrize("returning", ["multicast", "unicast", "none"])
def test_results_share_cables_with_gradients(returning):
    """Only S2 sums, and the ps is at S1. The cable between them carries gradients and other workers' results in the
    same direction."""
    graph = nx.Graph()
    graph.add_node("S1", kind="switch")
    graph.add_node("S2", kind="switch", aggregates=True, capacity_gbps=100.0)
    graph.add_node("PS", kind="host", role="ps")
    graph.add_edge("S1", "S2", bw_gbps=3.8)
    graph.add_edge("PS", "S1", bw_gbps=4.0)
    for worker, switch in (("W1", "S1"), ("W2", "S1"), ("W3", "S1"), ("W4", "S2")):
        graph.add_node(worker, kind="host")
        graph.add_edge(worker, switch, bw_gbps=10.0)
    topology = Topology(graph, Job(return_path=returning, overhead_bytes=0, uplink_bytes_per_element=4))
    plan = plan_single_tree(topology)
    assert (
        plan.rate_gbps
        == pytest.approx(fastest(topology, 1))
        == pytest.approx({"multicast": 4 / 3, "unicast": 1, "none": 1.9}[returning])
    )
    assert check_plan(node_link(topology), plan.to_dict())[1] == []


def test_without_a_ps_a_switch_is_the_root():
    graph = leaf_spine(3, 2, 2, nic_gbps=10, uplink_gbps=40)
    topology = Topology.of(
        graph, aggregates={"leaf1": 40, "leaf2": 40, "leaf3": 40, "spine2": 80}, job=Job(overhead_bytes=0)
    )
    plan = plan_single_tree(topology, levels=None)
    assert (plan.rate_gbps, plan.trees[0].root) == (10, "spine2")


def test_limits_of_members_are_kept():
    graph = leaf_spine(2, 1, 4)
    for switch in ("leaf1", "leaf2", "spine1"):
        graph.nodes[switch].update(aggregates=True, capacity_gbps=1000.0, members=4)
    plan = plan_single_tree(Topology(graph), levels=None)
    assert check_plan(node_link(Topology(graph)), plan.to_dict())[1] == []
    for switch in ("leaf1", "leaf2", "spine1"):
        graph.nodes[switch]["members"] = 3
    with pytest.raises(TopologyError, match="no tree reaches all workers"):
        plan_single_tree(Topology(graph), levels=None)


def test_slots_limit_the_rate():
    """27 slots of 704 bytes in 50 us allow 3.04 Gb/s."""
    for slots, rate in ((64, 3.0), (27, 3.0), (20, 20 * 704 * 8e-3 / 50)):
        graph = seed_example().graph.copy()
        for switch in ("S1", "S2", "S3"):
            graph.nodes[switch]["slots"] = slots
        assert plan_single_tree(Topology(graph)).rate_gbps == pytest.approx(rate)


def test_adjacent_lets_switches_sum_only_neighbours():
    topology = Topology.of(leaf_spine(2, 2, 2), aggregates={"leaf1": 20, "leaf2": 40, "spine1": 80})
    for child, path in plan_single_tree(topology, levels=None, adjacent=True).trees[0].up.items():
        assert len(path) == 2, child


@pytest.mark.parametrize("kind", ["tree", "trees"])
def test_adjacent_fails_if_a_workers_switch_does_not_aggregate(kind):
    topology = Topology.of(leaf_spine(2, 1, 2), aggregates={"leaf1": 20, "spine1": 80})
    assert make_plan(topology, kind).rate_gbps > 0
    with pytest.raises(TopologyError, match=r"with --adjacent|look at members"):
        make_plan(topology, kind, adjacent=True)


def test_the_upgrades_with_the_highest_gain_are_made():
    graph = seed_example().graph.copy()
    for switch in ("S1", "S2", "S3"):
        graph.nodes[switch]["aggregates"] = False
    topology = Topology(graph)
    for count in (1, 2, 3):
        plan = plan_single_tree(topology, levels=None, upgrade=Upgrade(count, 9.0))
        alone = [
            plan_single_tree(topology.with_capacity(dict.fromkeys(chosen, 9.0)), levels=None)
            for chosen in combinations(("S1", "S2", "S3"), count)
        ]
        assert plan.rate_gbps == pytest.approx(max(one.rate_gbps for one in alone))
        assert len(plan.upgraded) <= count


def test_the_bound_at_the_time_limit_holds():
    """With far too little time there is still a tree, and a bound that the best tree does not exceed."""
    topology = Topology.of(
        leaf_spine(6, 2, 4, uplink_gbps=10),
        ps="leaf1-h1",
        aggregates={f"leaf{leaf}": 25 + 5 * leaf for leaf in range(1, 7)} | {"spine1": 60, "spine2": 60},
    )
    hurried = plan_single_tree(topology, time_s=0.3)
    assert check_plan(node_link(topology), hurried.to_dict(), levels=1)[1] == []
    assert hurried.bound_gbps >= plan_single_tree(topology).rate_gbps * (1 - 1e-6)


def test_parameters_wrong():
    with pytest.raises(ValueError, match="levels must be at least 1 or None, not 0"):
        plan_single_tree(seed_example(), levels=0)
    with pytest.raises(ValueError, match="time_s must be above 0, not 0"):
        plan_single_tree(seed_example(), time_s=0)

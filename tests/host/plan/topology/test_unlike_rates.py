"""Cables with unlike rates in their two directions: how files write them, what limits a plan, what is refused."""

import networkx as nx
import pytest

from iswitch.plan.allreduce.files.network_file import read_network
from iswitch.plan.baselines.grid import solve_relaxation
from iswitch.plan.baselines.nearest import NearestTrees
from iswitch.plan.baselines.systems import with_parameter_server
from iswitch.plan.check import check_plan
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.schemes import KINDS, make_plan, plan_baselines
from iswitch.plan.solver.arcs import Arcs
from iswitch.plan.solver.orbits import Orbits
from iswitch.plan.topology.generators import leaf_spine
from iswitch.plan.topology.graph_file import node_link, to_json
from iswitch.plan.topology.topology import Job, Topology, TopologyError
from iswitch.plan.topology.yaml_file import parse_yaml
from sim.bench.fabrics import random_topology

TWO_RACKS = """
racks:
  - {name: leaf, count: 2, hosts: 2, nic_gbps: 10, nic_sender_gbps: 8, aggregates: true, capacity_gbps: 100,
     uplinks: [{to: top, bw_gbps: 20, sender_gbps: 4}]}
switches:
  - {name: top}
  - {name: other}
hosts:
  - {name: PS, role: ps, at: top, bw_gbps: 40, sender_gbps: 30}
links:
  - {between: [other, top], bw_gbps: 5, sender: top, sender_gbps: 6}
"""


def test_each_section_of_a_file_can_name_the_rate_of_one_direction():
    topology = parse_yaml(TWO_RACKS)
    both = lambda a, b: (topology.bw_gbps(a, b), topology.bw_gbps(b, a))
    assert both("leaf2-h1", "leaf2") == (8, 10) and both("leaf1", "top") == (4, 20)
    assert both("PS", "top") == (30, 40) and both("top", "other") == (6, 5)


@pytest.mark.parametrize("seed", range(12))
def test_plans_and_baselines_keep_the_rate_of_each_direction(seed):
    topology = random_topology(seed, switches=3, workers=4, unlike=True)
    rates = {}
    for kind in KINDS:
        try:
            plan = make_plan(topology, kind)
        except TopologyError:  # members or slots do not suffice
            continue
        assert check_plan(node_link(topology), plan.to_dict(), levels=1 if kind.startswith("level") else None)[1] == []
        assert plan.gap < 1e-6
        rates[kind] = plan.rate_gbps
    for row in plan_baselines(topology) if topology.ps else ():
        if row.plan:
            assert check_plan(node_link(topology), row.plan.to_dict(), levels=None)[1] == []
            assert row.plan.rate_gbps <= rates.get("trees", float("inf")) * (1 + 1e-6)


@pytest.mark.parametrize("sender", ["leaf1", "spine1"])
def test_the_configuration_has_the_rate_of_each_direction(sender):
    graph = leaf_spine(2, 1, 2)
    graph.edges["leaf1", "spine1"].update(bw_gbps=20.0, sender=sender, sender_gbps=5.0)
    topology = Topology.of(graph, aggregates={"leaf1": 100, "leaf2": 100})
    [link] = [
        link
        for link in make_configuration(topology, make_plan(topology, "tree"))["links"]
        if link["ends"] == ["leaf1", "spine1"]
    ]
    assert topology.free_gbps(sender, *({"leaf1", "spine1"} - {sender})) == 5
    rates = (link["sender_gbps"], link["bw_gbps"])
    assert link["sender"] == "leaf1" and rates == ((5, 20) if sender == "leaf1" else (20, 5))


def test_racks_whose_uplinks_differ_in_one_direction_only_are_no_twins():
    graph = leaf_spine(3, 1, 2)
    graph.edges["leaf3", "spine1"].update(sender="spine1", sender_gbps=1.0)
    topology = Topology.of(graph, aggregates={"spine1": 100})
    assert ["leaf1", "leaf2"] in Orbits(topology, Arcs(topology)).classes


def test_the_rate_from_the_server_does_not_limit_what_grid_sends_to_it():
    graph = leaf_spine(1, 1, 2)
    graph.add_node("PS", kind="host")
    graph.add_edge("PS", "spine1", bw_gbps=20.0, sender="PS", sender_gbps=0.1)
    topology = Topology.of(graph, ps="PS", aggregates={"leaf1": 100}, job=Job(return_path="none", overhead_bytes=0))
    relaxed_gbps, _ = solve_relaxation(NearestTrees(topology))
    assert relaxed_gbps == pytest.approx(make_plan(topology, "tree").rate_gbps)


@pytest.mark.parametrize(
    ("to_gbps", "from_gbps", "returning", "chosen"),
    [
        (1.0, 20.0, "multicast", "leaf1-h2"),
        (20.0, 1.0, "multicast", "leaf1-h2"),
        (20.0, 12.0, "multicast", "leaf1-h1"),
        (20.0, 1.0, "none", "leaf1-h1"),
        (1.0, 20.0, "none", "leaf1-h2"),
    ],
)
def test_a_baseline_takes_as_ps_the_worker_whose_slower_used_direction_is_fastest(
    to_gbps, from_gbps, returning, chosen
):
    graph = leaf_spine(1, 1, 3, nic_gbps=10)
    graph.edges["leaf1-h1", "leaf1"].update(bw_gbps=to_gbps, sender="leaf1-h1", sender_gbps=from_gbps)
    topology = Topology.of(graph, aggregates={"leaf1": 100}, job=Job(return_path=returning))
    assert with_parameter_server(topology).ps == chosen


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_return_by_a_direction_without_free_bandwidth(kind):
    graph = leaf_spine(2, 2, 1)
    graph.edges["leaf1", "spine1"].update(sender="spine1", sender_gbps=1.0, reserved_gbps=1.0)
    topology = Topology.of(graph, aggregates={"leaf1": 100, "leaf2": 100, "spine1": 100, "spine2": 100})
    plan = make_plan(topology, kind)
    assert check_plan(node_link(topology), plan.to_dict(), levels=1 if kind.startswith("level") else None)[1] == []
    assert plan.gap < 1e-6


@pytest.mark.parametrize(("returning", "gbps"), [("multicast", 2), ("unicast", 2), ("none", 10)])
def test_a_slow_direction_to_a_worker_limits_a_plan_only_if_results_return(returning, gbps):
    graph = leaf_spine(1, 1, 2)
    graph.edges["leaf1-h1", "leaf1"].update(sender="leaf1", sender_gbps=2.0)
    job = Job(return_path=returning, overhead_bytes=0)
    plan = make_plan(Topology.of(graph, aggregates={"leaf1": 100}, job=job), "tree")
    assert plan.rate_gbps == pytest.approx(gbps) and plan.gap < 1e-6


def test_a_direction_without_free_bandwidth_is_refused():
    graph = leaf_spine(1, 1, 2)
    graph.edges["leaf1-h1", "leaf1"].update(sender="leaf1", sender_gbps=2.0, reserved_gbps=2.0)
    graph.add_node("PS", kind="host", role="ps")
    graph.add_edge("PS", "spine1", bw_gbps=20.0)
    with pytest.raises(TopologyError, match="other traffic has reserved all bandwidth of a worker's cable"):
        make_plan(Topology.of(graph, aggregates={"leaf1": 100}), "tree")


def test_the_emulated_fabric_refuses_a_plan_over_a_cable_with_unlike_rates():
    graph = leaf_spine(1, 1, 2)
    graph.edges["leaf1-h1", "leaf1"].update(sender="leaf1", sender_gbps=5.0)
    topology = Topology.of(graph, aggregates={"leaf1": 100})
    emulator = make_configuration(topology, make_plan(topology, "tree"))["emulator"]
    assert emulator["reasons"] == [
        "leaf1-leaf1-h1 has unlike rates in its two directions, but an emulated cable has one rate"
    ]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("sender: top, ", "", "f:11: a link: unlike rates need both 'sender', an end of the cable, and 'sender_gbps'"),
        ("sender: top", "sender: leaf1", "f:11: sender of other-top must be other or top, not leaf1"),
        ("at: top, bw_gbps: 40, ", "", "f:9: host PS: sender_gbps is a rate of its cable, which needs 'at'"),
        ("sender_gbps: 6", "sender_gbps: 6, reserved_gbps: 5.5", "f:11: reserved_gbps of a link must be 0 to its bw"),
        ("bw_gbps: 5,", "bw_gbps: 9, reserved_gbps: 7,", "f:11: reserved_gbps of a link must be 0 to its sender_gbps"),
    ],
)
def test_a_wrong_rate_of_one_direction_is_refused_with_its_line(old, new, why):
    with pytest.raises(TopologyError) as error:
        parse_yaml(TWO_RACKS.replace(old, new), "f")
    assert why in str(error.value)


def test_a_schedule_in_rounds_refuses_unlike_rates(tmp_path):
    graph = nx.Graph(leaf_spine(1, 1, 2))
    graph.edges["leaf1-h1", "leaf1"].update(sender="leaf1", sender_gbps=5.0)
    path = tmp_path / "network.json"
    path.write_text(to_json(Topology.of(graph, aggregates={"leaf1": 100})))
    with pytest.raises(TopologyError, match="has unlike rates in its two directions"):
        read_network(path)

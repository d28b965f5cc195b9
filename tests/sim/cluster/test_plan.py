"""Plans on compiled switches, in virtual time: measured rates are the predicted ones. An impossible plan is refused."""

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

import sim.cluster.plan
from examples.ppo import Options
from iswitch.config import Config
from iswitch.plan.output.configuration import make_configuration
from iswitch.plan.output.stripes import Stripes
from iswitch.plan.schemes import make_plan
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.topology import Topology
from sim.cluster.plan import measure, train
from sim.emulator.device import open_device
from sim.emulator.planned import boards_of, config_of, fabric_of, ordinary_frames

TWO_SPINES = Path(__file__).parents[3] / "docs/plan_two_spines.yaml"
SCALE = 0.01
SEGMENTS = (128, 448)


def racks(uplink_gbps: float, leaves: int = 2, hosts: int = 3) -> Topology:
    graph = leaf_spine(leaves, 1, hosts, nic_gbps=10.0, uplink_gbps=uplink_gbps)
    return Topology.of(graph, aggregates={node: 100.0 for node, kind in graph.nodes(data="kind") if kind == "switch"})


def chain() -> Topology:
    """Return three switches in a row with workers at each of them. The cables become slower along the row."""
    graph = nx.Graph()
    graph.add_nodes_from([f"s{k}" for k in range(3)], kind="switch", aggregates=True, capacity_gbps=100.0)
    for host, (switch, bw_gbps) in enumerate([("s0", 10.0), ("s0", 4.0), ("s1", 10.0), ("s2", 10.0), ("s2", 10.0)]):
        graph.add_edge(f"w{host}", switch, bw_gbps=bw_gbps)
        graph.nodes[f"w{host}"]["kind"] = "host"
    graph.add_edge("s0", "s1", bw_gbps=20.0)
    graph.add_edge("s1", "s2", bw_gbps=7.0)
    return Topology(graph)


def alone() -> Topology:
    graph = nx.relabel_nodes(nx.star_graph(4), {0: "s", **{k: f"w{k}" for k in range(1, 5)}})
    nx.set_edge_attributes(graph, 2.5, "bw_gbps")
    nx.set_node_attributes(graph, "host", "kind")
    graph.nodes["s"].update(kind="switch", aggregates=True, capacity_gbps=100.0)
    return Topology(graph)


CASES = {
    "uplinks are the bottleneck": racks(6.0),
    "workers' cables are the bottleneck": racks(40.0),
    "three in a row": chain(),
    "one switch": alone(),
}


@pytest.mark.parametrize("case", CASES)
def test_the_measured_rate_is_the_predicted_rate(case: str) -> None:
    topology = CASES[case]
    rates = measure(topology, plan_single_tree(topology, levels=None, adjacent=True), scale=SCALE, segments=SEGMENTS)
    assert abs(rates.difference) <= 0.05, rates


def test_a_slower_cable_than_planned_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = CASES["uplinks are the bottleneck"]
    monkeypatch.setattr(
        sim.cluster.plan,
        "fabric_of",
        lambda configuration, boards, scale, seed: fabric_of(configuration, boards, scale=0.9 * scale, seed=seed),
    )
    rates = measure(topology, plan_single_tree(topology, levels=None, adjacent=True), scale=SCALE, segments=SEGMENTS)
    assert rates.difference < -0.05


def test_several_trees_over_cables_with_a_cycle_have_the_predicted_rate_together() -> None:
    topology = read_topology(TWO_SPINES)
    plan = make_plan(topology, "levels", adjacent=True)
    assert len(plan.trees) == 2 and not nx.is_forest(topology.graph)
    rates = measure(topology, plan, scale=SCALE, segments=SEGMENTS)
    assert abs(rates.difference) <= 0.05, rates


def test_other_shares_of_the_trees_than_planned_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = read_topology(TWO_SPINES)
    plan = make_plan(topology, "levels", adjacent=True)
    monkeypatch.setattr(sim.cluster.plan, "round_to_stripes", lambda *_: Stripes(8, (5, 3), plan.rate_gbps))
    assert measure(topology, plan, scale=SCALE, segments=SEGMENTS).difference < -0.1


def test_an_ordinary_frame_at_a_switch_is_counted() -> None:
    boards = [
        open_device(
            Config(), engine="verilator", seed=number, mac=bytes([2, 0, 0, 0, 0, number]), ip=bytes([10, 0, 0, number])
        )
        for number in range(2)
    ]
    try:
        assert ordinary_frames(boards) == 0
        assert boards[1].send(2, b"\xff" * 6 + b"\x02hosts" + b"\x08\x00" + bytes(46))
        boards[1].run(1000, 0)
        assert ordinary_frames(boards) == 1
    finally:
        for board in boards:
            board.close()


def test_a_policy_trains_over_the_fabric_of_a_plan() -> None:
    topology = CASES["uplinks are the bottleneck"]
    options = Options(workers=6, num_envs=1, total_steps=6 * 128)
    results = train(topology, plan_single_tree(topology, levels=None, adjacent=True), options, scale=SCALE)
    assert len(results) == 6 and len({digest for _, digest in results}) == 1


def test_boards_and_cables_are_configured_as_the_plan_says() -> None:
    topology = CASES["three in a row"]
    plan = plan_single_tree(topology, levels=None, adjacent=True)
    configuration = make_configuration(topology, plan)
    boards = boards_of(configuration, config_of(configuration))
    try:
        assert [board.mac.hex(":") for board in boards] == [
            switch["mac"] for switch in configuration["switches"].values()
        ]
        with fabric_of(configuration, boards, scale=0.5) as fabric:
            speeds = {frozenset((link.one[0], link.other[0])): link.rate_bps for link in fabric.links}
        assert speeds == {frozenset((0, 1)): 10e9, frozenset((1, 2)): 3.5e9}
    finally:
        for board in boards:
            board.close()


def test_the_default_switch_is_used_if_it_is_large_enough() -> None:
    topology = CASES["uplinks are the bottleneck"]
    configuration = make_configuration(topology, plan_single_tree(topology, levels=None, adjacent=True))
    assert config_of(configuration) == Config()
    larger = racks(40.0, leaves=3, hosts=5)
    configuration = make_configuration(larger, plan_single_tree(larger, levels=None, adjacent=True))
    assert config_of(configuration, window=32) == replace(Config(), ports=6, members=16, window=32)


def test_a_plan_without_a_switch_as_root_is_refused_with_the_reason() -> None:
    topology = seed_example()
    configuration = make_configuration(topology, plan_single_tree(topology))
    with pytest.raises(ValueError, match="sums end at the host PS, not at a switch"):
        config_of(configuration)

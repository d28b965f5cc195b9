"""The checker accepts valid plans and reports each of these invalid ones."""

import copy

import pytest

from iswitch.plan.check import check_plan
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.generators import seed_example
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology


def change(*path, to):
    """Return a function that sets the value at `path` in the first tree."""

    def changed(plan):
        at = plan["trees"][0]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return changed


def raise_rate(plan):
    plan["trees"][0]["rate_gbps"] *= 1.001
    plan["rate_gbps"] *= 1.001


def remove_worker(plan):
    del plan["trees"][0]["homes"]["W5"], plan["trees"][0]["up"]["W5"]


def make_parent_cycle(plan):
    plan["trees"][0]["parents"] |= {"S1": "S2", "S2": "S1"}
    plan["trees"][0]["up"] |= {"S1": ["S1", "S2"], "S2": ["S2", "S1"]}


def lower_bound(plan):
    plan["bound_gbps"] = 2.9


def add_level(plan):
    plan["trees"][0]["parents"]["S2"] = "S3"
    plan["trees"][0]["up"]["S2"] = ["S2", "S3"]


def overload_home(plan):
    plan["trees"][0]["homes"]["W4"], plan["trees"][0]["up"]["W4"] = "S1", ["W4", "S1"]


INVALID = {
    "a rate above the capacities": (raise_rate, "carries"),
    "a rate that is not the sum of the trees'": (lambda plan: plan.update(rate_gbps=2.9), "the sum over the trees"),
    "a worker left out": (remove_worker, "not those of the topology"),
    "a home without the capacity": (overload_home, "sum S1 carries"),
    "a path that ends elsewhere": (change("up", "W4", to=["W4", "S1"]), "must go from W4 to S2"),
    "a path that begins elsewhere": (change("up", "W4", to=["S1", "S2"]), "must go from W4 to S2"),
    "no path": (change("up", "W4", to=[]), "must go from W4 to S2"),
    "a cable that does not exist": (change("up", "S1", to=["S1", "PS"]), "a cable that does not exist"),
    "a path through a worker": (change("up", "S1", to=["S1", "W1", "S3", "PS"]), "passes through a host"),
    "a path that visits a node twice": (change("up", "S3", to=["S3", "S1", "S3", "PS"]), "visits a node twice"),
    "a path over a full cable": (change("up", "S1", to=["S1", "S2", "S3", "PS"]), "S2>S3 carries"),
    "parents in a cycle": (make_parent_cycle, "does not reach the root"),
    "a switch without parent": (lambda plan: plan["trees"][0]["parents"].pop("S1"), "does not reach the root"),
    "another root": (change("root", to="S3"), "the root must be the ps"),
    "a path of an unknown node": (change("up", "X", to=["S1", "S2"]), "paths of unknown nodes"),
    "paths of results": (change("down", to={"W1": ["PS", "S3", "S1", "W1"]}), "must not have paths of their own"),
    "no rate": (change("rate_gbps", to=0.0), "above 0"),
    "a bound below the rate": (lower_bound, "is above its bound, 2.9"),
    "one more sum": (add_level, "summed by 2 switches"),
}


@pytest.fixture(scope="module")
def seed():
    topology = seed_example()
    return node_link(topology), plan_single_tree(topology).to_dict()


def test_a_valid_plan_passes(seed):
    assert check_plan(*seed, levels=1)[1] == []


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_plan_is_reported(seed, name):
    network, plan = seed
    mutate, violation = INVALID[name]
    plan = copy.deepcopy(plan)
    mutate(plan)
    assert violation in "\n".join(check_plan(network, plan, levels=1)[1])


@pytest.mark.parametrize(
    ("node", "key", "value", "violation"),
    [
        ("S2", "aggregates", False, "S2 does not aggregate"),
        ("S2", "capacity_gbps", 8.9, "sum S2 carries 9 of 8.9"),
        ("S1", "members", 2, "can have 2 members, not 3"),
        ("S1", "slots", 26, "slots S1 carries 3 of"),
        ("PS", "ingress_gbps", 8.9, "sum PS carries 9 of 8.9"),
    ],
)
def test_a_weaker_switch_is_noticed(seed, node, key, value, violation):
    network, plan = copy.deepcopy(seed[0]), seed[1]
    next(entry for entry in network["nodes"] if entry["id"] == node)[key] = value
    assert violation in "\n".join(check_plan(network, plan, levels=1)[1])


@pytest.mark.parametrize(
    ("setting", "most", "violation"),
    [
        ("max_trees", 1, "the plan has 2 trees, but max_trees is 1"),
        ("max_slots", 27, "S1 reserves 28 slots, but max_slots is 27"),
        ("max_slots", 13, "slots S1 carries 3 of 1.46432 Gb/s"),
    ],
)
def test_too_many_trees_and_slots_are_noticed(seed, setting, most, violation):
    """Two trees of 1.5 Gb/s: each has 13.3 segments in flight, and reserves 14 slots."""
    network, plan = copy.deepcopy(seed)
    (tree,) = plan["trees"]
    tree["rate_gbps"] /= 2
    plan["trees"].append(copy.deepcopy(tree))
    network["graph"][setting] = {"max_trees": 2, "max_slots": 28}[setting]
    assert check_plan(network, plan)[1] == []
    network["graph"][setting] = most
    assert violation in "\n".join(check_plan(network, plan)[1])


def test_a_slower_or_reserved_cable_is_noticed(seed):
    for mutate in ({"bw_gbps": 2.9}, {"reserved_gbps": 0.1}):
        for number, edge in enumerate(seed[0]["edges"]):
            if {edge["source"], edge["target"]} == {"W7", "S3"}:
                network = copy.deepcopy(seed[0])
                network["edges"][number] |= mutate
                assert "W7>S3 carries 3 of 2.9 Gb/s" in check_plan(network, seed[1])[1]


def test_results_without_a_path_are_noticed():
    """Without paths of results, unicast would be fast."""
    topology = seed_example(return_path="unicast")
    plan = plan_single_tree(topology).to_dict()
    network = node_link(topology)
    assert check_plan(network, plan)[1] == []
    fast = copy.deepcopy(plan)
    fast["rate_gbps"] = fast["trees"][0]["rate_gbps"] = 1.01
    assert check_plan(network, fast)[1]
    del plan["trees"][0]["down"]["W3"]
    assert "the result of W3 must go from PS to W3" in check_plan(network, plan)[1][0]


def test_loads_are_those_of_the_paper(seed):
    loads = check_plan(*seed)[0]
    assert list(loads) == sorted(loads)
    assert (loads["sum S1"], loads["sum S2"], loads["sum S3"], loads["S1>S3"], loads["S1>S2"], loads["S2>S3"]) == (
        9,
        9,
        6,
        3,
        3,
        3,
    )


def test_plain_node_link_data_of_networkx_is_accepted(seed):
    """The data have no attributes beside those of our JSON."""
    import networkx as nx

    again = nx.node_link_data(Topology(nx.node_link_graph(seed[0], edges="edges")).graph, edges="edges")
    assert check_plan(again, seed[1])[1] == []

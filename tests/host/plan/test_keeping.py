"""A plan that keeps a running one changes as few switches as any plan of its rate, by a search of all trees."""

import json
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from iswitch.plan.check import check_plan
from iswitch.plan.keeping import keep_running, read_running_plan
from iswitch.plan.schemes import KINDS, make_plan
from iswitch.plan.sensitivity import remove
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.tree import at_full_rate
from iswitch.plan.solver.tree_program import Keep
from iswitch.plan.topology.generators import leaf_spine, seed_example
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology, TopologyError
from sim.bench.fabrics import random_topology
from sim.bench.triangle import all_trees, triangle

SAME = 1e-6


def differences(topology, before, after):
    """Return the number of switches with another parent, or with other members, in two trees."""

    def role(tree, switch):
        members = {child for child, home in [*tree.homes.items(), *tree.parents.items()] if home == switch}
        return tree.parents.get(switch), members

    return sum(role(before, switch) != role(after, switch) for switch in topology.switches)


def holds(topology, plan, kind):
    assert check_plan(node_link(topology), plan.to_dict(), levels=1 if kind.startswith("level") else None)[1] == []


FABRICS = [("multicast", 4, 4, 3), ("none", 3.5, 5, 2.5), ("multicast", 9, 6, 2)]


def compare_with_all_trees(topology, running):
    """Compare with the fastest tree of each number of changes. `running` need not be possible any more."""
    fastest = {}
    for tree in all_trees(topology):
        if all(topology.graph.has_edge(*hop) for path in tree.up.values() for hop in pairwise(path)):
            changes, rate = differences(topology, running, tree), at_full_rate(topology, tree).rate_gbps
            fastest[changes] = max(rate, fastest.get(changes, 0.0))
    best = make_plan(topology, "level")
    for within in (0.0, 0.1, 0.3, 1.0):
        kept = keep_running(topology, "level", [running], best, within=within, time_s=60.0)
        enough = best.rate_gbps * (1 - within) * (1 - SAME)
        fewest = min(changes for changes, rate in fastest.items() if rate >= enough)
        assert len(kept.chosen.changed) == fewest == differences(topology, running, kept.chosen.plan.trees[0])
        assert kept.chosen.plan.rate_gbps >= enough
        for option in kept.options:
            most = max(rate for changes, rate in fastest.items() if changes <= len(option.changed))
            assert option.plan.rate_gbps <= most * (1 + SAME)
            holds(topology, option.plan, "level")
        for changes, rate in fastest.items() if not within else ():
            found = [option.plan.rate_gbps for option in kept.options if len(option.changed) <= changes]
            assert max(found) >= rate * (1 - SAME)


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("lost", ["L1", "L2", "L3"])
def test_no_tree_that_changes_as_few_switches_is_faster(fabric, lost):
    topology = triangle(*fabric)
    compare_with_all_trees(remove(topology, lost), make_plan(topology, "level").trees[0])


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("seed", range(4))
def test_no_tree_that_changes_as_few_switches_of_any_tree_is_faster(fabric, seed):
    """The running tree is any tree, as if capacities had changed since."""
    topology = triangle(*fabric)
    compare_with_all_trees(topology, Random(seed).choice(list(all_trees(topology))))


@pytest.mark.parametrize("seed", [3000, 3004, 3005])
def test_a_tree_of_several_levels_changes_no_more_switches_than_it_may(seed):
    """The running tree is the best one of another fabric: cables carry other rates there."""
    topology = random_topology(seed, least=True)
    graph = topology.graph.copy()
    for number, (a, b) in enumerate(sorted(graph.edges)):
        graph.edges[a, b]["bw_gbps"] = 2.5 + 7 * number % 11
    running = plan_single_tree(Topology(graph), levels=None).trees[0]
    rates = []
    for most in range(len(topology.switches) + 1):
        try:
            plan = plan_single_tree(topology, levels=None, keep=Keep(running, most))
        except TopologyError:
            continue
        assert differences(topology, running, plan.trees[0]) <= most and plan.gap < SAME
        holds(topology, plan, "tree")
        rates.append(plan.rate_gbps)
    assert all(fewer <= more * (1 + SAME) for fewer, more in pairwise(rates))
    assert rates[-1] == pytest.approx(plan_single_tree(topology, levels=None).rate_gbps, rel=SAME)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2000, 2006))
def test_without_a_loss_nothing_changes_and_with_one_a_plan_holds(seed, kind):
    topology = random_topology(seed)
    running = make_plan(topology, kind, time_s=10.0)
    kept = keep_running(topology, kind, running.trees, running, within=0.01, time_s=10.0)
    assert not kept.chosen.changed and kept.chosen.plan.rate_gbps == pytest.approx(running.rate_gbps, rel=SAME)
    switches = set(topology.switches)
    for a, b in topology.graph.edges:
        if not {a, b} <= switches:
            continue
        try:
            left = remove(topology, f"{a}-{b}")
            best = make_plan(left, kind, time_s=10.0)
        except TopologyError:
            continue  # the cable was the only path
        kept = keep_running(left, kind, running.trees, best, within=0.2, time_s=10.0)
        assert len(kept.chosen.changed) <= len(kept.best.changed)
        assert kept.chosen.plan.rate_gbps >= best.rate_gbps * 0.8 * (1 - SAME) and kept.price <= 0.2 + SAME
        for option in (*kept.options, kept.best):
            holds(left, option.plan, kind)


def test_trees_that_stay_keep_their_jobs():
    """The configuration of a switch is by job: if trees came in another order, all roles would change."""
    topology = triangle("multicast", 4, 4, 3)
    running = make_plan(topology, "levels")
    assert len(running.trees) > 1
    other_way = replace(running, trees=running.trees[::-1])
    kept = keep_running(topology, "levels", other_way.trees, running, within=0.01, time_s=10.0)
    assert not kept.chosen.changed and not kept.best.changed
    assert [tree.homes for tree in kept.best.plan.trees] == [tree.homes for tree in other_way.trees]


def test_a_large_fabric_keeps_the_running_tree_where_that_is_fast_enough():
    """With more switches than the integer program takes, the options are the running tree and the best plan."""
    graph = leaf_spine(32, 2, 2, nic_gbps=10, uplink_gbps=40)
    topology = Topology.of(graph, aggregates={f"leaf{leaf}": 100 for leaf in range(1, 33)} | {"spine1": 1000})
    running = make_plan(topology, "tree", time_s=5.0)
    left = remove(topology, "leaf7-spine2")
    kept = keep_running(left, "tree", running.trees, running, within=0.05, time_s=5.0)
    assert not kept.chosen.changed and kept.chosen.plan.rate_gbps >= running.rate_gbps * 0.95
    holds(left, kept.chosen.plan, "tree")


def test_a_switch_that_is_gone_does_not_count_as_changed():
    graph = seed_example().graph.copy()
    graph.add_node("S4", kind="switch", aggregates=True, capacity_gbps=90.0)
    for switch in ("S1", "S2", "S3"):
        graph.add_edge(switch, "S4", bw_gbps=30.0)
        graph.nodes[switch]["capacity_gbps"] = 5.0
    topology = Topology(graph)
    running = make_plan(topology, "tree").trees[0]
    left = remove(topology, "S4")
    best = make_plan(left, "tree")
    kept = keep_running(left, "tree", [running], best, within=0.0, time_s=20.0)
    assert running.summing_nodes == ["S4", "PS"] and set(kept.chosen.changed) <= {"S1", "S2", "S3"}
    assert {len(option.changed) for option in kept.options} >= {0, len(kept.chosen.changed)}
    holds(left, kept.chosen.plan, "tree")


@pytest.mark.parametrize("text", ["[]", "{}", "nothing", '{"trees": [{"root": 1}]}', '{"trees": 3}', "[" * 9000])
def test_a_file_that_is_not_a_plan_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(
        ValueError, match=r"plan.json is not a plan: make one with `iswitch plan FILE --json > plan.json`"
    ):
        read_running_plan(tmp_path / "plan.json", seed_example())


def test_a_plan_of_another_fabric_is_refused(tmp_path):
    other = Topology.of(leaf_spine(2, 1, 2), aggregates={"leaf1": 100, "leaf2": 100, "spine1": 100})
    (tmp_path / "plan.json").write_text(json.dumps(make_plan(other, "tree").to_dict()))
    with pytest.raises(ValueError, match=r"plan\.json is a plan of another fabric: it has no worker of this one"):
        read_running_plan(tmp_path / "plan.json", seed_example())


def test_running_trees_that_are_faster_than_what_a_search_found_are_the_best_plan():
    topology = seed_example()
    running = make_plan(topology, "level")
    slow = replace(running, trees=tuple(replace(tree, rate_gbps=1.0) for tree in running.trees), bound_gbps=9.0)
    kept = keep_running(topology, "level", running.trees, slow, within=0.05, time_s=5.0)
    assert kept.chosen.plan.rate_gbps == kept.best.plan.rate_gbps == 3 and kept.best.plan.bound_gbps == 9

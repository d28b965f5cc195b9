"""No kind of plan is slower than a baseline or than what it contains, even if no integer program is solved in time."""

from pathlib import Path

import pytest

from iswitch.plan import schemes
from iswitch.plan.baselines.known_trees import as_known_trees
from iswitch.plan.baselines.systems import with_parameter_server
from iswitch.plan.check import check_plan
from iswitch.plan.schemes import KINDS, make_plan, plan_all_kinds, plan_baselines
from iswitch.plan.solver import clock
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram, Solution
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.tree import Plan
from iswitch.plan.topology.generators import leaf_spine
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology, TopologyError
from iswitch.plan.topology.yaml_file import parse_yaml
from sim.bench.fabrics import random_topology

ROOT = Path(__file__).parents[3]
SAME = 1e-6
CONTAINS = {"level": (), "tree": ("level",), "levels": ("level",), "trees": ("level", "tree", "levels")}


@pytest.fixture
def unsolved(monkeypatch):
    """Integer programs with a time limit take all of it and find nothing. Time passes nowhere else."""
    now = [0.0]
    solve = LinearProgram.solve

    def pass_time(program, *, time_s=INFINITY, start=None, relaxed=False):
        if relaxed or time_s == INFINITY or not any(program.integer):
            return solve(program, time_s=time_s, start=start, relaxed=relaxed)
        now[0] += max(time_s, 0.01)
        return Solution("time", INFINITY, -INFINITY, [], [], time_s)

    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(LinearProgram, "solve", pass_time)


def made(topology, kind):
    """Return the plan of a kind without trees to start from, or None if there is none."""
    try:
        return make_plan(topology, kind, time_s=30.0)
    except TopologyError:
        return None


def levels_of(kind):
    return 1 if kind.startswith("level") else None


@pytest.mark.parametrize("seed", [*range(2, 10), 22])
def test_a_kind_alone_is_at_least_as_fast_as_every_baseline(unsolved, seed):
    topology = random_topology(seed)
    rows = list(plan_baselines(topology, time_s=30.0))
    for kind in KINDS:
        plan = made(topology, kind)
        for row in rows:
            trees = [*row.known_trees(topology)]
            if kind.startswith("level") and row.scheme == "SwitchML-like":
                continue  # it has several levels
            together = sum(tree.rate_gbps for tree in trees) if topology.ps and kind.endswith("s") else 0.0
            least = max([together, *(tree.rate_gbps for tree in trees)])
            assert not trees or (plan and plan.rate_gbps >= least * (1 - SAME)), (kind, row.scheme)
        if plan:
            assert check_plan(node_link(topology), plan.to_dict(), levels=levels_of(kind))[1] == []


@pytest.mark.parametrize("seed", range(19, 27))
def test_no_row_of_the_table_is_slower_than_what_it_contains(unsolved, seed):
    topology = random_topology(seed)
    start = [tree for row in plan_baselines(topology, time_s=3.0) for tree in row.known_trees(topology)]
    rates = {
        kind: row.plan.rate_gbps if row.plan else 0.0
        for kind, row in zip(KINDS, plan_all_kinds(topology, time_s=30.0, start=start))
    }
    for kind, contained in CONTAINS.items():
        assert all(rates[each] <= rates[kind] * (1 + SAME) for each in contained), (rates, kind)


def test_a_row_is_as_fast_as_what_it_contains_even_if_its_own_search_finds_nothing(monkeypatch):
    """Only the search of one tree of one level finds anything by itself. The other kinds have what they are given."""
    topology = random_topology(3)

    def search(topology, kind, *, start=(), **settings):
        if kind == "level":
            return make_plan(topology, kind, start=start, **settings)
        if not start:
            raise TopologyError("no tree was found")
        return Plan(scheme=KINDS[kind], trees=(max(start, key=lambda tree: tree.rate_gbps),), bound_gbps=INFINITY)

    monkeypatch.setattr(schemes, "make_plan", search)
    rows = [row.plan for row in plan_all_kinds(topology, time_s=10.0)]
    assert all(rows) and len({plan.rate_gbps for plan in rows}) == 1


@pytest.mark.parametrize("return_path", ["multicast", "unicast", "none"])
def test_a_baselines_tree_becomes_one_whose_root_is_the_switch_of_its_ps(return_path):
    """The loads are those of the independent check."""
    graph = leaf_spine(3, 2, 2, nic_gbps=10, uplink_gbps=40)
    topology = Topology.of(graph, aggregates=dict.fromkeys(("leaf1", "leaf2", "leaf3", "spine1"), 50))
    topology = topology.with_job(return_path=return_path)
    planned, rows = with_parameter_server(topology), list(plan_baselines(topology, time_s=2.0))
    assert planned.ps and len(rows) == 4
    for row in rows:
        found = as_known_trees(topology, planned, row.plan.trees)
        assert found
        for tree in found:
            plan = Plan(scheme=row.scheme, trees=(tree,), bound_gbps=INFINITY)
            assert check_plan(node_link(topology), plan.to_dict())[1] == []
            assert tree.root in topology.aggregators and set(tree.homes) == set(topology.workers)


@pytest.mark.parametrize("levels", [1, None])
def test_several_trees_of_26_switches_need_no_integer_program(unsolved, levels):
    """One tree for each switch that sums all workers fills the cables of all workers."""
    text = (ROOT / "docs/plan_12racks.yaml").read_text(encoding="utf-8")
    topology = parse_yaml(text.replace("count: 12", "count: 24"))
    assert plan_several_trees(topology, levels=levels, time_s=30.0).gap < SAME

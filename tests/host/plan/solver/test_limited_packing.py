"""Plans of at most so many trees, or so many slots: compared with an integer program over all trees of a fabric."""

from dataclasses import replace
from itertools import pairwise

import pytest

from iswitch.plan import schemes
from iswitch.plan.check import check_plan
from iswitch.plan.schemes import KINDS, make_plan, plan_all_kinds, plan_baselines
from iswitch.plan.solver.limited_packing import keeps_limits
from iswitch.plan.solver.linear_program import INFINITY, LinearProgram
from iswitch.plan.solver.several_trees import plan_several_trees
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.tree import at_full_rate, capacities
from iswitch.plan.topology.generators import leaf_spine
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology
from sim.bench.fabrics import random_topology
from sim.bench.triangle import triangle, undominated_trees

SAME = 1e-6
FABRICS = [("multicast", 4, 4, 3), ("none", 3.5, 5, 2.5), ("multicast", 5, 6, 2), ("none", 6, 3.7, 1.9)]


def fastest(topology, *, max_trees=None, max_slots=None):
    """Return the highest rate within the limits, by an integer program with a variable for each tree that could be
    used. A tree may be there several times, so that its slots can be counted tree by tree."""
    room, rows, reserved, program = capacities(topology), {}, {}, LinearProgram()
    slot_gbps = topology.job.payload_bytes * 8e-3 / topology.job.round_trip_us
    chosen = {}
    for load in undominated_trees(topology):
        rate = program.add_variable(cost=-1.0)
        chosen[program.add_variable(0, 1, integer=True)] = 1.0
        program.add_row({rate: 1.0, max(chosen): -10.0}, -INFINITY, 0)
        if max_slots:
            slots = program.add_variable(0, max_slots, integer=True)
            program.add_row({rate: 1.0, slots: -slot_gbps}, -INFINITY, 0)
            for place in {resource.at for resource in load if resource.kind == "slots"}:
                reserved.setdefault(place, {})[slots] = 1.0
        for resource, size in load.items():
            if resource in room:
                rows.setdefault(resource, {})[rate] = size
    for resource, terms in rows.items():
        program.add_row(terms, 0, room[resource])
    for terms in reserved.values():
        program.add_row(terms, 0, max_slots)
    program.add_row(chosen, 0, max_trees or len(chosen))
    return -program.solve().objective


def holds(topology, plan, levels=1):
    assert check_plan(node_link(topology), plan.to_dict(), levels=levels)[1] == []
    assert keeps_limits(topology, plan.trees)


@pytest.mark.parametrize("fabric", FABRICS)
def test_no_plan_of_so_many_trees_is_faster(fabric):
    for most in (2, 3):
        topology = triangle(*fabric).with_job(max_trees=most)
        plan = make_plan(topology, "levels")
        holds(topology, plan)
        best = fastest(topology, max_trees=most)
        assert plan.rate_gbps == pytest.approx(best, rel=1e-5) and best <= plan.bound_gbps * (1 + SAME)


@pytest.mark.parametrize("fabric", FABRICS)
def test_no_plan_of_so_many_slots_is_faster(fabric):
    for most in (3, 5):
        topology = triangle(*fabric).with_job(max_slots=most, round_trip_us=10.0)
        plan = make_plan(topology, "levels")
        holds(topology, plan)
        best = fastest(topology, max_slots=most)
        assert plan.rate_gbps == pytest.approx(best, rel=1e-5) and best <= plan.bound_gbps * (1 + SAME)


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_more_trees_are_never_slower_and_one_is_the_fastest_tree(seed):
    topology, levels = random_topology(seed), 1 if seed % 2 else None
    single = plan_single_tree(topology, levels=levels)
    free = plan_several_trees(topology, levels=levels, start=single.trees)
    rates = [single.rate_gbps]
    for most in (1, 2, 4, len(free.trees)):
        limited = topology.with_job(max_trees=most)
        plan = plan_several_trees(limited, levels=levels, start=single.trees, bound_of_one=single.bound_gbps)
        holds(limited, plan, levels)
        assert plan.rate_gbps <= plan.bound_gbps * (1 + SAME) and plan.rate_gbps <= free.rate_gbps * (1 + SAME)
        if most == 1:
            assert plan.rate_gbps == pytest.approx(single.rate_gbps, rel=SAME) and plan.gap < SAME
        if most >= len(free.trees):
            assert plan.rate_gbps == pytest.approx(free.rate_gbps, rel=SAME)
        elif most > 1:
            rates.append(plan.rate_gbps)
    assert all(fewer <= more * (1 + SAME) for fewer, more in pairwise(rates))


@pytest.mark.parametrize("seed", range(19, 27))
def test_no_row_of_the_table_is_slower_than_what_it_contains_and_keeps_the_limits(seed):
    topology = random_topology(seed).with_job(max_trees=2, max_slots=16)
    baselines = list(plan_baselines(topology, time_s=3.0))
    start = [tree for row in baselines for tree in row.known_trees(topology)]
    rows = dict(zip(KINDS, plan_all_kinds(topology, time_s=20.0, start=start)))
    rates = {kind: row.plan.rate_gbps if row.plan else 0.0 for kind, row in rows.items()}
    for kind, contained in {"tree": ["level"], "levels": ["level"], "trees": ["level", "tree", "levels"]}.items():
        assert all(rates[each] <= rates[kind] * (1 + SAME) for each in contained), (rates, kind)
    for kind, row in rows.items():
        if row.plan:
            holds(topology, row.plan, 1 if kind.startswith("level") else None)
    for row in baselines:
        if topology.ps and row.plan and keeps_limits(topology, row.plan.trees):
            assert row.plan.rate_gbps <= rates["trees"] * (1 + SAME), row.scheme


def test_a_row_keeps_the_trees_of_a_row_that_it_contains_if_its_search_finds_less(monkeypatch):
    """The trees of a packing are known one by one, and a search that is cut short may not find it again."""
    topology = triangle(*FABRICS[0]).with_job(max_trees=2)

    def search(topology, kind, **settings):
        plan = make_plan(topology, kind, **settings)
        return replace(plan, trees=(at_full_rate(topology, plan.trees[1]),)) if kind == "trees" else plan

    monkeypatch.setattr(schemes, "make_plan", search)
    plans = {kind: row.plan for kind, row in zip(KINDS, plan_all_kinds(topology, time_s=20.0))}
    assert plans["trees"].rate_gbps == plans["levels"].rate_gbps > plans["tree"].rate_gbps
    assert plans["trees"].scheme == KINDS["trees"]
    holds(topology, plans["trees"])


def test_without_time_a_plan_keeps_the_limits():
    topology = triangle(*FABRICS[0]).with_job(max_trees=1, max_slots=20)
    holds(topology, plan_several_trees(topology, time_s=1e-9))


def test_slots_without_a_round_trip_limit_no_rate():
    """A tree then reserves one slot at each switch."""
    topology = triangle(*FABRICS[0]).with_job(round_trip_us=0)
    free, plan = (make_plan(each, "levels") for each in (topology, topology.with_job(max_slots=1)))
    holds(topology.with_job(max_slots=1), plan)
    assert len(free.trees) > 1 and plan.rate_gbps <= free.rate_gbps


def test_one_tree_has_as_many_slots_as_it_may_reserve():
    topology = Topology.of(leaf_spine(2, 1, 2), aggregates={"leaf1": 100, "leaf2": 100, "spine1": 100})
    topology = topology.with_job(max_slots=20)
    for kind in KINDS:
        plan = make_plan(topology, kind)
        alone = 20 * 704 * 8e-3 / 50
        assert kind.endswith("s") or plan.rate_gbps == pytest.approx(alone) and plan.gap < SAME
        assert plan.rate_gbps >= alone * (1 - SAME)
        holds(topology, plan, 1 if kind.startswith("level") else None)

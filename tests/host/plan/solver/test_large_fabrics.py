"""Fabrics beyond the integer program: local search, the bound by orbits, and the time limit that all parts share."""

import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from iswitch.plan.check import check_plan
from iswitch.plan.schemes import KINDS, make_plan, plan_baselines
from iswitch.plan.solver import clock, single_tree
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.local_search import LocalSearch
from iswitch.plan.solver.relaxation import Relaxation
from iswitch.plan.solver.simple_trees import make_simple_trees
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.streams import Streams
from iswitch.plan.topology.files import read_topology
from iswitch.plan.topology.generators import leaf_spine
from iswitch.plan.topology.graph_file import node_link
from iswitch.plan.topology.topology import Topology
from sim.bench.fabrics import random_topology

ROOT = Path(__file__).parents[4]
SAME = 1e-6


def racks(count):
    """Racks of two workers below two spines, whose sums end at a worker of the first rack."""
    return Topology.of(
        leaf_spine(count, 2, 2, nic_gbps=10, uplink_gbps=40),
        ps="leaf1-h1",
        aggregates={f"leaf{leaf}": 25 for leaf in range(1, count + 1)} | {"spine1": 160, "spine2": 160},
    )


@pytest.mark.parametrize("levels", [1, None])
def test_the_relaxation_bounds_the_best_tree(levels):
    """The integer program proves the best tree. The bound must not be below it, and orbits must not change it."""
    compared = 0
    for seed in range(30):
        topology = random_topology(seed)
        if not topology.ps:
            continue
        best = plan_single_tree(topology, levels=levels)
        assert best.gap < SAME
        relaxation, clock = Relaxation(topology, find_sites(topology), levels), Clock(60)
        low = relaxation.least_t(clock)
        assert low <= 1 / best.rate_gbps * (1 + SAME)
        stronger = relaxation.least_t_of_one_tree(low, 2 / best.rate_gbps, clock)
        assert low <= stronger * (1 + SAME) and stronger <= 1 / best.rate_gbps * (1 + SAME)
        compared += 1
    assert compared > 5


def test_a_question_that_the_solver_leaves_open_is_asked_again_without_presolve():
    """On this fabric HiGHS ends with the status "unknown" at first."""
    topology = random_topology(36, switches=8, workers=16)
    relaxation, clock = Relaxation(topology, find_sites(topology), 1), Clock(60)
    low = relaxation.least_t(clock)
    assert low <= relaxation.least_t_of_one_tree(low, 4 * low, clock) * (1 + SAME)


@pytest.mark.parametrize("levels", [1, None])
def test_local_search_finds_legal_trees_up_to_the_optimum(levels):
    """The optimum is the integer program's; the loads are the independent check's."""
    equal = compared = 0
    for seed in range(20):
        topology = random_topology(seed)
        if not topology.ps:
            continue
        sites = find_sites(topology)
        starts = make_simple_trees(topology, sites, levels, False, 4)
        if not starts:
            continue
        best = plan_single_tree(topology, levels=levels)
        search = LocalSearch(Streams(topology, sites, levels=levels, adjacent=False, root=topology.ps))
        tree = search.improve(starts, 1 / best.rate_gbps, Clock(1))
        plan = {"rate_gbps": tree.rate_gbps, "bound_gbps": None, "trees": [_as_dict(tree)]}
        assert check_plan(node_link(topology), plan, levels=levels)[1] == []
        assert max(start.rate_gbps for start in starts) <= tree.rate_gbps <= best.rate_gbps * (1 + SAME)
        compared += 1
        equal += tree.rate_gbps > best.rate_gbps * 0.95
    assert compared > 5 and equal > compared / 2


def _as_dict(tree):
    return {key: getattr(tree, key) for key in ("rate_gbps", "root", "homes", "parents", "up", "down")}


def test_a_kind_is_not_slower_than_what_it_contains():
    """33 racks are beyond the integer program. A single tree contains the baselines of one tree."""
    topology, time_s = racks(33), 3.0
    rows = list(plan_baselines(topology, time_s=4.0))
    known = [tree for row in rows if row.plan for tree in row.plan.trees]
    plans = {"level": make_plan(topology, "level", time_s=time_s, start=known)}
    for kind, contained in (("tree", ["level"]), ("levels", ["level"]), ("trees", ["level", "tree", "levels"])):
        start = [*known, *(tree for each in contained for tree in plans[each].trees)]
        plans[kind] = make_plan(topology, kind, time_s=time_s, start=start)
        assert all(plans[each].rate_gbps <= plans[kind].rate_gbps * (1 + SAME) for each in contained)
    for kind, plan in plans.items():
        levels = 1 if kind.startswith("level") else None
        assert check_plan(node_link(topology), plan.to_dict(), levels=levels)[1] == []
    for row in rows:
        if row.plan:
            containing = ["trees", "tree"] if row.scheme == "SwitchML-like" else ["levels", "level"]
            assert row.plan.rate_gbps <= plans[containing[0]].rate_gbps * (1 + SAME), row.scheme
            if len(row.plan.trees) == 1:
                assert row.plan.rate_gbps <= plans[containing[1]].rate_gbps * (1 + SAME), row.scheme


def test_the_time_limit_holds_for_every_part(monkeypatch):
    """A clock that jumps a second at every look ends each search after few steps, and a valid plan is still found."""
    topology = racks(40)
    looks = itertools.count()
    monkeypatch.setattr(clock.time, "perf_counter", lambda: float(next(looks)))
    for kind in KINDS:
        plan = make_plan(topology, kind, time_s=50.0)
        assert check_plan(node_link(topology), plan.to_dict(), levels=1 if kind.startswith("level") else None)[1] == []
    assert next(looks) < 50 * len(KINDS) * 20


def test_ctrl_c_ends_the_search_with_the_best_plan_so_far():
    """The interrupt comes when the first plan is reported. A second one would end the program."""
    topology, rates = racks(40), []

    def interrupt(_scheme, rate_gbps, _bound_gbps):
        if not rates:
            os.kill(os.getpid(), signal.SIGINT)
        rates.append(rate_gbps)

    began = time.process_time()
    with clock.stopping_on_interrupt(), clock.reporting(interrupt):
        plan = make_plan(topology, "tree", time_s=600.0)
    assert rates and plan.rate_gbps >= rates[0] * (1 - SAME) and plan.bound_gbps >= plan.rate_gbps
    assert time.process_time() - began < 60, "the search went on"
    assert check_plan(node_link(topology), plan.to_dict())[1] == []


def test_one_level_of_a_large_fabric_is_proved_by_the_integer_program(monkeypatch):
    """The search alone stops below the best tree of 12 racks, which is known by the integer program alone."""
    topology = read_topology(ROOT / "docs" / "plan_12racks.yaml")
    best = plan_single_tree(topology, levels=1)
    assert best.gap < SAME
    monkeypatch.setattr(single_tree, "SITES_MAX", 0)
    monkeypatch.setattr(single_tree, "LARGE_SHARE", 0.02)
    plan = plan_single_tree(topology, levels=1, time_s=30.0)
    assert plan.gap < SAME and plan.rate_gbps == pytest.approx(best.rate_gbps)


def test_a_plan_is_not_slower_than_the_tree_it_starts_from():
    topology = racks(33)
    known = make_plan(topology, "tree", time_s=2.0).trees
    assert make_plan(topology, "tree", time_s=0.01, start=known).rate_gbps >= known[0].rate_gbps * (1 - SAME)


def test_a_clock_wrong():
    with pytest.raises(ValueError, match="time_s must be above 0, not 0"):
        Clock(0)

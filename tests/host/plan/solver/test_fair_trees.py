"""The search for fair trees asks about every set of jobs once, and proves nothing that it has not asked."""

from itertools import permutations
from types import SimpleNamespace

import networkx as nx
import pytest

from iswitch.plan.solver import fair_trees
from iswitch.plan.solver.clock import Clock
from iswitch.plan.solver.fair_rates import Combination
from iswitch.plan.solver.single_tree import plan_single_tree
from iswitch.plan.topology.shared_fabric import FabricJob
from iswitch.plan.topology.topology import Job, Topology
from sim.bench.mutant import mutant


class CountingClock:
    """A clock whose time ends after so many looks at it."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def left(self):
        self.looks -= 1
        return float(max(self.looks, 0))


def search(levels, number, most=None, looks=10**9, module=fair_trees):
    """Return a search for a level of a plan, and the sets of jobs that it asks about. No answer is positive."""
    asked = []
    jobs = [SimpleNamespace(weight=1.0) for _ in levels]
    program = SimpleNamespace(trees_at=lambda rates, time_s: asked.append(tuple(rates)) or ("infeasible", []))
    clock = CountingClock(looks)
    made = module._Search(jobs, program, most or [100.0] * len(levels), number, 100.0, clock)
    best = Combination((), tuple(levels), ())
    assert made.run(best) is best
    return made, asked


def assignments(levels, number, most):
    """Return all assignments of the smallest levels to jobs, by trying all orders."""
    proved, rest = sorted(levels)[:number], sorted(levels)[number] * (1 + fair_trees.STEP)
    found = set()
    for chosen in permutations(range(len(levels)), number):
        held = dict(zip(chosen, proved))
        if all(level <= most[job] for job, level in held.items()):
            found.add(tuple(held.get(job, rest) for job in range(len(levels))))
    return sorted(each for each in found if all(level <= most[job] for job, level in enumerate(each)))


CASES = [([1, 2, 3, 4], None), ([2, 2, 2, 5], None), ([3, 1, 1, 2, 2], None), ([1, 2, 3, 4], [2.5, 9, 9, 1.5])]


def asks_about_every_assignment(module=fair_trees):
    for levels, most in CASES:
        most = most or [100.0] * len(levels)
        for number in range(len(levels)):
            made, asked = search(levels, number, most, module=module)
            assert sorted(asked) == assignments(levels, number, most) and made.is_complete


def test_every_assignment_of_proved_levels_is_asked_about_once():
    asks_about_every_assignment()


def proves_only_what_it_asked(module=fair_trees):
    for levels, most in CASES:
        for number in range(len(levels)):
            total = len(search(levels, number, most, module=module)[1])
            for looks in range(1, 60):
                made, asked = search(levels, number, most, looks, module)
                assert not made.is_complete or len(asked) == total


def test_nothing_is_proved_if_the_time_ends_before_the_last_question():
    proves_only_what_it_asked()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("original", "wrong"),
    [
        ("self.is_complete = self.is_complete and bool(self.clock.left)", "pass"),
        ("for chosen in combinations(able, count):", "for chosen in list(combinations(able, count))[:1]:"),
        ("groups[-1] = (groups[-1][0], groups[-1][1] + 1)", "groups.append((rate, 1))"),
        ("if job not in held and rate <= most", "if job not in held"),
        ("if rate > ceiling:", "if rate > 2 * ceiling:"),
    ],
    ids=["time", "one choice", "equal levels", "too much for a job", "above the ceiling"],
)
def test_a_mutant_is_noticed(original, wrong):
    changed = mutant(fair_trees, original, wrong)
    with pytest.raises(AssertionError):
        asks_about_every_assignment(changed)
        proves_only_what_it_asked(changed)


def line_of_jobs(count):
    """Return jobs with a worker at each end of one cable of 12 Gb/s."""
    graph = nx.Graph()
    for switch in ("S1", "S2"):
        graph.add_node(switch, kind="switch", aggregates=True, capacity_gbps=1000.0)
    graph.add_edge("S1", "S2", bw_gbps=12.0)
    jobs = []
    for number in range(count):
        for switch in ("S1", "S2"):
            graph.add_node(f"h{number}-{switch}", kind="host", role="other")
            graph.add_edge(f"h{number}-{switch}", switch, bw_gbps=100.0)
    for number in range(count):
        own = graph.copy()
        for switch in ("S1", "S2"):
            own.nodes[f"h{number}-{switch}"]["role"] = "worker"
        settings = Job(overhead_bytes=0, uplink_bytes_per_element=4)
        jobs.append(FabricJob(f"job{number}", 1.0, Topology(own, settings)))
    return jobs


def test_many_jobs_end_in_time():
    """Twelve jobs have 4096 sets. What is not proved in time is not said to be."""
    jobs = line_of_jobs(12)
    alone = [plan_single_tree(job.topology, levels=None).trees for job in jobs]
    clock = Clock(3.0)
    found = fair_trees.find_fair_trees(jobs, alone, [12.0] * 12, levels=None, adjacent=False, clock=clock)
    assert found.combination.normalised == pytest.approx([1.0] * 12)
    assert found.bound == pytest.approx(1.0) or not found.proved
    assert clock.seconds < 10

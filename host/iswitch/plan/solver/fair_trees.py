"""A tree for each of several jobs, so that the weighted max-min fair rates are as fair as possible.

The normalised rate of a job is its rate divided by its weight. Of two plans, that is fairer whose sorted normalised
rates are lexicographically larger: first the smallest one counts, then the second smallest, and so on. For given trees
the fair rates are the fairest ones (`fair_rates`). What is left is the choice of the trees. It has two parts:

- `alternate` changes one job's tree at a time: the fastest tree on what the others leave. It proves nothing.
- `prove` asks an integer program (`joint_program`). Are there trees at which all jobs exceed the smallest normalised
  rate? If not, that one is proved. For the next one it asks, for each set of jobs that could have the rates that are
  proved, whether all others can exceed the next rate. Each positive answer is a fairer plan.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import sqrt

import networkx as nx

from iswitch.plan.solver.clock import Clock, OutOfTime
from iswitch.plan.solver.fair_rates import Combination, combine, parts_of_resources
from iswitch.plan.solver.joint_program import JointProgram
from iswitch.plan.solver.single_tree import SITES_MAX, plan_single_tree
from iswitch.plan.solver.tree import Resource, Tree
from iswitch.plan.topology.shared_fabric import FabricJob
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["FairTrees", "alternate", "find_fair_trees", "prove"]

STEP, SLACK = 1e-6, 1e-7
"""By which part a rate must grow to count as larger, and below which two rates are equal."""
WIDE = 1e-2
"""Relative distance between a rate and its bound above which rates between them are tried."""
ROUNDS_MAX = 12
"""Most changes of all jobs' trees."""
GROWTHS = (1.0, 1.2)
"""A job leaves to the others what they have, or what they would have with so much higher rates; one after the other."""
ALTERNATE_SHARE, QUESTION_SHARE, TIDY_S = 0.5, 0.5, 2.0
"""The part of the time for `alternate`; that of the time that is left, for one question; seconds to tidy the trees."""
LEAST_GBPS = 1e-3
"""What a resource keeps that other jobs fill: a topology has no slower one."""


class FairTrees:
    """The fairest trees that were found, and what is proved about them.

    Parameters
    ----------
    combination : Combination
        The trees, in the order of the jobs.
    proved : int
        How many of the sorted normalised rates are proved to be the largest possible ones.
    bound : float
        No plan gives every job a larger normalised rate.
    """

    def __init__(self, combination: Combination, proved: int, bound: float):
        self.combination, self.proved = combination, proved
        self.bound = max(bound, min(combination.normalised))


def find_fair_trees(
    jobs: Sequence[FabricJob],
    alone: Sequence[Sequence[Tree]],
    most_gbps: Sequence[float],
    *,
    levels: int | None,
    adjacent: bool,
    clock: Clock,
) -> FairTrees:
    """Return the fairest trees that are found in time.

    Parameters
    ----------
    jobs : sequence of FabricJob
        The jobs. The order decides between plans that are equally fair.
    alone : sequence of sequence of Tree
        For each job trees that it could have, at least one. None has the rate 0.
    most_gbps : sequence of float
        For each job Gb/s that it does not exceed, even alone.
    levels : int or None
        Most switches that sum a gradient before the root does; None: any number.
    adjacent : bool
        Let each switch sum only its neighbours.
    clock : Clock
        The time limit.
    """
    best = alternate(jobs, alone, levels=levels, adjacent=adjacent, clock=clock.part(ALTERNATE_SHARE))
    bound = min(most / job.weight for job, most in zip(jobs, most_gbps))
    if max(len(job.topology.aggregators) for job in jobs) > SITES_MAX:
        proved = int(min(best.normalised) >= bound * (1 - STEP))
        return FairTrees(best, proved, bound)
    return prove(jobs, best, most_gbps, levels=levels, adjacent=adjacent, clock=clock)


def alternate(
    jobs: Sequence[FabricJob], alone: Sequence[Sequence[Tree]], *, levels: int | None, adjacent: bool, clock: Clock
) -> Combination:
    """Change one job's tree at a time, as long as that makes the plan fairer. Parameters: see `find_fair_trees`."""
    known = [list(trees) for trees in alone]
    best = _best_of(jobs, combine(jobs, [trees[0] for trees in known]), known, clock)
    in_vain = 0
    for turn in range(ROUNDS_MAX if len(jobs) > 1 else 0):
        before, growth = best, GROWTHS[turn % len(GROWTHS)]
        for number, job in enumerate(jobs):
            taken: dict[Resource, float] = {}
            for other, tree in zip(jobs, best.trees):
                if other is not job:
                    for resource, part in parts_of_resources(other, tree).items():
                        taken[resource] = taken.get(resource, 0.0) + part * tree.rate_gbps * growth
            if not clock.left:
                return best
            part = clock.part(1 / len(jobs)).time_s
            try:
                left = _leave(job.topology, taken)
                plan = plan_single_tree(left, levels=levels, time_s=part, adjacent=adjacent, start=[best.trees[number]])
            except TopologyError:
                continue
            known[number].append(plan.trees[0])
            best = _best_of(jobs, best, known, clock)
        in_vain = 0 if best.is_fairer(before, STEP) else in_vain + 1
        if in_vain == len(GROWTHS):
            break
    return best


def _best_of(
    jobs: Sequence[FabricJob], best: Combination, known: Sequence[Sequence[Tree]], clock: Clock
) -> Combination:
    """Return the fairest combination that changes of one tree to a known one lead to in time."""
    while True:
        before = best
        for number, trees in enumerate(known):
            for tree in trees:
                if not clock.left:
                    return best
                other = combine(jobs, [*best.trees[:number], tree, *best.trees[number + 1 :]])
                if other.is_fairer(best, STEP):
                    best = other
        if best is before:
            return best


def _leave(topology: Topology, taken: dict[Resource, float]) -> Topology:
    """Return the topology with what is left of its resources, of which others take these parts."""
    graph: nx.Graph = topology.graph.copy()
    left = lambda gbps, resource: max(gbps * (1 - taken.get(resource, 0.0)), LEAST_GBPS)
    for a, b in topology.graph.edges:
        free = [topology.free_gbps(a, b), topology.free_gbps(b, a)]
        if not all(free):
            continue  # the cable is reserved in a direction, and remains so
        data = graph.edges[a, b]
        data.pop("reserved_gbps", None)
        data["sender"], data["sender_gbps"] = a, left(free[0], Resource("link", a, b))
        data["bw_gbps"] = left(free[1], Resource("link", b, a))
    for node, data in graph.nodes(data=True):
        for key, kind in (("capacity_gbps", "capacity"), ("ingress_gbps", "ingress")):
            if key in data:
                data[key] = left(data[key], Resource(kind, node))
        if "slots" in data:
            data["slots"] = max(int(data["slots"] * (1 - taken.get(Resource("slots", node), 0.0))), 1)
    return Topology(graph)


def prove(
    jobs: Sequence[FabricJob],
    best: Combination,
    most_gbps: Sequence[float],
    *,
    levels: int | None,
    adjacent: bool,
    clock: Clock,
) -> FairTrees:
    """Search for fairer trees by an integer program, and prove as many normalised rates as possible.

    Parameters
    ----------
    best : Combination
        Trees to start from.

    The other parameters are those of `find_fair_trees`.
    """
    most = [gbps / job.weight * (1 + STEP) for job, gbps in zip(jobs, most_gbps)]
    try:
        program = JointProgram(jobs, levels=levels, adjacent=adjacent, clock=clock)
    except OutOfTime:
        return FairTrees(best, 0, min(most))
    bound = min(*most, program.bound_of_least(clock.left)) if clock.left else min(most)
    start, proved = best, 0
    while proved < len(jobs) and clock.left:
        search = _Search(jobs, program, most, proved, bound, clock)
        found = search.run(best)
        if search.fairer:
            best, bound = found, search.bound
            continue
        bound = search.bound
        if not search.is_complete:
            break
        proved += 1
    if proved:
        bound = min(best.normalised)
    if best is not start and clock.left:
        rates = [tree.rate_gbps * (1 - STEP / 10) for tree in best.trees]
        _, trees = program.trees_at(rates, min(clock.left, TIDY_S), tidy=True)
        if trees and not best.is_fairer(tidied := combine(jobs, trees), STEP):
            best = tidied
    return FairTrees(best, proved, bound)


class _Search:
    """The questions about one of the sorted normalised rates."""

    def __init__(
        self,
        jobs: Sequence[FabricJob],
        program: JointProgram,
        most: Sequence[float],
        number: int,
        bound: float,
        clock: Clock,
    ):
        self.jobs, self.program, self.most, self.number, self.clock = jobs, program, most, number, clock
        self.bound = bound
        self.fairer, self.is_complete = False, True

    def run(self, best: Combination) -> Combination:
        """Return the first fairer combination; `is_complete` is True if it is proved that there is none."""
        for held in self._holdings(best):
            ceiling = min(most for job, most in enumerate(self.most) if job not in held)
            if not held:
                ceiling = min(ceiling, self.bound)
            floor = sorted(best.normalised)[self.number]
            status, found = self._ask(best, held, floor * (1 + STEP), ceiling)
            if status == "unknown":
                self.is_complete = False
            while found:
                best, self.fairer = found, True
                floor, found = sorted(best.normalised)[self.number], None
                middle = sqrt(floor * ceiling)
                if floor * (1 + WIDE) < ceiling and self.clock.left:
                    status, found = self._ask(best, held, middle, ceiling)
                    if status == "infeasible" and not held:
                        self.bound = min(self.bound, middle)
            if self.fairer or not self.clock.left:
                break
        self.is_complete = self.is_complete and bool(self.clock.left)
        return best

    def _holdings(self, best: Combination) -> Iterator[dict[int, float]]:
        """Yield the jobs that could have the rates that are proved, with these rates, until the time ends."""
        groups: list[tuple[float, int]] = []
        for rate in sorted(best.normalised)[: self.number]:
            if groups and rate - groups[-1][0] <= SLACK * rate:
                groups[-1] = (groups[-1][0], groups[-1][1] + 1)  # equal rates are interchangeable
            else:
                groups.append((rate, 1))
        yield from self._hold(groups, {})

    def _hold(self, groups: Sequence[tuple[float, int]], held: dict[int, float]) -> Iterator[dict[int, float]]:
        """Yield `held` with each choice of jobs for the rates of the groups, which have so many jobs each."""
        if not groups or not self.clock.left:
            yield held
            return
        (rate, count), *others = groups
        able = [job for job, most in enumerate(self.most) if job not in held and rate <= most]
        for chosen in combinations(able, count):
            yield from self._hold(others, held | dict.fromkeys(chosen, rate))
            if not self.clock.left:
                return

    def _ask(
        self, best: Combination, held: dict[int, float], rate: float, ceiling: float
    ) -> tuple[str, Combination | None]:
        """Return a fairer combination in which the held jobs have their rates and all others this one; or else
        ``"infeasible"`` if there is none, or ``"unknown"``."""
        if rate > ceiling:
            return "infeasible", None
        if not self.clock.left:
            return "unknown", None
        rates = [held.get(number, rate) * job.weight for number, job in enumerate(self.jobs)]
        status, trees = self.program.trees_at(rates, max(self.clock.left * QUESTION_SHARE, 0.01))
        if status == "infeasible":
            return "infeasible", None
        if not trees:
            return "unknown", None
        found = combine(self.jobs, trees)
        # Trees that are not fairer met the rates by the solver's tolerance only.
        return ("feasible", found) if found.is_fairer(best, SLACK) else ("infeasible", None)

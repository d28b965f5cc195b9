"""Plan several jobs over one fabric, at weighted max-min fair rates."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from iswitch.plan.schemes import make_plan
from iswitch.plan.solver.clock import Clock, stop_requested
from iswitch.plan.solver.fair_trees import find_fair_trees
from iswitch.plan.solver.simple_trees import make_simple_trees, make_stars
from iswitch.plan.solver.sites import find_sites
from iswitch.plan.solver.tree import Plan, Resource, Tree
from iswitch.plan.topology.shared_fabric import FabricJob, SharedFabric
from iswitch.plan.topology.topology import Topology, TopologyError

__all__ = ["JOBS_KINDS", "JobPlan", "JobsPlan", "plan_jobs"]

JOBS_KINDS = ("level", "tree")
"""Kinds of plans for several jobs: one tree for each."""
ALONE_SHARE = 0.4
"""The part of the time for the plans of each job alone."""
SIMPLE_MAX = 8
"""Most simple trees of each job from which the search starts, beside its plan alone: the fastest ones."""


class JobPlan(NamedTuple):
    """The plan of one of several jobs.

    Parameters
    ----------
    job : FabricJob
        The job.
    tree : Tree
        Its tree, at its rate.
    limits : tuple of Resource
        The full resources because of which the job cannot be faster.
    alone : Plan
        The plan of the job if it had the fabric to itself.
    """

    job: FabricJob
    tree: Tree
    limits: tuple[Resource, ...]
    alone: Plan

    @property
    def normalised_gbps(self) -> float:
        """The normalised rate: the rate divided by the weight."""
        return self.tree.rate_gbps / self.job.weight

    @property
    def plan(self) -> Plan:
        """The plan of this job only; no plan of it is faster than its bound."""
        return Plan(scheme=self.alone.scheme, trees=(self.tree,), bound_gbps=self.alone.bound_gbps)


@dataclass(frozen=True, kw_only=True)
class JobsPlan:
    """The plan of several jobs.

    Parameters
    ----------
    scheme : str
        The kind of plan, for people.
    jobs : tuple of JobPlan
        The plans of the jobs, in the order of the fabric.
    proved : int
        How many of the sorted normalised rates (rate/weight) are proved to be the largest possible ones.
    bound : float
        No plan gives every job a larger normalised rate.
    seconds : float
        Time to find and prove the plan.
    """

    scheme: str
    jobs: tuple[JobPlan, ...]
    proved: int
    bound: float
    seconds: float

    @property
    def least_gbps(self) -> float:
        """The smallest normalised rate."""
        return min(job.normalised_gbps for job in self.jobs)

    @property
    def is_proved(self) -> bool:
        """True if no plan is fairer."""
        return self.proved == len(self.jobs)


def plan_jobs(fabric: SharedFabric, kind: str, *, time_s: float = 60.0, adjacent: bool = False) -> JobsPlan:
    """Plan a tree for each job of a fabric.

    Parameters
    ----------
    fabric : SharedFabric
        The fabric and its jobs. Their order does not change the plan.
    kind : {"level", "tree"}
        Trees with one level of switches before the root, or any number.
    time_s : float
        Time limit in seconds.
    adjacent : bool
        Let each switch sum only its neighbours.

    Raises
    ------
    ValueError
        If the kind is another one.
    TopologyError
        If a job has no plan, or none was found in time. The message begins with the job's name.
    """
    if kind not in JOBS_KINDS:
        raise ValueError(f"kind must be one of {', '.join(JOBS_KINDS)} for several jobs, not {kind!r}")
    clock, jobs = Clock(time_s), fabric.by_name
    planning = clock.part(ALONE_SHARE)
    levels = 1 if kind == "level" else None
    alone: list[Plan] = []
    known: list[list[Tree]] = []
    for number, job in enumerate(jobs):
        try:
            part = planning.part(1 / (len(jobs) - number)).time_s
            alone.append(make_plan(job.topology, kind, time_s=part, adjacent=adjacent))
        except TopologyError as error:
            if stop_requested():
                raise TopologyError(f"stopped before job {job.name} had a plan: let the search run longer") from error
            raise TopologyError(f"job {job.name}: {error}", error.place) from error
        simple = _simple_trees(job.topology, levels, adjacent, planning)
        if simple and simple[0].rate_gbps > alone[-1].rate_gbps:
            alone[-1] = replace(alone[-1], trees=(simple[0],))
        known.append([*alone[-1].trees, *simple])
        if not alone[-1].rate_gbps:
            raise TopologyError(f"job {job.name}: its plan has the rate 0: free bandwidth of cables")
    found = find_fair_trees(
        jobs, known, [plan.bound_gbps for plan in alone], levels=levels, adjacent=adjacent, clock=clock.part(1.0)
    )
    trees, _, limits = found.combination
    plans = {each[0].name: JobPlan(*each) for each in zip(jobs, trees, limits, alone)}
    return JobsPlan(
        scheme=alone[0].scheme,
        jobs=tuple(plans[job.name] for job in fabric.jobs),
        proved=found.proved,
        bound=found.bound,
        seconds=clock.seconds,
    )


def _simple_trees(topology: Topology, levels: int | None, adjacent: bool, clock: Clock) -> list[Tree]:
    """Return trees that need no search, the fastest first: each switch as the place of all sums, and racks that sum
    their own workers."""
    sites = find_sites(topology)
    trees = make_stars(topology, sites, adjacent, clock) + make_simple_trees(
        topology, sites, levels, adjacent, SIMPLE_MAX
    )
    fastest = sorted((tree for tree in trees if tree.rate_gbps), key=lambda tree: -tree.rate_gbps)
    return fastest[:SIMPLE_MAX]

"""Run all schedulers on one network, and compare them with the lower bounds."""

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx

from iswitch.plan.allreduce.learning.greedy import RarestFirst, best_of_episodes, greedy_schedule
from iswitch.plan.allreduce.learning.learned import learned_schedule, packaged_policy
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.model.bounds import Bounds, find_bounds
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Schedule
from iswitch.plan.allreduce.model.verify import verify
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases
from iswitch.plan.allreduce.schedulers.parameter_server import fixed_trees, merging_parameter_server
from iswitch.plan.allreduce.schedulers.ring import find_ring_order, ring

__all__ = ["Comparison", "compare_schedulers"]


@dataclass(frozen=True)
class Comparison:
    """The schedules of one network by the name of their scheduler, all verified, and the lower bounds."""

    bounds: Bounds
    schedules: dict[str, Schedule]

    @property
    def best(self) -> Schedule:
        """The shortest schedule; of equals, the one with the fewest flows, then the first."""
        return min(self.schedules.values(), key=lambda schedule: (schedule.length, schedule.flows))

    @property
    def gap(self) -> float:
        """By which part of the bound the best schedule exceeds it; 0.1 is a tenth."""
        return self.best.length / self.bounds.best - 1


def compare_schedulers(
    graph: nx.Graph,
    *,
    policy: Policy | None = None,
    k: int = 16,
    seed: int = 0,
    on_schedule: Callable[[str, Schedule], object] = lambda name, schedule: None,
) -> Comparison:
    """Run all schedulers on a network.

    Parameters
    ----------
    graph : networkx.Graph
        The network.
    policy : Policy, optional
        The policy of the learned scheduler; by default the packaged one.
    k : int
        Episodes of the greedy and of the learned scheduler.
    seed : int
        Seed of all random numbers.
    on_schedule : callable
        Called with the name and the schedule when a scheduler has finished and its schedule has been verified.
    """
    if k < 1:
        raise ValueError(f"compare_schedulers k must be at least 1, not {k!r}")
    network = Network(graph)
    arrays, chosen = NetworkArrays(network), policy or packaged_policy()
    best_greedy = f"greedy, best of {k}"
    schedulers: dict[str, Callable[[], Schedule]] = {
        "parameter server, merging": lambda: overlap_phases(merging_parameter_server(network)),
        "ring": lambda: ring(network, find_ring_order(network)),
        "fixed trees": lambda: overlap_phases(fixed_trees(network)),
        "greedy": lambda: overlap_phases(greedy_schedule(arrays, seed=seed)),
        best_greedy: lambda: best_of_episodes(RarestFirst(), arrays, k=k, seed=seed, name=best_greedy),
        "learned": lambda: learned_schedule(chosen, arrays, k=k, seed=seed),
    }
    schedules = {}
    for name, run in schedulers.items():
        schedules[name] = run().with_name(name)
        if name == best_greedy:  # greedy has an episode of its own
            schedules[name] = min(schedules["greedy"].with_name(name), schedules[name], key=lambda made: made.length)
        verify(graph, schedules[name])
        on_schedule(name, schedules[name])
    return Comparison(find_bounds(network), schedules)

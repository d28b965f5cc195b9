"""The learned scheduler as one uses it: games of the trained policies, beside everything simpler, and the shortest of
all comes out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx

from iswitch.plan.allreduce.learning.greedy import Scarcest, best_of, games, greedy
from iswitch.plan.allreduce.learning.growth import Wiring
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.model.bounds import Bounds, bounds
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.replay import replay
from iswitch.plan.allreduce.model.schedule import Schedule
from iswitch.plan.allreduce.schedulers.baselines import good_order, parameter_server, ring, sharded
from iswitch.plan.allreduce.schedulers.overlap import overlapped

__all__ = ["Comparison", "compare", "learned", "trained"]

WEIGHTS = Path(__file__).with_name("weights.json")
"""What `python -m iswitch.plan.allreduce train` has written."""

CALM = 0.5
"""Temperature of the games: most keep close to what the policy thinks best."""


@cache
def trained() -> Policy:
    """The policy in the package."""
    return Policy.load(WEIGHTS)


def learned(policy: Policy, wiring: Wiring, *, k: int, seed: int) -> Schedule:
    """The shortest of `k` games: one that always takes the best, the others drawn."""
    best = best_of(policy, wiring, k=1, seed=seed, name="learned", temperature=0.0)
    if k > 1:
        growth = games(policy, wiring, k=k - 1, seed=seed, temperature=CALM)
        other = growth.schedule(int(growth.rounds.argmin()), "learned")
        best = min(best, other, key=lambda schedule: schedule.length)
    return best


@dataclass(frozen=True)
class Comparison:
    """Schedules of one topology, all replayed, by name; and what none can go below."""

    bounds: Bounds
    schedules: dict[str, Schedule]

    @property
    def best(self) -> Schedule:
        """The shortest; of equals, that with fewest flows, then the first."""
        return min(self.schedules.values(), key=lambda schedule: (schedule.length, schedule.flows))

    @property
    def gap(self) -> float:
        """How far the best is above the bound: 0.1 is a tenth."""
        return self.best.length / self.bounds.best - 1


def compare(
    graph: nx.Graph,
    *,
    policy: Policy | None = None,
    k: int = 16,
    seed: int = 0,
    tell: Callable[[str, Schedule], object] = lambda name, schedule: None,
) -> Comparison:
    """All schedulers on one topology; `policy` is the packaged one unless given, `k` games for greedy and learned
    alike. tell: hears of each schedule when it is made and replayed."""
    if k < 1:
        raise ValueError(f"compare k must be at least 1, not {k!r}")
    network = Network(graph)
    wiring, chosen = Wiring(network), policy or trained()
    makers: dict[str, Callable[[], Schedule]] = {
        "parameter server, merging": lambda: overlapped(parameter_server(network)),
        "ring": lambda: ring(network, good_order(network)),
        "fixed trees": lambda: overlapped(sharded(network)),
        "greedy": lambda: overlapped(greedy(wiring, seed=seed)),
        f"greedy, best of {k}": lambda: overlapped(
            best_of(Scarcest(), wiring, k=k, seed=seed, name=f"greedy, best of {k}")
        ),
        "learned": lambda: overlapped(learned(chosen, wiring, k=k, seed=seed)),
    }
    schedules = {}
    for name, make in makers.items():
        schedules[name] = make().named(name)
        replay(graph, schedules[name])
        tell(name, schedules[name])
    return Comparison(bounds(network), schedules)

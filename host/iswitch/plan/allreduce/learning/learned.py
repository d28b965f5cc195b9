"""The learned scheduler: the best of several episodes of the trained policy."""

from functools import cache
from pathlib import Path

from iswitch.plan.allreduce.learning.greedy import best_of_episodes, run_episodes
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.model.schedule import Schedule

__all__ = ["learned_schedule", "packaged_policy"]

WEIGHTS = Path(__file__).with_name("weights.json")
"""The file that `python -m iswitch.plan.allreduce train` has written."""

TEMPERATURE = 0.5
"""Temperature of the sampled episodes. It is low, so that most stay close to what the policy prefers."""


@cache
def packaged_policy() -> Policy:
    """Return the trained policy of this package."""
    return Policy.load(WEIGHTS)


def learned_schedule(policy: Policy, arrays: NetworkArrays, *, k: int, seed: int) -> Schedule:
    """Return the shortest schedule of `k` episodes: one that always takes the best workload, and sampled ones."""
    best = best_of_episodes(policy, arrays, k=1, seed=seed, name="learned", temperature=0.0)
    if k > 1:
        growth = run_episodes(policy, arrays, k=k - 1, seed=seed, temperature=TEMPERATURE)
        other = growth.schedule(int(growth.rounds.argmin()), "learned")
        best = min(best, other, key=lambda schedule: schedule.length)
    return best

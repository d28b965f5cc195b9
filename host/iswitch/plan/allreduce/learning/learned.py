"""The learned scheduler: the best of several episodes of the trained policy."""

from functools import cache
from pathlib import Path

from iswitch.plan.allreduce.learning.greedy import run_episodes, shortest_of
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
    """Return the shortest schedule of `k` episodes: one that always takes the best workload, and sampled ones.

    The lengths are compared after the phases overlap.
    """
    growths = [run_episodes(policy, arrays, k=1, seed=seed, temperature=0.0)]
    if k > 1:
        growths.append(run_episodes(policy, arrays, k=k - 1, seed=seed, temperature=TEMPERATURE))
    return shortest_of(growths, "learned")

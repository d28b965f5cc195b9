"""The greedy policy that the learned ones must beat, and schedules as the best of several episodes of a policy."""

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, TreeGrowth
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import DYNAMIC_COUNT, Scorer
from iswitch.plan.allreduce.learning.rollout import rollout
from iswitch.plan.allreduce.model.schedule import Schedule
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases

__all__ = ["RarestFirst", "best_of_episodes", "greedy_schedule", "run_episodes"]

CERTAIN_LOGIT = 50.0
"""A logit so large that the noise of sampling does not matter."""


class RarestFirst:
    """Selects all flow trees. Prefers workloads that their target can receive over the fewest other links, then chunks
    with the fewest copies."""

    WEIGHTS = {"sources of the chunk on the target's other links": -100.0, "copies of the chunk": -30.0}

    def evaluate(self, name: str, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return scores; see `Scorer`."""
        if name == "upper":
            return np.full((*features.shape[:-1], 2), CERTAIN_LOGIT, np.float32)
        weights = np.array([self.WEIGHTS.get(feature, 0.0) for feature in FLOW_FEATURES], np.float32)
        score = np.zeros((*features.shape[:-1], 1 + DYNAMIC_COUNT), np.float32)
        score[..., 0] = features @ weights
        return score


def run_episodes(scorer: Scorer, arrays: NetworkArrays, *, k: int, seed: int, temperature: float = 1.0) -> TreeGrowth:
    """Return `k` complete broadcasts by a policy, sampled from one seed."""
    if k < 1:
        raise ValueError(f"run_episodes k must be at least 1, not {k!r}")
    growth = TreeGrowth(arrays, k)
    rollout(scorer, growth, np.random.default_rng(seed), temperature=temperature)
    return growth


def greedy_schedule(arrays: NetworkArrays, *, seed: int = 0) -> Schedule:
    """Return the schedule of one episode of `RarestFirst`."""
    return run_episodes(RarestFirst(), arrays, k=1, seed=seed).schedule(0, "greedy")


def best_of_episodes(
    scorer: Scorer, arrays: NetworkArrays, *, k: int, seed: int, name: str, temperature: float = 1.0
) -> Schedule:
    """Return the shortest schedule of `k` episodes after their phases overlap, the first of equals."""
    growth = run_episodes(scorer, arrays, k=k, seed=seed, temperature=temperature)
    schedules = (growth.schedule(env, name) for env in range(k))
    return min(map(overlap_phases, schedules), key=lambda schedule: schedule.length)

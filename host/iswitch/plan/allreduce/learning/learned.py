"""The learned scheduler: the best of several episodes of the trained policy; later ones resume earlier ones."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import TreeGrowth
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.learning.rollout import rollout
from iswitch.plan.allreduce.model.schedule import Schedule
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases

__all__ = ["learned_schedule", "packaged_policy"]

Floats = NDArray[np.float32]

WEIGHTS = Path(__file__).with_name("weights.json")
"""The file that `python -m iswitch.plan.allreduce train` has written."""

EPISODES_AT_ONCE = 4
"""Episodes that run in parallel. All later ones resume the shortest of those before."""

BEGIN_TEMPERATURES = (0.0, 1.0, 1.5, 2.0)
"""Temperatures of the first episodes, which begin with nothing placed. The first always takes the best workload."""

RESUME_TEMPERATURES = (1.0, 1.0, 1.5, 2.0)
"""Temperatures of all later episodes, four at a time."""

RESUME_PARTS = (0.1, 0.3, 0.5, 0.6)
"""The part of the rounds of an earlier episode that each of them keeps."""

PREFERENCE_TEMPERATURES = (0.0, 1.0, 1.0, 1.0)
"""Temperatures of the first episodes, if servers have unequal numbers of ports."""

PREFERENCE_SCALES = (0.0, 3.0, 10.0, 10.0)
"""Standard deviation of their preferences for trees."""


@dataclass(frozen=True)
class _Episode:
    """A complete episode: the workloads of its rounds, its preferences for trees, and its schedule after the phases
    overlap."""

    rounds: list[list[tuple[int, int]]]
    preferences: Floats
    schedule: Schedule

    def first_rounds(self, part: float) -> list[list[tuple[int, int]]]:
        """Return this part of the rounds, at least one."""
        return self.rounds[: max(1, int(len(self.rounds) * part))]


@cache
def packaged_policy() -> Policy:
    """Return the trained policy of this package."""
    return Policy.load(WEIGHTS)


def learned_schedule(policy: Policy, arrays: NetworkArrays, *, k: int, seed: int) -> Schedule:
    """Return the shortest schedule of `k` episodes.

    The first four begin with nothing placed. Then four at a time keep the first rounds of the shortest episodes so far,
    and sample the rest anew. Lengths are compared after the phases overlap.

    If servers have unequal numbers of ports, most episodes prefer some trees to others, by random numbers that hold for
    the episode. The trees are then completed one after another, and their broadcasts can begin earlier.
    """
    if k < 1:
        raise ValueError(f"learned_schedule k must be at least 1, not {k!r}")
    rng = np.random.default_rng(seed)
    unequal = len(np.unique(arrays.network.ports)) > 1
    found: list[_Episode] = []
    while len(found) < k:
        count = min(k - len(found), EPISODES_AT_ONCE)
        growth = TreeGrowth(arrays, count)
        preferences = np.zeros((count, growth.size), np.float32)
        temperatures = BEGIN_TEMPERATURES
        if found:
            temperatures = RESUME_TEMPERATURES
            sources = _shortest(found, count)
            preferences[:] = [episode.preferences for episode in sources]
            growth.replay([episode.first_rounds(part) for episode, part in zip(sources, RESUME_PARTS)])
        elif unequal:
            temperatures = PREFERENCE_TEMPERATURES
            preferences[:] = np.array(PREFERENCE_SCALES[:count])[:, None] * rng.standard_normal(preferences.shape)
        rollout(policy, growth, rng, temperature=np.array(temperatures[:count], np.float32), tree_bias=preferences)
        found += [
            _Episode(
                [placed for placed in growth.log[env] if placed],
                preferences[env],
                overlap_phases(growth.schedule(env, "learned")),
            )
            for env in range(count)
        ]
    return min((episode.schedule for episode in found), key=lambda schedule: schedule.length)


def _shortest(found: list[_Episode], count: int) -> list[_Episode]:
    """Return the episodes that `count` episodes resume, in turn each of the shortest."""
    least = min(episode.schedule.length for episode in found)
    shortest = sorted(
        (episode for episode in found if episode.schedule.length == least), key=lambda episode: len(episode.rounds)
    )
    return [shortest[number % len(shortest)] for number in range(count)]

"""The learned scheduler: the best of several episodes of the trained policy; later ones resume earlier ones."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from iswitch.plan.allreduce.learning.growth import TreeGrowth
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.learning.rollout import rollout
from iswitch.plan.allreduce.model.schedule import Schedule
from iswitch.plan.allreduce.schedulers.overlap import overlap_phases

__all__ = ["learned_schedule", "packaged_policy"]

WEIGHTS = Path(__file__).with_name("weights.json")
"""The file that `python -m iswitch.plan.allreduce train` has written."""

BEGIN_TEMPERATURES = (0.0, 1.0, 1.5, 2.0)
"""Temperatures of the first episodes, which begin with nothing placed. The first always takes the best workload."""

RESUME_TEMPERATURES = (1.0, 1.0, 1.5, 2.0)
"""Temperatures of all later episodes, four at a time."""

RESUME_PARTS = (0.1, 0.3, 0.5, 0.6)
"""The part of the rounds of an earlier episode that each of them keeps."""


@dataclass(frozen=True)
class _Episode:
    """A complete episode: the workloads of its rounds, and its schedule after the phases overlap."""

    rounds: list[list[tuple[int, int]]]
    schedule: Schedule


@cache
def packaged_policy() -> Policy:
    """Return the trained policy of this package."""
    return Policy.load(WEIGHTS)


def learned_schedule(policy: Policy, arrays: NetworkArrays, *, k: int, seed: int) -> Schedule:
    """Return the shortest schedule of `k` episodes.

    The first four begin with nothing placed. Then four at a time keep the first rounds of the shortest episodes so far,
    and sample the rest anew. Lengths are compared after the phases overlap.
    """
    if k < 1:
        raise ValueError(f"learned_schedule k must be at least 1, not {k!r}")
    rng = np.random.default_rng(seed)
    found: list[_Episode] = []
    while len(found) < k:
        count = min(k - len(found), len(BEGIN_TEMPERATURES))
        growth = TreeGrowth(arrays, count)
        if found:
            growth.replay(_kept_rounds(found, count))
        temperatures = RESUME_TEMPERATURES if found else BEGIN_TEMPERATURES
        rollout(policy, growth, rng, temperature=np.array(temperatures[:count], np.float32))
        found += [
            _Episode([placed for placed in growth.log[env] if placed], overlap_phases(growth.schedule(env, "learned")))
            for env in range(count)
        ]
    return min((episode.schedule for episode in found), key=lambda schedule: schedule.length)


def _kept_rounds(found: list[_Episode], count: int) -> list[list[list[tuple[int, int]]]]:
    """Return the rounds that `count` episodes keep, in turn those of each shortest episode."""
    least = min(episode.schedule.length for episode in found)
    shortest = sorted(
        (episode.rounds for episode in found if episode.schedule.length == least), key=lambda rounds: len(rounds)
    )
    sources = [shortest[number % len(shortest)] for number in range(count)]
    return [rounds[: max(1, int(len(rounds) * part))] for rounds, part in zip(sources, RESUME_PARTS)]

"""What the learned policies must beat: growing flow trees by a rule of thumb, once, or the best of many games with ties
drawn anew."""

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, Growth, Wiring
from iswitch.plan.allreduce.learning.policy import DYNAMIC, Scorer, rollout
from iswitch.plan.allreduce.model.schedule import Schedule

__all__ = ["Scarcest", "best_of", "games", "greedy"]

SURELY = 50.0
"""A logit so large that the noise of a draw does not matter."""


class Scarcest:
    """Takes first what its target can get over the fewest other links, then the chunk with the fewest copies; selects
    all flow trees."""

    WEIGHTS = {"sources of the chunk on the target's other links": -100.0, "copies of the chunk": -30.0}

    def net(self, name: str, features: NDArray[np.float32]) -> NDArray[np.float32]:
        if name == "upper":
            return np.full((*features.shape[:-1], 2), SURELY, np.float32)
        weights = np.array([self.WEIGHTS.get(feature, 0.0) for feature in FLOW_FEATURES], np.float32)
        score = np.zeros((*features.shape[:-1], 1 + DYNAMIC), np.float32)
        score[..., 0] = features @ weights
        return score


def games(scorer: Scorer, wiring: Wiring, *, k: int, seed: int, temperature: float = 1.0) -> Growth:
    """`k` whole games, all drawn from one seed."""
    if k < 1:
        raise ValueError(f"games k must be at least 1, not {k!r}")
    growth = Growth(wiring, k)
    rollout(scorer, growth, np.random.default_rng(seed), temperature=temperature)
    return growth


def greedy(wiring: Wiring, *, seed: int = 0) -> Schedule:
    """One game of `Scarcest`."""
    return games(Scarcest(), wiring, k=1, seed=seed).schedule(0, "greedy")


def best_of(scorer: Scorer, wiring: Wiring, *, k: int, seed: int, name: str, temperature: float = 1.0) -> Schedule:
    """The shortest of `k` games, the first of equals."""
    growth = games(scorer, wiring, k=k, seed=seed, temperature=temperature)
    return growth.schedule(int(growth.rounds.argmin()), name)

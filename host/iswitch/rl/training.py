"""What trainings are told and what they tell, whichever way the workers' gradients are summed."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from iswitch.rl.replica import Vector

__all__ = ["Episodes", "Options", "Pace", "Progress", "Trained"]

Pace = Callable[[int], None]
"""Is called before each gradient, with the steps that this worker's environments have taken since the one before: so that a simulation can
let their time pass."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is learned and how. Rewards and steps count over all workers together."""

    environment: str = "CartPole-v1"
    seed: int = 1
    workers: int = 4
    environments: int = 4
    """Environments per worker."""
    steps: int = 128
    """Steps of each environment between two updates."""
    total_steps: int = 200_000
    epochs: int = 4
    minibatches: int = 2
    learning_rate: float = 1.5e-3
    discount: float = 0.99
    trace: float = 0.95
    """Lambda of generalized advantage estimation."""
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5
    hidden: int = 64
    good_return: float = 475.0
    """Stop when the latest `good_episodes` episodes or more returned as much on average."""
    good_episodes: int = 20
    evaluation_episodes: int = 20

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.workers * self.environments * self.steps))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State after one update; but for `allreduces`, which each worker counts for itself, and `seconds` the same at every worker.
    missing: ranks that were not in one of the sums since the last report."""

    update: int
    steps: int
    mean_return: float
    missing: tuple[int, ...]
    allreduces: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What every worker ends with."""

    rank: int
    weights: Vector
    curve: list[Progress]
    train_s: float

    @property
    def weights_sha256(self) -> str:
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


class Episodes:
    """Returns of the latest episodes of all workers: `good_episodes` of them, or somewhat more, as they are told of several together."""

    def __init__(self, options: Options) -> None:
        self.options, self._latest = options, list[tuple[float, float]]()

    def add(self, returned: float, ended: float) -> None:
        """So many episodes that ended, and the sum of their returns."""
        if ended:
            self._latest.append((returned, ended))
        while sum(count for _, count in self._latest[1:]) >= self.options.good_episodes:
            self._latest.pop(0)

    def clear(self) -> None:
        self._latest.clear()

    @property
    def mean_return(self) -> float:
        count = sum(count for _, count in self._latest)
        return sum(total for total, _ in self._latest) / count if count else 0.0

    @property
    def good(self) -> bool:
        """They are enough, and returned as much as a training is to reach."""
        return sum(count for _, count in self._latest) >= self.options.good_episodes and self.mean_return >= self.options.good_return

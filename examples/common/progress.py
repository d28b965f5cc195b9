"""Reports of a PPO worker, and the rule by which a training stops."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from examples.common.replica import Vector

__all__ = ["CollectiveResult", "EpisodeReturns", "Progress", "SimulateCompute", "TrainingResult"]

SimulateCompute = Callable[[int], None]
"""A worker calls it before each gradient, with the environment steps since the previous gradient. A simulation lets
their time pass there."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A worker's report after one policy update. Only `allreduces` and `seconds` differ between the workers.

    Parameters
    ----------
    update : int
        Policy updates so far.
    steps : int
        Environment steps of all workers so far.
    mean_return : float
        Mean return of the latest episodes of all workers.
    missing : tuple of int
        Ranks that did not contribute to one of the sums since the last report.
    allreduces : int
        Collectives that this worker has called.
    seconds : float
        Time since the start of this worker.
    """

    update: int
    steps: int
    mean_return: float
    missing: tuple[int, ...]
    allreduces: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of one worker: its rank, the final weights, its reports, and its seconds of training."""

    rank: int
    weights: Vector
    curve: list[Progress]
    train_s: float

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights' bytes."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class CollectiveResult(TrainingResult):
    """The result of one worker whose gradients are reduced by collectives.

    Parameters
    ----------
    allreduces : int
        Collectives that this worker has called.
    segments : int
        Contributions of this worker to the switch's sums.
    allreduce_s : float
        Seconds within the collectives.
    """

    allreduces: int
    segments: int
    allreduce_s: float


class EpisodeReturns:
    """Returns of the latest episodes of all workers.

    Parameters
    ----------
    solved_episodes : int
        Episodes to keep. Somewhat more are kept, because they come in groups.
    solved_return : float
        Mean return from which the environment counts as solved.

    Attributes
    ----------
    groups : list of tuple of float
        The sum of the returns of each group of episodes, and the number of these episodes.
    """

    def __init__(self, *, solved_episodes: int, solved_return: float) -> None:
        self.solved_episodes, self.solved_return = solved_episodes, solved_return
        self.groups = list[tuple[float, float]]()

    def add(self, return_sum: float, episodes: float) -> None:
        """Add a group of episodes, given the sum of their returns and their number."""
        if episodes:
            self.groups.append((return_sum, episodes))
        while sum(count for _, count in self.groups[1:]) >= self.solved_episodes:
            self.groups.pop(0)

    def clear(self) -> None:
        """Remove all episodes."""
        self.groups.clear()

    @property
    def mean_return(self) -> float:
        """The mean of the returns, 0 if there are no episodes yet."""
        count = sum(count for _, count in self.groups)
        return sum(total for total, _ in self.groups) / count if count else 0.0

    @property
    def solved(self) -> bool:
        """True if there are `solved_episodes` episodes and their mean return is at least `solved_return`."""
        return sum(count for _, count in self.groups) >= self.solved_episodes and self.mean_return >= self.solved_return

"""Reports of the actors and of the learner of an Ape-X training."""

import hashlib
from dataclasses import dataclass

from examples.common.replica import Vector

__all__ = ["ActorProgress", "Learned", "LearnerProgress"]


@dataclass(frozen=True, kw_only=True)
class ActorProgress:
    """A report of an actor.

    Parameters
    ----------
    rank : int
        Rank of the actor.
    steps, episodes : int
        Environment steps and episodes so far.
    mean_return : float
        Mean return of the latest episodes, 0 if there are none.
    version : int
        Version of the parameters in use.
    items, bytes_sent : int
        Transitions added so far, and bytes sent for them.
    """

    rank: int
    steps: int
    episodes: int
    mean_return: float
    version: int
    items: int
    bytes_sent: int


@dataclass(frozen=True, kw_only=True)
class LearnerProgress:
    """A report of the learner, when it publishes.

    Parameters
    ----------
    step, version : int
        Steps so far, and the latest version of the parameters.
    returns : tuple of float
        Returns of the evaluation, empty if there was none.
    loss : float
        Mean loss since the last report.
    adds, samples, size, priority_sum
        The table's counts of items added and sampled, its present number of items, and the sum of their priorities.
    overwritten : int
        Sampled rows whose data was overwritten before delivery.
    stale : int
        Priority updates that came after their item was overwritten.
    seconds : float
        Time since the learner's start.
    """

    step: int
    version: int
    returns: tuple[float, ...]
    loss: float
    adds: int
    samples: int
    size: int
    priority_sum: float
    overwritten: int
    stale: int
    seconds: float

    @property
    def mean_return(self) -> float | None:
        """Mean return of the evaluation; None if there was none."""
        return sum(self.returns) / len(self.returns) if self.returns else None


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The learner's result.

    Parameters
    ----------
    weights : Vector
        Weights of the best evaluation.
    best_step : int
        Step of the best evaluation.
    curve : list of LearnerProgress
        All reports.
    sampled : int
        Items sampled.
    samples_sha256 : str
        SHA-256 of the sampled items' handles in their order.
    seconds : float
        Time of the training.
    """

    weights: Vector
    best_step: int
    curve: list[LearnerProgress]
    sampled: int
    samples_sha256: str
    seconds: float

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights' bytes."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()

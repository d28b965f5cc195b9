"""The outcomes of trainings in virtual time: of one worker, of one training, and the median of several trainings."""

import math
import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

from examples.common.replica import Vector

__all__ = ["Outcome", "Point", "Row", "median_s"]


class Point(NamedTuple):
    """A point of a learning curve.

    Parameters
    ----------
    seconds : float
        Virtual seconds since the first worker's first step.
    steps : int
        Environment steps of all workers so far.
    mean_return : float
        Mean return of the latest `solved_episodes` episodes of all workers.
    """

    seconds: float
    steps: int
    mean_return: float


class Outcome(NamedTuple):
    """The outcome of one worker.

    Parameters
    ----------
    start_s, end_s : float
        Virtual times of the first step and of the end.
    mean_return : float
        Mean return of the latest `solved_episodes` episodes of all workers at the end.
    updates : int
        Optimizer steps.
    steps : int
        Environment steps of all workers.
    weights, weights_sha256 : Vector, str
        The final weights, and the SHA-256 of their bytes.
    curve : list of Point
        The learning curve, whose seconds are virtual times, as `start_s` is.
    """

    start_s: float
    end_s: float
    mean_return: float
    updates: int
    steps: int
    weights: Vector
    weights_sha256: str
    curve: list[Point]


@dataclass(frozen=True)
class Row:
    """The outcome of one training.

    Parameters
    ----------
    seed : int
        Seed of the training.
    solved : bool
        True if the mean return reached `solved_return`.
    seconds : float
        Virtual seconds from the first worker's first step to the last worker's end, solved or not.
    mean_return, updates, steps, weights_sha256
        As in `Outcome`.
    greedy_return : float
        Mean return of the evaluation of the final weights.
    curve : list of Point
        The learning curve.
    """

    seed: int
    solved: bool
    seconds: float
    mean_return: float
    updates: int
    steps: int
    greedy_return: float
    weights_sha256: str
    curve: list[Point] = field(default_factory=list, repr=False)


def median_s(rows: list[Row]) -> float | None:
    """Return the median of the seconds, or None if at least half of the trainings did not solve the environment."""
    median = statistics.median_high(row.seconds if row.solved else math.inf for row in rows)
    return None if median == math.inf else median

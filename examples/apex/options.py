"""What an Ape-X training is told, and what is common to its processes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["STOP", "Options", "Start", "Vector"]

Vector = npt.NDArray[np.float32]

STOP = b"stop"
"""Begins what a learner publishes as its last version: actors end with it. As the first weight it would be 7.7e31."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is learned and how. A learner's step is one batch; `steps`, `publish_every` and `evaluate_every` count
    those."""

    environment: str = "CartPole-v1"
    seed: int = 1
    actors: int = 4
    games: int = 4
    """Environments of each actor."""
    add_items: int = 32
    """Transitions that an actor adds at a time."""
    horizon: int = 5
    """Rewards in an n-step return."""
    discount: float = 0.99
    hidden: int = 64
    batch: int = 64
    steps: int = 12_800
    """Learner's steps at most."""
    ratio: float = 4.0
    """Draws for each transition that is added."""
    warmup: int = 1024
    """Transitions before the first draw."""
    learning_rate: float = 1e-3
    gradient_norm: float = 10.0
    target_rate: float = 0.01
    """How far the target network's weights go to the online ones with each step."""
    publish_every: int = 64
    exponent: float = 0.6
    """A priority is the TD error to this power."""
    beta: float = 0.4
    """Exponent of the importance weights."""
    epsilon: float = 0.4
    spread: float = 7.0
    """Game i of all N acts at random with probability epsilon ** (1 + spread * i / (N - 1))."""
    evaluate_every: int = 256
    evaluation_episodes: int = 20
    good_return: float = 485.0
    """Stop when an evaluation's episodes return as much on average."""
    lockstep: bool = False
    """Every operation on the table in an order that was fixed beforehand: the same seed gives the same draws and the
    same weights."""

    def __post_init__(self) -> None:
        for name in (
            "actors",
            "games",
            "add_items",
            "horizon",
            "hidden",
            "batch",
            "steps",
            "warmup",
            "publish_every",
            "evaluate_every",
            "evaluation_episodes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"Options {name} must be at least 1, not {getattr(self, name)!r}")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"Options discount must be 0 to 1, not {self.discount!r}")
        if self.ratio <= 0:
            raise ValueError(f"Options ratio must be above 0, not {self.ratio!r}")
        if self.steps % self.evaluate_every:
            raise ValueError(
                f"Options steps must be a multiple of evaluate_every, {self.evaluate_every}, not {self.steps!r}"
            )
        if self.evaluate_every % self.publish_every:
            raise ValueError(
                f"Options evaluate_every must be a multiple of publish_every, {self.publish_every}, not {self.evaluate_every!r}"
            )

    def epsilon_of(self, game: int) -> float:
        """How often game `game` of all actors' games acts at random."""
        others = self.actors * self.games - 1
        return self.epsilon ** (1 + self.spread * game / others) if others else self.epsilon


@dataclass(frozen=True)
class Start:
    """Where a table was when the training began: its turn, and the version of its parameters."""

    ticket: int = 1
    version: int = 0

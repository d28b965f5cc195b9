"""Transitions over several steps: the discounted rewards of n steps, and what follows them.

A transition from step t sums discount^k * reward[t + k] over the n steps from t, or over those that its episode still
had; what its last observation is worth then counts with `discount`: discount^n, at a truncated end discount to the
number of steps that there were, and 0 where the episode terminated, for there nothing follows.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NStep", "Transition", "columns"]


@dataclass(frozen=True, kw_only=True)
class Transition:
    """observation, action; `reward` of several steps; then `next_observation`, whose value counts `discount`."""

    observation: npt.NDArray[Any]
    action: int
    reward: float
    next_observation: npt.NDArray[Any]
    discount: float


class NStep:
    """Makes transitions of the steps of one game."""

    def __init__(self, horizon: int, discount: float) -> None:
        self.horizon, self.discount = horizon, discount
        self._begun: deque[tuple[npt.NDArray[Any], int]] = deque()
        self._rewards: deque[float] = deque()

    def step(
        self,
        observation: npt.NDArray[Any],
        action: int,
        reward: float,
        next_observation: npt.NDArray[Any],
        *,
        terminated: bool,
        truncated: bool,
    ) -> list[Transition]:
        """The transitions that are complete with this step, the oldest first; at an episode's end all that were begun.
        Observations are kept as they are given, not copied."""
        self._begun.append((observation, action))
        self._rewards.append(reward)
        done: list[Transition] = []
        while self._begun and (terminated or truncated or len(self._begun) == self.horizon):
            first, taken = self._begun.popleft()
            reward_sum = 0.0
            for later in reversed(self._rewards):
                reward_sum = later + self.discount * reward_sum
            done.append(
                Transition(
                    observation=first,
                    action=taken,
                    reward=reward_sum,
                    next_observation=next_observation,
                    discount=0.0 if terminated else self.discount ** len(self._rewards),
                )
            )
            self._rewards.popleft()
        return done


def columns(transitions: list[Transition]) -> dict[str, npt.NDArray[Any]]:
    """A row for each transition, by the names of the fields."""
    return {
        "observation": np.stack([each.observation for each in transitions]),
        "action": np.array([each.action for each in transitions], np.int64),
        "reward": np.array([each.reward for each in transitions], np.float32),
        "next_observation": np.stack([each.next_observation for each in transitions]),
        "discount": np.array([each.discount for each in transitions], np.float32),
    }

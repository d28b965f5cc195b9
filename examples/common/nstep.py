"""n-step transitions: the discounted rewards of n steps, and the observation after them.

A transition from step t sums gamma^k * reward[t + k] over n steps, or over the remaining steps of its episode. The
value of its `next_obs` counts with `discount`: gamma^n, gamma to the number of steps if the episode was truncated
earlier, and 0 if the episode terminated.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iswitch.replay import Field

__all__ = ["NStep", "Transition", "columns", "transition_fields"]


@dataclass(frozen=True, kw_only=True)
class Transition:
    """An observation and the action taken; the sum of rewards; the observation after these steps and its discount."""

    obs: npt.NDArray[Any]
    action: int
    reward: float
    next_obs: npt.NDArray[Any]
    discount: float


def transition_fields(obs: Field) -> dict[str, Field]:
    """Return the fields of a replay of transitions with such observations."""
    return {
        "obs": obs,
        "action": Field((), np.int64),
        "reward": Field((), np.float32),
        "next_obs": obs,
        "discount": Field((), np.float32),
    }


class NStep:
    """Builds transitions from the steps of one environment.

    Parameters
    ----------
    n_step : int
        Steps of a transition, at most.
    gamma : float
        Discount factor.
    """

    def __init__(self, n_step: int, gamma: float) -> None:
        self.n_step, self.gamma = n_step, gamma
        self._started: deque[tuple[npt.NDArray[Any], int]] = deque()
        self._rewards: deque[float] = deque()

    def step(
        self,
        obs: npt.NDArray[Any],
        action: int,
        reward: float,
        next_obs: npt.NDArray[Any],
        *,
        terminated: bool,
        truncated: bool,
    ) -> list[Transition]:
        """Add a step, and return the transitions that it completes, the oldest first.

        The end of an episode completes all of its transitions. Observations are not copied.
        """
        self._started.append((obs, action))
        self._rewards.append(reward)
        completed: list[Transition] = []
        while self._started and (terminated or truncated or len(self._started) == self.n_step):
            first_obs, first_action = self._started.popleft()
            reward_sum = 0.0
            for later in reversed(self._rewards):
                reward_sum = later + self.gamma * reward_sum
            completed.append(
                Transition(
                    obs=first_obs,
                    action=first_action,
                    reward=reward_sum,
                    next_obs=next_obs,
                    discount=0.0 if terminated else self.gamma ** len(self._rewards),
                )
            )
            self._rewards.popleft()
        return completed


def columns(transitions: list[Transition]) -> dict[str, npt.NDArray[Any]]:
    """Return the transitions as arrays by field, one row for each."""
    return {
        "obs": np.stack([transition.obs for transition in transitions]),
        "action": np.array([transition.action for transition in transitions], np.int64),
        "reward": np.array([transition.reward for transition in transitions], np.float32),
        "next_obs": np.stack([transition.next_obs for transition in transitions]),
        "discount": np.array([transition.discount for transition in transitions], np.float32),
    }

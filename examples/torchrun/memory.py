"""A worker's own replay memory: the latest transitions, sampled uniformly (Mnih et al. 2015).

`examples/apex.py` has its replay in the switch instead, with priorities.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from examples.torchrun.environments import Step

__all__ = ["Memory"]


class Memory:
    """The latest transitions of a worker.

    Parameters
    ----------
    capacity : int
        Transitions to keep.
    gamma : float
        Discount factor.
    """

    def __init__(self, capacity: int, gamma: float) -> None:
        self.capacity, self.gamma = capacity, gamma
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.added = 0

    @property
    def size(self) -> int:
        """Number of transitions in the memory."""
        return min(self.added, self.capacity)

    def add(self, obs: npt.NDArray[Any], actions: npt.NDArray[Any], step: Step) -> None:
        """Add one transition of each environment. They take the place of the oldest ones if there is no room."""
        rows = {
            "obs": obs,
            "actions": actions,
            "rewards": step.rewards,
            "next_obs": step.next_obs,
            "discounts": np.float32(self.gamma) * ~step.terminated,  # a time limit ends the episode, not its value
        }
        places = (self.added + np.arange(len(obs))) % self.capacity
        for name, values in rows.items():
            if name not in self.columns:
                self.columns[name] = np.zeros((self.capacity, *values.shape[1:]), values.dtype)
            self.columns[name][places] = values
        self.added += len(obs)

    def sample(self, batch_size: int, random: np.random.Generator) -> dict[str, Tensor]:
        """Return transitions, each column a tensor. Every transition is equally likely in each place of the batch."""
        rows = random.integers(self.size, size=batch_size)
        return {name: torch.from_numpy(column[rows]) for name, column in self.columns.items()}

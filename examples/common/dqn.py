"""Double DQN with n-step returns (van Hasselt et al. 2016): TD errors, their priorities, and the learner's step.

The online network chooses the next action, and the target network gives its value:
delta = reward + discount * target(next_obs)[argmax online(next_obs)] - online(obs)[action]. Actors compute the same in
numpy, with the one network that they have in both places.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from examples.common.replica import Replica, Vector

__all__ = ["PRIORITY_EPSILON", "Columns", "DoubleDQN", "actor_deltas", "priorities_of", "td_targets"]

PRIORITY_EPSILON = 1e-3
"""Is added to every absolute TD error, so that every transition can be sampled again."""

Columns = Mapping[str, npt.NDArray[Any]]
"""Transitions by field, one row for each."""


def td_targets(rewards: Tensor, discounts: Tensor, online_next: Tensor, target_next: Tensor) -> Tensor:
    """Return the targets of the Q values, given both networks' Q values of the next observations."""
    actions = online_next.argmax(-1, keepdim=True)
    return rewards + discounts * target_next.gather(-1, actions)[:, 0]


def actor_deltas(batch: Columns, q_values: Vector, next_q_values: Vector) -> Vector:
    """Return the TD errors of a batch, given one network's Q values of `obs` and of `next_obs`."""
    taken = np.take_along_axis(q_values, batch["action"][:, None], -1)[:, 0]
    return np.asarray(batch["reward"] + batch["discount"] * next_q_values.max(-1) - taken, np.float32)


def priorities_of(deltas: Vector, alpha: float) -> Vector:
    """Return the priorities of transitions with these TD errors."""
    return np.asarray((np.abs(deltas) + PRIORITY_EPSILON) ** alpha, np.float32)


class DoubleDQN:
    """The learner's two networks and its optimizer.

    Parameters
    ----------
    online : nn.Module
        The network that is trained.
    target : nn.Module
        A network whose weights follow those of `online`.
    learning_rate : float
        Learning rate of Adam.
    max_grad_norm : float
        Gradients with a larger norm are scaled down to this norm.
    tau : float
        Share of the difference by which the target network's weights follow in each step.
    """

    def __init__(
        self, online: nn.Module, target: nn.Module, *, learning_rate: float, max_grad_norm: float, tau: float
    ) -> None:
        self.online, self.target, self.learning_rate, self.tau = online, target, learning_rate, tau
        self.replica = Replica(online, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        self._target_weights = torch.from_numpy(self.replica.weights())
        nn.utils.vector_to_parameters(self._target_weights, target.parameters())  # the parameters become views of it

    def step(
        self, batch: Columns, weights: Vector, reduce_gradient: Callable[[Vector], object] = lambda gradient: None
    ) -> tuple[Vector, float]:
        """Take one step with a batch.

        Parameters
        ----------
        batch : Columns
            Sampled transitions.
        weights : Vector
            Importance weight of each transition.
        reduce_gradient : Callable
            Replaces the gradient in place, by that of all learners.

        Returns
        -------
        tuple[Vector, float]
            The TD errors and the loss before the step.

        Raises
        ------
        FloatingPointError
            If the loss is not finite.
        """
        columns = {name: torch.from_numpy(np.ascontiguousarray(rows)) for name, rows in batch.items()}
        q_values = self.online(columns["obs"])
        with torch.no_grad():
            targets = td_targets(
                columns["reward"],
                columns["discount"],
                self.online(columns["next_obs"]),
                self.target(columns["next_obs"]),
            )
        deltas = targets - q_values.gather(-1, columns["action"][:, None])[:, 0]
        losses = nn.functional.huber_loss(deltas, torch.zeros_like(deltas), reduction="none")
        loss = (torch.from_numpy(weights) * losses).mean()
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss of step {self.replica.steps} is {loss.item()}")
        self.replica.gradient.zero_()
        loss.backward()
        reduce_gradient(self.replica.gradient.numpy())
        self.replica.step(self.learning_rate)
        self._target_weights.lerp_(torch.from_numpy(self.replica.weights()), self.tau)
        return deltas.detach().numpy(), loss.item()

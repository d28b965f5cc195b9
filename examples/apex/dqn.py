"""Double DQN with n-step returns (van Hasselt et al. 2016): TD errors, the priorities made of them, and the learner's
step.

The online network chooses the action whose value, by the target network, counts: TD error = reward + discount *
target(next)[argmax online(next)] - online(observation)[action]. Actors compute the same in numpy, with the one network
that they have in both places.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from examples.apex.options import Options, Vector
from examples.common.replica import Replica

__all__ = ["LEAST", "Improver", "errors_of_actor", "priorities_of", "targets"]

LEAST = 1e-3
"""Is added to every TD error, so that no transition is never drawn again."""

Columns = Mapping[str, npt.NDArray[Any]]


def targets(rewards: Tensor, discounts: Tensor, online_next: Tensor, target_next: Tensor) -> Tensor:
    """What the values of the actions taken should have been."""
    chosen = online_next.argmax(-1, keepdim=True)
    return rewards + discounts * target_next.gather(-1, chosen)[:, 0]


def errors_of_actor(batch: Columns, values: Vector, next_values: Vector) -> Vector:
    """TD errors by one network, which gives `values` and `next_values` for the batch's observations."""
    taken = np.take_along_axis(values, batch["action"][:, None], -1)[:, 0]
    return np.asarray(batch["reward"] + batch["discount"] * next_values.max(-1) - taken, np.float32)


def priorities_of(errors: Vector, exponent: float) -> Vector:
    return np.asarray((np.abs(errors) + LEAST) ** exponent, np.float32)


class Improver:
    """Takes a learner's steps: an online network with Adam, and a target network whose weights follow it slowly."""

    def __init__(self, online: nn.Module, target: nn.Module, options: Options) -> None:
        self.online, self.target, self.options = online, target, options
        self.replica = Replica(online, learning_rate=options.learning_rate, max_grad_norm=options.gradient_norm)
        self._target_weights = torch.from_numpy(self.replica.weights())
        nn.utils.vector_to_parameters(self._target_weights, target.parameters())  # of which they are views from now on

    def improve(self, batch: Columns, weights: Vector) -> tuple[Vector, float]:
        """One step by a batch, whose rows count with their importance weights. The batch's TD errors before it, and its
        loss. FloatingPointError if that is none."""
        column = {name: torch.from_numpy(np.ascontiguousarray(rows)) for name, rows in batch.items()}
        values = self.online(column["observation"])
        with torch.no_grad():
            wanted = targets(
                column["reward"],
                column["discount"],
                self.online(column["next_observation"]),
                self.target(column["next_observation"]),
            )
        errors = wanted - values.gather(-1, column["action"][:, None])[:, 0]
        loss = (
            torch.from_numpy(weights) * nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
        ).mean()
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss of step {self.replica.steps} is {loss.item()}")
        self.replica.gradient.zero_()
        loss.backward()
        self.replica.step(self.options.learning_rate)
        self._target_weights.lerp_(torch.from_numpy(self.replica.weights()), self.options.target_rate)
        return errors.detach().numpy(), loss.item()

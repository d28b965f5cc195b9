"""Dueling networks (Wang et al. 2016): Q is a state's value and the actions' advantages, less their mean.

A learner's is a torch module; an actor's is the same in numpy, which for a few rows is several times faster and needs
no torch.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from examples.apex.options import Vector

__all__ = ["Dueling", "DuelingArrays", "for_frames", "for_vectors"]


class Dueling(nn.Module):
    """Q for each action. body: from observations [n, ...] to n rows of `features`."""

    def __init__(self, body: nn.Module, features: int, actions: int) -> None:
        super().__init__()
        self.body, self.value, self.advantage = body, nn.Linear(features, 1), nn.Linear(features, actions)

    def forward(self, observations: Tensor) -> Tensor:
        seen = self.body(observations)
        advantages: Tensor = self.advantage(seen)
        return self.value(seen) + advantages - advantages.mean(-1, keepdim=True)


def _initialised(net: Dueling, seed: int) -> Dueling:
    """The same weights for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(
                layer.weight, 1.0 if layer in (net.value, net.advantage) else math.sqrt(2), generator=generator
            )
            nn.init.zeros_(layer.bias)
    return net


def for_vectors(size: int, actions: int, hidden: int, seed: int) -> Dueling:
    """Two hidden layers, as `DuelingArrays` has them."""
    body = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    return _initialised(Dueling(body, hidden, actions), seed)


class _Unit(nn.Module):
    """Bytes as numbers from 0 to 1."""

    def forward(self, frames: Tensor) -> Tensor:
        return frames.float() / 255


def for_frames(stacked: int, actions: int, seed: int) -> Dueling:
    """The convolutions of Mnih et al. 2015, for stacks of 84 x 84 bytes."""
    body = nn.Sequential(
        _Unit(),
        nn.Conv2d(stacked, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
    )
    return _initialised(Dueling(body, 512, actions), seed)


class DuelingArrays:
    """What `for_vectors` gives, in numpy, with the weights of a vector: those of the torch module's parameters in their
    order."""

    def __init__(self, size: int, actions: int, hidden: int) -> None:
        layers = [(hidden, size), (hidden, hidden), (1, hidden), (actions, hidden)]
        self._shapes: list[tuple[int, ...]] = [
            shape for rows, columns in layers for shape in ((rows, columns), (rows,))
        ]
        self.size = sum(map(math.prod, self._shapes))
        self.load(np.zeros(self.size, np.float32))

    def load(self, weights: Vector) -> None:
        """ValueError if they are not those of such a network."""
        if weights.shape != (self.size,):
            raise ValueError(f"weights must be {self.size} numbers, not of shape {weights.shape}")
        parts = np.split(weights, np.cumsum([math.prod(shape) for shape in self._shapes])[:-1])
        self._layers: Sequence[Vector] = [part.reshape(shape).T for part, shape in zip(parts, self._shapes)]

    def __call__(self, observations: Vector) -> Vector:
        first, first_bias, second, second_bias, value, value_bias, advantage, advantage_bias = self._layers
        seen = np.maximum(observations @ first + first_bias, 0)
        seen = np.maximum(seen @ second + second_bias, 0)
        advantages = seen @ advantage + advantage_bias
        return np.asarray(seen @ value + value_bias + advantages - advantages.mean(-1, keepdims=True), np.float32)

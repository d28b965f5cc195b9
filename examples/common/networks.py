"""Dueling networks (Wang et al. 2016): Q is the state's value plus the actions' advantages, less their mean.

The learner uses a torch module. Actors use the same network in numpy, which is several times faster for a few rows.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from examples.common.replica import Vector

__all__ = ["DuelingArrays", "DuelingNetwork", "frame_body", "frame_network", "initialize", "vector_network"]


class DuelingNetwork(nn.Module):
    """Q values of all actions.

    Parameters
    ----------
    body : nn.Module
        Maps observations of shape (n, ...) to (n, features).
    features, actions : int
        Outputs of the body, and the number of actions.
    """

    def __init__(self, body: nn.Module, features: int, actions: int) -> None:
        super().__init__()
        self.body, self.value, self.advantage = body, nn.Linear(features, 1), nn.Linear(features, actions)

    def forward(self, obs: Tensor) -> Tensor:
        features = self.body(obs)
        advantages: Tensor = self.advantage(features)
        return self.value(features) + advantages - advantages.mean(-1, keepdim=True)


def initialize(network: nn.Module, seed: int, heads: Mapping[nn.Module, float]) -> None:
    """Set the weights of all layers. The same seed gives the same weights.

    Parameters
    ----------
    network : nn.Module
        The network.
    seed : int
        Seed of the weights.
    heads : Mapping[nn.Module, float]
        Gain of each layer that no ReLU or tanh follows. The others have the square root of 2.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, heads.get(layer, math.sqrt(2)), generator=generator)
            nn.init.zeros_(layer.bias)


def _dueling(body: nn.Module, features: int, actions: int, seed: int) -> DuelingNetwork:
    network = DuelingNetwork(body, features, actions)
    initialize(network, seed, {network.value: 1.0, network.advantage: 1.0})
    return network


def vector_network(size: int, actions: int, hidden: int, seed: int) -> DuelingNetwork:
    """Make a network for vectors of `size` elements, with two hidden layers as in `DuelingArrays`."""
    body = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    return _dueling(body, hidden, actions, seed)


class _Scale(nn.Module):
    """Maps bytes to 0 to 1."""

    def forward(self, frames: Tensor) -> Tensor:
        return frames.float() / 255


def frame_body(stack: int, channels: int = 64, hidden: int = 512) -> nn.Sequential:
    """Make the convolutions of Mnih et al. 2015 for stacks of 84 x 84 bytes, and one hidden layer.

    Parameters
    ----------
    stack : int
        Frames in a stack.
    channels : int
        Channels of the last convolution.
    hidden : int
        Units of the hidden layer, which are the outputs.
    """
    return nn.Sequential(
        _Scale(),
        nn.Conv2d(stack, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, channels, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * 7 * 7, hidden),
        nn.ReLU(),
    )


def frame_network(stack: int, actions: int, seed: int) -> DuelingNetwork:
    """Make a dueling network for stacks of 84 x 84 bytes."""
    return _dueling(frame_body(stack), 512, actions, seed)


class DuelingArrays:
    """The network of `vector_network` in numpy.

    Parameters
    ----------
    size, actions, hidden : int
        As in `vector_network`.

    Attributes
    ----------
    size : int
        Number of weights.
    """

    def __init__(self, size: int, actions: int, hidden: int) -> None:
        layers = [(hidden, size), (hidden, hidden), (1, hidden), (actions, hidden)]
        self._shapes: list[tuple[int, ...]] = [
            shape for rows, columns in layers for shape in ((rows, columns), (rows,))
        ]
        self.size = sum(map(math.prod, self._shapes))
        self.load(np.zeros(self.size, np.float32))

    def load(self, weights: Vector) -> None:
        """Set the weights from one vector, in the order of the torch module's parameters.

        Raises
        ------
        ValueError
            If the vector has another size.
        """
        if weights.shape != (self.size,):
            raise ValueError(f"weights must be {self.size} numbers, not of shape {weights.shape}")
        parts = np.split(weights, np.cumsum([math.prod(shape) for shape in self._shapes])[:-1])
        self._layers: Sequence[Vector] = [part.reshape(shape).T for part, shape in zip(parts, self._shapes)]

    def __call__(self, obs: Vector) -> Vector:
        """Return the Q values of all actions, one row for each observation."""
        first, first_bias, second, second_bias, value, value_bias, advantage, advantage_bias = self._layers
        features = np.maximum(obs @ first + first_bias, 0)
        features = np.maximum(features @ second + second_bias, 0)
        advantages = features @ advantage + advantage_bias
        return np.asarray(features @ value + value_bias + advantages - advantages.mean(-1, keepdims=True), np.float32)

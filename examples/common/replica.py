"""The state that must be equal on all workers of a training: weights, Adam's moments and the counts of steps."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from iswitch import Worker

__all__ = ["Replica", "Vector"]

Vector = npt.NDArray[np.float32]


class Replica:
    """A model and its optimizer.

    Parameters
    ----------
    model : nn.Module
        The model. Its parameters become views of one vector, and their gradients views of `gradient`.
    learning_rate : float
        Learning rate of Adam.
    max_grad_norm : float
        Gradients with a larger norm are scaled down to this norm.

    Attributes
    ----------
    gradient : Tensor
        The gradients of all parameters in one vector, so that one collective reduces them without a copy.
    update : int
        Policy updates that are complete.
    steps : int
        Optimizer steps. Replicas with equal `steps` are equal.
    """

    def __init__(self, model: nn.Module, *, learning_rate: float, max_grad_norm: float) -> None:
        self.model, self.max_grad_norm = model, max_grad_norm
        self.parameters = list(model.parameters())
        nn.utils.vector_to_parameters(torch.from_numpy(self.weights()), self.parameters)
        self.gradient = torch.zeros(sum(parameter.numel() for parameter in self.parameters))
        start = 0
        for parameter in self.parameters:
            parameter.grad = self.gradient[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        self.adam = torch.optim.Adam(self.parameters, lr=learning_rate, eps=1e-5)
        for (
            parameter
        ) in self.parameters:  # Adam creates its state at the first step; `sync_state` needs the state earlier
            self.adam.state[parameter] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.update = self.steps = 0

    def step(self, learning_rate: float) -> None:
        """Take one optimizer step along `gradient`, whose norm is clipped first."""
        self.gradient *= min(1.0, self.max_grad_norm / (float(self.gradient.norm()) + 1e-6))
        self.adam.param_groups[0]["lr"] = learning_rate
        self.adam.step()
        self.steps += 1

    def weights(self) -> Vector:
        """Return a copy of all parameters in one vector."""
        return nn.utils.parameters_to_vector(self.parameters).detach().numpy().copy()

    def _state(self) -> list[list[Tensor]]:
        """Return the tensors of the weights and of both moments, each a list by parameter."""
        states = [self.adam.state[parameter] for parameter in self.parameters]
        return [
            [parameter.data for parameter in self.parameters],
            *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")),
        ]

    def sync_state(self, worker: Worker) -> None:
        """Replace the replica of every worker of the job by that of the worker with the most optimizer steps."""
        state = self._state()
        vectors = [torch.cat([tensor.flatten() for tensor in tensors]).numpy() for tensors in state]
        counts = np.array([self.update, self.steps], np.int64)
        worker.sync_state([*vectors, counts], self.steps)
        for tensors, vector in zip(state, vectors, strict=True):
            parts = torch.from_numpy(vector).split([tensor.numel() for tensor in tensors])
            for tensor, values in zip(tensors, parts, strict=True):
                tensor.copy_(values.view_as(tensor))
        self.update, self.steps = counts.tolist()
        for parameter in self.parameters:
            self.adam.state[parameter]["step"].fill_(self.steps)

"""What must be the same on every worker of a training: weights, Adam's moments, and how far it is."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

__all__ = ["Collective", "Replica", "Vector"]

Vector = npt.NDArray[np.float32]


class Collective(Protocol):
    """What a training needs of `iswitch.Worker`; both methods work in place."""

    @property
    def needs_sync(self) -> bool: ...

    @property
    def segments_completed(self) -> int: ...

    def allreduce(self, array: Vector, op: Literal["sum", "mean"] = "sum") -> Any: ...

    def sync_state(self, state: Sequence[npt.NDArray[Any]], step: int) -> int: ...

    def rejoin(self) -> None: ...


class Replica:
    """A model with its optimizer. `gradient`: one vector of which every parameter's gradient is a view, so that a whole
    gradient is reduced as it lies. `steps`: optimizer steps taken, `update`: updates of the policy begun; with equal
    `steps` all replicas are equal."""

    def __init__(self, model: nn.Module, *, learning_rate: float, max_grad_norm: float) -> None:
        self.model, self.max_grad_norm = model, max_grad_norm
        self.parameters = list(model.parameters())
        nn.utils.vector_to_parameters(torch.from_numpy(self.weights()), self.parameters)  # one vector, too
        self.gradient = torch.zeros(sum(p.numel() for p in self.parameters))
        start = 0
        for parameter in self.parameters:
            parameter.grad = self.gradient[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        self.adam = torch.optim.Adam(self.parameters, lr=learning_rate, eps=1e-5)
        for parameter in self.parameters:  # as Adam would at its first step; so they can be shared before it
            self.adam.state[parameter] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.update = self.steps = 0

    def step(self, learning_rate: float) -> None:
        """One step along `gradient`, cut to its greatest norm."""
        self.gradient *= min(1.0, self.max_grad_norm / (float(self.gradient.norm()) + 1e-6))
        self.adam.param_groups[0]["lr"] = learning_rate
        self.adam.step()
        self.steps += 1

    def weights(self) -> Vector:
        return nn.utils.parameters_to_vector(self.parameters).detach().numpy().copy()

    def _columns(self) -> list[list[Tensor]]:
        states = [self.adam.state[parameter] for parameter in self.parameters]
        return [
            [parameter.data for parameter in self.parameters],
            *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")),
        ]

    def sync_state(self, worker: Collective) -> None:
        """Every worker of the job gets the replica of the one that has taken the most steps."""
        columns = self._columns()
        vectors = [torch.cat([part.flatten() for part in column]).numpy() for column in columns]
        counts = np.array([self.update, self.steps], np.int64)
        worker.sync_state([*vectors, counts], self.steps)
        for column, vector in zip(columns, vectors, strict=True):
            for part, values in zip(
                column, torch.from_numpy(vector).split([part.numel() for part in column]), strict=True
            ):
                part.copy_(values.view_as(part))
        self.update, self.steps = counts.tolist()
        for parameter in self.parameters:
            self.adam.state[parameter]["step"].fill_(self.steps)

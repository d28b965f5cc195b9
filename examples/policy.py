"""The weights that a training keeps: one file that numpy reads, and that a policy can be played from."""

import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import gymnasium
import numpy as np

from examples.replica import Vector
from examples.rollout import Agent
from examples.training import Options

__all__ = ["Policy"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A trained policy, as `save` writes it: `numpy.load(path)` has an array of each of these names.

    Parameters
    ----------
    weights : Vector
        All parameters of the `Agent` in one float32 vector: the policy's layers, then the value net's, each layer's
        weight before its bias.
    environment : str
        Gymnasium's name of the environment.
    hidden : int
        Units of each hidden layer.
    seed : int
        Seed of the training.
    mean_return : float
        Mean return of the evaluation.
    """

    weights: Vector
    environment: str
    hidden: int
    seed: int
    mean_return: float

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the weights' bytes: the one that the training printed."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()

    def save(self, path: Path) -> None:
        """Write the policy. An interruption leaves the earlier file as it was."""
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            np.savez(
                file,
                weights=self.weights,
                environment=self.environment,
                hidden=self.hidden,
                seed=self.seed,
                mean_return=self.mean_return,
            )
        os.replace(part, path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a policy.

        Raises
        ------
        ValueError
            If there is no such file, it cannot be read, or it is not a policy.
        """
        try:
            with np.load(path) as kept:
                policy = cls(
                    weights=np.ascontiguousarray(kept["weights"], np.float32),
                    environment=str(kept["environment"]),
                    hidden=int(kept["hidden"]),
                    seed=int(kept["seed"]),
                    mean_return=float(kept["mean_return"]),
                )
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist: no training has kept its weights there yet") from None
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a policy that a training has kept: {error}") from None
        if policy.hidden < 1 or policy.weights.ndim != 1 or not np.isfinite(policy.weights).all():
            raise ValueError(
                f"{path} is not a policy that a training has kept: `hidden` must be at least 1, and `weights` one vector of finite "
                "numbers"
            )
        return policy

    def agent(self) -> Agent:
        """Return the nets with these weights.

        Raises
        ------
        ValueError
            If Gymnasium has no such environment, or the weights do not fit it.
        """
        try:
            env = gymnasium.make(self.environment)
        except gymnasium.error.Error as error:
            raise ValueError(
                f"Gymnasium does not make the policy's environment {self.environment!r}: {error}"
            ) from None
        with env:
            agent = Agent.of(env, Options(environment=self.environment, hidden=self.hidden))
        parameters = sum(parameter.numel() for parameter in agent.parameters())
        if self.weights.shape != (parameters,):
            raise ValueError(
                f"the policy has {self.weights.size:,} weights, but its nets have {parameters:,} parameters"
            )
        agent.load(self.weights)
        return agent

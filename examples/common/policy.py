"""Saved policies: a file that numpy can read, with the weights of a training."""

import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from examples.common.replica import Vector

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
        """Write the policy. If this is interrupted, an earlier file stays as it was."""
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
            If there is no such file, the file cannot be read, or the file is not a policy.
        """
        try:
            with np.load(path) as saved:
                policy = cls(
                    weights=np.ascontiguousarray(saved["weights"], np.float32),
                    environment=str(saved["environment"]),
                    hidden=int(saved["hidden"]),
                    seed=int(saved["seed"]),
                    mean_return=float(saved["mean_return"]),
                )
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist: no training has saved a policy there yet") from None
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a saved policy: {error}") from None
        if policy.hidden < 1 or policy.weights.ndim != 1 or not np.isfinite(policy.weights).all():
            raise ValueError(
                f"{path} is not a saved policy: `hidden` must be at least 1, and `weights` one vector of finite numbers"
            )
        return policy

"""The two policies: small networks over features of one flow tree or one workload, for every topology, in numpy."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, TREE_FEATURES

__all__ = ["DYNAMIC_COUNT", "Policy", "Scorer"]

Floats = NDArray[np.float32]
DECIMALS = 6
DYNAMIC_COUNT = 3
"""Number of features that change during a round (`rollout.dynamic_features`). The lower policy gives each workload a
weight for each of them."""


class Scorer(Protocol):
    """Scores workloads and flow trees."""

    def evaluate(self, name: str, features: Floats) -> Floats:
        """Return scores.

        Parameters
        ----------
        name : {"lower", "upper"}
            lower: workloads; returns [..., 1 + DYNAMIC_COUNT], a score and the weights of the dynamic features.
            upper: flow trees; returns [..., 2], the logit of selecting the tree, and a value.
        features : array of float, shape (..., feature)
            Features of workloads or of flow trees.
        """
        ...


@dataclass(frozen=True)
class Policy:
    """The weights of both networks, each with one layer of tanh units.

    Parameters
    ----------
    weights : dict of str to array
        Matrices and biases of both layers, as ``lower.0``, ``lower.0b``, ``lower.1``, ``lower.1b`` and ``upper...``.
    reproducible : bool
        Compute in binary64 and round to `DECIMALS`. What is equal by symmetry is then equal on every machine, and ties
        are decided identically.
    """

    weights: dict[str, Floats]
    reproducible: bool = False

    @classmethod
    def blank(cls, *, hidden: int = 32, seed: int = 0) -> "Policy":
        """Return an untrained policy: workloads have nearly equal scores, and eight of nine trees are selected."""
        rng = np.random.default_rng(seed)
        weights = {}
        for net, inputs, outputs in (
            ("lower", len(FLOW_FEATURES), 1 + DYNAMIC_COUNT),
            ("upper", len(TREE_FEATURES), 2),
        ):
            weights[f"{net}.0"] = rng.normal(0, 1 / np.sqrt(inputs), (inputs, hidden)).astype(np.float32)
            weights[f"{net}.0b"] = np.zeros(hidden, np.float32)
            weights[f"{net}.1"] = rng.normal(0, 0.01, (hidden, outputs)).astype(np.float32)
            weights[f"{net}.1b"] = np.zeros(outputs, np.float32)
        weights["upper.1b"][0] = 2.0
        return cls(weights)

    def evaluate(self, name: str, features: Floats) -> Floats:
        """Return the outputs of a network; see `Scorer`."""
        weights: dict[str, NDArray[Any]] = self.weights
        if self.reproducible:
            weights = {key: value.astype(np.float64) for key, value in weights.items() if key.startswith(name)}
            features = features.astype(np.float64)
        hidden = np.tanh(features @ weights[f"{name}.0"] + weights[f"{name}.0b"])
        outputs = hidden @ weights[f"{name}.1"] + weights[f"{name}.1b"]
        return np.asarray(outputs.round(DECIMALS) if self.reproducible else outputs, np.float32)

    def save(self, path: Path) -> None:
        """Write the weights as JSON, rounded to `DECIMALS`."""
        rounded = {name: np.round(value.astype(float), DECIMALS).tolist() for name, value in self.weights.items()}
        path.write_text(json.dumps(rounded) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Return the reproducible policy of a file that `save` has written.

        Raises
        ------
        ValueError
            If it is another file.
        """
        try:
            weights = {
                name: np.array(value, np.float32)
                for name, value in json.loads(path.read_text(encoding="utf-8")).items()
            }
        except (ValueError, TypeError, AttributeError):
            weights = {}
        if weights.keys() != cls.blank().weights.keys():
            raise ValueError(f"{path} has no weights of these policies: pass a file that `train` has written")
        return cls(weights, reproducible=True)

"""The two policies as numbers: small nets over features of one flow tree or one workload, the same for every topology;
numpy alone."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import FLOW_FEATURES, TREE_FEATURES, Growth

__all__ = ["DYNAMIC", "Picks", "Policy", "Round", "Scorer", "Trace", "changing", "fill", "rollout"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
DECIMALS = 6
DYNAMIC = 3
"""What changes while a round fills, and enters a workload's score times a weight of its own: see `changing`."""


class Scorer(Protocol):
    """Whoever says what is good: "lower" for workloads, "upper" for flow trees (logit first)."""

    def net(self, name: str, features: Floats) -> Floats: ...


@dataclass(frozen=True)
class Policy:
    """Weights of both nets, by name; `hidden` tanh units in one layer each. Lower: score, and weights of DYNAMIC;
    upper: logit of selection.

    A `steady` one reckons in binary64 and rounds to DECIMALS, so that what is equal by symmetry is equal on every
    machine, and ties with it.
    """

    weights: dict[str, Floats]
    steady: bool = False

    @classmethod
    def blank(cls, *, hidden: int = 32, seed: int = 0) -> "Policy":
        """Random first layers; last layers such that all workloads are as good, and of nine trees eight are
        selected."""
        draw = np.random.default_rng(seed)
        weights = {}
        for net, inputs, outputs in (("lower", len(FLOW_FEATURES), 1 + DYNAMIC), ("upper", len(TREE_FEATURES), 2)):
            weights[f"{net}.0"] = draw.normal(0, 1 / np.sqrt(inputs), (inputs, hidden)).astype(np.float32)
            weights[f"{net}.0b"] = np.zeros(hidden, np.float32)
            weights[f"{net}.1"] = draw.normal(0, 0.01, (hidden, outputs)).astype(np.float32)
            weights[f"{net}.1b"] = np.zeros(outputs, np.float32)
        weights["upper.1b"][0] = 2.0
        return cls(weights)

    def net(self, name: str, features: Floats) -> Floats:
        weights: dict[str, NDArray[Any]] = self.weights
        if self.steady:
            weights, features = (
                {at: value.astype(np.float64) for at, value in weights.items() if at.startswith(name)},
                features.astype(np.float64),
            )
        hidden = np.tanh(features @ weights[f"{name}.0"] + weights[f"{name}.0b"])
        outputs = hidden @ weights[f"{name}.1"] + weights[f"{name}.1b"]
        return np.asarray(outputs.round(DECIMALS) if self.steady else outputs, np.float32)

    def save(self, path: Path) -> None:
        rounded = {name: np.round(value.astype(float), DECIMALS).tolist() for name, value in self.weights.items()}
        path.write_text(json.dumps(rounded) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """Return the policy of a file that `save` has written, without exploration. ValueError if it is another
        file."""
        try:
            weights = {
                name: np.array(value, np.float32)
                for name, value in json.loads(path.read_text(encoding="utf-8")).items()
            }
        except (ValueError, TypeError, AttributeError):
            weights = {}
        if weights.keys() != cls.blank().weights.keys():
            raise ValueError(f"{path} has no weights of these policies: pass a file that `train` has written")
        return cls(weights, steady=True)


@dataclass
class Picks:
    """One workload taken by each of several copies. Flat over all their candidates: `row` in the round's features,
    `segment` (0, 1, ... for the copies in `which`), and what changes; `choice` is a flat position for each segment."""

    which: Ints
    row: Ints
    segment: Ints
    changing: Floats
    choice: Ints


@dataclass
class Round:
    """One round of all copies, for training. Arrays [copy, ...], flow features [copy, hop, chunk, feature] flat but for
    the last."""

    tree_features: Floats
    pool: NDArray[np.bool_]
    going: NDArray[np.bool_]
    flow_features: Floats
    picks: list[Picks]
    idle: Floats


Trace = list[Round]


def changing(growth: Growth, copy: Ints, hop: Ints, chunk: Ints, arrived: Ints) -> Floats:
    """What is left of the round to each candidate: candidates for its last link and for its first (in logarithms), and
    copies of its chunk, those arriving included (`arrived[copy, chunk]`). [candidate, DYNAMIC]."""
    wiring, size = growth.wiring, growth.size
    columns = np.empty((len(copy), DYNAMIC), np.float32)
    for column, (number, count) in enumerate(((wiring.into, wiring.into_count), (wiring.out_of, wiring.out_count))):
        link = copy * count + number[hop]
        columns[:, column] = np.log1p(np.bincount(link))[link] / np.log1p(size)
    columns[:, 2] = arrived[copy, chunk] / size
    return columns


def fill(
    growth: Growth, score: Floats, draw: np.random.Generator, temperature: float, picks: list[Picks] | None
) -> None:
    """Takes workloads in all copies until none is left in any, those of the selected trees first. `score`: [copy * hop
    * chunk, 1 + DYNAMIC]."""
    network, wiring, size, hops = growth.network, growth.wiring, growth.size, len(growth.network.hops)
    arrived = growth.have.sum(1)
    blocked = np.zeros((growth.copies, hops), bool)
    ready = np.flatnonzero(growth.open)
    selected = np.broadcast_to(growth.pool[:, None, :], growth.open.shape).reshape(-1)[ready]
    for row in (ready[selected], ready[~selected]):
        copy, rest = np.divmod(row, hops * size)
        hop, chunk = np.divmod(rest, size)
        while True:
            keep = ~(blocked[copy, hop] | growth.have[copy, network.target[hop], chunk])
            row, copy, hop, chunk = row[keep], copy[keep], hop[keep], chunk[keep]
            if not len(row):
                break
            which, starts, segment = np.unique(copy, return_index=True, return_inverse=True)
            columns = changing(growth, copy, hop, chunk, arrived)
            part = score[row]
            total = part[:, 0] + (part[:, 1:] * columns).sum(1)
            if temperature:
                total -= np.float32(temperature) * np.log(
                    draw.standard_exponential(len(total), dtype=np.float32) + np.float32(1e-30)
                )
            best = np.flatnonzero(total == np.maximum.reduceat(total, starts)[segment])
            choice = best[np.unique(segment[best], return_index=True)[1]]
            if picks is not None:
                picks.append(Picks(which, row, segment, columns, choice))
            growth.put(which, hop[choice], chunk[choice])
            blocked[which] |= wiring.conflicts[hop[choice]]
            arrived[which, chunk[choice]] += 1


def rollout(
    policy: Scorer, growth: Growth, draw: np.random.Generator, *, temperature: float = 1.0, trace: Trace | None = None
) -> Ints:
    """Plays all copies to the end from where they are; rounds of each. Temperature 0 takes the best, whatever
    `draw`."""
    while not growth.done.all():
        going = ~growth.done
        tree_features = growth.tree_features()
        logit = policy.net("upper", tree_features)[..., 0]
        growth.select(logit + (draw.logistic(size=logit.shape) * temperature if temperature else 0) > 0)
        flow_features = growth.flow_features()
        flow_features = flow_features.reshape(-1, flow_features.shape[-1])
        picks: list[Picks] | None = None if trace is None else []
        pool = growth.pool.copy()
        fill(growth, policy.net("lower", flow_features), draw, temperature, picks)
        idle = growth.end_round()
        if trace is not None and picks is not None:
            trace.append(Round(tree_features, pool, going, flow_features, picks, idle))
    return growth.rounds.copy()

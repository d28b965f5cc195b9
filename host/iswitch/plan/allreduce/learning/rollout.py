"""Run a policy: place workloads round by round in all environments, and record the trajectory for training."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import TreeGrowth
from iswitch.plan.allreduce.learning.policy import DYNAMIC_COUNT, Scorer

__all__ = ["Placements", "RoundRecord", "Trajectory", "dynamic_features", "fill_round", "rollout"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass
class Placements:
    """One workload for each of several environments, and the candidates among which it was chosen.

    Parameters
    ----------
    envs : array of int, shape (choice,)
        The environments.
    row, segment : array of int, shape (candidate,)
        For each candidate its row in the features of the round, and the position of its environment in `envs`.
    dynamic : array of float, shape (candidate, DYNAMIC_COUNT)
        Dynamic features of each candidate.
    choice : array of int, shape (choice,)
        The chosen candidate of each environment.
    """

    envs: Ints
    row: Ints
    segment: Ints
    dynamic: Floats
    choice: Ints


@dataclass
class RoundRecord:
    """One round of all environments, for training.

    Parameters
    ----------
    tree_features : array of float, shape (env, tree, feature)
        What the upper policy observed.
    selected : array of bool, shape (env, tree)
        The trees that it selected.
    active : array of bool, shape (env,)
        False where the episode was over.
    flow_features : array of float, shape (row, feature)
        What the lower policy observed; rows are (env, hop, chunk).
    placements : list of Placements
        The workloads that it placed.
    idle : array of float, shape (env,)
        The fraction of server ports that the round left idle.
    """

    tree_features: Floats
    selected: NDArray[np.bool_]
    active: NDArray[np.bool_]
    flow_features: Floats
    placements: list[Placements]
    idle: Floats


Trajectory = list[RoundRecord]


def dynamic_features(growth: TreeGrowth, env: Ints, hop: Ints, chunk: Ints, copies: Ints) -> Floats:
    """Return the features of candidates that change during a round.

    They are the candidates for the last link and for the first link of the hop (as logarithms), and the copies of the
    chunk, those that arrive in this round included.

    Parameters
    ----------
    growth : TreeGrowth
        The environments.
    env, hop, chunk : array of int, shape (candidate,)
        The candidates, in the order of environments.
    copies : array of int, shape (env, chunk)
        Copies of each chunk.

    Returns
    -------
    array of float, shape (candidate, DYNAMIC_COUNT)
    """
    arrays, size = growth.arrays, growth.size
    columns = np.empty((len(env), DYNAMIC_COUNT), np.float32)
    for column, (number, count) in enumerate(((arrays.into, arrays.into_count), (arrays.out_of, arrays.out_count))):
        link = env * count + number[hop]
        columns[:, column] = np.log1p(np.bincount(link))[link] / np.log1p(size)
    columns[:, 2] = copies[env, chunk] / size
    return columns


def fill_round(
    growth: TreeGrowth,
    score: Floats,
    rng: np.random.Generator,
    temperatures: Floats,
    placements: list[Placements] | None,
) -> None:
    """Place workloads in all environments until no link is left, those of the selected trees first.

    Parameters
    ----------
    growth : TreeGrowth
        The environments.
    score : array of float, shape (env * hop * chunk, 1 + DYNAMIC_COUNT)
        Outputs of the lower policy.
    rng : numpy.random.Generator
        Source of the noise.
    temperatures : array of float, shape (env,)
        Temperature of sampling in each environment; 0: always the best candidate.
    placements : list of Placements, optional
        Receives what was placed, for training.
    """
    network, arrays, size, hops = growth.network, growth.arrays, growth.size, len(growth.network.hops)
    copies = growth.present.sum(1)
    blocked = np.zeros((growth.num_envs, hops), bool)
    ready = np.flatnonzero(growth.ready)
    selected = np.broadcast_to(growth.selected[:, None, :], growth.ready.shape).reshape(-1)[ready]
    for row in (ready[selected], ready[~selected]):
        env, rest = np.divmod(row, hops * size)
        hop, chunk = np.divmod(rest, size)
        while True:
            keep = ~(blocked[env, hop] | growth.present[env, network.target[hop], chunk])
            row, env, hop, chunk = row[keep], env[keep], hop[keep], chunk[keep]
            if not len(row):
                break
            envs, starts, segment = np.unique(env, return_index=True, return_inverse=True)
            dynamic = dynamic_features(growth, env, hop, chunk, copies)
            part = score[row]
            total = part[:, 0] + (part[:, 1:] * dynamic).sum(1)
            if temperatures.any():  # Gumbel noise samples from the softmax
                total -= temperatures[env] * np.log(
                    rng.standard_exponential(len(total), dtype=np.float32) + np.float32(1e-30)
                )
            best = np.flatnonzero(total == np.maximum.reduceat(total, starts)[segment])
            choice = best[np.unique(segment[best], return_index=True)[1]]
            if placements is not None:
                placements.append(Placements(envs, row, segment, dynamic, choice))
            growth.place_unchecked(envs, hop[choice], chunk[choice])
            blocked[envs] |= arrays.conflicts[hop[choice]]
            copies[envs, chunk[choice]] += 1


def rollout(
    policy: Scorer,
    growth: TreeGrowth,
    rng: np.random.Generator,
    *,
    temperature: float | Floats = 1.0,
    tree_bias: Floats | None = None,
    trajectory: Trajectory | None = None,
) -> Ints:
    """Complete the broadcasts of all environments by a policy.

    Parameters
    ----------
    policy : Scorer
        The policy.
    growth : TreeGrowth
        The environments, in any state.
    rng : numpy.random.Generator
        Source of the noise.
    temperature : float or array of float, shape (env,)
        Temperature of sampling, of all environments or of each; 0: always the best.
    tree_bias : array of float, shape (env, tree), optional
        Added to the scores of all workloads of a tree in every round, so that some trees advance before others.
    trajectory : list, optional
        Receives a record of every round, for training.

    Returns
    -------
    array of int, shape (env,)
        The rounds of each broadcast.
    """
    temperatures = np.broadcast_to(np.asarray(temperature, np.float32), growth.num_envs)
    while not growth.done.all():
        active = ~growth.done
        tree_features = growth.tree_features()
        logit = policy.evaluate("upper", tree_features)[..., 0]
        noise = rng.logistic(size=logit.shape) * temperatures[:, None] if temperatures.any() else 0
        growth.select(logit + noise > 0)
        flow_features = growth.flow_features()
        flow_features = flow_features.reshape(-1, flow_features.shape[-1])
        placements: list[Placements] | None = None if trajectory is None else []
        selected = growth.selected.copy()
        score = policy.evaluate("lower", flow_features)
        if tree_bias is not None:
            score = score.copy()
            score.reshape(*growth.ready.shape, -1)[..., 0] += tree_bias[:, None, :]
        fill_round(growth, score, rng, temperatures, placements)
        idle = growth.end_round()
        if trajectory is not None and placements is not None:
            trajectory.append(RoundRecord(tree_features, selected, active, flow_features, placements, idle))
    return growth.rounds.copy()

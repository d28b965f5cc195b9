"""Batches for PPO: rollouts on one topology, with generalised advantage estimation. Needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from iswitch.plan.allreduce.learning.growth import TreeGrowth
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.learning.rollout import Trajectory, rollout
from iswitch.plan.allreduce.learning.settings import Settings

__all__ = ["Batch", "collect_rollouts", "compute_gae"]


@dataclass
class Batch:
    """What the episodes of one topology teach.

    A state is an environment in a round that was not over. The upper policy has one bit for each tree of a state; the
    lower policy has one choice among the candidates of each placement.
    """

    trees: torch.Tensor  # [state, tree, feature]
    selected: torch.Tensor  # [state, tree]
    returns: torch.Tensor  # [state]
    tree_advantage: torch.Tensor  # [state]
    flows: torch.Tensor  # [row, feature], of workloads that were candidates
    row: torch.Tensor  # [candidate], into `flows`
    segment: torch.Tensor  # [candidate], number of the placement
    dynamic: torch.Tensor  # [candidate, DYNAMIC_COUNT]
    choice: torch.Tensor  # [placement], the chosen candidate
    flow_advantage: torch.Tensor  # [placement]


def compute_gae(
    trajectory: Trajectory, values: Sequence[np.ndarray], gae_lambda: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return generalised advantage estimates and returns, without discount; 0 after the end of an episode.

    Parameters
    ----------
    trajectory : list of RoundRecord
        The episodes. The reward of a round is minus the fraction of ports that it leaves idle.
    values : sequence of array, shape (env,)
        The critic's value of each round.
    gae_lambda : float
        Lambda of the estimation.

    Returns
    -------
    advantages, returns : array of float, shape (round, env)
    """
    active = np.array([record.active for record in trajectory])
    rewards = -np.array([record.idle for record in trajectory]) * active
    value = np.array(values) * active
    advantages = np.zeros_like(rewards)
    next_value, advantage = np.zeros(rewards.shape[1]), np.zeros(rewards.shape[1])
    for t in reversed(range(len(trajectory))):
        delta = rewards[t] + next_value - value[t]
        advantage = (delta + gae_lambda * advantage) * active[t]
        advantages[t], next_value = advantage, value[t]
    return advantages, advantages + value


def collect_rollouts(
    policy: Policy, arrays: NetworkArrays, settings: Settings, rng: np.random.Generator
) -> tuple[Batch, float]:
    """Run episodes on one topology. Return them as a batch, and their mean rounds of an AllReduce."""
    growth = TreeGrowth(arrays, settings.num_envs)
    trajectory: Trajectory = []
    lengths = rollout(policy, growth, rng, trajectory=trajectory)
    values = [policy.evaluate("upper", record.tree_features)[..., 1].mean(1) for record in trajectory]
    advantages, returns = compute_gae(trajectory, values, settings.gae_lambda)
    active = np.array([record.active for record in trajectory])
    normalised = (advantages - advantages[active].mean()) / (advantages[active].std() + 1e-6)
    flows, rows, segments, dynamics, choices, flow_advantages = [], [], [], [], [], []
    first_row = first_segment = first_candidate = 0
    for t, record in enumerate(trajectory):
        count = min(settings.placements_per_round, len(record.placements))
        chosen = rng.choice(len(record.placements), count, replace=False)
        used = np.unique(np.concatenate([record.placements[number].row for number in chosen]))
        flows.append(record.flow_features[used])
        for number in sorted(chosen):
            placements = record.placements[number]
            rows.append(np.searchsorted(used, placements.row) + first_row)
            segments.append(placements.segment + first_segment)
            dynamics.append(placements.dynamic)
            choices.append(placements.choice + first_candidate)
            flow_advantages.append(normalised[t, placements.envs])
            first_segment += len(placements.envs)
            first_candidate += len(placements.row)
        first_row += len(used)
    flat = lambda parts, dtype: torch.as_tensor(np.concatenate(parts), dtype=dtype)
    return Batch(
        trees=torch.as_tensor(np.array([record.tree_features for record in trajectory])[active]),
        selected=torch.as_tensor(np.array([record.selected for record in trajectory])[active], dtype=torch.float32),
        returns=torch.as_tensor(returns[active], dtype=torch.float32),
        tree_advantage=torch.as_tensor(normalised[active], dtype=torch.float32),
        flows=flat(flows, torch.float32),
        row=flat(rows, torch.int64),
        segment=flat(segments, torch.int64),
        dynamic=flat(dynamics, torch.float32),
        choice=flat(choices, torch.int64),
        flow_advantage=flat(flow_advantages, torch.float32),
    ), 2 * float(lengths.mean())

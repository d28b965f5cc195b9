"""PPO for both policies: one pair of networks learns on several topologies to leave few ports idle.

Needs torch. The same seed gives the same weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import NetworkArrays, TreeGrowth
from iswitch.plan.allreduce.learning.policy import Policy, Trajectory, rollout
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import TRAINED_ON, build_topology

__all__ = ["Batch", "Nets", "Settings", "average_gradients", "clipped_loss", "collect_rollouts", "compute_gae", "train"]

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """Settings of the training.

    Parameters
    ----------
    topologies : tuple of str
        Topologies to train on.
    iterations : int
        Number of updates. Each uses episodes on all topologies.
    num_envs : int
        Parallel environments, and so episodes, of each topology and iteration.
    hidden : int
        Units in the hidden layer of each network.
    seed : int
        Seed of all random numbers.
    update_epochs : int
        Passes over the batches of an iteration.
    clip_coef : float
        Clipping coefficient of PPO.
    learning_rate : float
        Learning rate of Adam; it falls linearly to a tenth.
    gae_lambda : float
        Lambda of the generalised advantage estimation. Rewards are not discounted.
    ent_coef : float
        Coefficient of the entropy of the lower policy.
    placements_per_round : int
        Placements of each round, chosen at random, that the lower policy learns from.
    """

    topologies: tuple[str, ...] = TRAINED_ON
    iterations: int = 200
    num_envs: int = 16
    hidden: int = 32
    seed: int = 1
    update_epochs: int = 3
    clip_coef: float = 0.2
    learning_rate: float = 3e-3
    gae_lambda: float = 0.95
    ent_coef: float = 0.002
    placements_per_round: int = 12

    def __post_init__(self) -> None:
        for name in ("iterations", "num_envs", "hidden", "update_epochs", "placements_per_round"):
            if getattr(self, name) < 1:
                raise ValueError(f"Settings {name} must be at least 1, not {getattr(self, name)!r}")
        if not self.topologies:
            raise ValueError("Settings topologies must name at least one, not ()")


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


class Nets(torch.nn.Module):
    """The networks of a policy, with their weights as parameters."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        parameters = {
            name.replace(".", "_"): torch.nn.Parameter(torch.tensor(value)) for name, value in policy.weights.items()
        }
        self.weights = torch.nn.ParameterDict(parameters)

    def evaluate(self, name: str, features: torch.Tensor) -> torch.Tensor:
        """Return the outputs of a network, as `Policy.evaluate` does."""
        weights = self.weights
        hidden = torch.tanh(features @ weights[f"{name}_0"] + weights[f"{name}_0b"])
        return hidden @ weights[f"{name}_1"] + weights[f"{name}_1b"]

    def policy(self) -> Policy:
        """Return the weights as a policy."""
        return Policy({name.replace("_", "."): value.detach().numpy().copy() for name, value in self.weights.items()})

    def log_probs(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what PPO needs of a batch.

        Returns
        -------
        placements : tensor, shape (placement,)
            Log probability of each choice.
        bits : tensor, shape (state, tree)
            Log probability of each tree's selection.
        entropy : tensor
            Mean entropy of the choices.
        value : tensor, shape (state,)
            Value of each state.
        """
        score = self.evaluate("lower", batch.flows)[batch.row]
        total = score[:, 0] + (score[:, 1:] * batch.dynamic).sum(1)
        count = len(batch.choice)
        top = torch.full((count,), -torch.inf).scatter_reduce(0, batch.segment, total.detach(), "amax")
        mass = torch.exp(total - top[batch.segment])
        log_sum = torch.log(torch.zeros(count).index_add(0, batch.segment, mass)) + top
        log_softmax = total - log_sum[batch.segment]
        entropy = -(torch.exp(log_softmax) * log_softmax).sum() / count
        upper = self.evaluate("upper", batch.trees)
        bits = -torch.nn.functional.binary_cross_entropy_with_logits(upper[..., 0], batch.selected, reduction="none")
        return log_softmax[batch.choice], bits, entropy, upper[..., 1].mean(1)


def clipped_loss(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, advantage: torch.Tensor, clip_coef: float
) -> torch.Tensor:
    """Return the clipped objective of PPO, as a loss."""
    ratio = torch.exp(log_prob - old_log_prob)
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantage).mean()


def average_gradients(nets: Nets, average: Callable[[Vector], object]) -> None:
    """Replace all gradients by their mean over the workers. `average` does so in place, with one vector."""
    gradients = [parameter.grad for parameter in nets.parameters() if parameter.grad is not None]
    vector = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
    average(vector)
    start = 0
    for gradient in gradients:
        gradient.copy_(torch.from_numpy(vector[start : start + gradient.numel()]).view_as(gradient))
        start += gradient.numel()


def train(
    settings: Settings,
    *,
    on_iteration: Callable[[int, dict[str, float]], None] | None = None,
    average: Callable[[Vector], object] | None = None,
    rank: int = 0,
) -> Policy:
    """Train a policy.

    Parameters
    ----------
    settings : Settings
        Settings of the training.
    on_iteration : callable, optional
        Called after the episodes of each iteration, with its number and the mean rounds by topology.
    average : callable, optional
        With several workers: replaces the gradient of this worker, one float32 vector, by the mean over all workers in
        place, as ``lambda vector: worker.allreduce(vector, op="mean")`` does. All workers end with the same weights.
    rank : int
        The rank of this worker. Each runs episodes of its own.

    Returns
    -------
    Policy
        The policy after the last iteration.
    """
    if rank < 0:
        raise ValueError(f"train rank must be at least 0, not {rank!r}")
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng([settings.seed, rank] if rank else settings.seed)
    networks = {name: NetworkArrays(Network(build_topology(name))) for name in settings.topologies}
    nets = Nets(Policy.blank(hidden=settings.hidden, seed=settings.seed))
    optimizer = torch.optim.Adam(nets.parameters(), lr=settings.learning_rate)
    for iteration in range(settings.iterations):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 - 0.9 * iteration / settings.iterations)
        policy = nets.policy()
        batches, lengths = [], {}
        for name, arrays in networks.items():
            batch, lengths[name] = collect_rollouts(policy, arrays, settings, rng)
            batches.append(batch)
        with torch.no_grad():
            old = [nets.log_probs(batch)[:2] for batch in batches]
        for _ in range(settings.update_epochs):
            for at in rng.permutation(len(batches)):
                batch, (old_placements, old_bits) = batches[at], old[at]
                placements, bits, entropy, value = nets.log_probs(batch)
                loss = (
                    clipped_loss(placements, old_placements, batch.flow_advantage, settings.clip_coef)
                    + clipped_loss(bits, old_bits, batch.tree_advantage[:, None], settings.clip_coef)
                    + 0.5 * torch.nn.functional.mse_loss(value, batch.returns)
                    - settings.ent_coef * entropy
                )
                optimizer.zero_grad()
                loss.backward()
                if average:
                    average_gradients(nets, average)
                torch.nn.utils.clip_grad_norm_(nets.parameters(), 0.5)
                optimizer.step()
        if on_iteration:
            on_iteration(iteration, lengths)
    return nets.policy()

"""PPO for both policies: one pair of networks learns on several topologies to leave few ports idle.

Needs torch. The same seed gives the same weights.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.batch import Batch, collect_rollouts
from iswitch.plan.allreduce.learning.network_arrays import NetworkArrays
from iswitch.plan.allreduce.learning.policy import Policy
from iswitch.plan.allreduce.learning.settings import Settings
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import build_topology

__all__ = ["Nets", "average_gradients", "clipped_loss", "train"]

Vector = NDArray[np.float32]


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

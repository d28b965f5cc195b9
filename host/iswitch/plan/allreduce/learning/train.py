"""PPO at both levels: one pair of nets plays several topologies, and learns to leave few ports idle. Needs torch; same
seed, same weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from iswitch.plan.allreduce.learning.growth import Growth, Wiring
from iswitch.plan.allreduce.learning.policy import Policy, Trace, rollout
from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.topologies import TRAINED_ON, build

__all__ = ["Settings", "train"]

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """`iterations` updates, each on `copies` games of every one of `topologies`. The reward of a round is minus the
    share of ports left idle."""

    topologies: tuple[str, ...] = TRAINED_ON
    iterations: int = 200
    copies: int = 16
    hidden: int = 32
    seed: int = 1
    epochs: int = 3
    clip: float = 0.2
    learning_rate: float = 3e-3
    discount_lambda: float = 0.95
    entropy: float = 0.002
    picks_per_round: int = 12

    def __post_init__(self) -> None:
        for name in ("iterations", "copies", "hidden", "epochs", "picks_per_round"):
            if getattr(self, name) < 1:
                raise ValueError(f"Settings {name} must be at least 1, not {getattr(self, name)!r}")
        if not self.topologies:
            raise ValueError("Settings topologies must name at least one, not ()")


@dataclass
class Batch:
    """What one topology's games teach, as tensors. Flow part: flat candidates of `picks`; tree part: one bit a tree and
    round."""

    trees: torch.Tensor  # [state, tree, feature]
    pool: torch.Tensor  # [state, tree]
    returns: torch.Tensor  # [state]
    tree_advantage: torch.Tensor  # [state]
    flows: torch.Tensor  # [row, feature], those that were candidates
    row: torch.Tensor  # of each candidate
    segment: torch.Tensor  # of each candidate: number of the pick
    changing: torch.Tensor  # [candidate, DYNAMIC]
    choice: torch.Tensor  # [pick]: which candidate
    flow_advantage: torch.Tensor  # [pick]


def advantages(trace: Trace, value: Sequence[np.ndarray], discount_lambda: float) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimates and returns, [round, copy], rewards undiscounted; 0 after the end."""
    going = np.array([step.going for step in trace])
    reward = -np.array([step.idle for step in trace]) * going
    worth = np.array(value) * going
    result, following, ahead = np.zeros_like(reward), np.zeros(reward.shape[1]), np.zeros(reward.shape[1])
    for at in reversed(range(len(trace))):
        ahead = (reward[at] + following - worth[at] + discount_lambda * ahead) * going[at]
        result[at], following = ahead, worth[at]
    return result, result + worth


def collect(policy: Policy, wiring: Wiring, settings: Settings, draw: np.random.Generator) -> tuple[Batch, float]:
    """Games on one topology, and their mean rounds (of an AllReduce)."""
    growth, trace = Growth(wiring, settings.copies), []  # type: tuple[Growth, Trace]
    lengths = rollout(policy, growth, draw, trace=trace)
    values = [policy.net("upper", step.tree_features)[..., 1].mean(1) for step in trace]
    gains, returns = advantages(trace, values, settings.discount_lambda)
    going = np.array([step.going for step in trace])
    scaled = (gains - gains[going].mean()) / (gains[going].std() + 1e-6)
    flows, rows, segments, changes, choices, flow_gains = [], [], [], [], [], []
    first_row = first_segment = first_candidate = 0
    for at, step in enumerate(trace):
        chosen = draw.choice(len(step.picks), min(settings.picks_per_round, len(step.picks)), replace=False)
        used = np.unique(np.concatenate([step.picks[pick].row for pick in chosen]))
        flows.append(step.flow_features[used])
        for pick in sorted(chosen):
            taken = step.picks[pick]
            rows.append(np.searchsorted(used, taken.row) + first_row)
            segments.append(taken.segment + first_segment)
            changes.append(taken.changing)
            choices.append(taken.choice + first_candidate)
            flow_gains.append(scaled[at, taken.which])
            first_segment += len(taken.which)
            first_candidate += len(taken.row)
        first_row += len(used)
    flat = lambda parts, kind: torch.as_tensor(np.concatenate(parts), dtype=kind)
    return Batch(
        trees=torch.as_tensor(np.array([step.tree_features for step in trace])[going]),
        pool=torch.as_tensor(np.array([step.pool for step in trace])[going], dtype=torch.float32),
        returns=torch.as_tensor(returns[going], dtype=torch.float32),
        tree_advantage=torch.as_tensor(scaled[going], dtype=torch.float32),
        flows=flat(flows, torch.float32),
        row=flat(rows, torch.int64),
        segment=flat(segments, torch.int64),
        changing=flat(changes, torch.float32),
        choice=flat(choices, torch.int64),
        flow_advantage=flat(flow_gains, torch.float32),
    ), 2 * float(lengths.mean())


class Nets(torch.nn.Module):
    """The policy's numbers as parameters."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        parameters = {
            name.replace(".", "_"): torch.nn.Parameter(torch.tensor(value)) for name, value in policy.weights.items()
        }
        self.weights = torch.nn.ParameterDict(parameters)

    def net(self, name: str, features: torch.Tensor) -> torch.Tensor:
        weights = self.weights
        hidden = torch.tanh(features @ weights[f"{name}_0"] + weights[f"{name}_0b"])
        return hidden @ weights[f"{name}_1"] + weights[f"{name}_1b"]

    def policy(self) -> Policy:
        return Policy({name.replace("_", "."): value.detach().numpy().copy() for name, value in self.weights.items()})

    def chances(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logarithms of the chances of what was picked and of which bits were set; mean entropy of picks; value of each
        state."""
        score = self.net("lower", batch.flows)[batch.row]
        total = score[:, 0] + (score[:, 1:] * batch.changing).sum(1)
        picks = len(batch.choice)
        top = torch.full((picks,), -torch.inf).scatter_reduce(0, batch.segment, total.detach(), "amax")
        mass = torch.exp(total - top[batch.segment])
        normal = torch.log(torch.zeros(picks).index_add(0, batch.segment, mass)) + top
        log_all = total - normal[batch.segment]
        entropy = -(torch.exp(log_all) * log_all).sum() / picks
        upper = self.net("upper", batch.trees)
        bits = -torch.nn.functional.binary_cross_entropy_with_logits(upper[..., 0], batch.pool, reduction="none")
        return log_all[batch.choice], bits, entropy, upper[..., 1].mean(1)


def clipped(now: torch.Tensor, before: torch.Tensor, advantage: torch.Tensor, clip: float) -> torch.Tensor:
    """PPO's objective, as a loss."""
    ratio = torch.exp(now - before)
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def exchange(nets: Nets, share: Callable[[Vector], object]) -> None:
    """All gradients through `share`, as one vector."""
    gradients = [parameter.grad for parameter in nets.parameters() if parameter.grad is not None]
    vector = torch.cat([gradient.flatten() for gradient in gradients]).numpy()
    share(vector)
    start = 0
    for gradient in gradients:
        gradient.copy_(torch.from_numpy(vector[start : start + gradient.numel()]).view_as(gradient))
        start += gradient.numel()


def train(
    settings: Settings,
    *,
    tell: Callable[[int, dict[str, float]], None] | None = None,
    share: Callable[[Vector], object] | None = None,
    rank: int = 0,
) -> Policy:
    """The policy after `settings.iterations`; `tell` hears the number of each and the mean rounds by topology.

    With several workers `share` replaces a worker's whole gradient, one float32 vector, by the mean of all in place, as
    `worker.allreduce(vector, op="mean")` does; each plays games of its own, drawn from its `rank`, and all end with the
    same weights.
    """
    if rank < 0:
        raise ValueError(f"train rank must be at least 0, not {rank!r}")
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    draw = np.random.default_rng([settings.seed, rank] if rank else settings.seed)
    wirings = {name: Wiring(Network(build(name))) for name in settings.topologies}
    nets = Nets(Policy.blank(hidden=settings.hidden, seed=settings.seed))
    optimizer = torch.optim.Adam(nets.parameters(), lr=settings.learning_rate)
    for iteration in range(settings.iterations):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 - 0.9 * iteration / settings.iterations)
        policy = nets.policy()
        batches, lengths = [], {}
        for name, wiring in wirings.items():
            batch, lengths[name] = collect(policy, wiring, settings, draw)
            batches.append(batch)
        with torch.no_grad():
            before = [nets.chances(batch)[:2] for batch in batches]
        for _ in range(settings.epochs):
            for at in draw.permutation(len(batches)):
                batch, (picks_before, bits_before) = batches[at], before[at]
                picks, bits, entropy, value = nets.chances(batch)
                loss = (
                    clipped(picks, picks_before, batch.flow_advantage, settings.clip)
                    + clipped(bits, bits_before, batch.tree_advantage[:, None], settings.clip)
                    + 0.5 * torch.nn.functional.mse_loss(value, batch.returns)
                    - settings.entropy * entropy
                )
                optimizer.zero_grad()
                loss.backward()
                if share:
                    exchange(nets, share)
                torch.nn.utils.clip_grad_norm_(nets.parameters(), 0.5)
                optimizer.step()
        if tell:
            tell(iteration, lengths)
    return nets.policy()

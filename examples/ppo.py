"""PPO whose gradients the switch averages: N workers learn one policy, by default for CartPole.

Each worker steps its own environments. For each minibatch it computes its own gradient, all parameters in one float32
vector. `worker.allreduce` replaces this vector by the mean of all workers' vectors, and every worker takes the same
Adam step. The replicas of the policy are made equal at the start. They stay equal, because the switch sends the same
bits to all workers. A sum does not depend on the order of packets, so the same seed gives the same weights. If a worker
dies, the others continue without it. When it comes back, it receives their state.

    make emulator                                                        # in one terminal
    python -m examples.ppo --switch 127.0.0.1:27000-27003 --workers 4    # in another
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from torch import Tensor, nn
from typer import Option

from examples.common.command import Folder, Switch, application, check_ranges, parse_addresses
from examples.common.envs import make_envs, play
from examples.common.launch import KILL_UPDATE, launch
from examples.common.progress import CollectiveResult, EpisodeReturns, Progress, SimulateCompute
from examples.common.replica import Replica, Vector
from iswitch import JobResetError, NotAMemberError, Worker

__all__ = [
    "EVALUATION_SEED",
    "Agent",
    "Options",
    "Rollout",
    "Sampler",
    "app",
    "evaluate",
    "flatten",
    "gae",
    "loss",
    "train",
]

EVALUATION_SEED = 2**31
"""First seed of the evaluation's environments. The seeds of the training's environments are smaller."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The environment and the hyperparameters, named as in CleanRL. The defaults solve CartPole-v1."""

    environment: Annotated[str, Option(help="Gymnasium's name of the environment.")] = "CartPole-v1"
    seed: Annotated[int, Option(help="Seed of the weights, the environments and the samples of all workers.")] = 1
    workers: Annotated[int, Option(min=1, help="Workers of the job.")] = 4
    num_envs: Annotated[int, Option(min=1, help="Environments of each worker.")] = 4
    num_steps: Annotated[int, Option(min=1, help="Steps of each environment in a rollout.")] = 128
    total_steps: Annotated[int, Option(min=1, help="Environment steps of all workers together, at most.")] = 200_000
    epochs: Annotated[int, Option(min=1, help="Passes over a rollout.")] = 4
    num_minibatches: Annotated[
        int, Option(min=1, help="Minibatches of a pass. Each is a gradient and a collective.")
    ] = 2
    learning_rate: Annotated[float, Option(help="Adam's, at first. It falls linearly to 0.")] = 1.5e-3
    gamma: Annotated[float, Option(min=0, max=1, help="Discount factor.")] = 0.99
    gae_lambda: Annotated[float, Option(min=0, max=1, help="Lambda of generalized advantage estimation.")] = 0.98
    # CartPole's discounted returns of up to 100 become values of up to 10. The value net learns these sooner, and their
    # gradients leave room for the policy's within `max_grad_norm`. Reported returns are not scaled.
    reward_scale: Annotated[float, Option(help="Factor of the rewards that are learned from.")] = 0.1
    clip_coef: Annotated[float, Option(help="Clipping range of PPO's probability ratio.")] = 0.2
    ent_coef: Annotated[float, Option(help="Coefficient of the entropy.")] = 0.01
    vf_coef: Annotated[float, Option(help="Coefficient of the value loss.")] = 0.5
    max_grad_norm: Annotated[float, Option(help="Gradients are clipped to this norm.")] = 0.5
    hidden: Annotated[int, Option(min=1, help="Units of each hidden layer.")] = 64
    solved_return: Annotated[float, Option(help="Mean return from which the environment counts as solved.")] = 475.0
    solved_episodes: Annotated[int, Option(min=1, help="Latest episodes whose mean return decides when to stop.")] = 100
    evaluation_episodes: Annotated[int, Option(min=1, help="Episodes of the evaluation, with seeds of its own.")] = 20

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.num_minibatches > self.num_envs * self.num_steps:
            raise ValueError(
                f"Options num_minibatches must be at most num_envs * num_steps, "
                f"{self.num_envs * self.num_steps}, not {self.num_minibatches!r}"
            )
        for name in ("learning_rate", "reward_scale", "clip_coef", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Options {name} must be above 0, not {getattr(self, name)!r}")

    @property
    def updates(self) -> int:
        """Rollouts of each worker, at most."""
        return max(1, self.total_steps // (self.workers * self.num_envs * self.num_steps))


class Agent(nn.Module):
    """Policy and value: two separate nets of two hidden layers."""

    def __init__(self, observation_size: int, action_count: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
            linear = nn.Linear(inputs, outputs)
            nn.init.orthogonal_(linear.weight, gain, generator=generator)
            nn.init.zeros_(linear.bias)
            return linear

        def net(outputs: int, gain: float) -> nn.Sequential:
            first = layer(observation_size, hidden, math.sqrt(2))
            second = layer(hidden, hidden, math.sqrt(2))
            return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), layer(hidden, outputs, gain))

        self.action_count = action_count
        self.policy = net(action_count, 0.01)
        self.value = net(1, 1.0)

    @classmethod
    def of(cls, envs: VectorEnv[Any, Any, Any], options: Options) -> Self:
        """Make the nets for environments, with the same weights for the same seed.

        Raises
        ------
        ValueError
            If the observations are not vectors, or the actions are not discrete.
        """
        obs, actions = envs.single_observation_space, envs.single_action_space
        if not (isinstance(obs, spaces.Box) and len(obs.shape) == 1 and isinstance(actions, spaces.Discrete)):
            raise ValueError(
                f"Options environment must have a vector as observation and discrete actions, as CartPole "
                f"has; {options.environment!r} has {obs} and {actions}"
            )
        return cls(obs.shape[0], int(actions.n), options.hidden, torch.Generator().manual_seed(options.seed))

    def load(self, weights: Vector) -> None:
        """Set all parameters from one vector."""
        nn.utils.vector_to_parameters(torch.from_numpy(weights), self.parameters())

    @torch.no_grad()
    def greedy_actions(self, obs: Vector) -> npt.NDArray[np.int64]:
        """Return the most probable action for each row of observations."""
        return np.asarray(self.policy(torch.from_numpy(obs)).argmax(-1).numpy())


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A worker's transitions between two updates, in tensors of shape (num_steps, num_envs, ...).

    Parameters
    ----------
    obs, actions, logprobs, values : Tensor
        Observations, the sampled actions, their log-probabilities, and the observations' values.
    rewards : Tensor
        Scaled rewards. If a step truncated its episode, the discounted value of the last observation is added.
    nonterminal : Tensor
        0 where a step ended its episode, terminated or truncated, else 1.
    next_values : Tensor
        Values of the observations after the last step; shape (num_envs,).
    returns : list of float
        Returns of the episodes that ended, not scaled.
    """

    obs: Tensor
    actions: Tensor
    logprobs: Tensor
    values: Tensor
    rewards: Tensor
    nonterminal: Tensor
    next_values: Tensor
    returns: list[float]


class Sampler:
    """A worker's environments and its source of random numbers. Episodes continue in the next rollout."""

    def __init__(self, options: Options, rank: int) -> None:
        self.options = options
        self.generator = torch.Generator().manual_seed(options.seed * 1_000_003 + rank)
        self.envs = make_envs(options.environment, options.num_envs)
        self.obs, _ = self.envs.reset(seed=(options.seed * options.workers + rank) * options.num_envs)

    @torch.no_grad()
    def rollout(self, agent: Agent) -> Rollout:
        """Take `num_steps` steps in each environment, with actions sampled from the policy."""
        options = self.options
        shape = (options.num_steps, options.num_envs)
        obs = torch.zeros(*shape, self.obs.shape[1])
        actions = torch.zeros(shape, dtype=torch.int64)
        rewards, nonterminal = torch.zeros(shape), torch.ones(shape)
        returns: list[float] = []
        # The largest of logit + Gumbel noise is a sample from the softmax of the logits
        noise = -torch.empty(*shape, agent.action_count).exponential_(generator=self.generator).log()
        for step in range(options.num_steps):
            obs[step] = torch.from_numpy(self.obs)
            actions[step] = (agent.policy(obs[step]) + noise[step]).argmax(-1)
            self.obs, reward, terminated, truncated, infos = self.envs.step(actions[step].numpy())
            rewards[step] = torch.from_numpy(reward * options.reward_scale)
            for k in np.flatnonzero(terminated | truncated):
                nonterminal[step, k] = 0
                returns.append(float(infos["episode"]["r"][k]))
                if not terminated[k]:  # the time limit ended the episode, not the policy: bootstrap
                    rewards[step, k] += options.gamma * agent.value(torch.from_numpy(infos["final_obs"][k]))[0]
        logprobs = agent.policy(obs).log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        return Rollout(
            obs=obs,
            actions=actions,
            logprobs=logprobs,
            values=agent.value(obs)[..., 0],
            rewards=rewards,
            nonterminal=nonterminal,
            next_values=agent.value(torch.from_numpy(self.obs))[..., 0],
            returns=returns,
        )


def gae(rollout: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    """Return the advantages of a rollout's steps by generalized advantage estimation (Schulman et al. 2016)."""
    advantages = torch.zeros_like(rollout.rewards)
    next_values, next_advantages = rollout.next_values, torch.zeros_like(rollout.next_values)
    for step in reversed(range(len(advantages))):
        nonterminal = rollout.nonterminal[step]
        delta = rollout.rewards[step] + gamma * nonterminal * next_values - rollout.values[step]
        advantages[step] = next_advantages = delta + gamma * gae_lambda * nonterminal * next_advantages
        next_values = rollout.values[step]
    return advantages


def flatten(rollout: Rollout, advantages: Tensor, normalized_advantages: Tensor) -> dict[str, Tensor]:
    """Return the columns that `loss` needs, one row for each step."""
    return {
        "obs": rollout.obs.flatten(0, 1),
        "actions": rollout.actions.flatten(0, 1),
        "logprobs": rollout.logprobs.flatten(),
        "advantages": normalized_advantages.flatten(),
        "returns": (advantages + rollout.values).flatten(),
    }


def loss(agent: Agent, batch: dict[str, Tensor], options: Options) -> Tensor:
    """Return PPO's clipped loss. It is a mean over the batch, so the mean of the workers' gradients is the gradient of
    all their batches together."""
    logprobs = agent.policy(batch["obs"]).log_softmax(-1)
    ratio = (logprobs.gather(1, batch["actions"][:, None])[:, 0] - batch["logprobs"]).exp()
    clipped = ratio.clamp(1 - options.clip_coef, 1 + options.clip_coef)
    policy_loss = -torch.min(ratio * batch["advantages"], clipped * batch["advantages"]).mean()
    value_loss = 0.5 * (agent.value(batch["obs"])[:, 0] - batch["returns"]).square().mean()
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
    return policy_loss + options.vf_coef * value_loss - options.ent_coef * entropy


class Trainer:
    """One worker's training. Only its reports depend on the clock."""

    def __init__(self, worker: Worker, rank: int, options: Options, simulate_compute: SimulateCompute) -> None:
        self.worker, self.options, self.simulate_compute = worker, options, simulate_compute
        self.sampler = Sampler(options, rank)
        self.agent = Agent.of(self.sampler.envs, options)
        self.replica = Replica(self.agent, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm)
        self.generator = torch.Generator().manual_seed(options.seed * 1_000_003 + 500_009 + rank)
        self.episodes = EpisodeReturns(solved_episodes=options.solved_episodes, solved_return=options.solved_return)
        self.missing: set[int] = set()
        self.allreduces, self.allreduce_s = 0, 0.0

    def allreduce(self, vector: Vector, op: Literal["sum", "mean"]) -> None:
        """Reduce a vector in place, and count the collective."""
        start = time.perf_counter()
        self.missing.update(self.worker.allreduce(vector, op=op).missing)
        self.allreduce_s += time.perf_counter() - start
        self.allreduces += 1

    def sync_state(self) -> None:
        """Make the replicas of all workers equal: at the start, and whenever a worker has joined."""
        self.replica.sync_state(self.worker)
        self.episodes.clear()  # a joining worker lacks their returns, and all workers must stop at the same update

    def update(self) -> bool:
        """Update the policy by one rollout.

        Returns
        -------
        bool
            False if the update ended early because a joining worker waits for its state. All workers then end at the
            same collective.
        """
        options, replica = self.options, self.replica
        rollout = self.sampler.rollout(self.agent)
        advantages = gae(rollout, options.gamma, options.gae_lambda)
        # One small vector per update, so that all workers normalize alike and stop at the same update. The advantages
        # are in units of a reward, because the switch's fixed-point sum has room for values below 2^14.
        unit = 1 - options.gamma if options.gamma < 1 else 1.0
        moments = np.array(
            [
                advantages.mean() * unit,
                advantages.square().mean() * unit**2,
                sum(rollout.returns),
                len(rollout.returns),
            ],
            np.float32,
        )
        self.allreduce(moments, "mean")
        mean, square, return_sum, episodes = moments.tolist()
        mean, square = mean / unit, square / unit**2
        scale = 1 / (math.sqrt(max(square - mean * mean, 0.0)) + 1e-8)
        batch = flatten(rollout, advantages, (advantages - mean) * scale)
        learning_rate = options.learning_rate * (1 - replica.update / options.updates)
        steps = advantages.numel()
        for _ in range(options.epochs):
            for rows in torch.randperm(advantages.numel(), generator=self.generator).chunk(options.num_minibatches):
                if self.worker.needs_sync:
                    return False
                self.simulate_compute(steps)
                steps = 0
                replica.gradient.zero_()
                loss(self.agent, {name: column[rows] for name, column in batch.items()}, options).backward()
                self.allreduce(replica.gradient.numpy(), "mean")
                replica.step(learning_rate)
        self.episodes.add(return_sum * options.workers, episodes * options.workers)
        replica.update += 1
        return True


def train(
    worker: Worker,
    rank: int,
    options: Options,
    report: Callable[[Progress], None] = lambda progress: None,
    simulate_compute: SimulateCompute = lambda steps: None,
) -> CollectiveResult:
    """Train as one of `options.workers` workers, each of which may die and come back meanwhile."""
    start = time.perf_counter()
    trainer = Trainer(worker, rank, options, simulate_compute)
    replica, curve = trainer.replica, list[Progress]()
    equal = False
    while replica.update < options.updates:
        try:
            if not equal or worker.needs_sync:
                trainer.sync_state()
                equal = True
                continue
            if not trainer.update():
                continue
        except (NotAMemberError, JobResetError):  # the switch was restarted, or evicted a worker; or a tree began anew
            worker.rejoin()
            continue
        curve.append(
            Progress(
                update=replica.update,
                mean_return=trainer.episodes.mean_return,
                allreduces=trainer.allreduces,
                steps=replica.update * options.num_steps * options.num_envs * options.workers,
                missing=tuple(sorted(trainer.missing)),
                seconds=time.perf_counter() - start,
            )
        )
        trainer.missing.clear()
        report(curve[-1])
        if trainer.episodes.solved:
            break
    return CollectiveResult(
        rank=rank,
        weights=replica.weights(),
        curve=curve,
        allreduces=trainer.allreduces,
        segments=worker.segments_completed,
        train_s=time.perf_counter() - start,
        allreduce_s=trainer.allreduce_s,
    )


def evaluate(weights: Vector, options: Options) -> list[float]:
    """Return the returns of `evaluation_episodes` episodes that no worker has trained on, with greedy actions."""
    envs = make_envs(options.environment, options.evaluation_episodes)
    agent = Agent.of(envs, options)
    agent.load(weights)
    return play(envs, agent.greedy_actions, EVALUATION_SEED)


def main(
    options: Options,
    switch: Switch = "127.0.0.1:27000-27003",
    out: Folder = Path("build/demo"),
    kill: Annotated[
        int | None,
        Option(metavar="RANK", help=f"Kill this worker after {KILL_UPDATE} updates; the others continue without it."),
    ] = None,
) -> bool:
    """Learn with PPO. The switch averages the workers' gradients."""
    addresses = parse_addresses(switch)
    return bool(launch(options, addresses, out, train=train, evaluate=evaluate, kill=kill)["solved"])


app = application(main)

if __name__ == "__main__":
    app()

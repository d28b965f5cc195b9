"""PPO: each worker collects a rollout, and sends the gradient of each minibatch of it to the switch.

It differs from `examples/ppo.py` in its launcher, and in its policy: actions may be vectors (Schulman et al. 2017).

    iswitch switch                                                                    # in one terminal
    torchrun --nproc-per-node 4 -m examples.torchrun.ppo --preset cartpole            # in another
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from typer import Option

from examples.common.command import Folder, Presets, application
from examples.ppo import flatten, gae
from examples.torchrun.environments import Environments
from examples.torchrun.on_policy import ActorCritic, Collector
from examples.torchrun.options import Resume, RunOptions
from examples.torchrun.run import Start, run

__all__ = ["PRESETS", "Options", "app", "loss", "make_agent", "make_optimizer", "train"]


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """The environment and the hyperparameters. The defaults are for CartPole-v1."""

    environment: Annotated[str, Option(help="Gymnasium's name of the environment.")] = "CartPole-v1"
    total_steps: Annotated[int, Option(min=1, help="Environment steps of all workers together, at most.")] = 300_000
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of Adam.")] = 1.5e-3
    anneal: Annotated[bool, Option(help="The learning rate falls linearly to 0.")] = True
    max_grad_norm: Annotated[float, Option(min=0, help="The mean gradient is clipped to this norm.")] = 0.5
    reward_scale: Annotated[float, Option(help="Factor of the rewards that are learned from; of no report.")] = 0.1
    stop_return: Annotated[float, Option(help="Mean return at which the training stops; nan: none.")] = 475.0
    solved_return: Annotated[float, Option(help="Mean return of the evaluation that is the goal; nan: none.")] = 475.0
    report_interval: Annotated[int, Option(min=1, help="Updates between two reports.")] = 40
    checkpoint_interval: Annotated[int, Option(min=1, help="Updates between two checkpoints.")] = 400
    num_steps: Annotated[int, Option(min=1, help="Steps of each environment in a rollout.")] = 128
    epochs: Annotated[int, Option(min=1, help="Passes over a rollout.")] = 4
    num_minibatches: Annotated[int, Option(min=1, help="Minibatches of a pass. Each is a gradient.")] = 2
    gae_lambda: Annotated[float, Option(min=0, max=1, help="Lambda of generalized advantage estimation.")] = 0.98
    clip_coef: Annotated[float, Option(min=0, help="Clipping range of PPO's probability ratio.")] = 0.2
    ent_coef: Annotated[float, Option(min=0, help="Coefficient of the entropy.")] = 0.01
    vf_coef: Annotated[float, Option(min=0, help="Coefficient of the value loss.")] = 0.5
    hidden: Annotated[int, Option(min=1, help="Units of the policy's hidden layers.")] = 64
    value_hidden: Annotated[int, Option(min=1, help="Units of the value's hidden layers.")] = 64


PRESETS: Presets = {
    "cartpole": {},
    # The gradient of the paper, 40.02 KB. Hyperparameters are near those of Schulman et al. 2017
    "hopper": {
        "environment": "Hopper-v5",
        "num_envs": 1,
        "total_steps": 100_000,
        "learning_rate": 3e-4,
        "reward_scale": 0.01,
        "num_steps": 512,
        "epochs": 10,
        "num_minibatches": 8,
        "gae_lambda": 0.95,
        "ent_coef": 0.0,
        "value_hidden": 63,
        "stop_return": math.nan,
        "solved_return": math.nan,
    },
}


def make_agent(envs: Environments, options: Options) -> ActorCritic:
    """Make the networks, with the same weights for the same seed."""
    hidden, value_hidden = options.hidden, options.value_hidden
    return ActorCritic(envs.observations, envs.actions, hidden=hidden, value_hidden=value_hidden, seed=options.seed)


def make_optimizer(agent: ActorCritic, options: Options) -> torch.optim.Optimizer:
    """Make the optimizer of all weights."""
    return torch.optim.Adam(agent.parameters(), lr=options.learning_rate, eps=1e-5)


def loss(agent: ActorCritic, batch: dict[str, Tensor], options: Options) -> Tensor:
    """Return PPO's clipped loss of a minibatch."""
    outputs, values = agent(batch["obs"])
    ratio = (agent.logprobs(outputs, batch["actions"]) - batch["logprobs"]).exp()
    clipped = ratio.clamp(1 - options.clip_coef, 1 + options.clip_coef)
    policy_loss = -torch.min(ratio * batch["advantages"], clipped * batch["advantages"]).mean()
    value_loss = 0.5 * (values - batch["returns"]).square().mean()
    return policy_loss + options.vf_coef * value_loss - options.ent_coef * agent.entropy(outputs)


def train(options: Options, start: Start) -> ActorCritic:
    """Train as one worker."""
    envs = Environments(options)
    agent = make_agent(envs, options)
    optimizer = make_optimizer(agent, options)
    learner = start(agent, optimizer)
    collector = Collector(envs, agent, learner)
    while not learner.finished():
        rollout = collector.rollout(options.num_steps)
        advantages = gae(rollout, options.gamma, options.gae_lambda)
        normalized = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        batch = flatten(rollout, advantages, normalized)
        for _ in range(options.epochs):
            order = torch.randperm(advantages.numel(), generator=collector.generator)
            for rows in order.chunk(options.num_minibatches):
                if learner.finished():  # the returns of a rollout are known after its first gradient
                    return agent
                optimizer.zero_grad()
                loss(agent, {name: column[rows] for name, column in batch.items()}, options).backward()
                learner.step()
    return agent


def main(options: Options, out: Folder = Path("build/ppo"), resume: Resume = None) -> bool:
    """Learn with PPO as one worker of a job. The switch averages the workers' gradients."""
    return run(options, train, out, resume)


app = application(main, PRESETS)

if __name__ == "__main__":
    app()

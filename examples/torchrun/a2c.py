"""A2C: each worker takes a few steps in its environments and sends the gradient of these steps to the switch.

The workers' gradients of one policy are averaged (Mnih et al. 2016, with workers that wait for each other; with
--asynchronous they do not wait).

    iswitch switch                                                                    # in one terminal
    torchrun --nproc-per-node 4 -m examples.torchrun.a2c --preset cartpole            # in another
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from typer import Option

from examples.common.command import Folder, Presets, application
from examples.ppo import Rollout, gae
from examples.torchrun.environments import Environments
from examples.torchrun.on_policy import ActorCritic, Collector
from examples.torchrun.options import Resume, RunOptions
from examples.torchrun.run import Start, run

__all__ = ["PRESETS", "Options", "app", "loss", "make_agent", "make_optimizer", "train"]


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """The environment and the hyperparameters. The defaults are for CartPole-v1."""

    environment: Annotated[str, Option(help='Gymnasium\'s name of the environment, or "ALE/" and a game of Atari.')] = (
        "CartPole-v1"
    )
    total_steps: Annotated[int, Option(min=1, help="Environment steps of all workers together, at most.")] = 500_000
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of RMSprop.")] = 2e-3
    max_grad_norm: Annotated[float, Option(min=0, help="The mean gradient is clipped to this norm.")] = 0.5
    reward_scale: Annotated[float, Option(help="Factor of the rewards that are learned from; of no report.")] = 0.1
    stop_return: Annotated[float, Option(help="Mean return at which the training stops; nan: none.")] = 475.0
    solved_return: Annotated[float, Option(help="Mean return of the evaluation that is the goal; nan: none.")] = 475.0
    num_steps: Annotated[int, Option(min=1, help="Steps of each environment in a gradient.")] = 16
    gae_lambda: Annotated[float, Option(min=0, max=1, help="1: n-step returns; below: GAE with this lambda.")] = 0.95
    ent_coef: Annotated[float, Option(min=0, help="Coefficient of the entropy.")] = 0.01
    vf_coef: Annotated[float, Option(min=0, help="Coefficient of the value loss.")] = 0.5
    hidden: Annotated[int, Option(min=1, help="Units of each hidden layer.")] = 64
    channels: Annotated[int, Option(min=1, help="Channels of the last convolution, for frames.")] = 64


PRESETS: Presets = {
    "cartpole": {},
    # The gradient of the paper, 3.31 MB. Hyperparameters are near those of Mnih et al. 2016
    "qbert": {
        "environment": "ALE/Qbert",
        "total_steps": 20_000,
        "learning_rate": 7e-4,
        "anneal": True,
        "reward_scale": 0.01,
        "num_steps": 5,
        "gae_lambda": 1.0,
        "hidden": 487,
        "channels": 32,
        "stop_return": math.nan,
        "solved_return": math.nan,
        "evaluation_episodes": 0,
    },
}


def make_agent(envs: Environments, options: Options) -> ActorCritic:
    """Make the networks, with the same weights for the same seed."""
    return ActorCritic(
        envs.observations,
        envs.actions,
        hidden=options.hidden,
        value_hidden=options.hidden,
        channels=options.channels,
        seed=options.seed,
    )


def make_optimizer(agent: ActorCritic, options: Options) -> torch.optim.Optimizer:
    """Make the optimizer of all weights."""
    return torch.optim.RMSprop(agent.parameters(), lr=options.learning_rate, alpha=0.99, eps=1e-5)


def loss(agent: ActorCritic, rollout: Rollout, options: Options) -> Tensor:
    """Return the loss of a rollout. It is a mean over the steps, so the mean of the workers' gradients is the gradient
    of all their steps together."""
    advantages = gae(rollout, options.gamma, options.gae_lambda)
    outputs, values = agent(rollout.obs.flatten(0, 1))
    logprobs = agent.logprobs(outputs, rollout.actions.flatten(0, 1))
    policy_loss = -(logprobs * advantages.flatten()).mean()
    value_loss = 0.5 * (values - (advantages + rollout.values).flatten()).square().mean()
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
        optimizer.zero_grad()
        loss(agent, rollout, options).backward()
        learner.step()
    return agent


def main(options: Options, out: Folder = Path("build/a2c"), resume: Resume = None) -> bool:
    """Learn with A2C as one worker of a job. The switch averages the workers' gradients."""
    return run(options, train, out, resume)


app = application(main, PRESETS)

if __name__ == "__main__":
    app()

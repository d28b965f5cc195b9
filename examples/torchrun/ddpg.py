"""DDPG: an actor whose actions are vectors, and a critic that values them; the switch averages both gradients at once.

Each worker has its own environments and replay memory. The gradients of critic and actor come from the same weights and
travel as one vector, so an update costs one sum (Lillicrap et al. 2016).

    iswitch switch                                                                    # in one terminal
    torchrun --nproc-per-node 4 -m examples.torchrun.ddpg --preset pendulum           # in another
"""

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typer import Option

from examples.common.command import Folder, Presets, application
from examples.common.networks import initialize
from examples.torchrun.environments import Environments
from examples.torchrun.memory import Memory
from examples.torchrun.options import Resume, RunOptions
from examples.torchrun.run import Start, run

__all__ = ["PRESETS", "Agent", "Options", "app", "backward", "losses", "make_agent", "make_optimizer", "train"]


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """The environment and the hyperparameters. The defaults are for Pendulum-v1."""

    environment: Annotated[str, Option(help="Gymnasium's name of the environment.")] = "Pendulum-v1"
    num_envs: Annotated[int, Option(min=1, help="Environments of each worker.")] = 1
    total_steps: Annotated[int, Option(min=1, help="Environment steps of all workers together, at most.")] = 60_000
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of the actor, by Adam.")] = 1e-3
    critic_learning_rate: Annotated[float, Option(min=0, help="Learning rate of the critic, by Adam.")] = 2e-3
    reward_scale: Annotated[float, Option(help="Factor of the rewards that are learned from; of no report.")] = 0.1
    stop_return: Annotated[float, Option(help="Mean return at which the training stops; nan: none.")] = -170.0
    solved_return: Annotated[float, Option(help="Mean return of the evaluation that is the goal; nan: none.")] = -200.0
    solved_episodes: Annotated[int, Option(min=1, help="Latest episodes of all workers in this mean.")] = 40
    evaluation_episodes: Annotated[int, Option(min=0, help="Episodes of the evaluation at the end.")] = 50
    report_interval: Annotated[int, Option(min=1, help="Updates between two reports.")] = 200
    batch_size: Annotated[int, Option(min=1, help="Transitions of each worker in a gradient.")] = 64
    memory: Annotated[int, Option(min=1, help="Transitions in each worker's memory.")] = 100_000
    learning_starts: Annotated[int, Option(min=1, help="Transitions before the first gradient, by random actions.")] = (
        500
    )
    noise: Annotated[float, Option(min=0, help="Standard deviation of the noise, as a share of the range.")] = 0.1
    tau: Annotated[float, Option(min=0, max=1, help="Share by which the target networks follow an update.")] = 0.01
    hidden: Annotated[int, Option(min=1, help="Units of each hidden layer.")] = 64


PRESETS: Presets = {
    "pendulum": {},
    # The gradient of the paper, 157.52 KB for actor and critic together; the rates of Lillicrap et al. 2016
    "halfcheetah": {
        "environment": "HalfCheetah-v5",
        "total_steps": 20_000,
        "learning_rate": 1e-4,
        "critic_learning_rate": 1e-3,
        "reward_scale": 1.0,
        "tau": 0.001,
        "hidden": 128,
        "stop_return": math.nan,
        "solved_return": math.nan,
        "evaluation_episodes": 4,
    },
}


class Agent(nn.Module):
    """The actor and the critic, and a target network for each.

    Parameters
    ----------
    observations, actions : gymnasium.Space
        Spaces of the environment: vectors, those of the actions with bounds.
    hidden : int
        Units of each hidden layer.
    seed : int
        Seed of the weights.
    """

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any], hidden: int, seed: int) -> None:
        super().__init__()
        for space in (observations, actions):
            if not (isinstance(space, spaces.Box) and len(space.shape) == 1):
                raise ValueError(f"environment must have vectors as observations and actions, not {space}")
        assert isinstance(observations, spaces.Box) and isinstance(actions, spaces.Box)
        self.low, self.high = torch.from_numpy(actions.low), torch.from_numpy(actions.high)

        def net(inputs: int, outputs: int) -> nn.Sequential:
            first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
            return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(hidden, outputs))

        size, action_size = observations.shape[0], actions.shape[0]
        self.actor, self.critic = net(size, action_size), net(size + action_size, 1)
        initialize(self, seed, {self.actor[-1]: 0.01, self.critic[-1]: 1.0})
        self.targets = copy.deepcopy(nn.ModuleList([self.actor, self.critic]))

    def act(self, actor: nn.Module, obs: Tensor) -> Tensor:
        """Return the action for each row of observations, within the bounds."""
        return self.low + (self.high - self.low) * (actor(obs).tanh() + 1) / 2

    def value(self, critic: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the value of each row of observations and actions."""
        values: Tensor = critic(torch.cat([obs, actions], -1))[..., 0]
        return values

    @torch.no_grad()
    def follow(self, tau: float) -> None:
        """Move the weights of the target networks by the share `tau` towards the others."""
        for network, target in zip((self.actor, self.critic), self.targets):
            for weights, target_weights in zip(network.parameters(), target.parameters()):
                target_weights.lerp_(weights, tau)

    @torch.no_grad()
    def greedy_actions(self, obs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the actor's action for each row of observations."""
        return self.act(self.actor, torch.from_numpy(obs).float()).numpy()


def make_agent(envs: Environments, options: Options) -> Agent:
    """Make the networks, with the same weights for the same seed."""
    return Agent(envs.observations, envs.actions, options.hidden, options.seed)


def make_optimizer(agent: Agent, options: Options) -> torch.optim.Optimizer:
    """Make the optimizer of actor and critic."""
    actor = {"params": list(agent.actor.parameters()), "lr": options.learning_rate}
    critic = {"params": list(agent.critic.parameters()), "lr": options.critic_learning_rate}
    return torch.optim.Adam([actor, critic])


def losses(agent: Agent, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the loss of the actor, the mean value of its actions with the sign changed, and that of the critic."""
    target_actor, target_critic = agent.targets
    with torch.no_grad():
        next_obs = batch["next_obs"]
        next_values = agent.value(target_critic, next_obs, agent.act(target_actor, next_obs))
        targets = batch["rewards"] + batch["discounts"] * next_values
    values = agent.value(agent.critic, batch["obs"], batch["actions"])
    actor_loss = -agent.value(agent.critic, batch["obs"], agent.act(agent.actor, batch["obs"])).mean()
    return actor_loss, (values - targets).square().mean()


def backward(agent: Agent, batch: dict[str, Tensor]) -> None:
    """Compute the gradients of both networks, each of its own loss."""
    actor_loss, critic_loss = losses(agent, batch)
    actor_loss.backward(inputs=list(agent.actor.parameters()))  # not the critic's, through which it goes
    critic_loss.backward()


def train(options: Options, start: Start) -> Agent:
    """Train as one worker."""
    envs = Environments(options)
    agent = make_agent(envs, options)
    optimizer = make_optimizer(agent, options)
    learner = start(agent, optimizer, lambda: agent.follow(options.tau))
    memory = Memory(options.memory, options.gamma)
    low, high = agent.low.numpy(), agent.high.numpy()
    while not learner.finished():
        if learner.begins_phase():
            envs.begin(learner)
            random = np.random.default_rng(learner.seed)
        obs, shape = envs.obs, (options.num_envs, len(low))
        if memory.size < options.learning_starts:
            actions = random.uniform(low, high, shape)
        else:
            actions = agent.greedy_actions(obs) + options.noise * (high - low) * random.normal(size=shape)
        actions = np.clip(actions, low, high).astype(np.float32)
        memory.add(obs, actions, envs.step(actions))
        if memory.size >= options.learning_starts:
            optimizer.zero_grad()
            backward(agent, memory.sample(options.batch_size, random))
            learner.step()
    return agent


def main(options: Options, out: Folder = Path("build/ddpg"), resume: Resume = None) -> bool:
    """Learn with DDPG as one worker of a job. The switch averages the workers' gradients."""
    return run(options, train, out, resume)


app = application(main, PRESETS)

if __name__ == "__main__":
    app()

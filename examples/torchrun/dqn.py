"""DQN: each worker has its own environments and replay memory, and the switch averages the gradients of the batches.

The network learns the value of each action; its targets come from a copy that follows it slowly (Mnih et al. 2015).

    iswitch switch                                                                    # in one terminal
    torchrun --nproc-per-node 4 -m examples.torchrun.dqn --preset cartpole            # in another
"""

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
from examples.common.networks import frame_body, initialize
from examples.torchrun.environments import Environments
from examples.torchrun.memory import Memory
from examples.torchrun.options import Resume, RunOptions
from examples.torchrun.run import Start, run

__all__ = ["PRESETS", "Agent", "Options", "app", "epsilon", "loss", "make_agent", "make_optimizer", "train"]


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """The environment and the hyperparameters. The defaults are for CartPole-v1."""

    environment: Annotated[str, Option(help='Gymnasium\'s name of the environment, or "ALE/" and a game of Atari.')] = (
        "CartPole-v1"
    )
    total_steps: Annotated[int, Option(min=1, help="Environment steps of all workers together, at most.")] = 200_000
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of Adam.")] = 1e-3
    anneal: Annotated[bool, Option(help="The learning rate falls linearly to 0.")] = True
    max_grad_norm: Annotated[float, Option(min=0, help="The mean gradient is clipped to this norm.")] = 10.0
    reward_scale: Annotated[float, Option(help="Factor of the rewards that are learned from; of no report.")] = 0.1
    stop_return: Annotated[float, Option(help="Mean return at which the training stops; nan: none.")] = 475.0
    solved_return: Annotated[float, Option(help="Mean return of the evaluation that is the goal; nan: none.")] = 475.0
    solved_episodes: Annotated[int, Option(min=1, help="Latest episodes of all workers in this mean.")] = 40
    batch_size: Annotated[int, Option(min=1, help="Transitions of each worker in a gradient.")] = 64
    memory: Annotated[int, Option(min=1, help="Transitions in each worker's memory.")] = 50_000
    learning_starts: Annotated[int, Option(min=1, help="Transitions in the memory before the first gradient.")] = 500
    steps_per_update: Annotated[int, Option(min=1, help="Steps of each environment between two gradients.")] = 2
    target_interval: Annotated[int, Option(min=1, help="Updates between two copies to the target network.")] = 10
    final_epsilon: Annotated[float, Option(min=0, max=1, help="Share of random actions, finally; 1 at first.")] = 0.02
    exploration_steps: Annotated[int, Option(min=1, help="Steps of all workers until then.")] = 40_000
    double: Annotated[
        bool, Option("--double", help="The network that is learned chooses the action of a target (double DQN).")
    ] = False
    hidden: Annotated[int, Option(min=1, help="Units of each hidden layer.")] = 256


PRESETS: Presets = {
    "cartpole": {},
    # Gradients of old weights: smaller steps, targets that stay for longer, and no value that chooses itself
    "cartpole-asynchronous": {
        "asynchronous": True,
        "double": True,
        "learning_rate": 5e-4,
        "target_interval": 40,
        "total_steps": 300_000,
    },
    # The gradient of the paper, 6.41 MB. Hyperparameters are near those of Mnih et al. 2015, the memory is smaller
    "pong": {
        "environment": "ALE/Pong",
        "num_envs": 1,
        "total_steps": 20_000,
        "learning_rate": 1e-4,
        "anneal": False,
        "reward_scale": 1.0,
        "batch_size": 32,
        "memory": 10_000,
        "steps_per_update": 4,
        "target_interval": 1000,
        "exploration_steps": 100_000,
        "hidden": 485,
        "report_interval": 50,
        "stop_return": math.nan,
        "solved_return": math.nan,
        "evaluation_episodes": 0,
    },
}


class Agent(nn.Module):
    """The network that is learned, and its target network.

    Parameters
    ----------
    observations : gymnasium.Space
        Vectors or stacks of frames.
    actions : gymnasium.Space
        Discrete actions.
    hidden : int
        Units of each hidden layer.
    seed : int
        Seed of the weights.
    """

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any], hidden: int, seed: int) -> None:
        super().__init__()
        if not (isinstance(observations, spaces.Box) and isinstance(actions, spaces.Discrete)):
            raise ValueError(
                f"environment must have vectors or frames as observations, and discrete actions, not {observations} "
                f"and {actions}"
            )
        self.actions = int(actions.n)
        self.online, self.target = (self._network(observations.shape, hidden) for _ in range(2))
        initialize(self.online, seed, {self.online[-1]: 1.0})
        self.update_target()

    def _network(self, shape: tuple[int, ...], hidden: int) -> nn.Sequential:
        if len(shape) == 1:
            layers = nn.Sequential(nn.Linear(shape[0], hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        else:
            layers = frame_body(shape[0], hidden=hidden)
        return layers.append(nn.Linear(hidden, self.actions))

    def update_target(self) -> None:
        """Copy the weights to the target network."""
        self.target.load_state_dict(self.online.state_dict())

    @torch.no_grad()
    def greedy_actions(self, obs: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the action of the highest value for each row of observations."""
        return np.asarray(self.online(torch.from_numpy(obs)).argmax(-1).numpy())


def make_agent(envs: Environments, options: Options) -> Agent:
    """Make the networks, with the same weights for the same seed."""
    return Agent(envs.observations, envs.actions, options.hidden, options.seed)


def make_optimizer(agent: Agent, options: Options) -> torch.optim.Optimizer:
    """Make the optimizer of the network that is learned."""
    return torch.optim.Adam(agent.online.parameters(), lr=options.learning_rate, eps=1e-5)


def loss(agent: Agent, batch: dict[str, Tensor], *, double: bool = False) -> Tensor:
    """Return the mean Huber loss of the TD errors of a batch.

    With `double` the network that is learned chooses the next action, and the target network gives its value (van
    Hasselt et al. 2016). So a value that is too high by chance does not choose itself.
    """
    with torch.no_grad():
        values = agent.target(batch["next_obs"])
        best = (agent.online(batch["next_obs"]) if double else values).argmax(-1, keepdim=True)
        targets = batch["rewards"] + batch["discounts"] * values.gather(-1, best)[:, 0]
    values = agent.online(batch["obs"]).gather(-1, batch["actions"][:, None])[:, 0]
    return nn.functional.smooth_l1_loss(values, targets)


def epsilon(steps: int, options: Options) -> float:
    """Return the share of random actions after so many steps of all workers: it falls linearly."""
    return 1 - (1 - options.final_epsilon) * min(1.0, steps / options.exploration_steps)


def train(options: Options, start: Start) -> Agent:
    """Train as one worker."""
    envs = Environments(options)
    agent = make_agent(envs, options)
    optimizer = make_optimizer(agent, options)

    def after_update() -> None:
        if learner.updates % options.target_interval == 0:
            agent.update_target()

    learner = start(agent, optimizer, after_update)
    memory = Memory(options.memory, options.gamma)
    while not learner.finished():
        if learner.begins_phase():
            envs.begin(learner)
            random = np.random.default_rng(learner.seed)
        for _ in range(options.steps_per_update):
            obs = envs.obs
            explores = random.random(len(obs)) < epsilon(learner.steps, options)
            actions = np.where(explores, random.integers(agent.actions, size=len(obs)), agent.greedy_actions(obs))
            memory.add(obs, actions, envs.step(actions))
        if memory.size >= options.learning_starts:
            optimizer.zero_grad()
            loss(agent, memory.sample(options.batch_size, random), double=options.double).backward()
            learner.step()
    return agent


def main(options: Options, out: Folder = Path("build/dqn"), resume: Resume = None) -> bool:
    """Learn with DQN as one worker of a job. The switch averages the workers' gradients."""
    return run(options, train, out, resume)


app = application(main, PRESETS)

if __name__ == "__main__":
    app()

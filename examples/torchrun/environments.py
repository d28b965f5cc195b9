"""A worker's environments: their steps are timed, and the returns of their episodes go to the learner."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.common.envs import make_envs
from examples.torchrun.learner import Learner
from examples.torchrun.options import RunOptions

__all__ = ["Environments", "Step"]

Rows = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of all environments, a row each.

    Parameters
    ----------
    next_obs : array
        The observation after the step. If the step ended an episode, this is the last observation of that episode.
    rewards : array of float32
        Rewards times `reward_scale`.
    terminated, truncated : array of bool
        True where the episode ended: by the rules of the environment, or by its time limit.
    """

    next_obs: Rows
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


class Environments:
    """`num_envs` environments of one worker.

    Parameters
    ----------
    options : RunOptions
        Names the environment.

    Attributes
    ----------
    obs : array
        The present observations, one row for each environment; floats are float32.
    observations, actions : gymnasium.Space
        Spaces of one environment.
    """

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self._envs = make_envs(options.environment, options.num_envs)
        self.observations, self.actions = self._envs.single_observation_space, self._envs.single_action_space

    def begin(self, learner: Learner) -> None:
        """Begin new episodes, whose seeds follow from `learner.seed`."""
        self._learner = learner
        seeds = np.random.SeedSequence(learner.seed).generate_state(self.options.num_envs) % 2**31
        obs, _ = self._envs.reset(seed=seeds.tolist())
        self.obs = self._rows(obs)

    def step(self, actions: Rows) -> Step:
        """Take one step in each environment. Where an episode ends, the next one begins."""
        with self._learner.times("environment"):
            obs, rewards, terminated, truncated, infos = self._envs.step(actions)
        self.obs = self._rows(obs)
        next_obs, ended = self.obs, np.flatnonzero(terminated | truncated)
        if ended.size:
            next_obs = next_obs.copy()
            for k in ended:
                next_obs[k] = infos["final_obs"][k]
        returns = infos["episode"]["r"][ended].tolist() if ended.size else []
        self._learner.observe(len(rewards), returns)
        scaled = np.asarray(rewards * self.options.reward_scale, np.float32)
        return Step(next_obs=next_obs, rewards=scaled, terminated=terminated, truncated=truncated)

    def _rows(self, obs: Rows) -> Rows:
        return np.array(obs, np.float32 if obs.dtype == np.float64 else obs.dtype)

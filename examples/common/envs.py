"""Vectorized environments, and the evaluation of a policy in them."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

__all__ = ["make_envs", "play"]


def make_envs(environment: str, count: int) -> VectorEnv[Any, Any, Any]:
    """Make environments that are stepped together, and that reset in the step in which their episode ends.

    Parameters
    ----------
    environment : str
        Gymnasium's name, such as "CartPole-v1"; or a game of Atari: "ALE/Pong" in stacks of frames (`make_atari`),
        "ALE/Pong-ram" by the console's memory (`make_atari_ram`).
    count : int
        Number of environments.
    """
    if environment.startswith("ALE/"):
        from examples.common.atari import make_atari, make_atari_ram  # imports the games, which CartPole does not need

        game = environment.removeprefix("ALE/")
        make = lambda: make_atari_ram(game.removesuffix("-ram")) if game.endswith("-ram") else make_atari(game)
    else:
        make = lambda: gymnasium.make(environment, disable_env_checker=True)
    return RecordEpisodeStatistics(SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP))


def play(envs: VectorEnv[Any, Any, Any], act: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], seed: int) -> list[float]:
    """Return the return of one episode in each environment.

    Parameters
    ----------
    envs : VectorEnv
        The environments.
    act : Callable
        Returns an action for each row of observations.
    seed : int
        Seed of the first environment. The others have the next seeds.
    """
    obs, _ = envs.reset(seed=seed)
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    while running.any():
        obs, reward, terminated, truncated, _ = envs.step(act(obs))
        returns[running] += reward[running]
        running &= ~(terminated | truncated)
    return returns.tolist()

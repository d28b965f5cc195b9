"""Vectorized environments."""

from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

__all__ = ["make_envs"]


def make_envs(environment: str, count: int) -> VectorEnv[Any, Any, Any]:
    """Make environments that are stepped together, and that reset in the step in which their episode ends."""
    make = lambda: gymnasium.make(environment, disable_env_checker=True)
    return RecordEpisodeStatistics(SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP))

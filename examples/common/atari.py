"""Atari observations: stacks of four grey frames of 84 x 84 bytes, as in Mnih et al. 2015, or the console's memory.

Gymnasium's `AtariPreprocessing` resizes frames with OpenCV, a large package that nothing else here needs. So frames
are shrunk here, and Gymnasium stacks them.
"""

from typing import Any

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, TransformObservation

__all__ = ["SIDE", "STACK", "make_atari", "make_atari_ram", "shrink"]

SIDE, STACK = 84, 4
_FRAME_SKIP = 4
_RAM_FRAMES = 18_000
Frame = npt.NDArray[np.uint8]


def _averages(size: int, wanted: int) -> npt.NDArray[np.float32]:
    """Return a matrix that maps `size` pixels to `wanted` pixels, each the mean of the part that it covers."""
    edges = np.arange(wanted + 1) * size / wanted
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.asarray(overlap.clip(0) * wanted / size, np.float32)


def shrink(frame: Frame, side: int = SIDE) -> Frame:
    """Return a grey frame as `side` x `side` pixels, each the mean of the part that it covers, rounded."""
    height, width = frame.shape
    return np.asarray(np.rint(_averages(height, side) @ frame.astype(np.float32) @ _averages(width, side).T), np.uint8)


class SkipFrames(gymnasium.Wrapper[Frame, int, Frame, int]):
    """Repeats each action for four frames, and combines the last two by the maximum: sprites flicker.

    Attributes
    ----------
    frames : int
        Frames of the game so far.
    """

    def __init__(self, env: gymnasium.Env[Frame, int]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.frames = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start an episode, and return its first frame."""
        frame, info = self.env.reset(seed=seed, options=options)
        return shrink(frame), info

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Repeat the action, and sum the rewards."""
        frame = before = np.zeros((), np.uint8)
        reward_sum, terminated, truncated, info = 0.0, False, False, dict[str, Any]()
        for _ in range(_FRAME_SKIP):
            before = frame
            frame, reward, terminated, truncated, info = self.env.step(action)
            reward_sum += float(reward)
            self.frames += 1
            if terminated or truncated:
                break
        return shrink(np.maximum(before, frame)), reward_sum, terminated, truncated, info


def make_game(game: str, **options: Any) -> gymnasium.Env[Any, int]:
    """Make the environment of a game with options of `ale_py.AtariEnv`. Raises ValueError if there is no such game."""
    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    try:
        return gymnasium.make(f"ALE/{game}-v5", **options)
    except gymnasium.error.Error as error:
        raise ValueError(f"there is no Atari game {game!r}: {error}") from None


def make_atari(game: str) -> gymnasium.Env[Frame, int]:
    """Make the environment of a game, such as "Breakout". The first stack of an episode is four times its first frame.

    Raises
    ------
    ValueError
        If there is no such game.
    """
    env = make_game(game, obs_type="grayscale", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(SkipFrames(env), STACK)


def make_atari_ram(game: str) -> gymnasium.Env[npt.NDArray[np.float32], int]:
    """Make the environment of a game whose observations are the 128 bytes of the console's memory, scaled to -1 to 1.

    Each action is for four frames. With probability 0.25, the previous action is repeated instead (Machado et al.
    2018), so episodes differ by their seeds. An episode is truncated after five minutes of play, 18,000 frames.

    Raises
    ------
    ValueError
        If there is no such game.
    """
    env = make_game(
        game,
        obs_type="ram",
        frameskip=_FRAME_SKIP,
        repeat_action_probability=0.25,
        max_num_frames_per_episode=_RAM_FRAMES,
        disable_env_checker=True,
    )
    scale = lambda ram: ram.astype(np.float32) / np.float32(127.5) - np.float32(1)
    return TransformObservation(env, scale, spaces.Box(-1, 1, env.observation_space.shape, np.float32))

"""Atari games as Mnih et al. 2015 see them: grey frames of 84 x 84 bytes, one for four of the game's, in stacks of the
last four."""

from collections import deque

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt

__all__ = ["SIDE", "STACKED", "AtariGame", "shrink"]

SIDE, STACKED = 84, 4
_SKIPPED = 4
Frame = npt.NDArray[np.uint8]


def _averages(size: int, wanted: int) -> npt.NDArray[np.float32]:
    """A matrix that makes `wanted` numbers of `size`, each the mean of the part of the axis that it covers."""
    edges = np.arange(wanted + 1) * size / wanted
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.asarray(overlap.clip(0) * wanted / size, np.float32)


def shrink(frame: Frame, side: int = SIDE) -> Frame:
    """A grey picture as `side` x `side`, each of whose pixels is the mean of what it covers, rounded to the nearest."""
    height, width = frame.shape
    return np.asarray(np.rint(_averages(height, side) @ frame.astype(np.float32) @ _averages(width, side).T), np.uint8)


class AtariGame:
    """A game that repeats each action for four frames, the last two of which make one, pixel by pixel the brighter:
    sprites flicker."""

    def __init__(self, game: str) -> None:
        """game: "Breakout". ValueError if there is none of that name."""
        gymnasium.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        try:
            self._game = gymnasium.make(
                f"ALE/{game}-v5", obs_type="grayscale", frameskip=1, repeat_action_probability=0.0
            )
        except gymnasium.error.Error as error:
            raise ValueError(f"there is no Atari game {game!r}: {error}") from None
        self.actions = int(self._game.action_space.n)  # type: ignore[attr-defined]
        self._stack: deque[Frame] = deque(maxlen=STACKED)
        self.frames = 0
        """Of the game, so far."""

    def reset(self, seed: int | None = None) -> Frame:
        """The first stack of an episode, four times the same frame."""
        first = shrink(self._game.reset(seed=seed)[0])
        self._stack.extend([first] * STACKED)
        return np.stack(self._stack)

    def step(self, action: int) -> tuple[Frame, float, bool, bool]:
        """The next stack, what was scored, and whether the episode is terminated, truncated."""
        screens: deque[Frame] = deque(maxlen=2)
        scored, terminated, truncated = 0.0, False, False
        for _ in range(_SKIPPED):
            screen, reward, terminated, truncated, _ = self._game.step(action)
            screens.append(screen)
            scored += float(reward)
            self.frames += 1
            if terminated or truncated:
                break
        self._stack.append(shrink(np.maximum(screens[0], screens[-1])))
        return np.stack(self._stack), scored, terminated, truncated

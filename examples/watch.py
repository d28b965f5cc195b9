"""Plays a kept policy and draws the episode as a GIF."""

import math
from pathlib import Path

from PIL import Image, ImageDraw

from examples.policy import Policy
from examples.replica import Vector
from examples.rollout import HELD_OUT, episode

__all__ = ["frame", "watch"]

_WIDTH, _HEIGHT = 600, 240
_FINER = 2
"""Lines are drawn so many times larger and scaled down, which smooths their edges."""
_METRE = _WIDTH / 5.2
"""Pixels. The episode ends at 2.4 m on either side."""
_TRACK = 180
"""Pixels from the top."""
_POLE_M = 1.0
_EVERY = 2
"""Steps between two frames. A step of CartPole is 20 ms."""
_FRAME_MS = 20 * _EVERY
_LAST_MS = 1500
_COLOURS = 32


def frame(obs: Vector, text: str) -> Image.Image:
    """Draw CartPole's cart at obs[0] metres with its pole at obs[2] radians, and a line of text."""
    image = Image.new("RGB", (_WIDTH * _FINER, _HEIGHT * _FINER), "white")
    draw = ImageDraw.Draw(image)

    def at(x: float, y: float) -> tuple[float, float]:
        return (_WIDTH / 2 + x) * _FINER, (_TRACK + y) * _FINER

    x, angle = float(obs[0]) * _METRE, float(obs[2])
    draw.line([at(-_WIDTH, 14), at(_WIDTH, 14)], fill="gray", width=2 * _FINER)
    for end in (-2.4, 2.4):
        draw.line([at(end * _METRE, 4), at(end * _METRE, 24)], fill="firebrick", width=2 * _FINER)
    draw.rectangle([at(x - 28, -14), at(x + 28, 14)], fill="black")
    tip = (x + _POLE_M * _METRE * math.sin(angle), -_POLE_M * _METRE * math.cos(angle))
    draw.line([at(x, 0), at(*tip)], fill="peru", width=9 * _FINER)
    draw.ellipse([at(x - 5, -5), at(x + 5, 5)], fill="steelblue")
    draw.text(at(-_WIDTH / 2 + 12, 34), text, fill="black", font_size=15 * _FINER)
    return image.reduce(_FINER)


def watch(policy: Policy, path: Path) -> float:
    """Play one episode with the most probable actions, write it as a GIF, and return its return.

    Parameters
    ----------
    policy : Policy
        Of CartPole.
    path : Path
        File of the GIF.

    Raises
    ------
    ValueError
        If the policy's environment is not CartPole, or its weights do not fit it.
    OSError
        If the file cannot be written.
    """
    if not policy.environment.startswith("CartPole"):
        raise ValueError(f"only CartPole can be drawn, not {policy.environment!r}")
    seen = list(episode(policy.agent(), policy.environment, HELD_OUT))
    shown = [*seen[:-1:_EVERY], seen[-1]]
    drawn = [frame(obs, f"{policy.environment}, seed {policy.seed}: return {returned:.0f}") for obs, returned in shown]
    palette = drawn[0].quantize(_COLOURS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in drawn]
    durations = [_FRAME_MS] * (len(frames) - 1) + [_LAST_MS]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return seen[-1][1]

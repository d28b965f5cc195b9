"""Plays an episode with a policy that `make demo` has saved, and draws the episode as a GIF.

python -m examples.watch build/demo
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import gymnasium
import numpy as np
import typer
from PIL import Image, ImageDraw
from rich.console import Console

from examples.common.envs import make_envs
from examples.common.policy import Policy
from examples.common.replica import Vector
from examples.ppo import EVALUATION_SEED, Agent, Options

__all__ = ["app", "draw_frame", "load_agent", "play_episode", "write_gif"]

_WIDTH, _HEIGHT = 600, 240
_SUPERSAMPLING = 2
"""Lines are drawn so many times larger and scaled down, which smooths their edges."""
_METRE = _WIDTH / 5.2
"""Pixels. The episode ends at 2.4 m on either side."""
_TRACK = 180
"""Pixels from the top."""
_POLE_M = 1.0
_FRAME_INTERVAL = 2
"""Steps between two frames. A step of CartPole is 20 ms."""
_FRAME_MS = 20 * _FRAME_INTERVAL
_LAST_FRAME_MS = 1500
_COLOURS = 32


def load_agent(policy: Policy) -> Agent:
    """Return the nets of a saved policy.

    Raises
    ------
    ValueError
        If Gymnasium has no such environment, or the weights do not fit the nets.
    """
    try:
        envs = make_envs(policy.environment, 1)
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium does not make the policy's environment {policy.environment!r}: {error}") from None
    agent = Agent.of(envs, Options(environment=policy.environment, hidden=policy.hidden))
    parameters = sum(parameter.numel() for parameter in agent.parameters())
    if policy.weights.shape != (parameters,):
        raise ValueError(f"the policy has {policy.weights.size:,} weights, but its nets have {parameters:,} parameters")
    agent.load(policy.weights)
    return agent


def play_episode(agent: Agent, environment: str, seed: int) -> Iterator[tuple[Vector, float]]:
    """Yield each observation of one greedy episode, the last one included, with the return up to the observation."""
    env = gymnasium.make(environment)
    obs, _ = env.reset(seed=seed)
    episode_return, ended = 0.0, False
    while True:
        yield np.asarray(obs, np.float32), episode_return
        if ended:
            return
        obs, reward, terminated, truncated, _ = env.step(int(agent.greedy_actions(obs[None])[0]))
        episode_return, ended = episode_return + float(reward), terminated or truncated


def draw_frame(obs: Vector, text: str) -> Image.Image:
    """Draw CartPole's cart at obs[0] metres with its pole at obs[2] radians, and a line of text."""
    image = Image.new("RGB", (_WIDTH * _SUPERSAMPLING, _HEIGHT * _SUPERSAMPLING), "white")
    draw = ImageDraw.Draw(image)

    def at(x: float, y: float) -> tuple[float, float]:
        return (_WIDTH / 2 + x) * _SUPERSAMPLING, (_TRACK + y) * _SUPERSAMPLING

    x, angle = float(obs[0]) * _METRE, float(obs[2])
    draw.line([at(-_WIDTH, 14), at(_WIDTH, 14)], fill="gray", width=2 * _SUPERSAMPLING)
    for end in (-2.4, 2.4):
        draw.line([at(end * _METRE, 4), at(end * _METRE, 24)], fill="firebrick", width=2 * _SUPERSAMPLING)
    draw.rectangle([at(x - 28, -14), at(x + 28, 14)], fill="black")
    tip = (x + _POLE_M * _METRE * math.sin(angle), -_POLE_M * _METRE * math.cos(angle))
    draw.line([at(x, 0), at(*tip)], fill="peru", width=9 * _SUPERSAMPLING)
    draw.ellipse([at(x - 5, -5), at(x + 5, 5)], fill="steelblue")
    draw.text(at(-_WIDTH / 2 + 12, 34), text, fill="black", font_size=15 * _SUPERSAMPLING)
    return image.reduce(_SUPERSAMPLING)


def write_gif(policy: Policy, path: Path) -> float:
    """Play one greedy episode of CartPole, write it as a GIF file, and return its return.

    Raises
    ------
    ValueError
        If the policy's environment is not CartPole, or the weights do not fit the nets.
    OSError
        If the file cannot be written.
    """
    if not policy.environment.startswith("CartPole"):
        raise ValueError(f"only CartPole can be drawn, not {policy.environment!r}")
    episode = list(play_episode(load_agent(policy), policy.environment, EVALUATION_SEED))
    images = [
        draw_frame(obs, f"{policy.environment}, seed {policy.seed}: return {episode_return:.0f}")
        for obs, episode_return in [*episode[:-1:_FRAME_INTERVAL], episode[-1]]
    ]
    palette = images[0].quantize(_COLOURS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [_FRAME_MS] * (len(frames) - 1) + [_LAST_FRAME_MS]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return episode[-1][1]


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder in which a training has saved its policy.")],
) -> None:
    """Play an episode with the policy in FOLDER, and draw it as policy.gif there."""
    console = Console(highlight=False, soft_wrap=True)
    path, gif = folder / "policy.npz", folder / "policy.gif"
    try:
        policy = Policy.load(path)
        console.print(
            f"{path}: {policy.environment}, seed {policy.seed}, mean return {policy.mean_return:.1f} in the "
            f"evaluation, sha256 {policy.weights_sha256[:16]}..."
        )
        episode_return = write_gif(policy, gif)
    except OSError as error:
        console.print(f"{gif} cannot be written: {error.strerror or error}", style="red", markup=False)
        raise typer.Exit(1) from None
    except ValueError as error:
        console.print(f"no policy can be played: {error}", style="red", markup=False)
        if not os.path.exists(path):  # False also if the folder cannot be read
            console.print("`make demo` trains a policy.")
        raise typer.Exit(1) from None
    console.print(f"{gif}: one unseen episode, return {episode_return:.0f}")


if __name__ == "__main__":
    app()

"""Atari frames in the switch's replay: each frame is sent once, however many stacks contain it.

One process has two clients. The actor's client plays a game with a convolutional network, and adds n-step transitions
between stacks of four frames. The learner's client samples batches, compares every row with a digest of what was
added, takes steps of double DQN, and updates the priorities. The example is about bytes, not about scores.

    make emulator REPLAY=default                               # in one terminal
    python -m examples.apex_atari --switch 127.0.0.1:27000-27001 # in another
"""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text
from typer import Option

from examples.common.atari import SIDE, STACK, make_atari
from examples.common.command import Folder, Switch, application, check_ranges, parse_addresses
from examples.common.dqn import DoubleDQN, actor_deltas, priorities_of
from examples.common.networks import frame_network
from examples.common.nstep import NStep, Transition, columns, transition_fields
from examples.common.processes import LaunchError
from examples.common.replica import Vector
from iswitch.replay import Field, ReplayClient

__all__ = ["FIELDS", "NAIVE_BYTES", "Actor", "AtariProgress", "Options", "app", "digests", "launch", "train"]

NAIVE_BYTES = 2 * STACK * SIDE * SIDE * np.dtype(np.float32).itemsize
"""Bytes of a transition whose two stacks are sent whole, as float32."""
FIELDS = transition_fields(Field((STACK, SIDE, SIDE), np.uint8, stacked=STACK))
_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """The game and the hyperparameters."""

    game: Annotated[str, Option(help="Name of the game in the Arcade Learning Environment.")] = "Breakout"
    seed: Annotated[int, Option(help="Seed of all random numbers.")] = 1
    transitions: Annotated[int, Option(min=1, help="Transitions to add.")] = 3072
    add_size: Annotated[int, Option(min=1, help="Transitions that are added at a time.")] = 32
    batches: Annotated[int, Option(min=1, help="Batches to sample, evenly between the adds.")] = 24
    batch_size: Annotated[int, Option(min=1, help="Transitions in a batch.")] = 32
    n_step: Annotated[int, Option(min=1, help="Steps of a transition.")] = 3
    gamma: Annotated[float, Option(min=0, max=1, help="Discount factor.")] = 0.99
    learning_rate: Annotated[float, Option(help="Learning rate of Adam.")] = 1e-4
    max_grad_norm: Annotated[float, Option(help="Gradients are clipped to this norm.")] = 10.0
    tau: Annotated[float, Option(help="Rate at which the target network follows the online network.")] = 0.01
    alpha: Annotated[float, Option(help="A priority is the absolute TD error to this power.")] = 0.6
    beta: Annotated[float, Option(help="Exponent of the importance weights.")] = 0.4
    epsilon: Annotated[float, Option(min=0, max=1, help="Exploration rate.")] = 0.25

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.transitions % self.add_size:
            raise ValueError(
                f"Options transitions must be a multiple of add_size, {self.add_size}, not {self.transitions!r}"
            )
        if self.batches > self.adds:
            raise ValueError(f"Options batches must be at most {self.adds}, the number of adds, not {self.batches!r}")

    @property
    def adds(self) -> int:
        """How often transitions are added."""
        return self.transitions // self.add_size


@dataclass(frozen=True, kw_only=True)
class AtariProgress:
    """Counts so far.

    Parameters
    ----------
    added, frames, episodes : int
        Transitions added, frames of the game, and episodes.
    score : float
        Score of all episodes.
    sampled, overwritten : int
        Rows sampled, and those among them whose data was overwritten before delivery. The others were compared.
    loss : float
        The last loss.
    bytes_sent : int
        Bytes sent for the transitions.
    """

    added: int
    frames: int
    episodes: int
    score: float
    sampled: int
    overwritten: int
    loss: float
    bytes_sent: int

    @property
    def bytes_per_transition(self) -> float:
        """Bytes sent for each transition."""
        return self.bytes_sent / self.added


def digests(data: Mapping[str, npt.NDArray[Any]]) -> list[bytes]:
    """Return a digest of each row, which covers all fields."""
    rows = len(data["action"])
    return [
        hashlib.blake2b(b"".join(data[name][row].tobytes() for name in FIELDS), digest_size=16).digest()
        for row in range(rows)
    ]


def action_count(env: gymnasium.Env[Any, int]) -> int:
    """Return the number of a game's actions. Raises TypeError if they are not numbered."""
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        raise TypeError(f"environment actions must be a Discrete space, not {env.action_space!r}")
    return int(env.action_space.n)


class Actor:
    """Plays one game with a network that the learner trains."""

    def __init__(self, options: Options, env: gymnasium.Env[Any, int], network: torch.nn.Module) -> None:
        self.options, self.env, self.network = options, env, network
        self._actions = action_count(env)
        self._random = np.random.default_rng(options.seed)
        self._builder = NStep(options.n_step, options.gamma)
        self._obs, _ = env.reset(seed=options.seed)
        self._completed: deque[Transition] = deque()
        self.episodes, self.score = 0, 0.0

    @torch.no_grad()
    def _q_values(self, obs: npt.NDArray[np.uint8]) -> Vector:
        return np.asarray(self.network(torch.from_numpy(obs)).numpy())

    def transitions(self, count: int) -> tuple[dict[str, npt.NDArray[Any]], Vector]:
        """Return new transitions, and their priorities by the present network."""
        while len(self._completed) < count:
            if self._random.random() < self.options.epsilon:
                action = int(self._random.integers(self._actions))
            else:
                action = int(self._q_values(self._obs[None]).argmax())
            next_obs, reward, terminated, truncated, _ = self.env.step(action)
            self._completed += self._builder.step(
                self._obs, action, float(np.sign(reward)), next_obs, terminated=terminated, truncated=truncated
            )
            self.score += float(reward)
            self._obs = next_obs
            if terminated or truncated:
                self.episodes += 1
                self._obs, _ = self.env.reset()
        batch = columns([self._completed.popleft() for _ in range(count)])
        deltas = actor_deltas(batch, self._q_values(batch["obs"]), self._q_values(batch["next_obs"]))
        return batch, priorities_of(deltas, self.options.alpha)


def train(
    actor_replay: ReplayClient,
    learner_replay: ReplayClient,
    options: Options,
    report: Callable[[AtariProgress, dict[str, npt.NDArray[Any]] | None], Any] = lambda progress, batch: None,
) -> AtariProgress:
    """Add transitions to the table, and learn from samples.

    Parameters
    ----------
    actor_replay, learner_replay : ReplayClient
        The client that adds, and the client that samples.
    options : Options
        The game and the hyperparameters.
    report : Callable
        Is called after each add, with the sampled batch if there was one.

    Raises
    ------
    RuntimeError
        If a sampled transition differs from the one that was added.
    """
    env = make_atari(options.game)
    online, target = (frame_network(STACK, action_count(env), options.seed) for _ in range(2))
    actor = Actor(options, env, online)
    agent = DoubleDQN(
        online, target, learning_rate=options.learning_rate, max_grad_norm=options.max_grad_norm, tau=options.tau
    )
    added_digests: dict[int, bytes] = {}
    sampled, overwritten, loss = 0, 0, 0.0
    progress: AtariProgress | None = None
    for number in range(1, options.adds + 1):
        data, priorities = actor.transitions(options.add_size)
        added = actor_replay.extend(data, priorities)
        added_digests.update(zip(added.items.tolist(), digests(data)))
        batch = None
        if number * options.batches // options.adds > (number - 1) * options.batches // options.adds:
            batch = learner_replay.sample(options.batch_size, beta=options.beta, seed=options.seed << 32 | number)
            for item, digest, missing in zip(batch.items.tolist(), digests(batch.data), batch.overwritten):
                if not missing and digest != added_digests[item]:
                    raise RuntimeError(f"item {item} was sampled with other bytes than those that were added")
            deltas, loss = agent.step(batch.data, batch.weights)
            learner_replay.update_priority(batch.items, priorities_of(deltas, options.alpha))
            sampled, overwritten = sampled + len(batch.items), overwritten + int(batch.overwritten.sum())
        progress = AtariProgress(
            added=number * options.add_size,
            frames=env.get_wrapper_attr("frames"),
            episodes=actor.episodes,
            score=actor.score,
            sampled=sampled,
            overwritten=overwritten,
            loss=loss,
            bytes_sent=actor_replay.statistics().bytes_sent,
        )
        report(progress, dict(batch.data) if batch else None)
    assert progress
    return progress


def launch(
    options: Options,
    addresses: Sequence[str],
    out: Path,
    *,
    check: Callable[[], None] = lambda: None,
    console: Console | None = None,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train with a client at addresses[0] that adds and a client at the last address that samples.

    Parameters
    ----------
    options : Options
        The game and the hyperparameters.
    addresses : Sequence[str]
        Ports of the switch.
    out : Path
        Folder of `summary.json` and `frames.png`.
    check : Callable[[], None]
        Is called after each add. If it raises an exception, the training ends.
    console : Console, optional
        Shows progress and results.
    notes : dict, optional
        Further items of the summary.

    Returns
    -------
    dict
        The summary.

    Raises
    ------
    LaunchError
        If a sampled transition differs from the one that was added.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    curve: list[AtariProgress] = []
    last_batch: dict[str, Any] = {}
    threads, begin = torch.get_num_threads(), time.perf_counter()
    torch.set_num_threads(1)  # the emulated switch uses the other core
    bar_columns = (
        TextColumn("{task.completed:,}/{task.total:,} transitions"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    try:
        with (
            ReplayClient(addresses[0], FIELDS, timeout_s=_TIMEOUT_S) as actor,
            ReplayClient(addresses[-1], FIELDS, timeout_s=_TIMEOUT_S) as learner,
            Progress(*bar_columns, console=console) as bar,
        ):
            task = bar.add_task("the first transitions ...", total=options.transitions)

            def report(progress: AtariProgress, batch: dict[str, Any] | None) -> None:
                check()
                curve.append(progress)
                last_batch.update(batch or {})
                bar.update(
                    task,
                    completed=progress.added,
                    description=f"{progress.bytes_per_transition:,.0f} bytes each, "
                    f"{progress.sampled - progress.overwritten:,} sampled as they were added",
                )

            last = train(actor, learner, options, report)
            table = actor.statistics()
    except RuntimeError as error:
        raise LaunchError(str(error)) from None
    finally:
        torch.set_num_threads(threads)
    summary = {
        "transitions": last.added,
        "frames": last.frames,
        "episodes": last.episodes,
        "score": last.score,
        "bytes_sent": last.bytes_sent,
        "bytes_per_transition": last.bytes_per_transition,
        "naive_bytes_per_transition": NAIVE_BYTES,
        "reduction_factor": NAIVE_BYTES / last.bytes_per_transition,
        "frames_written": table.frames_written,
        "frames_shared": table.frames_shared,
        "rows_compared": last.sampled - last.overwritten,
        "rows_overwritten": last.overwritten,
        "wall_s": round(time.perf_counter() - begin, 2),
        "switch": list(addresses),
        "options": asdict(options),
        **(notes or {}),
        "curve": [asdict(point) for point in curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(curve, last_batch, summary, out / "frames.png")
    for label, text in (
        (
            "played",
            f"{last.frames:,} frames of {options.game}, {last.episodes} episodes: {last.added:,} transitions over "
            f"{options.n_step} steps each",
        ),
        (
            "sent",
            f"{last.bytes_per_transition:,.0f} bytes a transition, {summary['reduction_factor']:.1f} times fewer than "
            f"the {NAIVE_BYTES:,} of two float32 stacks: {table.frames_written:,} frames written, "
            f"{table.frames_shared:,} references to a frame that was there",
        ),
        (
            "sampled",
            f"{summary['rows_compared']:,} transitions, each byte as it was added; {last.overwritten} were overwritten "
            "meanwhile",
        ),
        ("time", f"{summary['wall_s']:.1f} s"),
        ("files", f"{out}/summary.json, {out}/frames.png"),
    ):
        console.print(Text(f"{label:>8}  {text}"), soft_wrap=True)
    return summary


def draw(curve: Sequence[AtariProgress], batch: dict[str, Any], summary: dict[str, Any], path: Path) -> None:
    """Draw a sampled transition, and bytes over transitions, into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(7, 5.2), layout="constrained")
    grid = figure.add_gridspec(3, STACK, height_ratios=(1, 1, 1.6))
    n_step = summary["options"]["n_step"]
    for row, (name, title) in enumerate([("obs", "observation"), ("next_obs", f"{n_step} steps later")]):
        for column, frame in enumerate(batch[name][0]):
            axes = figure.add_subplot(grid[row, column])
            axes.imshow(frame, cmap="gray", vmin=0, vmax=255)
            axes.set_axis_off()
            if column == 0:
                axes.set_title(f"{title}, as sampled", loc="left", fontsize=9)
    axes = figure.add_subplot(grid[2, :])
    added = np.array([point.added for point in curve])
    naive = f"two float32 stacks each: {NAIVE_BYTES:,} bytes"
    axes.plot(added, added * NAIVE_BYTES, color="tab:gray", linestyle="--", label=naive)
    sent = f"sent: {summary['bytes_per_transition']:,.0f} bytes each"
    axes.plot(added, [point.bytes_sent for point in curve], label=sent)
    axes.set(xlabel="transitions", ylabel="bytes", yscale="log", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(options: Options, switch: Switch = "127.0.0.1:27000-27001", out: Folder = Path("build/demo-atari")) -> None:
    """Store the frames of an Atari game in the switch's replay, each once, and sample stacks of them."""
    launch(options, parse_addresses(switch), out)


app = application(main)

if __name__ == "__main__":
    app()

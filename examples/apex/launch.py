"""Runs the actors and the learner of a training on this machine, and checks afterwards what the switch did."""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from examples.apex.actor import ActorProgress, act
from examples.apex.learner import LearnerProgress, learn
from examples.apex.options import Options, Start
from examples.apex.play import HELD_OUT, evaluate, sizes
from examples.apex.show import Display, draw, tell
from examples.apex.store import spec_of
from examples.common.command import exit_code, parse_addresses
from examples.common.processes import Done, LaunchError, ProcessGroup
from iswitch.replay import Field, ReplayClient, Statistics

__all__ = ["SOLVED", "launch", "main"]

SOLVED = 450.0
"""CartPole is solved if the last evaluation's episodes return as much on average."""
_TIMEOUT_S = 60.0
"""A switch that is silent. Long, for its processor may be busy with the others' work."""
_LEARNER = -1  # as a rank


def launch(
    options: Options,
    addresses: Sequence[str],
    out: Path,
    *,
    watch: Callable[[], None] = lambda: None,
    console: Console | None = None,
    notes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train with a process for each actor and one for the learner. The learner talks to addresses[0], a port of the
    switch, actor r to addresses[r + 1], beginning again when there are fewer. The table must be empty.

    watch: called several times a second; may raise, which ends the training. notes: go into the summary.
    Writes `summary.json` and `learning_curve.png` into `out`, and returns the summary. Raises LaunchError.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    before = _statistics(addresses[0], options)
    if before.size:
        raise LaunchError(f"{before.size:,} items are in the table already: start the switch anew")
    actors_curve: list[ActorProgress] = []
    learned, *actors = _run(options, addresses, console, Start(before.ticket, before.version), actors_curve, watch)
    after = _statistics(addresses[0], options)
    added, sent = (after.adds - before.adds) % 2**32, sum(actor.items for actor in actors)

    console.print(f"the network plays {options.evaluation_episodes} episodes that it has not seen ...")
    rewards = evaluate(learned.weights, options, HELD_OUT)
    last = learned.curve[-1]
    summary = {
        "mean_reward_eval": sum(rewards) / len(rewards),
        "rewards_eval": rewards,
        "solved": sum(rewards) / len(rewards) >= SOLVED,
        "learner_steps": last.step,
        "best_step": learned.best_step,
        "environment_steps": sum(actor.steps for actor in actors),
        "episodes": sum(actor.episodes for actor in actors),
        "items_added": added,
        "items_sent": sent,
        "adds_before": before.adds,
        "items_drawn": learned.drawn,
        "rows_gone": last.gone,
        "updates_stale": last.stale,
        "bytes_pushed": sum(actor.bytes_pushed for actor in actors),
        "wall_s": round(time.perf_counter() - begin, 2),
        "learn_s": round(learned.seconds, 2),
        "weights_sha256": learned.weights_sha256,
        "drawn_sha256": learned.drawn_sha256,
        "parameters": learned.weights.size,
        "versions": after.version - before.version,
        "fates": {name: count for name, was in before.fates.items() if (count := (after.fates[name] - was) % 2**32)},
        "actors": options.actors,
        "seed": options.seed,
        "switch": list(addresses),
        "options": asdict(options),
        **(notes or {}),
        "curve": [asdict(point) for point in learned.curve],
        "actors_curve": [asdict(point) for point in actors_curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(summary, out / "learning_curve.png")
    if added != sent:
        raise LaunchError(
            f"the switch says that {added:,} items were added, but {options.actors} actors sent {sent:,}. Does it serve others "
            "meanwhile?"
        )
    tell(summary, out, console)
    return summary


def _client(address: str, options: Options) -> ReplayClient:
    return ReplayClient(address, spec_of(Field(sizes(options)[0], np.float32)), timeout_s=_TIMEOUT_S)


def _statistics(address: str, options: Options) -> Statistics:
    with _client(address, options) as client:
        return client.statistics()


def _work(rank: int, address: str, options: Options, start: Start, send: Callable[[object], None]) -> None:
    """An actor's process, or the learner's."""
    with _client(address, options) as client:
        if rank == _LEARNER:
            send(Done(learn(client, options, start, send)))
        else:
            send(last := act(client, options, rank, start, send))
            send(Done(last))


def _run(
    options: Options,
    addresses: Sequence[str],
    console: Console,
    start: Start,
    actors_curve: list[ActorProgress],
    watch: Callable[[], None],
) -> list[Any]:
    """What the learner ends with, and the actors by rank. actors_curve: gets what actors report."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as torch's: of numpy in the processes
    with ProcessGroup("examples.apex.launch") as group:
        for rank in range(_LEARNER, options.actors):
            group.start(
                rank,
                "learner" if rank == _LEARNER else f"actor {rank}",
                _work,
                rank,
                addresses[(rank + 1) % len(addresses)],
                options,
                start,
            )
        with Display(options, console) as display:

            def heard(rank: int, message: ActorProgress | LearnerProgress) -> None:
                if isinstance(message, ActorProgress):
                    actors_curve.append(message)
                    display.actor(message)
                else:
                    display.learner(message)

            return group.run(watch, heard)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.apex", description="Ape-X DQN; replay by the switch")
    parser.add_argument(
        "--switch",
        default="127.0.0.1:27000-27003",
        metavar="HOST:PORT[-PORT][,...]",
        help="addresses of the switch: the learner's, then the actors', beginning again when there are fewer (%(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo-apex"), help="folder for summary and curves (%(default)s)"
    )
    for field in fields(Options):
        name = "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            parser.add_argument(name, type=type(field.default), default=field.default, help="(%(default)s)")
    given = vars(parser.parse_args(arguments))
    addresses, out = parse_addresses(given.pop("switch")), given.pop("out")
    return exit_code(lambda: launch(Options(**given), addresses, out))

"""Runs the actors and the learner of a training on this machine, and checks afterwards what the switch did."""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from iswitch import IswitchError
from iswitch.replay import Field, ReplayClient, Statistics
from iswitch.rl.apex.actor import ActorProgress, act
from iswitch.rl.apex.learner import Learned, LearnerProgress, learn
from iswitch.rl.apex.options import Options, Start
from iswitch.rl.apex.play import HELD_OUT, evaluate, sizes
from iswitch.rl.apex.show import Display, draw, tell
from iswitch.rl.apex.store import spec_of
from iswitch.rl.launch import LaunchError, addresses_of, end, exit_code

__all__ = ["SOLVED", "launch", "main"]

SOLVED = 450.0
"""CartPole is solved if the last evaluation's episodes return as much on average."""
_TIMEOUT_S = 60.0
"""A switch that is silent. Long, for its processor may be busy with the others' work."""
_LOOK_S = 0.2
_GRACE_S = 5.0
_LEARNER = -1  # as a rank


@dataclass(frozen=True)
class _Done:
    result: Learned | ActorProgress


@dataclass(frozen=True)
class _Failed:
    message: str


def launch(options: Options, addresses: Sequence[str], out: Path, *, watch: Callable[[], None] = lambda: None,
           console: Console | None = None, notes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train with a process for each actor and one for the learner. The learner talks to addresses[0], a port of the switch, actor r to
    addresses[r + 1], beginning again when there are fewer. The table must be empty.

    watch: called several times a second; may raise, which ends the training. notes: go into the summary.
    Writes `summary.json` and `learning_curve.png` into `out`, and returns the summary. Raises LaunchError.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    before = _statistics(addresses[0], options)
    if before.filled:
        raise LaunchError(f"{before.filled:,} items are in the table already: start the switch anew")
    crew = _Crew(options, addresses, console, Start(before.turn, before.version))
    learned, actors = crew.run(watch)
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
        "actors_curve": [asdict(point) for point in crew.actors_curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(summary, out / "learning_curve.png")
    if added != sent:
        raise LaunchError(f"the switch says that {added:,} items were added, but {options.actors} actors sent {sent:,}. Does it serve others "
                          "meanwhile?")
    tell(summary, out, console)
    return summary


def _client(address: str, options: Options) -> ReplayClient:
    return ReplayClient(address, spec_of(Field(sizes(options)[0], np.float32)), timeout_s=_TIMEOUT_S)


def _statistics(address: str, options: Options) -> Statistics:
    with _client(address, options) as client:
        return client.statistics()


def _work(rank: int, address: str, options: Options, start: Start, parent: Connection) -> None:
    """An actor's process, or the learner's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the launcher then ends the others
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)  # the processes share the cores; and one thread adds in one order
    try:
        with _client(address, options) as client:
            parent.send(_Done(learn(client, options, start, parent.send) if rank == _LEARNER else act(client, options, rank, start, parent.send)))
    except BrokenPipeError:
        sys.exit(1)  # the launcher is gone
    except (IswitchError, ValueError, TimeoutError) as error:
        parent.send(_Failed(str(error)))
    except Exception:
        parent.send(_Failed(traceback.format_exc()))


class _Crew:
    """The processes. Whatever happens, `run` leaves none behind. actors_curve: what actors have reported."""

    def __init__(self, options: Options, addresses: Sequence[str], console: Console, start: Start) -> None:
        self.options, self.addresses, self.console, self.start = options, addresses, console, start
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as torch's: of numpy in the processes
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["iswitch.rl.apex.launch"])  # torch is imported once
        self.processes: dict[int, BaseProcess] = {}
        self.connections: dict[int, Connection] = {}
        self.actors_curve: list[ActorProgress] = []

    def _begin(self, rank: int) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(
            target=_work, name="learner" if rank == _LEARNER else f"actor {rank}", daemon=True,
            args=(rank, self.addresses[(rank + 1) % len(self.addresses)], self.options, self.start, theirs))
        process.start()
        theirs.close()
        self.processes[rank], self.connections[rank] = process, ours

    def run(self, watch: Callable[[], None]) -> tuple[Learned, list[ActorProgress]]:
        """What the learner ends with, and the actors by rank."""
        done: dict[int, Any] = {}
        ranks = range(_LEARNER, self.options.actors)
        try:
            for rank in ranks:
                self._begin(rank)
            with Display(self.options, self.console) as display:
                while len(done) < len(ranks):
                    watch()
                    waiting = {connection: rank for rank, connection in self.connections.items() if rank not in done}
                    for ready in wait(list(waiting), _LOOK_S):
                        assert isinstance(ready, Connection)
                        self._hear(waiting[ready], ready, done, display, watch)
            for each in self.processes.values():  # they give up their places
                each.join(_GRACE_S)
            return done[_LEARNER], [done[rank] for rank in ranks if rank != _LEARNER]
        finally:
            end(self.processes.values())

    def _hear(self, rank: int, ready: Connection, done: dict[int, Any], display: Display, watch: Callable[[], None]) -> None:
        """A message of a process, or its death."""
        process = self.processes[rank]
        try:
            message = ready.recv()
        except (EOFError, ConnectionResetError):
            process.join(_GRACE_S)
            watch()  # if the switch has gone too, that is the better explanation
            raise LaunchError(f"{process.name} died (exit code {process.exitcode})") from None
        if isinstance(message, _Failed):
            watch()
            raise LaunchError(f"{process.name}: {message.message}")
        if isinstance(message, _Done):
            done[rank] = message = message.result
        if isinstance(message, ActorProgress):
            self.actors_curve.append(message)
            display.actor(message)
        elif isinstance(message, LearnerProgress):
            display.learner(message)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m iswitch.rl.apex", description="Ape-X DQN; replay by the switch")
    parser.add_argument("--switch", default="127.0.0.1:27000-27003", metavar="HOST:PORT[-PORT][,...]",
                        help="addresses of the switch: the learner's, then the actors', beginning again when there are fewer (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/demo-apex"), help="folder for summary and curves (%(default)s)")
    for field in fields(Options):
        name = "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            parser.add_argument(name, type=type(field.default), default=field.default, help="(%(default)s)")
    given = vars(parser.parse_args(arguments))
    addresses, out = addresses_of(given.pop("switch")), given.pop("out")
    return exit_code(lambda: launch(Options(**given), addresses, out))

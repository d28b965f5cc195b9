"""Runs all workers of a training on this machine, and checks afterwards what the switch did."""

import argparse
import json
import multiprocessing
import re
import secrets
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from iswitch import IswitchError, MissingWarning, Worker
from iswitch.control import Control
from iswitch.rl.player import evaluate
from iswitch.rl.ppo import Result, train
from iswitch.rl.show import Display, draw, tell
from iswitch.rl.training import Options
from iswitch.transport import UdpTransport

__all__ = ["LaunchError", "addresses_of", "end", "exit_code", "launch", "main", "stop_on_signals"]

_TIMEOUT_S = 60.0
"""A collective without progress. Long, for a worker's processor may be busy with the others' work."""
_LOOK_S = 0.2
_GRACE_S = 3.0
KILL_AT = 20
"""Updates before the worker that is to be killed is."""


class LaunchError(Exception):
    """The training could not be finished, or did not do what it should; the message says why."""


@dataclass(frozen=True)
class _Done:
    result: Result
    elements: int


@dataclass(frozen=True)
class _Failed:
    message: str


def addresses_of(text: str) -> list[str]:
    """["host:27000", "host:27001"] of "host:27000,host:27001" or of "host:27000-27001"."""
    found: list[str] = []
    for part in text.split(","):
        if ports := re.fullmatch(r"(.+):(\d+)-(\d+)", part):
            found += [f"{ports[1]}:{port}" for port in range(int(ports[2]), int(ports[3]) + 1)]
        else:
            found.append(part)
    return found


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """SIGTERM ends this process as Ctrl-C does: through every `finally`."""
    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def launch(options: Options, addresses: Sequence[str], out: Path, *, watch: Callable[[], None] = lambda: None,
           console: Console | None = None, notes: dict[str, Any] | None = None, restarts: int = 3,
           kill: int | None = None, leaves: Sequence[str] = ()) -> dict[str, Any]:
    """Train with a process for each worker; rank r talks to addresses[r modulo their number], a port of the switch.

    watch: called several times a second; may raise, which ends the training. notes: go into the summary. restarts: so many workers that are
    killed are started again, while the others go on. kill: the rank of a worker that is killed after `KILL_AT` updates. leaves: an address of
    each switch with workers in a tree of switches.
    Writes `summary.json` and `learning_curve.png` into `out`, and returns the summary. Raises LaunchError.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    asked = leaves or addresses[:1]
    before = _counters(asked)
    if kill is not None and not 0 <= kill < options.workers:
        raise ValueError(f"kill must be a rank, 0 to {options.workers - 1}, not {kill}")
    done = _Crew(options, addresses, console, restarts=restarts, kill=kill).run(watch)
    risen = {name: (count - before[name]) % 2**32 for name, count in _counters(asked).items()}

    console.print(f"the policy plays {options.evaluation_episodes} episodes that it has not seen ...")
    result, elements = done[0].result, done[0].elements
    rewards = evaluate(result.weights, options)
    # Every collective is cut into segments, and every worker contributes to every segment exactly once.
    expected = sum(each.result.segments for each in done)
    accepted = risen["ADDED"] - len(leaves) * result.segments  # a leaf adds each result that comes down, too
    stayed = not risen["EVICTED"] and not risen["ADMITTED"]
    summary = {
        "mean_reward_eval": sum(rewards) / len(rewards),
        "rewards_eval": rewards,
        "updates": result.curve[-1].update,
        "environment_steps": result.curve[-1].steps,
        "allreduces": result.allreduces,
        "parameters": result.weights.size,
        "segments_per_allreduce": -(-result.weights.size // elements),
        "segments": result.segments,
        "contributions_expected": expected if stayed else None,  # what a worker that was killed had contributed, nobody knows
        "contributions_accepted": accepted,
        "wall_s": round(time.perf_counter() - start, 2),
        "train_s": round(result.train_s, 2),
        "allreduce_s": round(result.allreduce_s, 2),
        "allreduce_ms": round(1e3 * result.allreduce_s / result.allreduces, 3),
        "weights_sha256": [each.result.weights_sha256 for each in done],
        "workers": options.workers,
        "seed": options.seed,
        "switch": list(addresses),
        "switch_counters": {name: count for name, count in risen.items() if count},
        "options": asdict(options),
        **(notes or {}),
        "curve": [asdict(point) for point in result.curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(result.curve, summary, out / "learning_curve.png")

    if len(set(summary["weights_sha256"])) != 1:
        raise LaunchError(f"the workers' weights differ, so they were not given the same sums: see {out}/summary.json")
    if stayed and summary["contributions_accepted"] != expected:
        raise LaunchError(f"the switch says that it added {summary['contributions_accepted']:,} contributions, but "
                          f"{options.workers} workers made {expected:,}. Does it serve another job meanwhile?")
    tell(summary, out, console)
    return summary


def _counters(addresses: Sequence[str]) -> dict[str, int]:
    """The sum over switches."""
    total: Counter[str] = Counter()
    for address in addresses:
        transport = UdpTransport(address)
        try:
            total.update(Control(transport, address=address).counters())
        finally:
            transport.close()
    return total


def _work(rank: int, address: str, key: int, options: Options, again: bool, parent: Connection) -> None:
    """A worker's process; `again`: the job runs already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the launcher then ends the others
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    warnings.simplefilter("ignore", MissingWarning)  # the display says who is missing
    torch.set_num_threads(1)  # the workers share the cores; and one thread adds in one order
    try:
        with Worker(address, rank=rank, world=options.workers, key=key, on_taint="raise",
                    timeout_s=_TIMEOUT_S, elastic=again) as worker:
            result = train(worker, rank, options, parent.send)
            parent.send(_Done(result, worker.elements))
    except BrokenPipeError:
        sys.exit(1)  # the launcher is gone
    except (IswitchError, ValueError) as error:
        parent.send(_Failed(str(error)))
    except Exception:
        parent.send(_Failed(traceback.format_exc()))


class _Crew:
    """The workers' processes. Whatever happens, `run` leaves none behind."""

    def __init__(self, options: Options, addresses: Sequence[str], console: Console, *, restarts: int, kill: int | None) -> None:
        self.options, self.addresses, self.console, self.restarts, self.kill = options, addresses, console, restarts, kill
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["iswitch.rl.launch"])  # torch is imported once
        self.key = secrets.randbits(63)
        self.processes: dict[int, BaseProcess] = {}
        self.connections: dict[int, Connection] = {}

    def start(self, rank: int, *, again: bool = False) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(
            target=_work, name=f"worker {rank}", daemon=True,
            args=(rank, self.addresses[rank % len(self.addresses)], self.key, self.options, again, theirs))
        process.start()
        theirs.close()
        self.processes[rank], self.connections[rank] = process, ours

    def run(self, watch: Callable[[], None]) -> list[_Done]:
        """What the workers end with, by rank."""
        done: dict[int, _Done] = {}
        try:
            for rank in range(self.options.workers):
                self.start(rank)
            with Display(self.options, self.console) as display:
                while len(done) < self.options.workers:
                    watch()
                    ranks = {connection: rank for rank, connection in self.connections.items() if rank not in done}
                    for ready in wait(list(ranks), _LOOK_S):
                        assert isinstance(ready, Connection)
                        self.hear(ranks[ready], ready, done, display, watch)
            for each in self.processes.values():  # they sign off from the job
                each.join(_GRACE_S)
            return [done[rank] for rank in range(self.options.workers)]
        finally:
            end(self.processes.values())

    def hear(self, rank: int, ready: Connection, done: dict[int, _Done], display: Display, watch: Callable[[], None]) -> None:
        """A message of a worker, or its death."""
        try:
            message = ready.recv()
        except (EOFError, ConnectionResetError):
            self.bury(rank, watch)
            return
        if isinstance(message, _Failed):
            watch()
            raise LaunchError(f"worker {rank}: {message.message}")
        if isinstance(message, _Done):
            done[rank] = message
        elif rank == (1 if self.kill == 0 and self.options.workers > 1 else 0):
            display.show(message)
            if self.kill is not None and message.update >= KILL_AT:
                self.processes[self.kill].kill()
                self.kill = None

    def bury(self, rank: int, watch: Callable[[], None]) -> None:
        self.processes[rank].join(_GRACE_S)
        code = self.processes[rank].exitcode
        watch()  # if the switch has gone too, that is the better explanation
        if not self.restarts or self.options.workers == 1:
            raise LaunchError(f"worker {rank} died (exit code {code}), and no restart is left")
        self.restarts -= 1
        self.console.print(f"worker {rank} died (exit code {code}); it is started again, and the others go on", highlight=False)
        self.connections[rank].close()
        self.start(rank, again=True)


def end(processes: Iterable[BaseProcess]) -> None:
    """Of processes that may still run: they are asked to, and if they do not, killed."""
    processes = list(processes)
    for each in processes:
        each.terminate()
    deadline = time.monotonic() + _GRACE_S
    for each in processes:
        each.join(max(0.0, deadline - time.monotonic()))
        if each.is_alive():
            each.kill()
            each.join()


def exit_code(run: Callable[[], object]) -> int:
    """That of a program which does this; what goes wrong is one sentence."""
    try:
        with stop_on_signals():
            run()
    except (LaunchError, IswitchError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m iswitch.rl.ppo", description="PPO; gradients summed by the switch")
    parser.add_argument("--switch", default="127.0.0.1:27000-27003", metavar="HOST:PORT[-PORT][,...]",
                        help="addresses of the switch; rank r uses the r-th, beginning again when there are fewer")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for summary and learning curve")
    for field in fields(Options):
        parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=field.default,
                            help="(%(default)s)")
    parser.add_argument("--kill", type=int, metavar="RANK", help=f"kill this worker after {KILL_AT} updates, to see the others go on")
    given = vars(parser.parse_args(arguments))
    addresses, out, kill = addresses_of(given.pop("switch")), given.pop("out"), given.pop("kill")
    return exit_code(lambda: launch(Options(**given), addresses, out, kill=kill))

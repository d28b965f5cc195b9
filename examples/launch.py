"""Runs all workers of a training on this machine, checks what the switch did, and keeps the weights."""

import argparse
import json
import re
import secrets
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.crew import Crew, Done, LaunchError
from examples.policy import Policy
from examples.ppo import Result, train
from examples.rollout import evaluate
from examples.show import Display, draw, tell
from examples.training import Options, Progress
from iswitch import IswitchError, MissingWarning, Worker
from iswitch.control.client import Control
from iswitch.driver.transport import UdpTransport

__all__ = ["LaunchError", "addresses_of", "exit_code", "launch", "main", "stop_on_signals"]

_TIMEOUT_S = 60.0
"""Seconds without progress before a collective fails. Long, for the workers share the processors."""
KILL_AT = 10
"""Updates before the launcher kills the worker that it is to kill."""


@dataclass(frozen=True)
class _Outcome:
    result: Result
    elements: int


def addresses_of(text: str) -> list[str]:
    """Return ["host:27000", "host:27001"] for "host:27000,host:27001" and for "host:27000-27001"."""
    found: list[str] = []
    for part in text.split(","):
        if ports := re.fullmatch(r"(.+):(\d+)-(\d+)", part):
            found += [f"{ports[1]}:{port}" for port in range(int(ports[2]), int(ports[3]) + 1)]
        else:
            found.append(part)
    return found


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does: through every `finally`."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def launch(
    options: Options,
    addresses: Sequence[str],
    out: Path,
    *,
    watch: Callable[[], None] = lambda: None,
    console: Console | None = None,
    notes: dict[str, Any] | None = None,
    restarts: int = 3,
    kill: int | None = None,
    leaves: Sequence[str] = (),
) -> dict[str, Any]:
    """Train with a process for each worker; rank r talks to addresses[r modulo their number], a port of the switch.

    Writes `policy.npz`, `summary.json` and `learning_curve.png` into `out`.

    Parameters
    ----------
    options : Options
        Environment and hyperparameters.
    addresses : Sequence[str]
        Ports of the switch.
    out : Path
        Folder of the files.
    watch : Callable[[], None]
        Is called several times a second. An exception of its ends the training.
    console : Console, optional
        Shows progress and results.
    notes : dict, optional
        Further items of the summary.
    restarts : int
        Workers that are started again when they have died, while the others go on.
    kill : int, optional
        Rank of a worker that is killed after `KILL_AT` updates.
    leaves : Sequence[str]
        In a tree of switches, an address of each switch that has workers.

    Returns
    -------
    dict
        The summary. "solved" is True if the evaluation's mean return reaches `options.solved_return`.

    Raises
    ------
    LaunchError
        If the training could not be finished, or the switch did not give all workers the same sums.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    asked = leaves or addresses[:1]
    before = _counters(asked)
    if kill is not None and not 0 <= kill < options.workers:
        raise ValueError(f"kill must be a rank, 0 to {options.workers - 1}, not {kill}")
    done = _Workers(options, addresses, console, restarts=restarts, kill=kill).run(watch)
    risen = {name: (count - before[name]) % 2**32 for name, count in _counters(asked).items()}

    console.print(f"evaluating the policy on {options.evaluation_episodes} unseen episodes ...")
    result, elements = done[0].result, done[0].elements
    rewards = evaluate(result.weights, options)
    mean_return = sum(rewards) / len(rewards)
    # Every collective is cut into segments, and every worker contributes to every segment exactly once.
    expected = sum(each.result.segments for each in done)
    accepted = risen["ADDED"] - len(leaves) * result.segments  # a leaf adds each result that comes down, too
    stayed = not risen["EVICTED"] and not risen["ADMITTED"]
    summary = {
        "mean_reward_eval": mean_return,
        "solved": mean_return >= options.solved_return,
        "rewards_eval": rewards,
        "updates": result.curve[-1].update,
        "environment_steps": result.curve[-1].steps,
        "allreduces": result.allreduces,
        "parameters": result.weights.size,
        "segments_per_allreduce": -(-result.weights.size // elements),
        "segments": result.segments,
        "contributions_expected": expected if stayed else None,  # the contributions of a killed worker are not known
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
        raise LaunchError(
            f"the switch says that it added {summary['contributions_accepted']:,} contributions, but "
            f"{options.workers} workers made {expected:,}. Does it serve another job meanwhile?"
        )
    Policy(
        weights=result.weights,
        environment=options.environment,
        hidden=options.hidden,
        seed=options.seed,
        mean_return=mean_return,
    ).save(out / "policy.npz")
    tell(summary, out, console)
    return summary


def _counters(addresses: Sequence[str]) -> dict[str, int]:
    """Return each counter's sum over the switches."""
    total: Counter[str] = Counter()
    for address in addresses:
        transport = UdpTransport(address)
        try:
            total.update(Control(transport, address=address).counters())
        finally:
            transport.close()
    return total


def _work(rank: int, address: str, key: int, options: Options, again: bool, send: Callable[[object], None]) -> None:
    """Train in a worker's process. again: the job runs already."""
    warnings.simplefilter("ignore", MissingWarning)  # the display names the missing ranks
    with Worker(
        address, rank=rank, world=options.workers, key=key, on_taint="raise", timeout_s=_TIMEOUT_S, elastic=again
    ) as worker:
        result = train(worker, rank, options, send)
        send(Done(_Outcome(result, worker.elements)))


class _Workers:
    """The workers' processes. One that dies is started again, `restarts` times in all."""

    def __init__(
        self, options: Options, addresses: Sequence[str], console: Console, *, restarts: int, kill: int | None
    ) -> None:
        self.options, self.addresses, self.console, self.restarts, self.kill = (
            options,
            addresses,
            console,
            restarts,
            kill,
        )
        self.key = secrets.randbits(63)
        self.crew, self.display = Crew("examples.launch"), Display(options, console)

    def start(self, rank: int, *, again: bool = False) -> None:
        self.crew.start(
            rank,
            f"worker {rank}",
            _work,
            rank,
            self.addresses[rank % len(self.addresses)],
            self.key,
            self.options,
            again,
        )

    def run(self, watch: Callable[[], None]) -> list[_Outcome]:
        """Return the workers' outcomes by rank."""
        with self.crew:
            for rank in range(self.options.workers):
                self.start(rank)
            with self.display:
                return self.crew.run(watch, self.heard, self.died)

    def heard(self, rank: int, now: Progress) -> None:
        if rank == (1 if self.kill == 0 and self.options.workers > 1 else 0):
            self.display.show(now)
            if self.kill is not None and now.update >= KILL_AT:
                self.crew.processes[self.kill].kill()
                self.kill = None

    def died(self, rank: int, code: int | None) -> None:
        if not self.restarts or self.options.workers == 1:
            raise LaunchError(f"worker {rank} died (exit code {code}), and no restart is left")
        self.restarts -= 1
        self.console.print(
            f"worker {rank} died (exit code {code}); it is started again, and the others go on", highlight=False
        )
        self.start(rank, again=True)


def exit_code(run: Callable[[], object]) -> int:
    """Return the exit code of a program that does this: 1 if `run` returns False, or with one sentence if it raises."""
    try:
        with stop_on_signals():
            return 1 if run() is False else 0
    except (LaunchError, IswitchError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.ppo", description="PPO; gradients summed by the switch")
    parser.add_argument(
        "--switch",
        default="127.0.0.1:27000-27003",
        metavar="HOST:PORT[-PORT][,...]",
        help="addresses of the switch; rank r uses the r-th, beginning again when there are fewer",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/demo"),
        help="folder of weights, summary and learning curve (%(default)s)",
    )
    for field in fields(Options):
        parser.add_argument(
            "--" + field.name.replace("_", "-"), type=type(field.default), default=field.default, help="(%(default)s)"
        )
    parser.add_argument(
        "--kill", type=int, metavar="RANK", help=f"kill this worker after {KILL_AT} updates, to see the others go on"
    )
    given = vars(parser.parse_args(arguments))
    addresses, out, kill = addresses_of(given.pop("switch")), given.pop("out"), given.pop("kill")
    return exit_code(lambda: launch(Options(**given), addresses, out, kill=kill)["solved"])

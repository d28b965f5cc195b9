"""Runs all workers of a PPO training on this machine, checks what the switch did, and saves the policy."""

import json
import secrets
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rich.console import Console

from examples.common.display import Display, draw_curve, print_results
from examples.common.policy import Policy
from examples.common.processes import Done, LaunchError, ProcessGroup
from examples.common.progress import CollectiveResult, Progress
from examples.common.replica import Vector
from iswitch import MissingWarning, Worker
from iswitch.control.client import Control
from iswitch.driver.udp import UdpTransport

__all__ = ["KILL_UPDATE", "Evaluate", "Options", "Train", "launch"]

_TIMEOUT_S = 60.0
"""Seconds without progress before a collective fails. Long, because the workers share the processors."""
KILL_UPDATE = 10
"""Updates before the launcher kills the worker given by --kill."""


class Options(Protocol):
    """Options of a training that can be launched: a dataclass with at least these fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def environment(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def updates(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def solved_return(self) -> float: ...
    @property
    def evaluation_episodes(self) -> int: ...


Train = Callable[[Worker, int, Any, Callable[[Progress], None]], CollectiveResult]
"""Trains as one worker: `train(worker, rank, options, report)`, picklable."""
Evaluate = Callable[[Vector, Any], list[float]]
"""Returns the returns of episodes: `evaluate(weights, options)`."""


@dataclass(frozen=True)
class _Outcome:
    """A worker's result, and the elements of its job's segments."""

    result: CollectiveResult
    elements: int


def launch(
    options: Options,
    addresses: Sequence[str],
    out: Path,
    *,
    train: Train,
    evaluate: Evaluate,
    check: Callable[[], None] = lambda: None,
    console: Console | None = None,
    notes: dict[str, Any] | None = None,
    restarts: int = 3,
    kill: int | None = None,
    leaves: Sequence[str] = (),
) -> dict[str, Any]:
    """Train with a process for each worker, and write `policy.npz`, `summary.json` and `learning_curve.png`.

    Parameters
    ----------
    options : Options
        Environment and hyperparameters.
    addresses : Sequence[str]
        Ports of the switch. Rank r uses addresses[r % len(addresses)].
    out : Path
        Folder of the files.
    train : Train
        Trains as one worker, in a process of its own.
    evaluate : Evaluate
        Evaluates the final weights.
    check : Callable[[], None]
        Is called several times a second. If it raises an exception, the training ends.
    console : Console, optional
        Shows progress and results.
    notes : dict, optional
        Further items of the summary.
    restarts : int
        How many dead workers are started again, while the others continue.
    kill : int, optional
        Rank of a worker that is killed after `KILL_UPDATE` updates.
    leaves : Sequence[str]
        In a tree of switches, an address of each switch that has workers.

    Returns
    -------
    dict
        The summary. "solved" is True if the evaluation's mean return is at least `options.solved_return`.

    Raises
    ------
    LaunchError
        If the training could not be finished, or the switch did not give all workers the same sums.
    ValueError
        If `kill` is not a rank.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    switches = leaves or addresses[:1]
    before = _counters(switches)
    if kill is not None and not 0 <= kill < options.workers:
        raise ValueError(f"kill must be a rank, 0 to {options.workers - 1}, not {kill}")
    processes = _Workers(options, addresses, train, console, restarts=restarts, kill=kill)
    outcomes = processes.run(check)
    counters = {name: (count - before[name]) % 2**32 for name, count in _counters(switches).items()}

    console.print(f"evaluating the policy on {options.evaluation_episodes} unseen episodes ...")
    result, elements = outcomes[0].result, outcomes[0].elements
    rewards = evaluate(result.weights, options)
    mean_return = sum(rewards) / len(rewards)
    # Every collective is cut into segments, and every worker contributes to every segment exactly once.
    expected = sum(outcome.result.segments for outcome in outcomes)
    accepted = counters["ADDED"] - len(leaves) * result.segments  # a leaf also adds each result that comes down
    same_members = not counters["EVICTED"] and not counters["ADMITTED"] and processes.restarts == restarts
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
        "contributions_expected": expected if same_members else None,  # those of a killed worker are not known
        "contributions_accepted": accepted,
        "wall_s": round(time.perf_counter() - start, 2),
        "train_s": round(result.train_s, 2),
        "allreduce_s": round(result.allreduce_s, 2),
        "allreduce_ms": round(1e3 * result.allreduce_s / result.allreduces, 3),
        "weights_sha256": [outcome.result.weights_sha256 for outcome in outcomes],
        "workers": options.workers,
        "seed": options.seed,
        "switch": list(addresses),
        "switch_counters": {name: count for name, count in counters.items() if count},
        "options": asdict(options),
        **(notes or {}),
        "curve": [asdict(point) for point in result.curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw_curve(result.curve, summary, out / "learning_curve.png")

    if len(set(summary["weights_sha256"])) != 1:
        raise LaunchError(f"the workers' weights differ, so they received different sums: see {out}/summary.json")
    if same_members and accepted != expected:
        raise LaunchError(
            f"the switch reports that it added {accepted:,} contributions, but {options.workers} workers made "
            f"{expected:,}. Does it serve another job meanwhile?"
        )
    Policy(
        weights=result.weights,
        environment=options.environment,
        hidden=options.hidden,
        seed=options.seed,
        mean_return=mean_return,
    ).save(out / "policy.npz")
    print_results(summary, out, console)
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


def _work(
    train: Train, rank: int, address: str, key: int, options: Options, restarted: bool, send: Callable[[object], None]
) -> None:
    """Train in a worker's process. A restarted worker joins a job that runs already."""
    warnings.simplefilter("ignore", MissingWarning)  # the display names the missing ranks
    with Worker(
        address, rank=rank, world=options.workers, key=key, on_taint="raise", timeout_s=_TIMEOUT_S, elastic=restarted
    ) as worker:
        result = train(worker, rank, options, send)
        send(Done(_Outcome(result, worker.elements)))


class _Workers:
    """The workers' processes. At most `restarts` workers that die are started again."""

    def __init__(
        self,
        options: Options,
        addresses: Sequence[str],
        train: Train,
        console: Console,
        *,
        restarts: int,
        kill: int | None,
    ) -> None:
        self.options, self.addresses, self.train, self.console = options, addresses, train, console
        self.restarts, self.kill = restarts, kill
        self.key = secrets.randbits(63)
        self.group, self.display = ProcessGroup(train.__module__), Display(console, options.updates)

    def start(self, rank: int, *, restarted: bool = False) -> None:
        """Start the process of a worker."""
        address = self.addresses[rank % len(self.addresses)]
        self.group.start(rank, f"worker {rank}", _work, self.train, rank, address, self.key, self.options, restarted)

    def run(self, check: Callable[[], None]) -> list[_Outcome]:
        """Return the workers' outcomes by rank."""
        with self.group:
            for rank in range(self.options.workers):
                self.start(rank)
            with self.display:
                return self.group.run(check, self.show, self.restart)

    def show(self, rank: int, now: Progress) -> None:
        """Show the report of one worker that is not to be killed, and kill the other worker when it is time."""
        if rank == (1 if self.kill == 0 and self.options.workers > 1 else 0):
            self.display.show(now)
            if self.kill is not None and now.update >= KILL_UPDATE:
                self.group.processes[self.kill].kill()
                self.kill = None

    def restart(self, rank: int, code: int | None) -> None:
        """Start a dead worker again, or raise LaunchError."""
        if not self.restarts or self.options.workers == 1:
            raise LaunchError(f"worker {rank} died (exit code {code}), and no restart is left")
        self.restarts -= 1
        self.console.print(
            f"worker {rank} died (exit code {code}); it is started again, and the others continue", highlight=False
        )
        self.start(rank, restarted=True)

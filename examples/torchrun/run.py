"""One worker's run of a training, from joining the job to the learning curve."""

import csv
import hashlib
import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import nn

import iswitch
import iswitch.metrics
from examples.common.display import Display, draw_curve
from examples.common.envs import make_envs, play
from examples.common.processes import LaunchError
from examples.common.progress import Progress
from examples.torchrun.learner import TALLY_SIZE, Learner
from examples.torchrun.options import RunOptions
from iswitch import AsyncWorker, Worker
from iswitch.environment import read_number

__all__ = ["Agent", "Connect", "Start", "connect", "gradient_bytes", "require_equal", "run", "weights_sha256"]

_EVALUATION_SEED = 2**31
"""First seed of the evaluation's environments. The seeds of the training's environments are smaller."""

_PARTS = ("environment", "compute", "aggregation")
"""Columns of `progress.csv`: the parts of a worker's time."""

_QUANTILES = ("p50", "p99")
"""Columns of `progress.csv`: quantiles of the latencies of AllReduces."""

Connect = Callable[[RunOptions, int], Worker | AsyncWorker]
"""Joins the job: `connect(options, size)`, with the elements of a vector."""


class Start(Protocol):
    """Joins the job with the networks and their optimizer, and goes on from the checkpoint if there is one."""

    def __call__(
        self, agent: nn.Module, optimizer: torch.optim.Optimizer, after_update: Callable[[], None] = ...
    ) -> Learner: ...


class Agent(Protocol):
    """A trained policy."""

    def greedy_actions(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


def connect(options: RunOptions, size: int) -> Worker | AsyncWorker:
    """Join the job that the environment names, as `iswitch.init` does."""
    if not options.asynchronous:
        return iswitch.init()
    world = read_number("WORLD_SIZE", None, parameter="world")
    return AsyncWorker(
        world=world,
        rank=read_number("RANK", None, parameter="rank"),
        job=read_number("ISWITCH_JOB", None, parameter="job", default=0),
        size=size,
        threshold=options.threshold or -(-world // 2),
        staleness=options.staleness,
    )


def gradient_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of the gradient of one worker: what the switch sums in each update."""
    return sum(4 * each.numel() for group in optimizer.param_groups for each in group["params"])


def weights_sha256(agent: nn.Module) -> str:
    """Return the SHA-256 of all parameters' bytes."""
    return hashlib.sha256(nn.utils.parameters_to_vector(agent.parameters()).detach().numpy().tobytes()).hexdigest()


def require_equal(worker: Worker | AsyncWorker, agent: nn.Module) -> None:
    """Compare this worker's weights with those of rank 0.

    An AsyncWorker compares the digests of its updates with those of the others while it trains.

    Raises
    ------
    LaunchError
        If the weights of any worker differ, at all workers.
    """
    if isinstance(worker, AsyncWorker):
        return
    own = np.frombuffer(bytes.fromhex(weights_sha256(agent)), np.uint8)
    differs = np.array([np.any(own != worker.broadcast(own.copy()))], np.float32)
    worker.allreduce(differs)
    if differs[0]:
        raise LaunchError(
            f"the weights of {differs[0]:.0f} workers differ from those of rank 0. Do all workers run on the same kind "
            "of processor, with the same options and the same version of torch?"
        )


class _Reporter:
    """Shows and logs the progress of rank 0, and nothing of the other ranks."""

    def __init__(
        self, worker: Worker | AsyncWorker, options: RunOptions, console: Console | None, out: Path, stack: ExitStack
    ) -> None:
        self.curve = list[Progress]()
        self._meter = iswitch.metrics.watch(worker)
        self._display: Display | None = None
        self._log: Any = None
        self._rows: Any = None
        if console is None:
            return
        self._display = stack.enter_context(Display(console, interval=options.report_interval))
        self._file = stack.enter_context((out / "progress.csv").open("w", encoding="utf-8", newline=""))
        self._rows = csv.writer(self._file, lineterminator="\n")
        latencies = (f"latency_{quantile}_ms" for quantile in _QUANTILES)
        parts = (f"{part}_s" for part in _PARTS)
        self._rows.writerow(["update", "steps", "mean_return", "seconds", *parts, *latencies])
        self._file.flush()
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            console.print("no TensorBoard files, because tensorboardx is not installed (`make setup`)", highlight=False)
        else:
            self._log = stack.enter_context(SummaryWriter(str(out / "tensorboard")))

    def __call__(self, now: Progress, learner: Learner) -> None:
        self.curve.append(now)
        if self._display:
            self._display.show(now)
        split, scalars = learner.times.split(), self._meter.scalars()
        if self._rows:
            parts = (round(split[part], 4) for part in _PARTS)
            latencies_s = (scalars.get(f"iswitch/latency_{quantile}_s") for quantile in _QUANTILES)
            latencies_ms = ("" if each is None else round(1e3 * each, 4) for each in latencies_s)
            self._rows.writerow([now.update, now.steps, now.mean_return, now.seconds, *parts, *latencies_ms])
            self._file.flush()  # `iswitch report` reads the file while the training runs
        if self._log:
            self._log.add_scalar("mean_return", now.mean_return, now.steps)
            self._log.add_scalar("updates", now.update, now.steps)
            for part, seconds in split.items():
                self._log.add_scalar(f"seconds/{part}", seconds, now.steps)
            for name, value in scalars.items():
                self._log.add_scalar(name, value, now.steps)


def run(
    options: RunOptions,
    train: Callable[[Any, Start], Agent],
    out: Path,
    resume: Path | None = None,
    *,
    connect: Connect = connect,
) -> bool:
    """Train as the worker that the environment names. Rank 0 evaluates, and writes the files.

    Parameters
    ----------
    options : RunOptions
        Environment and hyperparameters.
    train : Callable
        Trains: `train(options, start)` makes the networks, calls `start` once, and returns the trained agent.
    out : Path
        Folder of `progress.csv`, `summary.json`, `learning_curve.png`, `checkpoint.pt`, `final.pt` and `tensorboard/`.
    resume : Path, optional
        A checkpoint to go on from.
    connect : Callable
        Joins the job.

    Returns
    -------
    bool
        False if the mean return of the evaluation is below `solved_return`.

    Raises
    ------
    LaunchError
        If the weights of the workers differ at the end.
    """
    torch.set_num_threads(1)  # sums within torch in one order; the workers of a machine share its processors
    learners, reporters = list[Learner](), list[_Reporter]()
    console = Console()
    with ExitStack() as stack:

        def start(
            agent: nn.Module, optimizer: torch.optim.Optimizer, after_update: Callable[[], None] = lambda: None
        ) -> Learner:
            worker = connect(options, gradient_bytes(optimizer) // 4 + TALLY_SIZE)
            stack.enter_context(worker)
            first = worker.rank == 0
            if first:
                out.mkdir(parents=True, exist_ok=True)
            reporters.append(_Reporter(worker, options, console if first else None, out, stack))
            learner = Learner(
                worker,
                agent,
                optimizer,
                options,
                report=reporters[0],
                checkpoint=out / "checkpoint.pt" if first else None,
                after_update=after_update,
            )
            if resume:
                learner.load(resume)
            learners.append(learner)
            return learner

        agent = train(options, start)
        [learner], [reporter] = learners, reporters
        split, sha256 = learner.times.split(), weights_sha256(learner.agent)
        require_equal(learner.worker, learner.agent)
    if learner.worker.rank:
        return True
    learner.save(out / "final.pt")
    episodes = options.evaluation_episodes
    if episodes:
        console.print(f"evaluating the policy on {episodes} unseen episodes ...", highlight=False)
    rewards = play(make_envs(options.environment, episodes), agent.greedy_actions, _EVALUATION_SEED) if episodes else []
    mean_return = float(np.mean(rewards)) if rewards else math.nan
    summary = {
        "mean_reward_eval": mean_return,
        "rewards_eval": rewards,
        "solved": not mean_return < options.solved_return,
        "updates": learner.updates,
        "allreduces": learner.updates,
        "environment_steps": learner.steps,
        "gradient_bytes": gradient_bytes(learner.optimizer),
        "seconds": {part: round(seconds, 3) for part, seconds in split.items()},
        "weights_sha256": sha256,
        "workers": learner.worker.world,
        "options": asdict(options),
        "curve": [asdict(point) for point in reporter.curve],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    if reporter.curve:
        draw_curve(reporter.curve, summary, out / "learning_curve.png")
    print_results(summary, out, console)
    return bool(summary["solved"])


def print_results(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print the evaluation and the split of the time."""
    options, total = summary["options"], sum(summary["seconds"].values())
    verdict = "" if math.isnan(options["solved_return"]) else f": {'reached' if summary['solved'] else 'NOT REACHED'}"
    goal = f", the goal is {options['solved_return']:g}" if verdict else ""
    each_ms = 1e3 * summary["seconds"]["aggregation"] / max(1, summary["updates"])
    lines = {
        "training": f"{summary['environment_steps']:,} environment steps of {summary['workers']} workers",
        "weights": f"sha256 {summary['weights_sha256'][:16]}...",
        "switch": f"{summary['updates']:,} sums of gradients of {summary['gradient_bytes']:,} bytes, {each_ms:.2f} ms "
        "each, waiting for the slowest worker included",
        "time": f"{total:.1f} s: "
        + ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in summary["seconds"].items()),
        "files": f"{out}/summary.json, {out}/learning_curve.png, {out}/final.pt",
    }
    if rewards := summary["rewards_eval"]:
        text = f"mean return {summary['mean_reward_eval']:.1f} of {len(rewards)} unseen episodes{verdict}{goal}"
        lines = {"evaluation": text, **lines}
    for label, text in lines.items():
        console.print(f"{label:>10}  {text}", highlight=False, markup=False, soft_wrap=True)

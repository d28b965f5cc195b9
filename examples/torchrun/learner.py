"""The step that all four algorithms share: gradients go to the switch, their mean comes back, the optimizer moves.

Every worker applies the same means in the same order to equal weights, so the weights stay equal. The steps and returns
of the workers' environments travel behind the gradient. So all workers know the same mean return, and stop at the same
update.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from examples.common.progress import EpisodeReturns, Progress
from examples.torchrun.options import RunOptions
from iswitch import AsyncWorker, Worker

__all__ = ["TALLY_SIZE", "Learner", "Times"]

TALLY_SIZE = 3
"""Elements behind the gradient: steps, episodes and the sum of their returns, each divided by `_TALLY_UNIT`."""
_TALLY_UNIT = 1024.0
"""Keeps returns of up to 16 million within the range of the switch's sums, and moves no bit of a float's mantissa."""


class Times:
    """The seconds that a worker has spent on each part of a training."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._parts = {"environment": 0.0, "aggregation": 0.0}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count the time of a `with` block for a part, "environment" or "aggregation"."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._parts[part] += time.perf_counter() - begin

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._begin

    def split(self) -> dict[str, float]:
        """Return the seconds by part. "compute" is the time that no other part has."""
        return {**self._parts, "compute": self.total - sum(self._parts.values())}


class Learner:
    """The weights of one worker, and how they change.

    Parameters
    ----------
    worker : Worker or AsyncWorker
        The worker, whose job has begun.
    agent : nn.Module
        All networks; equal at all workers.
    optimizer : torch.optim.Optimizer
        The optimizer of the weights that are learned.
    options : RunOptions
        Length of the training and of its phases.
    report : Callable
        Is called with a Progress and the learner each `report_interval` updates.
    checkpoint : Path, optional
        File for the checkpoints of this worker; default: it writes none.
    after_update : Callable
        Is called after each step of the optimizer, for a target network.

    Attributes
    ----------
    updates, steps : int
        Steps of the optimizer, and of all workers' environments; equal at all workers.
    episodes : EpisodeReturns
        Returns of the latest episodes of all workers.
    times : Times
        The time of this worker by part.
    seed : list of int
        Seeds the environments and random numbers of the present phase of this worker.
    """

    def __init__(
        self,
        worker: Worker | AsyncWorker,
        agent: nn.Module,
        optimizer: torch.optim.Optimizer,
        options: RunOptions,
        *,
        report: Callable[[Progress, "Learner"], Any] = lambda progress, learner: None,
        checkpoint: Path | None = None,
        after_update: Callable[[], None] = lambda: None,
    ) -> None:
        self.worker, self.agent, self.optimizer, self.options = worker, agent, optimizer, options
        self._report, self._checkpoint, self._after_update = report, checkpoint, after_update
        self._groups = [group["params"] for group in optimizer.param_groups]
        self._parameters = [parameter for group in self._groups for parameter in group]
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._tally = torch.zeros(TALLY_SIZE)
        self._phase: int | None = None
        self.updates = self.steps = 0
        self.episodes = EpisodeReturns(solved_episodes=options.solved_episodes, solved_return=options.stop_return)
        self.times = Times()

    # The training's loop

    def finished(self) -> bool:
        """Return True if all steps are taken or the environment is solved."""
        return self.steps >= self.options.total_steps or self.episodes.solved

    def begins_phase(self) -> bool:
        """Return True if a phase begins here: at the start, and each `checkpoint_interval` updates.

        The caller then begins new episodes and seeds its random numbers by `seed`. So nothing before the phase but the
        state in the checkpoint has an effect on the phase, and a training that goes on from the checkpoint takes the
        same steps.
        """
        phase = self.updates // self.options.checkpoint_interval
        if phase == self._phase:
            return False
        if self._phase is not None and self._checkpoint:
            self.save(self._checkpoint)
        self._phase = phase
        self.seed = [self.options.seed, self.worker.rank, phase]
        self._tally.zero_()
        return True

    def generator(self) -> torch.Generator:
        """Return a source of random numbers for this phase of this worker."""
        return torch.Generator().manual_seed(int(np.random.SeedSequence([*self.seed, 1]).generate_state(1)[0]))

    def observe(self, steps: int, returns: list[float]) -> None:
        """Count environment steps, and the returns of episodes that have ended."""
        self._tally += torch.tensor([steps, len(returns), sum(returns)]) / _TALLY_UNIT

    def step(self) -> None:
        """Let the switch average the gradients of all workers, and move the weights by the mean.

        In an asynchronous training, submit the gradient, and move the weights by all means that have come.
        """
        if isinstance(self.worker, AsyncWorker):
            self._step_asynchronously(self.worker)
            return
        gradients = [parameter.grad for parameter in self._parameters]
        with self.times("aggregation"):
            self.worker.allreduce([*gradients, self._tally], op="mean")
        self._apply(self._tally * self.worker.world)
        self._tally.zero_()

    def _step_asynchronously(self, worker: AsyncWorker) -> None:
        vector = torch.cat([*(parameter.grad.flatten() for parameter in self._parameters), self._tally])
        self._tally.zero_()
        with self.times("aggregation"):
            worker.push(vector.numpy())
            updates = worker.updates()
        for update in updates:
            mean = torch.from_numpy(update.mean()[:-TALLY_SIZE])
            for parameter, part in zip(self._parameters, mean.split([each.numel() for each in self._parameters])):
                parameter.grad.copy_(part.view_as(parameter))
            self._apply(torch.from_numpy(update.sum[-TALLY_SIZE:]))
            if self.finished():  # later updates are not for this training: all workers end with the same one
                return

    def _apply(self, tally: Tensor) -> None:
        """Move the weights by the gradients in place, and count the steps and returns of all workers."""
        remaining = max(0.0, 1 - self.steps / self.options.total_steps)
        for parameters, group, rate in zip(self._groups, self.optimizer.param_groups, self._rates):
            nn.utils.clip_grad_norm_(parameters, self.options.max_grad_norm)
            group["lr"] = rate * remaining if self.options.anneal else rate
        self.optimizer.step()
        self.updates += 1
        self._after_update()
        steps, episodes, returns = (tally * _TALLY_UNIT).tolist()
        self.steps += round(steps)
        self.episodes.add(returns, round(episodes))
        if self.updates % self.options.report_interval == 0 or self.finished():
            self._report(
                Progress(
                    update=self.updates,
                    steps=self.steps,
                    mean_return=self.episodes.mean_return,
                    missing=(),
                    allreduces=self.updates,
                    seconds=self.times.total,
                ),
                self,
            )

    # Checkpoints

    def save(self, path: Path) -> None:
        """Write a checkpoint. If this is interrupted, an earlier file stays as it was."""
        part = path.with_name(path.name + ".part")
        torch.save(self.state(), part)
        os.replace(part, path)

    def state(self) -> dict[str, Any]:
        """Return all that a training needs to go on: weights, the optimizer's state, and counts."""
        return {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "steps": self.steps,
            "episodes": self.episodes.groups,
        }

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises
        ------
        ValueError
            If the file cannot be read, or is the checkpoint of other networks.
        """
        try:
            state = torch.load(path, weights_only=True)
            self.agent.load_state_dict(state["agent"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.updates, self.steps = state["updates"], state["steps"]
            self.episodes.groups[:] = state["episodes"]
        except Exception as error:
            raise ValueError(f"--resume: {path} is not a checkpoint of this training: {error}") from None

"""The learner: draws batches, takes steps, sets priorities anew, publishes parameters, and knows when it is enough."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from examples.apex.dqn import Improver, priorities_of
from examples.apex.dueling import for_vectors
from examples.apex.options import STOP, Options, Start, Vector
from examples.apex.play import TRIALS, evaluate, sizes
from examples.apex.schedule import Schedule
from examples.apex.store import Batch, Replay

__all__ = ["Learned", "LearnerProgress", "learn"]

_SLACK = 4
"""How many batches, or times that all actors add, draws may be ahead of the ratio, and behind it."""
_CONFIRMED = 3
"""So many times as many episodes must confirm a good evaluation, since few may be lucky."""


@dataclass(frozen=True, kw_only=True)
class LearnerProgress:
    """Where a learner is when it publishes. returns: of an evaluation's episodes, if there was one. loss: mean of the
    steps since the last one. adds, draws, filled, total: of the table. stale: priorities that came after their item was
    gone. gone: rows that came without data."""

    step: int
    version: int
    returns: tuple[float, ...]
    loss: float
    adds: int
    draws: int
    filled: int
    total: float
    gone: int
    stale: int
    seconds: float

    @property
    def mean_return(self) -> float | None:
        return sum(self.returns) / len(self.returns) if self.returns else None


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a learner ends with: the weights of its best evaluation. drawn: items, and drawn_sha256 of all of them in
    their order."""

    weights: Vector
    best_step: int
    curve: list[LearnerProgress]
    drawn: int
    drawn_sha256: str
    seconds: float

    @property
    def weights_sha256(self) -> str:
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


class _Table:
    """A learner's work with the table, in the order of a schedule if there is one; and what it counts."""

    def __init__(self, replay: Replay, options: Options, start: Start) -> None:
        self.replay, self.options, self.version = replay, options, start.version
        self.schedule = Schedule(options, start, replay.tickets(options.add_items)) if options.lockstep else None
        self.hash = hashlib.sha256()
        self.drawn = self.gone = self._stale = 0
        self._updates: list[Iterable[int]] = []

    def limit(self) -> None:
        """Binds draws to adds; in lockstep they are by the schedule."""
        if not self.schedule:
            options = self.options
            slack = _SLACK * max(options.batch, round(options.add_items * options.ratio) * options.actors)
            self.replay.set_limits(
                min_size=options.warmup, samples_per_insert=options.ratio, max_insert_lag=slack, max_insert_lead=slack
            )

    def batches(self) -> Iterator[Batch]:
        options = self.options
        if not self.schedule:
            yield from self.replay.prefetch(options.batch, depth=2, beta=options.beta)
        else:
            for step in range(options.steps):
                yield self.replay.sample(
                    options.batch,
                    beta=options.beta,
                    seed=options.seed << 32 | step + 1,
                    ticket=self.schedule.sample(step),
                )

    def update(self, step: int, batch: Batch, errors: Vector) -> None:
        """Priorities by a batch's TD errors; not waited for."""
        self.drawn += len(batch.items)
        self.hash.update(batch.items.tobytes())
        self.gone += int(batch.overwritten.sum())
        self._updates.append(
            self.replay.update_priority(
                batch.items,
                priorities_of(errors, self.options.exponent),
                ticket=self.schedule.update(step) if self.schedule else 0,
            )
        )

    def publish(self, parameters: Vector | bytes) -> None:
        self.version += 1
        self.replay.set_parameters(self.version, parameters)

    def stop(self) -> None:
        """Tells the actors that it is over."""
        self.publish(STOP)
        if not self.schedule:
            self.replay.set_limits()  # or what they have on its way would wait for draws that do not come

    def stale(self) -> int:
        """Waits for what is not answered yet."""
        self._stale += sum(late for _, late in self._updates)
        self._updates.clear()
        return self._stale


def _try(weights: Vector, options: Options, step: int) -> tuple[float, ...]:
    """Returns of an evaluation's episodes, and of those that confirm it."""
    first = TRIALS + step * options.evaluation_episodes * (1 + _CONFIRMED)
    returns = evaluate(weights, options, first)
    if sum(returns) / len(returns) >= options.good_return:
        for more in range(1, 1 + _CONFIRMED):
            returns += evaluate(weights, options, first + more * options.evaluation_episodes)
    return tuple(returns)


def learn(
    replay: Replay, options: Options, start: Start, report: Callable[[LearnerProgress], Any] = lambda _: None
) -> Learned:
    """Learns until an evaluation is good, or for as many steps as the options say."""
    begin = time.perf_counter()
    observed, actions = sizes(options)
    online, target = (for_vectors(observed, actions, options.hidden, options.seed) for _ in range(2))
    improver = Improver(online, target, options)
    table, curve, losses = _Table(replay, options, start), list[LearnerProgress](), list[float]()
    best: tuple[float, int, Vector] = (float("-inf"), 0, improver.replica.weights())
    table.limit()
    table.publish(improver.replica.weights())
    for step, batch in zip(range(1, options.steps + 1), table.batches()):
        errors, loss = improver.improve(batch.data, batch.weights)
        table.update(step - 1, batch, errors)
        losses.append(loss)
        if step % options.publish_every:
            continue
        weights = improver.replica.weights()
        returns = () if step % options.evaluate_every else _try(weights, options, step)
        seen = replay.statistics()
        curve.append(
            LearnerProgress(
                step=step,
                version=table.version,
                returns=returns,
                loss=sum(losses) / len(losses),
                adds=seen.adds,
                draws=seen.samples,
                filled=seen.size,
                total=seen.priority_sum,
                gone=table.gone,
                stale=table.stale(),
                seconds=time.perf_counter() - begin,
            )
        )
        report(curve[-1])
        losses.clear()
        if (mean := curve[-1].mean_return) is not None:
            best = max(best, (mean, step, weights), key=lambda found: found[0])
            if mean >= options.good_return:
                break
        if step < options.steps:
            table.publish(weights)
    table.stop()
    return Learned(
        weights=best[2],
        best_step=best[1],
        curve=curve,
        drawn=table.drawn,
        drawn_sha256=table.hash.hexdigest(),
        seconds=time.perf_counter() - begin,
    )

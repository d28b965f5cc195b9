"""The learner: draws batches, takes steps, sets priorities anew, publishes parameters, and knows when it is enough."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from iswitch.rl.apex.dqn import Improver, priorities_of
from iswitch.rl.apex.dueling import for_vectors
from iswitch.rl.apex.options import STOP, Options, Start, Vector
from iswitch.rl.apex.play import TRIALS, evaluate, sizes
from iswitch.rl.apex.schedule import Schedule
from iswitch.rl.apex.store import Batch, Replay

__all__ = ["Learned", "LearnerProgress", "learn"]

_SLACK = 4
"""Batches by which draws may be ahead of the ratio, and behind it."""

_CONFIRM = 3


@dataclass(frozen=True, kw_only=True)
class LearnerProgress:
    """After an evaluation. adds, draws, filled, total: of the table, so far; loss: mean since the last one; stale: updates that came too late, so far."""

    step: int
    version: int
    mean_return: float
    worst_return: float
    loss: float
    adds: int
    draws: int
    filled: int
    total: float
    gone: int
    stale: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a learner ends with: the weights of its best evaluation. drawn_sha256: of all items it drew, in their order."""

    weights: Vector
    best_step: int
    curve: list[LearnerProgress]
    drawn_sha256: str
    seconds: float

    @property
    def weights_sha256(self) -> str:
        return hashlib.sha256(self.weights.tobytes()).hexdigest()


def _try(weights: Vector, options: Options, step: int) -> list[float]:
    """Returns of an evaluation; if they are good, of several times as many episodes, since few may be lucky."""
    first = TRIALS + step * options.evaluation_episodes * (1 + _CONFIRM)
    returns = evaluate(weights, options, first)
    if sum(returns) / len(returns) >= options.good_return:
        for more in range(1, 1 + _CONFIRM):
            returns += evaluate(weights, options, first + more * options.evaluation_episodes)
    return returns


def learn(replay: Replay, options: Options, start: Start, report: Callable[[LearnerProgress], Any] = lambda _: None) -> Learned:
    begin = time.perf_counter()
    observed, actions = sizes(options)
    improver = Improver(*(for_vectors(observed, actions, options.hidden, options.seed) for _ in range(2)), options)
    schedule = Schedule(options, start) if options.lockstep else None
    version, drawn, curve = start.version, hashlib.sha256(), list[LearnerProgress]()
    best: tuple[float, int, Vector] = (float("-inf"), 0, improver.replica.weights())
    losses, gone, stale = list[float](), 0, 0

    def publish(parameters: Vector | bytes) -> None:
        nonlocal version
        version += 1
        replay.set_parameters(version, parameters)

    def batches() -> Iterator[Batch]:
        if not schedule:
            yield from replay.prefetch(options.batch, depth=2, beta=options.beta)
        else:
            for step in range(options.steps):
                yield replay.sample(options.batch, beta=options.beta, seed=options.seed << 32 | step + 1, turn=schedule.sample(step))

    if not schedule:
        slack = _SLACK * max(options.batch, round(options.add_items * options.ratio) * options.actors)
        replay.limit(size=options.warmup, ratio=options.ratio, behind=slack, ahead=slack)
    publish(improver.replica.weights())
    try:
        for step, batch in zip(range(options.steps), batches()):
            drawn.update(batch.items.tobytes())
            errors, loss = improver.improve(batch.data, batch.weights)
            _, late = replay.update_priority(batch.items, priorities_of(errors, options.exponent), turn=schedule.update(step) if schedule else 0)
            losses.append(loss)
            gone, stale = gone + int((batch.weights == 0).sum()), stale + late
            done = step + 1
            if done % options.publish_every:
                continue
            weights = improver.replica.weights()
            if done % options.evaluate_every == 0:
                returns = _try(weights, options, done)
                mean, table = sum(returns) / len(returns), replay.statistics()
                if mean >= best[0]:
                    best = (mean, done, weights)
                curve.append(LearnerProgress(
                    step=done, version=version, mean_return=mean, worst_return=min(returns), loss=sum(losses) / len(losses), adds=table.adds,
                    draws=table.draws, filled=table.filled, total=table.total, gone=gone, stale=stale, seconds=time.perf_counter() - begin))
                report(curve[-1])
                losses.clear()
                if mean >= options.good_return:
                    break
            publish(weights)
    finally:
        if not schedule:
            replay.limit()  # or actors would wait for draws that do not come
        publish(STOP)
    return Learned(weights=best[2], best_step=best[1], curve=curve, drawn_sha256=drawn.hexdigest(), seconds=time.perf_counter() - begin)

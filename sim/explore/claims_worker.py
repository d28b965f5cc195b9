"""The workers of `claims.py`: what each knows, what it may have sent by now, and what it makes of an
answer."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sim.explore.claims_switch import Claim, Contribution, Event, Scenario
from sim.explore.ring import Result, lowest_missing
from sim.explore.ring_switch import UNKNOWN, Receipt

__all__ = ["HABITS", "ClaimsWorkers", "Granted", "Habits", "Refused", "Vector", "Worker"]

UNANSWERED, REFUSED = -1, -2


class Vector(NamedTuple):
    """`version`: how many updates were in the weights it was computed with, forgotten when it matters no longer to the
    worker. `update`: which it was granted, if any."""

    version: int
    update: int = UNANSWERED


class Worker(NamedTuple):
    """`held`: bit mask of results. `vectors`: those claimed; the first has k = 1. `first`: the update at which it
    joined. `epoch`: how many resets it knows of."""

    held: int = 0
    vectors: tuple[Vector, ...] = ()
    first: int = 0
    epoch: int = 0

    @property
    def waits(self) -> bool:
        return bool(self.vectors) and self.vectors[-1].update == UNANSWERED


def takes_grant(worker: Worker, update: int) -> bool:
    """A GRANT that names the worker is for its claim if the update is newer than any it knows to be its own."""
    return worker.waits and update >= worker.first and all(update > vector.update for vector in worker.vectors)


def takes_refusal(worker: Worker, k: int) -> bool:
    return worker.waits and k == len(worker.vectors)


def may_claim(worker: Worker) -> bool:
    """One claim at a time: whoever claimed again before the answer could have been granted what it gave up."""
    return not worker.waits


def learn(worker: Worker, epoch: int) -> Worker:
    """The job was reset: it begins anew, with k = 1."""
    return Worker(epoch=epoch)


class Habits(NamedTuple):
    """The workers' rules, which the tests replace by plausible wrong ones. `tells`: what it holds, before it claims."""

    takes_grant: Callable[[Worker, int], bool] = takes_grant
    takes_refusal: Callable[[Worker, int], bool] = takes_refusal
    may_claim: Callable[[Worker], bool] = may_claim
    tells: bool = True
    learn: Callable[[Worker, int], Worker] = learn


HABITS = Habits()


class Granted(NamedTuple):
    worker: int
    update: int


class Refused(NamedTuple):
    worker: int
    k: int


class ClaimsWorkers:
    """A worker's rules in one scenario. Everything is asked of a worker's mind, a `Worker`."""

    def __init__(self, scenario: Scenario, habits: Habits) -> None:
        self.scenario, self.habits = scenario, habits
        self.total = scenario.updates * scenario.segments

    def applied(self, worker: Worker) -> int:
        return lowest_missing(worker.held) // self.scenario.segments

    def versions(self, worker: Worker) -> range:
        """Of the vectors that may be ready now. A vector older than one that was refused is not worth a claim."""
        applied = self.applied(worker)
        if not self.habits.may_claim(worker) or applied >= self.scenario.updates:
            return range(0)
        if not worker.vectors:
            return range(worker.first, applied + 1)
        last = worker.vectors[-1]
        if last.update == REFUSED:
            return range(last.version + 1, applied + 1)
        return range(min(last.version, applied) if self.scenario.pipelined else last.update + 1, applied + 1)

    def lies(self, worker: Worker) -> range:
        """Weights that its next vector may be claimed with although it does not have them."""
        return range(
            self.applied(worker) + 1, self.scenario.updates + 1 if self.scenario.lies and self.versions(worker) else 0
        )

    def contributions(self, worker: int, mind: Worker, lows: Iterable[int]) -> Iterator[Contribution]:
        """What a worker with these grants may have sent while it lacked one of `lows`."""
        for low in lows:
            for k, vector in enumerate(mind.vectors, 1):
                first = vector.update * self.scenario.segments
                for segment in range(max(low, first), min(low + self.scenario.window, first + self.scenario.segments)):
                    if vector.update >= 0:
                        yield Contribution(worker, segment, low, k)

    def receipts(self, worker: int, lows: Iterable[int]) -> Iterator[Receipt]:
        for low in lows:
            yield Receipt(worker, low, UNKNOWN)
            if low < self.total:
                yield Receipt(worker, low, low)

    def messages(self, worker: int, mind: Worker) -> Iterator[Event]:
        """All that this incarnation of a worker may have sent by now."""
        lows = range(mind.first * self.scenario.segments, lowest_missing(mind.held) + 1)
        for k, vector in enumerate(mind.vectors, 1):
            known = vector.version != UNKNOWN
            yield from (Claim(worker, k, v) for v in ((vector.version,) if known else range(self.applied(mind) + 1)))
        yield from self.contributions(worker, mind, lows)
        yield from self.receipts(worker, lows)

    def hear(self, mind: Worker, event: Event) -> Worker:
        """A message of the switch arrives."""
        if isinstance(event, Result):
            return mind._replace(held=mind.held | 1 << event.segment)
        if isinstance(event, Granted) and self.habits.takes_grant(mind, event.update):
            version = mind.vectors[-1].version if self.scenario.pipelined else UNKNOWN
            return mind._replace(vectors=(*mind.vectors[:-1], Vector(version, event.update)))
        if isinstance(event, Refused) and self.habits.takes_refusal(mind, event.k):
            return mind._replace(vectors=(*mind.vectors[:-1], mind.vectors[-1]._replace(update=REFUSED)))
        return mind

    def compute(self, mind: Worker, version: int) -> Worker:
        old = tuple(vector if vector.update < 0 else vector._replace(version=UNKNOWN) for vector in mind.vectors)
        return mind._replace(vectors=(*old, Vector(version)))

    def honest(self, mind: Worker) -> Worker:
        """Its waiting vector was computed with weights that it has."""
        return mind._replace(vectors=(*mind.vectors[:-1], Vector(min(mind.vectors[-1].version, self.applied(mind)))))

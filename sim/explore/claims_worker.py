"""The workers of `claims.py`: what each knows, what it may have sent by now, and what it does with an answer."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sim.explore.claims_scenario import Claim, ClaimsScenario, Granted, Refused, VectorContribution
from sim.explore.messages import UNKNOWN, Receipt, Result, lowest_missing, receipts
from sim.explore.search import Event

__all__ = ["CORRECT", "ClaimsWorkers", "Vector", "Worker", "WorkerRules"]

UNANSWERED, REFUSED = -1, -2


class Vector(NamedTuple):
    """A claimed vector.

    `version`: how many updates were in the weights that it was computed with, or UNKNOWN once that no longer matters to
    the worker. `update`: the update that it was granted, or UNANSWERED or REFUSED.
    """

    version: int
    update: int = UNANSWERED


class Worker(NamedTuple):
    """What a worker knows.

    `held`: the bit mask of results. `vectors`: those claimed; the first has k = 1. `first`: the update at which it
    joined. `epoch`: how many resets it knows of.
    """

    held: int = 0
    vectors: tuple[Vector, ...] = ()
    first: int = 0
    epoch: int = 0

    @property
    def waits(self) -> bool:
        """Whether a claim has not been answered yet."""
        return bool(self.vectors) and self.vectors[-1].update == UNANSWERED


def accepts_grant(worker: Worker, update: int) -> bool:
    """A GRANT that names the worker answers its claim if the update is newer than any it knows to be its own."""
    return worker.waits and update >= worker.first and all(update > vector.update for vector in worker.vectors)


def accepts_refusal(worker: Worker, k: int) -> bool:
    """A REFUSE answers the claim whose k it names."""
    return worker.waits and k == len(worker.vectors)


def may_claim(worker: Worker) -> bool:
    """A worker has one claim at a time: a second one could be sent when the first has been granted already."""
    return not worker.waits


def learn_epoch(worker: Worker, epoch: int) -> Worker:
    """The job was reset, so the worker starts over, with k = 1."""
    return Worker(epoch=epoch)


class WorkerRules(NamedTuple):
    """The workers' rules, which the tests replace by plausible wrong ones.

    `acknowledges`: a worker sends a receipt for what it holds before it claims.
    """

    accepts_grant: Callable[[Worker, int], bool] = accepts_grant
    accepts_refusal: Callable[[Worker, int], bool] = accepts_refusal
    may_claim: Callable[[Worker], bool] = may_claim
    acknowledges: bool = True
    learn_epoch: Callable[[Worker, int], Worker] = learn_epoch


CORRECT = WorkerRules()


class ClaimsWorkers:
    """The workers of one scenario, as functions of what a worker knows."""

    def __init__(self, scenario: ClaimsScenario, rules: WorkerRules) -> None:
        self.scenario, self.rules = scenario, rules
        self.total = scenario.updates * scenario.segments

    def applied(self, worker: Worker) -> int:
        """Return how many updates a worker has applied."""
        return lowest_missing(worker.held) // self.scenario.segments

    def versions(self, worker: Worker) -> range:
        """Return the versions of the vectors that may be ready now.

        After a refusal the worker computes with newer weights, for the same or older ones would be refused again.
        """
        applied = self.applied(worker)
        if not self.rules.may_claim(worker) or applied >= self.scenario.updates:
            return range(0)
        if not worker.vectors:
            return range(worker.first, applied + 1)
        last = worker.vectors[-1]
        if last.update == REFUSED:
            return range(last.version + 1, applied + 1)
        return range(min(last.version, applied) if self.scenario.pipelined else last.update + 1, applied + 1)

    def lies(self, worker: Worker) -> range:
        """Return the versions that a worker may claim its next vector with although it does not have them."""
        may_lie = self.scenario.lies and self.versions(worker)
        return range(self.applied(worker) + 1, self.scenario.updates + 1 if may_lie else 0)

    def contributions(self, index: int, worker: Worker, lows: Iterable[int]) -> Iterator[VectorContribution]:
        """Return what a worker with these grants may have sent while it lacked one of `lows`."""
        for low in lows:
            for k, vector in enumerate(worker.vectors, 1):
                first = vector.update * self.scenario.segments
                for segment in range(max(low, first), min(low + self.scenario.window, first + self.scenario.segments)):
                    if vector.update >= 0:
                        yield VectorContribution(index, segment, low, k)

    def receipts(self, index: int, low: int) -> Iterator[Receipt]:
        """Return the receipts of a worker that lacks `low`."""
        return receipts(index, low, self.total)

    def messages(self, index: int, worker: Worker) -> Iterator[Event]:
        """Return all that this incarnation of a worker may have sent by now."""
        lows = range(worker.first * self.scenario.segments, lowest_missing(worker.held) + 1)
        for k, vector in enumerate(worker.vectors, 1):
            versions = range(self.applied(worker) + 1) if vector.version == UNKNOWN else (vector.version,)
            yield from (Claim(index, k, version) for version in versions)
        yield from self.contributions(index, worker, lows)
        for low in lows:
            yield from self.receipts(index, low)

    def receive(self, worker: Worker, event: Result | Granted | Refused) -> Worker:
        """Return the worker after a message of the switch."""
        match event:
            case Result(_, segment):
                return worker._replace(held=worker.held | 1 << segment)
            case Granted(_, update) if self.rules.accepts_grant(worker, update):
                version = worker.vectors[-1].version if self.scenario.pipelined else UNKNOWN
                return worker._replace(vectors=(*worker.vectors[:-1], Vector(version, update)))
            case Refused(_, k) if self.rules.accepts_refusal(worker, k):
                return worker._replace(vectors=(*worker.vectors[:-1], worker.vectors[-1]._replace(update=REFUSED)))
        return worker

    def compute(self, worker: Worker, version: int) -> Worker:
        """Return the worker after it claimed a vector computed with the weights of `version`."""
        old = tuple(vector if vector.update < 0 else vector._replace(version=UNKNOWN) for vector in worker.vectors)
        return worker._replace(vectors=(*old, Vector(version)))

    def honest(self, worker: Worker) -> Worker:
        """Return the worker with a waiting vector that was computed with weights that it has."""
        version = min(worker.vectors[-1].version, self.applied(worker))
        return worker._replace(vectors=(*worker.vectors[:-1], Vector(version)))

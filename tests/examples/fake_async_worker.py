"""Stands in for `iswitch.AsyncWorker` and its switch: the same methods within one process, and a thread for each
worker.

Time is simulated: a worker's time passes while it sleeps, and the worker with the earliest time runs. The network takes
no time. So nothing depends on the scheduler.
"""

import threading
from functools import partial

import numpy as np

from iswitch.results import Reduction, Update
from iswitch.wire import RESULT_HEADER
from sim.bench.turns import in_turns

DEPTH = 2


class Switch:
    def __init__(self, workers, *, threshold, staleness):
        self.threshold, self.staleness = threshold, staleness
        self.turn = threading.Condition()
        self.workers = [Worker(self, rank) for rank in range(workers)]
        self.running = set(self.workers)
        self.updates = []
        self.ages = []

    def run(self, work):
        """Return work(worker, rank) for every rank, all run at once. Raise the first exception of any."""

        def body(worker):
            try:
                worker.sleep(0)
                return work(worker, worker.rank)
            finally:
                worker.queue.clear()
                self.running.discard(worker)
                self.grant(worker.now)

        return in_turns(self.turn, [partial(body, worker) for worker in self.workers])

    def grant(self, now):
        """Refuse vectors that are too old. Grant an update if enough workers have a vector waiting."""
        for worker in self.running:
            while worker.queue and len(self.updates) - worker.queue[0][0] > self.staleness:
                worker.queue.pop(0)
                worker.refused += 1
        ready = [worker for worker in self.workers if worker.queue]
        if ready and len(ready) >= min(self.threshold, len(self.running)):
            number = len(self.updates)
            parts = {worker.rank: worker.queue.pop(0) for worker in ready}
            self.ages += [number - version for version, _ in parts.values()]
            headers = np.zeros(1, RESULT_HEADER)
            headers["members"] = sum(1 << rank for rank in parts)
            total = np.sum([vector for _, vector in parts.values()], axis=0, dtype=np.float64).astype(np.float32)
            versions = {rank: version for rank, (version, _) in parts.items()}
            self.updates.append(Update(number, total, versions, Reduction(len(self.workers), total.size, 0, headers)))
            self.grant(now)
        for worker in self.running:
            if worker.blocked and len(worker.queue) < DEPTH:
                worker.blocked, worker.now = False, max(now, worker.now)


class Worker:
    def __init__(self, switch, rank):
        self.switch, self.rank = switch, rank
        self.now, self.blocked, self.queue = 0.0, False, []
        self.taken = self.refused = 0

    def sleep(self, seconds):
        self.now += seconds
        self.switch.turn.notify_all()
        while self.blocked or any(
            (other.now, other.rank) < (self.now, self.rank) for other in self.switch.running if not other.blocked
        ):
            self.switch.turn.wait()

    def updates(self):
        while self.taken < len(self.switch.updates):
            self.taken += 1
            yield self.switch.updates[self.taken - 1]

    def push(self, vector):
        while len(self.queue) >= DEPTH:
            self.blocked = True
            self.sleep(0)
        self.queue.append((self.taken, vector.copy()))
        self.switch.grant(self.now)
        self.sleep(0)

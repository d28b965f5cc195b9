"""Stands in for `iswitch.Worker` and its switch: the same methods within one process, and a thread for each worker.

Only one worker runs at a time, until it waits for the others. So nothing depends on the scheduler.
"""

import threading
from functools import partial

import numpy as np

from sim.bench.turns import in_turns


class Switch:
    def __init__(self, workers):
        self.workers = workers
        self.turn = threading.Condition()
        self.arrived = {}
        self.round = 0

    def run(self, work):
        """Return work(worker, rank) for every rank, all run at once. Raise the first exception of any."""
        return in_turns(self.turn, [partial(work, Worker(self, rank), rank) for rank in range(self.workers)])

    def collect(self, rank, array, combine):
        self.arrived[rank] = array
        if len(self.arrived) == self.workers:
            result = combine([self.arrived[k].copy() for k in range(self.workers)])
            for other in self.arrived.values():
                other[...] = result
            self.arrived = {}
            self.round += 1
            self.turn.notify_all()
        else:
            now = self.round
            while self.round == now:
                self.turn.wait()


class Reduction:
    missing = ()


class Worker:
    needs_sync = False

    def __init__(self, switch, rank):
        self.switch, self.rank, self.segments_completed = switch, rank, 0

    def allreduce(self, array, op="sum"):
        def combine(arrays):
            total = np.sum(arrays, axis=0, dtype=np.float64).astype(np.float32)
            return total / np.float32(len(arrays)) if op == "mean" else total

        self.switch.collect(self.rank, array, combine)
        self.segments_completed += 1
        return Reduction()

    def sync_state(self, state, step):
        for array in state:
            self.switch.collect(self.rank, array, lambda arrays: arrays[0])
        return step

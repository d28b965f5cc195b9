"""An asynchronous job of `sim.bench.soak`."""

from collections.abc import Iterator

from iswitch.wire import Reason, Type
from sim.bench.asynchronous import AsynchronousWorker, Ledger
from sim.bench.soak_job import Job, Worker, demand
from sim.frames.client import Reply

__all__ = ["AsynchronousJob"]


class AsynchronousJob(Job):
    """A job of updates. A `Ledger` checks that each granted vector is in its sum exactly once."""

    kind = "asynchronous"

    def restart(self) -> None:
        self.ledger = Ledger(self.settings["segments"], self.settings["staleness"])
        self.machines = {
            worker: AsynchronousWorker(worker.client, segments=self.settings["segments"]) for worker in self.workers
        }

    def enter(self, worker: Worker) -> None:
        demand(False, f"a worker joins job {self.number} while it runs, and no worker has left")

    def work(self, worker: Worker) -> Iterator[bytes]:
        machine, rng = self.machines[worker], self.random
        if rng.random() < 0.3:
            machine.compute()
        due = machine.due()
        yield from rng.sample(due, min(len(due), rng.randrange(4)))

    def handle(self, worker: Worker, reply: Reply, frame: bytes) -> None:
        if reply.type == Type.NOTICE:
            is_old = reply.reason == Reason.EPOCH and int(reply.header["epoch"]) == self.epoch
            demand(is_old, f"a member of job {self.number} gets the NOTICE {reply.reason.name}")
            return
        if int(reply.header["epoch"]) == self.epoch:
            self.machines[worker].take(frame)
            if self.random.random() < 0.02:
                self.check()

    def check(self) -> None:
        """Check the sums that all workers have."""
        machines = self.machines.values()
        for machine in machines:
            self.ledger.record(machine)
        low, before = min(machine.low for machine in machines), self.ledger.checked
        self.ledger.check_below(low)
        for machine in machines:
            machine.forget(low)
        self.complete += self.ledger.checked - before

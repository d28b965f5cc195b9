"""Jobs of `sim.bench.soak_network`: their switches restart, their frames get lost, and their workers may be below
several switches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from iswitch.wire import Action, MemberState, Reason, Type
from sim.bench.soak_asynchronous import AsynchronousJob
from sim.bench.soak_job import Job, Worker, demand
from sim.bench.soak_synchronous import SynchronousJob
from sim.bench.tree import address
from sim.frames.client import Client, Reply

__all__ = ["Asynchronous", "Place", "Recovering", "Synchronous", "TreeJob"]

Place = tuple[int, int]
"""A switch and one of its ports."""
EPOCHS = 1 << 16
ASKS_AGAIN = 0.2
"""The chance that all members ask whether they are, instead of those that do not know."""
AGAIN = (Reason.JOB, Reason.EPOCH)
"""What a NOTICE says to a member whose switch has restarted, or whose job has begun anew."""
UNKNOWN_MEMBER = (Reason.JOB, Reason.MEMBER, Reason.TOKEN)
"""With which a switch refuses a RESET of a worker that it does not know, because it has restarted."""


class Recovering(Job):
    """A job that joins anew when a switch has forgotten it. `switch`: where its members join."""

    def __init__(self, number: int, places: Sequence[Place], *, switch: int, **settings: Any) -> None:
        self.switch, self.places = switch, list(places)
        self.knows: Callable[[Worker], bool] = lambda worker: False
        """Returns True if the worker's switch has it as a member."""
        self.joining: set[Worker] = set()
        """Those that a running job is to admit at its next boundary."""
        super().__init__(number, [port for _, port in self.places], **settings)
        self.events |= {"restarted": 0}
        for client in (*self.clients, self.operator):
            client.switch_mac, client.switch_ip = address(switch)

    def takes_notice(self, worker: Worker, reply: Reply) -> bool:
        """Handle a NOTICE. Return False if the reply is another message."""
        if reply.type != Type.NOTICE:
            return False
        if reply.reason == Reason.JOB and self.knows(worker):  # it is late: the job has been formed anew
            return True
        demand(reply.reason in AGAIN, f"a member of job {self.number} gets the NOTICE {reply.reason.name}")
        ahead = (int(reply.header["epoch"]) - worker.client.epoch) % EPOCHS
        if reply.reason == Reason.JOB or 0 < ahead < EPOCHS // 2:  # else: an answer to a late frame, or a late answer
            self.renew()
        if reply.reason == Reason.JOB:  # it is no member any more, and joins with another nonce and token
            self.draw_secrets_of(worker)
        return True

    def handle_ack(self, worker: Worker, reply: Reply) -> None:
        """As other jobs do. A worker joins with another nonce, wherever there is room, if its place has another one, or
        if it was a member and its switch does not know it any more. With the old nonce, a leaf that has restarted would
        be to its parent the member that it was, and go on with empty slots in the epoch that it has forgotten."""
        assert reply.ack is not None
        resets = reply.ack["action"] == Action.RESET and self.control and self.control[0] is worker
        if resets and reply.reason in UNKNOWN_MEMBER and not self.knows(worker):  # as a NOTICE would say
            self.renew()
            self.draw_secrets_of(worker)
            return
        super().handle_ack(worker, reply)
        if self.phase == "rejoining":  # after a RESET, of which another restart may have left nothing
            self.phase = "renewing"
        if reply.ack["action"] != Action.JOIN:
            return
        has_been_forgotten = reply.reason == Reason.CHALLENGE and worker.client.is_member and not self.knows(worker)
        has_no_place = reply.reason == Reason.MEMBER and self.phase in ("forming", "renewing")
        if worker.is_out and (has_been_forgotten or has_no_place):
            self.draw_secrets_of(worker)
        if self.phase != "renewing":
            return
        joins = reply.reason == Reason.DONE and reply.ack["standing"] == MemberState.JOINING
        (self.joining.add if joins else self.joining.discard)(worker)
        members = [other for other in self.workers if not other.is_out]
        if members and len(members) + len(self.joining) == len(self.workers):  # who joins waits until these go on
            if {member.client.epoch for member in members} == {self.epoch}:
                self.phase = "running"

    def renew(self) -> None:
        """Let all workers join: the job may have begun anew, or a NOTICE was late."""
        self.phase, self.control = "renewing", None
        self.joining.clear()
        for worker in self.workers:
            worker.is_out, worker.leaves = True, b""

    def start(self) -> None:
        """Begin to work, or go on if nothing has happened. If workers know of different epochs, all join again."""
        epochs = {client.epoch for client in self.clients}
        if len(epochs) > 1:
            for worker in self.workers:
                worker.is_out = True
        elif self.phase == "renewing" and epochs == {self.epoch}:
            self.phase = "running"
        else:
            self.events["restarted"] += self.phase == "renewing"
            super().start()

    def frames(self) -> Iterator[tuple[Client, bytes]]:
        """Yield the frames of a round. Members that wait for others ask now and then whether they are members, and send
        receipts, by which a leaf learns that its parent has begun anew or has forgotten it."""
        waits = self.phase not in ("running", "ending")
        if waits and self.random.random() < ASKS_AGAIN:
            for worker in self.workers:
                worker.is_out = True
        yield from super().frames()
        for worker in self.workers:
            if waits and worker.client.is_member:
                yield worker.client, worker.client.receipt(worker.client.first_seq)


class Synchronous(Recovering, SynchronousJob):
    """A synchronous job at one switch. Its workers may be behind other switches, which then forward their frames."""

    def handle(self, worker: Worker, reply: Reply, frame: bytes) -> None:
        if not self.takes_notice(worker, reply):
            super().handle(worker, reply, frame)


class Asynchronous(Recovering, AsynchronousJob):
    """An asynchronous job at one switch."""

    def handle(self, worker: Worker, reply: Reply, frame: bytes) -> None:
        if not self.takes_notice(worker, reply):
            super().handle(worker, reply, frame)


class TreeJob(Synchronous):
    """A synchronous job of a tree, whose workers join at the switches where they are; worker 0 is at the root."""

    kind = "tree"

    def __init__(self, number: int, places: Sequence[Place], **settings: Any) -> None:
        super().__init__(number, places, switch=0, **settings)
        for client, (switch, _) in zip(self.clients, self.places):
            client.switch_mac, client.switch_ip = address(switch)

    def draw_secrets_of(self, worker: Worker) -> None:
        super().draw_secrets_of(worker)
        worker.client.member = self.workers.index(worker)

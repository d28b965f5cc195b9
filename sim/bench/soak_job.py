"""Jobs at the level of frames that check every result that they receive: the victims of `sim.bench.soak`.

A job has no timers. In each round its workers send some of the frames that they may send, as if timers had expired.
Now and then a job is reset, ends and is formed again, or a member leaves and comes back. The contributions of each
incarnation of a job differ, so that a frame of an earlier one would make a wrong sum.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from iswitch.wire import ACK, FRAME, FRAME_BYTES, Action, JobState, MemberState, Reason, Type
from sim.frames.client import Client, Reply

__all__ = ["SERIAL", "BrokenPromiseError", "Job", "Worker", "demand"]

SERIAL = 1 << 32
TYPE_AT = FRAME.fields["version_type"][1]
TOKEN_AT = FRAME.fields["token"][1]
NONCE_AT = FRAME_BYTES + ACK.fields["nonce"][1]
"""Offsets in a frame of the switch."""
EVICT_US = 1 << 20


class BrokenPromiseError(AssertionError):
    """The switch has broken a promise of docs/protocol.md or docs/security.md."""


def demand(holds: object, promise: str) -> None:
    if not holds:
        raise BrokenPromiseError(promise)


class Worker:
    """A client and its place in a job. `is_out`: it is to join. `leaves`: the LEAVE that it sends. In a synchronous job
    `first` is the offset from which it contributes, `low` the lowest offset whose result it lacks, `held` has `members`
    and sum of later results, and `applied` is the number of complete collectives."""

    def __init__(self, client: Client) -> None:
        self.client, self.is_out, self.leaves = client, True, b""
        self.first = self.low = self.applied = 0
        self.held: dict[int, tuple[int, int]] = {}


class Job(ABC):
    """What synchronous and asynchronous jobs share: they are formed, and they end.

    Parameters
    ----------
    number : int
        The job's number.
    ports : sequence of int
        The port of each worker.
    seed : int
        Seed of the job's choices.
    operator_key : int
        The switch's operator key, with which the job's operator ends the job of an attacker that has its number.
    settings : int
        Settings of the Join, besides `world`.
    """

    kind = "job"

    def __init__(self, number: int, ports: Sequence[int], *, seed: int, operator_key: int, **settings: int) -> None:
        self.number, self.random = number, random.Random(f"{seed} {number}")
        self.settings = {"world": len(ports), "evict_us": EVICT_US} | settings
        key = self.random.getrandbits(64)
        self.workers = [
            Worker(Client.numbered(8 * number + k, port=port, job=number, key=key)) for k, port in enumerate(ports)
        ]
        self.operator, self.operator_key = Client.numbered(140 + number, port=ports[-1], job=number), operator_key
        self.phase, self.squatted, self.complete = "forming", False, 0
        self.control: tuple[Worker, bytes] | None = None
        """The sender of the RESET that is to be executed, with its frame."""
        self.events = {"formed": 0, "reset": 0, "left": 0, "squatted": 0}
        self.draw_secrets()

    @property
    def clients(self) -> list[Client]:
        return [worker.client for worker in self.workers]

    def draw_secrets(self) -> None:
        """Let all workers join anew, with new nonces and tokens."""
        for worker in self.workers:
            self.draw_secrets_of(worker)
        self.phase = "forming"

    def draw_secrets_of(self, worker: Worker) -> None:
        client = worker.client
        client.forget(self.random.getrandbits(64))
        client.token, client.proposed_job_token = self.random.getrandbits(32), self.random.getrandbits(32)
        worker.is_out, worker.leaves = True, b""

    def join(self, worker: Worker) -> bytes:
        return worker.client.join(**({} if worker.client.settings else self.settings))

    def frames(self) -> Iterator[tuple[Client, bytes]]:
        """Yield the frames that the job sends in a round, with their senders."""
        if self.squatted:
            yield self.operator, self.operator.end_job(operator_key=self.operator_key)
        if self.phase == "ending":
            sender = self.workers[0].client
            yield sender, sender.end_job()
        for worker in self.workers:
            if self.phase == "ending":
                continue
            if worker.is_out:
                yield worker.client, self.join(worker)
            elif worker.leaves:
                yield worker.client, worker.leaves
            elif self.phase == "running":
                for frame in self.work(worker):
                    yield worker.client, frame
        if self.control:
            yield self.control[0].client, self.control[1]

    def receive(self, frame: bytes, *, is_shared: bool) -> None:
        """Handle a frame with the switch's address that has come to a worker or to the operator.

        Raises
        ------
        BrokenPromiseError
            If the frame should not have come, or its sum is wrong. With `is_shared` an attacker is behind the same
            port, so answers to the attacker may come, and are ignored.
        """
        worker = next((found for found in self.workers if found.client.ip == frame[30:34]), None)
        client = worker.client if worker else self.operator
        kind = frame[TYPE_AT] & 0xF
        if kind == Type.ACK:
            is_genuine = int.from_bytes(frame[NONCE_AT : NONCE_AT + 8], "little") == client.nonce
        else:
            token = int.from_bytes(frame[TOKEN_AT : TOKEN_AT + 4], "little")
            is_genuine = token == (client.job_token if kind in (Type.RESULT, Type.GRANT) else client.token)
        if not is_genuine:
            demand(is_shared, f"a {Type(kind).name} without the secret of {client.ip!r} came through the switch")
            return
        reply = client.take(frame)
        if reply.ack is not None:
            if worker is None:
                self.squatted &= not (reply.reason == Reason.DONE or reply.ack["state"] == JobState.NONE)
            else:
                self.handle_ack(worker, reply)
        elif worker and self.phase == "running" and not worker.is_out and not worker.leaves:
            self.handle(worker, reply, frame)

    def handle_ack(self, worker: Worker, reply: Reply) -> None:
        assert reply.ack is not None
        action, state = reply.ack["action"], reply.ack["state"]
        if action == Action.JOIN and worker.is_out:
            if reply.reason == Reason.DONE:
                is_new = self.phase != "rejoining" or worker.client.epoch != self.epoch
                if state == JobState.RUNNING and reply.ack["standing"] == MemberState.LIVE and is_new:
                    worker.is_out = False
                    if self.phase == "running":
                        self.enter(worker)
            elif reply.reason not in (Reason.CHALLENGE, Reason.MEMBER):
                demand(self.phase == "forming", f"a Join of job {self.number} is refused: {reply.reason.name}")
                self.events["squatted"] += not self.squatted
                self.squatted = True
            if self.phase in ("forming", "rejoining", "renewing") and not any(other.is_out for other in self.workers):
                self.start()
        elif action == Action.END and self.phase == "ending" and (reply.reason == Reason.DONE or not state):
            self.draw_secrets()
        elif action == Action.RESET and self.control and self.control[0] is worker:
            demand(reply.reason == Reason.DONE, f"a RESET is refused: {reply.reason.name}")
            self.control, self.phase = None, "rejoining"
            for other in self.workers:
                other.is_out = True
        elif action == Action.LEAVE and worker.leaves:
            demand(reply.reason in (Reason.DONE, Reason.TOKEN), f"a LEAVE is refused: {reply.reason.name}")
            self.draw_secrets_of(worker)

    def start(self) -> None:
        """Begin to work: all workers are live in a new incarnation of the job."""
        first, *others = self.clients
        demand(all((c.epoch, c.first_seq) == (first.epoch, first.first_seq) for c in others), "one epoch for all")
        self.epoch, self.origin = first.epoch, first.first_seq
        self.events["formed"] += 1
        self.phase = "running"
        self.restart()

    def change(self) -> None:
        """Begin one of the events that a job has, if none is under way."""
        if self.phase == "running" and not self.control:
            self.phase = "ending"

    @abstractmethod
    def restart(self) -> None:
        """Begin the job's next epoch."""

    @abstractmethod
    def enter(self, worker: Worker) -> None:
        """Take a worker into the job that the switch has admitted."""

    @abstractmethod
    def work(self, worker: Worker) -> Iterator[bytes]:
        """Yield the frames that a member sends in a round."""

    @abstractmethod
    def handle(self, worker: Worker, reply: Reply, frame: bytes) -> None:
        """Check a frame of the switch to a member, and take what it says."""

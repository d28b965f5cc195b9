"""Jobs at the level of frames that check every result that they receive: the victims of `sim.bench.soak`.

A job has no timers. In each round its workers send some of the frames that they may send, as if timers had expired.
Now and then a job is reset, ends and is formed again, or a member leaves and comes back. The contributions of each
incarnation of a job differ, so that a frame of an earlier one would make a wrong sum.
"""

import random
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from iswitch.wire import (
    Action,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    JobState,
    Reason,
    ResultFlag,
    Standing,
    Type,
    result_identity,
)
from sim.bench.asynchronous import AsynchronousWorker, Ledger
from sim.frames.client import Client, Reply

__all__ = ["AsynchronousJob", "BrokenPromiseError", "Job", "SynchronousJob"]

SERIAL = 1 << 32
TOKEN_AT, ACK_NONCE_AT, TYPE_AT = 60, 80, 42
"""Offsets in a frame of the switch."""
FRACTION = 16
"""The numbers of float jobs are multiples of 2^-16 below 2^7, whose sums have exact integers beside them."""
EVICT_US = 1 << 20


class BrokenPromiseError(AssertionError):
    """The switch has broken a promise of docs/protocol.md or docs/security.md."""


def demand(holds: object, promise: str) -> None:
    if not holds:
        raise BrokenPromiseError(promise)


class Worker:
    """A client and its place in a job. `is_out`: it is to join. `leaves`: the LEAVE that it sends. In a synchronous job
    `low` is the lowest offset whose result it lacks, `held` has `members` and sum of later results, and `applied` is
    the number of complete collectives."""

    def __init__(self, client: Client) -> None:
        self.client, self.is_out, self.leaves = client, True, b""
        self.low = self.applied = 0
        self.held: dict[int, tuple[int, int]] = {}


class Job:
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
        The switch's operator key, with which the job's operator ends a job of strangers that has its number.
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
        self.operator = Client.numbered(140 + number, port=ports[-1], job=number, key=operator_key)
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
            yield self.operator, self.operator.end_job()
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
            is_genuine = int.from_bytes(frame[ACK_NONCE_AT : ACK_NONCE_AT + 8], "little") == client.nonce
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
                if state == JobState.RUNNING and reply.ack["standing"] == Standing.LIVE and is_new:
                    worker.is_out = False
                    if self.phase == "running":
                        self.enter(worker)
            elif reply.reason not in (Reason.CHALLENGE, Reason.MEMBER):
                demand(self.phase == "forming", f"a Join of job {self.number} is refused: {reply.reason.name}")
                self.events["squatted"] += not self.squatted
                self.squatted = True
            if self.phase in ("forming", "rejoining") and not any(other.is_out for other in self.workers):
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

    def restart(self) -> None:
        raise NotImplementedError

    def enter(self, worker: Worker) -> None:
        raise NotImplementedError

    def work(self, worker: Worker) -> Iterator[bytes]:
        raise NotImplementedError

    def handle(self, worker: Worker, reply: Reply, frame: bytes) -> None:
        raise NotImplementedError


class SynchronousJob(Job):
    """A job whose workers call one collective after another, of 1 to 6 segments, some of them longer than the window.

    Every sum is compared with exact integers (`window64`, `int32`), or with numpy's sum of two numbers (`fp32`).
    """

    kind = "synchronous"

    def restart(self) -> None:
        self.salt = self.random.getrandbits(32)
        self.starts, self.crcs = [0], {0: 0}
        self.require_all: set[int] = set()
        self.sums: dict[int, tuple[int, bytes]] = {}
        for worker in self.workers:
            worker.low, worker.applied, worker.held = 0, 0, {}

    def change(self) -> None:
        if self.phase != "running" or self.control or any(w.is_out or w.leaves for w in self.workers):
            return
        choice, worker = self.random.random(), self.random.choice(self.workers)
        if choice < 0.3:
            self.phase = "ending"
        elif choice < 0.6 or self.settings.get("threshold", 0) in (0, len(self.workers)):
            self.events["reset"] += 1
            self.control = worker, worker.client.reset()
        else:
            self.events["left"] += 1
            worker.leaves = worker.client.leave()

    def enter(self, worker: Worker) -> None:
        worker.low, worker.held = (worker.client.first_seq - self.origin) % SERIAL, {}
        worker.applied = self.collective_of(worker.low)
        demand(self.starts[worker.applied] == worker.low, "a joining member begins behind a boundary")
        self.require_all.add(worker.applied)

    def mixed(self, *numbers: int) -> int:
        """Return 32 bits that depend on the job's incarnation and on the numbers."""
        state = self.salt
        for number in numbers:
            state = (state ^ number) * 0x9E3779B1 % SERIAL
            state ^= state >> 15
        return state

    def collective_of(self, offset: int) -> int:
        while self.starts[-1] <= offset:
            index = len(self.starts) - 1
            segments = 90 if index % 50 == 49 else 1 + self.mixed(index) % 6
            self.starts.append(self.starts[-1] + segments)
        return bisect_right(self.starts, offset) - 1

    def word(self, index: int) -> int:
        return Collective(index, CollectiveKind.ALLREDUCE, self.starts[index + 1] - self.starts[index]).word

    def integers(self, member: int, offset: int) -> np.ndarray:
        """Return what a member contributes to a segment, as int32 of any size, or of 24 bits for floats."""
        elements = self.settings["elements"] if offset % 64 == 5 else 1 + self.mixed(offset) % 24
        values = (np.arange(elements, dtype=np.uint32) * np.uint32(0x85EBCA6B)) ^ np.uint32(self.mixed(member, offset))
        values = (values * np.uint32(0xC2B2AE35)).view(np.int32)
        return values if self.settings["format"] == Format.INT32 else values >> 8

    def payload(self, member: int, offset: int) -> np.ndarray:
        integers = self.integers(member, offset)
        return integers if self.settings["format"] == Format.INT32 else np.ldexp(integers.astype("<f4"), -FRACTION)

    def expected(self, members: int, offset: int) -> bytes:
        """Return the bytes of the sum of these members' contributions."""
        ranks = [rank for rank in range(32) if members >> rank & 1]
        if self.settings["format"] == Format.FP32:
            return sum((self.payload(rank, offset) for rank in ranks), np.float32(0)).tobytes()
        total = sum(self.integers(rank, offset).astype(np.int64) for rank in ranks)
        if self.settings["format"] == Format.INT32:
            return np.asarray(total).astype(np.int32).tobytes()
        return np.ldexp(np.asarray(total, np.float64), -FRACTION).astype("<f4").tobytes()

    def work(self, worker: Worker) -> Iterator[bytes]:
        rng, client = self.random, worker.client
        if rng.random() < 0.1:
            return
        if worker.applied in self.crcs:
            end = self.starts[self.collective_of(worker.low) + 1]
            flags = ContributionFlag.REQUIRES_ALL * (worker.applied % 7 == 0 or worker.applied in self.require_all)
            for offset in range(worker.low, min(end, worker.low + client.window)):
                if offset not in worker.held and rng.random() < 0.6:
                    yield client.contribution(
                        self.origin + offset,
                        self.payload(client.member, offset),
                        behind=offset - worker.low,
                        flags=flags | ContributionFlag.BOUNDARY * (offset == end - 1),
                        collective=self.word(worker.applied),
                        digest=self.crcs[worker.applied] & 0xFFFF,
                    )
        if rng.random() < 0.4:
            yield client.receipt(self.origin + worker.low, want=True)

    def handle(self, worker: Worker, reply: Reply, frame: bytes) -> None:
        if int(reply.header["epoch"]) != self.epoch and (reply.type != Type.NOTICE or self.control):
            return
        if reply.type == Type.NOTICE:
            is_old = reply.reason == Reason.EPOCH and int(reply.header["epoch"]) == self.epoch
            demand(is_old or self.control, f"a member of job {self.number} gets the NOTICE {reply.reason.name}")
            return
        demand(reply.type == Type.RESULT, f"a member of job {self.number} gets a {reply.type.name}")
        offset = (int(reply.header["seq"]) - self.origin) % SERIAL
        index = self.collective_of(offset) if offset < SERIAL // 2 else 0
        demand(index in self.crcs, f"a result of segment {offset} has no contributor")
        members, sent = int(reply.header["members"]), reply.numbers.tobytes()
        if offset in self.sums or offset >= worker.low:
            known = self.sums.setdefault(offset, (members, self.expected(members, offset)))
            demand(
                known == (members, sent),
                f"job {self.number}, segment {offset}: members {members:b} have another sum, or {known[0]:b} had it",
            )
        least = self.settings.get("threshold", len(self.workers))
        demand(members.bit_count() >= least and members < 1 << len(self.workers), f"a sum of members {members:b}")
        demand(not reply.header["tainted"], "a tainted sum")
        if offset < worker.low:
            return
        assert reply.tail is not None
        demand(int(reply.tail["identity"]) == result_identity(self.word(index), self.crcs[index] & 0xFFFF), "identity")
        if reply.flags & ResultFlag.MEMBERS_CHANGED:
            self.require_all.add(index + 1)
        worker.held[offset] = members, int.from_bytes(sent, "big") % 0xFFFF
        self.apply(worker)

    def apply(self, worker: Worker) -> None:
        """Apply the results that the worker now has without a gap."""
        while worker.low in worker.held:
            worker.low += 1
            if worker.low == self.starts[worker.applied + 1]:
                crc = self.crcs[worker.applied]
                for offset in range(self.starts[worker.applied], worker.low):
                    members, total = worker.held.pop(offset)
                    crc = zlib.crc32(members.to_bytes(4, "little") + total.to_bytes(2, "little"), crc)
                worker.applied += 1
                self.complete += self.crcs.setdefault(worker.applied, crc) == crc
                demand(self.crcs[worker.applied] == crc, "workers have applied different results")
        if len(self.sums) > 2000:
            low = min(worker.low for worker in self.workers) - 4 * worker.client.window
            self.sums = {offset: known for offset, known in self.sums.items() if offset >= low}


class AsynchronousJob(Job):
    """A job of updates. A `Ledger` checks that each granted vector is in its sum exactly once."""

    kind = "asynchronous"

    def restart(self) -> None:
        self.ledger = Ledger(self.settings["segments"], self.settings["staleness"])
        self.machines = {
            worker: AsynchronousWorker(worker.client, segments=self.settings["segments"]) for worker in self.workers
        }

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

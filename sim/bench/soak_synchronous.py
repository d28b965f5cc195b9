"""A synchronous job of `sim.bench.soak`."""

import zlib
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from iswitch.wire import (
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    Reason,
    ResultFlag,
    Type,
    ones_complement_sum,
    result_identity,
)
from sim.bench.soak_job import SERIAL, Job, Worker, demand
from sim.frames.client import Reply

__all__ = ["SynchronousJob"]

FRACTION = 16
"""The numbers of float jobs are multiples of 2^-16 below 2^7, whose sums have exact integers beside them."""


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
            worker.first, worker.low, worker.applied, worker.held = 0, 0, 0, {}

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
        worker.first = worker.low = (worker.client.first_seq - self.origin) % SERIAL
        worker.held = {}
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
        # A segment is complete with fewer members than the threshold if no other one is to contribute: one has left,
        # and another has joined behind the segment.
        expected = sum(not (w.is_out or w.leaves) and w.first <= offset for w in self.workers)
        least = min(self.settings.get("threshold", len(self.workers)), expected)
        demand(members.bit_count() >= least and members < 1 << len(self.workers), f"a sum of members {members:b}")
        demand(not reply.header["tainted"], "a tainted sum")
        if offset < worker.low:
            return
        assert reply.tail is not None
        demand(int(reply.tail["identity"]) == result_identity(self.word(index), self.crcs[index] & 0xFFFF), "identity")
        if reply.flags & ResultFlag.MEMBERS_CHANGED:
            self.require_all.add(index + 1)
        fields = b"".join(int(reply.header[name]).to_bytes(4, "little") for name in ("seq", "tainted", "members"))
        worker.held[offset] = 0xFFFF - ones_complement_sum(fields + sent) or 0xFFFF
        self.apply(worker)

    def apply(self, worker: Worker) -> None:
        """Apply the results that the worker now has without a gap."""
        while worker.low in worker.held:
            worker.low += 1
            if worker.low == self.starts[worker.applied + 1]:
                crc = self.crcs[worker.applied]
                for offset in range(self.starts[worker.applied], worker.low):
                    crc = zlib.crc32(worker.held.pop(offset).to_bytes(2, "big"), crc)
                worker.applied += 1
                self.complete += self.crcs.setdefault(worker.applied, crc) == crc
                demand(self.crcs[worker.applied] == crc, "workers have applied different results")
        if len(self.sums) > 2000:
            low = min(worker.low for worker in self.workers) - 4 * worker.client.window
            self.sums = {offset: known for offset, known in self.sums.items() if offset >= low}

"""A worker of an asynchronous job at the level of frames: the frames that it may send, and its reactions to those that
it receives; and a ledger of the sums of several workers.

A worker keeps the rules of docs/protocol.md, section "Asynchronous jobs", and has no timers: the caller calls `due`
when a timer would expire, as often and as late as it likes. Its vectors are `int32`, so that sums show their
contributors.
"""

from typing import NamedTuple

import numpy as np

from iswitch.wire import Format, MemberState, Type
from sim.frames.client import Client

__all__ = ["AsynchronousWorker", "Ledger", "Sum", "element"]

SERIAL = 1 << 32


def element(client: Client, k: int, segment: int) -> int:
    """Return an element of segment `segment` of the client's k-th vector, 0 to 2^31 - 1, which tells vectors apart."""
    return (client.mac[5] * 0x9E3779B1 + k * 0x85EBCA77 + segment * 0xC2B2AE3D) % SERIAL >> 1


class AsynchronousWorker:
    """One member. A segment of its k-th vector is (1 << member, `element`), as int32. All positions count from the
    job's first seq.

    `low`: the lowest segment whose result it lacks. `results`: members and numbers of the received ones. `granted`:
    base, k and weights of the vector of each update granted to it. `claimed`: weights of the claim that waits for an
    answer. `refused`: number of refusals.
    """

    def __init__(self, client: Client, *, segments: int, origin: int | None = None) -> None:
        self.client, self.segments = client, segments
        self.origin = client.first_seq if origin is None else origin
        self.first = (client.first_seq - self.origin) % SERIAL
        self.low, self.k, self.refused = self.first, 0, 0
        self.results: dict[int, tuple[int, list[int]]] = {}
        self.granted: dict[int, tuple[int, int]] = {}
        self.claimed: int | None = None
        self.newer_than = -1
        self.computed = self.version

    @property
    def version(self) -> int:
        """The version of its weights: all complete updates are applied."""
        return self.low - (self.low - self.first) % self.segments

    def seq(self, position: int) -> int:
        return (self.origin + position) % SERIAL

    def compute(self) -> None:
        """Begin a vector with the present weights. It may have been ready for long when it is claimed."""
        self.computed = self.version

    def claim(self) -> bytes | None:
        """Return the claim of the ready vector, or its retransmission; None while its weights were refused already."""
        if self.claimed is None:
            if self.computed <= self.newer_than:
                self.compute()
            if self.computed <= self.newer_than:
                return None
            self.k += 1
            self.claimed = self.computed
        return self.client.claim(self.k, self.seq(self.claimed))

    def contributions(self) -> list[bytes]:
        """Return, of every update granted to it, the segments that it lacks and the window allows."""
        client, frames = self.client, []
        for base, (k, _) in sorted(self.granted.items()):
            for position in range(max(base, self.low), min(base + self.segments, self.low + client.window)):
                if position not in self.results:
                    numbers = np.array([1 << client.member, element(client, k, position)], np.int32)
                    frames.append(
                        client.contribution(
                            self.seq(position), numbers, behind=position - self.low, format=Format.INT32
                        )
                    )
        return frames

    def receipt(self) -> bytes:
        return self.client.receipt(self.seq(self.low), want=True)

    def due(self) -> list[bytes]:
        """Return all frames that timers could send now."""
        claim = self.claim()
        return [*self.contributions(), *([claim] if claim else []), self.receipt()]

    def forget(self, low: int) -> None:
        """Drop results and complete updates below `low`, except the newest."""
        self.results = {position: result for position, result in self.results.items() if position >= low}
        newest = max(self.granted, default=0)
        self.granted = {
            base: grant for base, grant in self.granted.items() if base + self.segments > low or base == newest
        }

    def take(self, frame: bytes) -> Type:
        """Handle a frame of the switch for this worker."""
        reply = self.client.take(frame)
        header = reply.header
        position = (int(header["seq"]) - self.origin) % SERIAL
        mine = int(header["members"]) >> self.client.member & 1 if self.client.member < 32 else 0
        if reply.type == Type.RESULT and position >= self.low:
            self.results.setdefault(position, (int(header["members"]), reply.numbers.tolist()))
            while self.low in self.results:
                self.low += 1
        elif (
            reply.type == Type.GRANT
            and mine
            and self.claimed is not None
            and position > max(self.granted, default=self.first - 1)
        ):
            self.granted[position] = self.k, self.claimed
            self.claimed = None
        elif (
            reply.type == Type.REFUSE
            and self.claimed is not None
            and (int(header["seq"]), int(header["token"])) == (self.k, self.client.token)
        ):
            self.newer_than, self.claimed = self.claimed, None
            self.refused += 1
        return reply.type

    def enters(self, frame: bytes) -> bool:
        """Return True if an acknowledged Join admits it; it starts anew there."""
        reply = self.client.take(frame)
        if reply.ack is None or reply.ack["standing"] != MemberState.LIVE:
            return False
        AsynchronousWorker.__init__(self, self.client, segments=self.segments, origin=self.origin)
        return True


class Sum(NamedTuple):
    """The result of one segment."""

    members: int
    elements: list[int]


class Ledger:
    """Which vector of which worker was granted to which update, by the workers' own records, and the sums that
    resulted.

    `granted`: per update, by its base, each worker's member index and k. `left`: per update, the workers that left
    before they had contributed everything. `sums`: per segment, its result.
    """

    def __init__(self, segments: int, staleness: int) -> None:
        self.segments, self.staleness = segments, staleness
        self.granted: dict[int, dict[Client, tuple[int, int]]] = {}
        self.left: dict[int, set[Client]] = {}
        self.sums: dict[int, Sum] = {}
        self.vectors = self.checked = 0

    def record(self, worker: AsynchronousWorker) -> None:
        """Record the grants and results of a worker. Its results must be those that others received."""
        for base, (k, weights) in worker.granted.items():
            assert 0 <= base - weights <= self.staleness * self.segments, (
                f"vector {k} of update {base} has weights {weights}"
            )
            known = worker.client.member, k
            assert self.granted.setdefault(base, {}).setdefault(worker.client, known) == known
        for position, result in worker.results.items():
            assert self.sums.setdefault(position, Sum(*result)) == result, f"segment {position} has two results"

    def record_departure(self, worker: AsynchronousWorker) -> None:
        """Record a worker that leaves. What it has not contributed yet may be in its sums or not."""
        self.record(worker)
        for base in worker.granted:
            if base + self.segments > worker.low:
                self.left.setdefault(base, set()).add(worker.client)

    def check_below(self, low: int) -> None:
        """Check all sums below `low`, which every worker has, and drop them."""
        for position in [position for position in self.sums if position < low]:
            base = position - position % self.segments
            total, granted = self.sums.pop(position), self.granted.get(base, {})
            inside = {client: k for client, (member, k) in granted.items() if total.members >> member & 1}
            assert granted.keys() - self.left.get(base, set()) <= inside.keys(), (
                f"segment {position} has {total}, and lacks one of {granted}"
            )
            assert total.members == sum(1 << granted[client][0] for client in inside), (
                f"segment {position} has {total}: {granted}"
            )
            vectors = sum(element(client, k, position) for client, k in inside.items()) % SERIAL
            assert total.elements == ([total.members, vectors] if inside else [0] * len(total.elements)), (
                f"segment {position}: {total}"
            )
            self.checked += 1
            if position == base:
                self.vectors += len(inside)
        for book in (self.granted, self.left):
            for base in [base for base in book if base + self.segments <= low]:
                del book[base]

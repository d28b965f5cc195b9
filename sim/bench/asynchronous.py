"""A worker of an asynchronous job at the level of frames: the frames that it may send, and its reactions to those that
it receives.

It keeps the rules of docs/protocol.md, section "Asynchronous jobs", and has no timers: the caller calls `due` when a
timer would expire, as often and as late as it likes. Its vectors are `int32`, so that sums show their contributors.
"""

import numpy as np

from iswitch.wire import Format, Standing, Type
from sim.frames.client import Client

__all__ = ["AsynchronousWorker", "element"]

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
        if reply.ack is None or reply.ack["standing"] != Standing.LIVE:
            return False
        AsynchronousWorker.__init__(self, self.client, segments=self.segments, origin=self.origin)
        return True

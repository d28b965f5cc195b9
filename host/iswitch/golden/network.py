"""Golden switches connected by links: frames go from port to port until none is left. No clocks, no bandwidth.

Each frame on a link between switches, or to or from a host, may be lost, duplicated or reordered, by a seeded
generator. With rates of 0 links are first in, first out. A reordered frame waits until no other frame is in flight.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

__all__ = ["Network"]


class Receiver(Protocol):
    """A switch: it takes a frame into a port and returns what it sends, with the ports."""

    def receive(self, port: int, frame: bytes, now_us: int) -> list[tuple[int, bytes]]: ...


End = tuple[int, int]
"""A switch and one of its ports."""


class Network:
    """Switches, links and hosts.

    Parameters
    ----------
    switches : sequence of Receiver
    links : sequence of (End, End)
        Pairs of ends that a link connects. `hosts` receive what leaves the switches at other ends.
    loss, duplicate, reorder : float
        Rates for each frame, from 0 to 1.
    seed : int
        Of the generator of faults.
    """

    def __init__(
        self,
        switches: Sequence[Receiver],
        links: Sequence[tuple[End, End]],
        *,
        loss: float = 0,
        duplicate: float = 0,
        reorder: float = 0,
        seed: int = 1,
    ) -> None:
        for name, rate in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder)):
            if not 0 <= rate <= 1:
                raise ValueError(f"Network {name} must be 0 to 1, not {rate!r}")
        self.switches, self.rates, self.random = switches, (loss, duplicate, reorder), random.Random(seed)
        self.peers: Mapping[End, End] = {a: b for pair in links for a, b in (pair, pair[::-1])}
        self.hosts: dict[End, Callable[[bytes], None]] = {}
        self.moving: deque[tuple[End, bytes, bool]] = deque()
        self.waiting: list[tuple[End, bytes, bool]] = []
        self.now_us = 0

    def send(self, end: End, frame: bytes) -> None:
        """Send a host's frame into a port, and deliver everything that follows from it."""
        self.carry(end, frame, into=True)
        while self.moving or self.waiting:
            if not self.moving:
                self.moving.append(self.waiting.pop(self.random.randrange(len(self.waiting))))
            at, data, into = self.moving.popleft()
            if not into:
                self.hosts[at](data)
                continue
            self.now_us += 1
            for port, sent in self.switches[at[0]].receive(at[1], data, self.now_us):
                leaves = at[0], port
                self.carry(self.peers.get(leaves, leaves), sent, into=leaves in self.peers)

    def carry(self, at: End, frame: bytes, *, into: bool) -> None:
        """Put a frame in flight into a switch's port (`into`), or to the host behind it."""
        if not into and at not in self.hosts:
            return
        loss, duplicate, reorder = (self.random.random() < rate for rate in self.rates)
        for _ in range(0 if loss else 1 + duplicate):
            (self.waiting if reorder else self.moving).append((at, frame, into))

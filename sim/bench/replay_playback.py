"""A client over a real socket whose switch is a recording: its processor time without that of a simulator.

The client speaks first to the compiled switch in virtual time, and each request is kept with its answers. Then the same
program runs again over loopback, and a small process sends it the same answers. So the client works between calls of a
real kernel, and no simulation empties its caches.
"""

import itertools
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from iswitch.driver.transport import Buffer
from iswitch.driver.udp import UdpTransport
from sim.cluster.realtime import run_before_others

__all__ = ["Played", "Recorder", "Recording", "playing"]

_HOST = "127.0.0.1"
_SPAWN = multiprocessing.get_context("spawn")
_UDP_SEGMENT, _UDP_GRO = 103, 104  # options of Linux that Python does not name
_LONGEST_BURST_BYTES, _BURST_SEGMENTS = 65507, 64


def _cut(burst: bytes, segment_bytes: int) -> Iterator[bytes]:
    return (burst[at : at + segment_bytes] for at in range(0, len(burst), segment_bytes))


def _name(datagram: bytes) -> bytes:
    """Return the kind and the number of a request, which its answers repeat."""
    return datagram[1:2] + datagram[4:8]


@dataclass
class Recording:
    """What a client sent and received.

    Parameters
    ----------
    answers : dict of bytes to list of bytes
        The answers to each request.
    random : list of int
        The random numbers that the client was given.
    """

    answers: dict[bytes, list[bytes]] = field(default_factory=dict)
    random: list[int] = field(default_factory=list)


class Recorder:
    """A transport that records what passes through it."""

    def __init__(self, transport: Any):
        self._transport, self.recording = transport, Recording()
        self._last: list[bytes] = []
        self._latest: dict[bytes, list[bytes]] = {}  # by the name of the request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send, and keep the requests."""
        for request in _cut(bytes(memoryview(burst).cast("B")), segment_bytes):
            self._last = self._latest[_name(request)] = self.recording.answers.setdefault(request, [])
        self._transport.send(burst, segment_bytes)

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        """Receive, and keep the answers."""
        length, segment_bytes = self._transport.receive(into, timeout_s)
        for answer in _cut(bytes(into[:length]), segment_bytes or 1):
            self._latest.get(_name(answer), self._last).append(answer)
        return length, segment_bytes

    def randbits(self, bits: int) -> int:
        """Return a random number, and keep it."""
        self.recording.random.append(self._transport.randbits(bits))
        return self.recording.random[-1]


class Played(UdpTransport):
    """A socket whose peer plays a recording back."""

    def __init__(self, address: str, recording: Recording):
        super().__init__(address)
        self._random = iter(recording.random)

    def randbits(self, bits: int) -> int:
        """Return the next random number of the recording."""
        return next(self._random)


def _play(control: Connection, recording: Recording, realtime: bool) -> None:
    if realtime:
        run_before_others()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            peer.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
        peer.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        peer.bind((_HOST, 0))
        control.send(f"{_HOST}:{peer.getsockname()[1]}")
        while True:
            data, ancillary, _, client = peer.recvmsg(_LONGEST_BURST_BYTES, 64)
            size = int.from_bytes(ancillary[0][2][:4], "little") if ancillary else len(data)
            # After a time-out a SAMPLE asks for the fragments that lack; those are on their way.
            answers = [answer for request in _cut(data, size) for answer in recording.answers.get(request, [])]
            for length, alike in itertools.groupby(answers, len):
                most = min(_BURST_SEGMENTS, _LONGEST_BURST_BYTES // length)
                cut = [(socket.IPPROTO_UDP, _UDP_SEGMENT, length.to_bytes(2, "little"))]
                while burst := list(itertools.islice(alike, most)):
                    peer.sendmsg(burst, cut if len(burst) > 1 else [], 0, client)


@contextmanager
def playing(recording: Recording, *, realtime: bool = False) -> Iterator[Callable[[], Played]]:
    """Run a process that plays a recording back, before others if `realtime`. Yield what makes the client's
    transport."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_play, args=(there, recording, realtime), daemon=True)
    process.start()
    there.close()  # so that the end of the process is noticed
    try:
        address = here.recv()
        yield lambda: Played(address, recording)
    finally:
        process.kill()
        process.join()

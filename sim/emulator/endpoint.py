"""Endpoints of cables in this process: whole frames, or hosts that speak UDP to the switch, in wall or virtual time.

A frame from an endpoint is on its cable as soon as time goes on. A frame for it waits in `receive`, and is announced to
`arrived`, which may send. In wall time these calls may come from other threads than the one that serves the fabric.
"""

import os
import select
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from iswitch.driver.transport import RECEIVE_BYTES, Buffer, RealTimeTransport
from sim.emulator.card import Card, Client

__all__ = ["BURST_SEGMENTS", "FrameEnd", "Host", "HostTransport", "Hosts", "burst_of"]

BURST_SEGMENTS = 64


class Wakeup:
    """A pollable event: readable from `set` to `clear`. Another thread may still `set` it after it is closed."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()

    def set(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class _End:
    """The common part of the attachments in this module: the frames that wait for the switch."""

    wall = False

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._out: deque[bytes] = deque()
        self._wakeup = Wakeup()

    @property
    def address(self) -> str:
        return "in process"

    def fileno(self) -> int:
        return self._wakeup.fileno()

    def receive_frames(self, most: int) -> list[bytes]:
        self._wakeup.clear()
        frames = [self._out.popleft() for _ in range(min(most, len(self._out)))]
        if self._out:
            self._wakeup.set()
        return frames

    def _send(self, frame: bytes) -> None:
        self._out.append(frame)
        self._wakeup.set()

    def close(self) -> None:
        self._wakeup.close()


class FrameEnd(_End):
    """An `Attachment` that sends and receives frames as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: Callable[[], None] | None = None
        self._in: deque[bytes] = deque()

    def send(self, frame: bytes) -> None:
        """Put a frame, without FCS, on the cable."""
        self._send(frame)

    def receive(self) -> list[bytes]:
        """Return the frames that have come since the last call."""
        return [self._in.popleft() for _ in range(len(self._in))]

    def deliver_frames(self, frames: list[bytes]) -> None:
        self._in.extend(frames)
        if frames and (arrived := self.arrived):
            arrived()


class Hosts(_End):
    """An `Attachment` for any number of hosts, made by `host`, on one cable to the switch with these addresses."""

    def __init__(self, switch_mac: bytes, switch_ip: bytes):
        super().__init__()
        self._card = Card(switch_mac, switch_ip)
        self._hosts: dict[tuple[str, int], Host] = {}

    def host(self, client: Client) -> "Host":
        """Add a host with this address and UDP port. Raises ValueError if there is one."""
        if client.address in self._hosts:
            raise ValueError(f"a host's address must be its own, and {client.address} is taken")
        found = self._hosts[client.address] = Host(lambda payload: self._send(self._card.wrap(payload, client)))
        return found

    def deliver_frames(self, frames: list[bytes]) -> None:
        called: dict[int, Host] = {}
        for frame in frames:
            found = self._card.unwrap(frame)
            if isinstance(found, str):
                self.counts[f"out, {found}"] += 1
            else:
                host = self._hosts[found[0]]
                host.inbox.append(found[1])
                called[id(host)] = host
        for host in called.values():
            if arrived := host.arrived:
                arrived()


class Host:
    """A UDP socket of a host that talks to the switch only."""

    def __init__(self, send: Callable[[bytes], None]):
        self.send = send
        """Send a payload to the switch, in a frame of its own."""
        self.inbox: deque[bytes] = deque()
        self.arrived: Callable[[], None] | None = None

    def receive(self) -> list[bytes]:
        """Return the payloads that have come since the last call."""
        return [self.inbox.popleft() for _ in range(len(self.inbox))]


def burst_of(inbox: deque[bytes], into: memoryview) -> tuple[int, int]:
    """Take the longest burst of equal datagrams from the front of an inbox: (bytes, segment_bytes), as
    `Transport.receive` returns them."""
    length = segment_bytes = 0
    while inbox and length + len(inbox[0]) <= len(into) and (not segment_bytes or len(inbox[0]) <= segment_bytes):
        payload = inbox.popleft()
        into[length : length + len(payload)] = payload
        length, segment_bytes = length + len(payload), segment_bytes or len(payload)
        if len(payload) < segment_bytes:
            break
    return length, segment_bytes


class HostTransport(RealTimeTransport):
    """A driver's `iswitch.driver.transport.Transport` over a host of a fabric in wall time:
    `Worker(transport=HostTransport(host))`."""

    def __init__(self, host: Host):
        self._host, self._wakeup = host, Wakeup()
        self._poll = select.poll()
        self._poll.register(self._wakeup.fileno(), select.POLLIN)
        host.arrived = self._wakeup.set

    def burst_segments(self, segment_bytes: int) -> int:
        return max(1, min(BURST_SEGMENTS, RECEIVE_BYTES // segment_bytes))

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        view = memoryview(burst).cast("B")
        for at in range(0, len(view), segment_bytes):
            self._host.send(bytes(view[at : at + segment_bytes]))

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if not self._poll.poll(max(0.0, timeout_s) * 1000):
            return 0, 0
        self._wakeup.clear()
        length, segment_bytes = burst_of(self._host.inbox, into)
        if self._host.inbox:
            self._wakeup.set()
        return length, segment_bytes

    def fileno(self) -> int:
        return self._wakeup.fileno()

    def reopen(self) -> None:
        """The host keeps its address."""

    def close(self) -> None:
        self._host.arrived = None
        self._wakeup.close()

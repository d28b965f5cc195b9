"""A port as a UDP socket: what a client's network card would do, for any process on this machine, without root.

A client is a UDP socket that sends to the address of the port. Each of its datagrams is the UDP payload of one frame to
the switch; the payloads of frames that the switch sends to that client come back as datagrams.
"""

import array
import socket
from collections import Counter
from contextlib import suppress

from iswitch.switch.sockets import open_port
from sim.emulator.card import Card, Client

__all__ = ["UdpSocket"]

DATAGRAM_BYTES_MOST = 16384
"""No card would send a longer frame; the switch counts frames above its own limit."""

# Linux's names that Python 3.11 lacks.
UDP_SEGMENT, UDP_GRO = 103, 104
BURST_SEGMENTS, BURST_BYTES = 64, 65507


class UdpSocket:
    """An `Attachment` for any number of clients. bind: host and UDP port, 0 for any free one."""

    wall = True

    def __init__(self, bind: tuple[str, int], card: Card):
        self.card = card
        self.counts: Counter[str] = Counter()
        self.socket = open_port(*bind)
        self._segmenting = True
        with suppress(OSError):
            self.socket.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        self._buffer = memoryview(bytearray(1 << 16))

    @property
    def address(self) -> tuple[str, int]:
        host, number = self.socket.getsockname()
        return host, number

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive_frames(self, most: int) -> list[bytes]:
        """Implements `Attachment.receive_frames`: whole bursts at a time, until there are `most` frames."""
        frames: list[bytes] = []
        while len(frames) < most:
            try:
                size, ancillary, _, (host, number) = self.socket.recvmsg_into(
                    [self._buffer], socket.CMSG_SPACE(4), socket.MSG_DONTWAIT
                )
            except (BlockingIOError, ConnectionRefusedError):
                break
            segment = (
                next(
                    (
                        int.from_bytes(value[:2], "little")
                        for level, kind, value in ancillary
                        if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO)
                    ),
                    size,
                )
                or 1
            )
            if segment > DATAGRAM_BYTES_MOST:
                self.counts["datagrams too long"] += 1
                continue
            client = Client(socket.inet_aton(host), number)
            for start in range(0, max(size, 1), segment):
                frames.append(self.card.wrap(bytes(self._buffer[start : min(start + segment, size)]), client))
                self.counts["datagrams in"] += 1
        return frames

    def deliver_frames(self, frames: list[bytes]) -> None:
        """Implements `Attachment.deliver_frames`: sends the frames' payloads to their clients, in bursts where their
        sizes allow."""
        per_client: dict[tuple[str, int], list[bytes]] = {}
        for frame in frames:
            found = self.card.unwrap(frame)
            if isinstance(found, str):
                self.counts[f"out, {found}"] += 1
            else:
                per_client.setdefault(found[0], []).append(found[1])
        for address, payloads in per_client.items():
            self.counts["datagrams out"] += len(payloads)
            start = 0
            while start < len(payloads):
                end = self._burst_end(payloads, start)
                self._send(address, payloads[start:end])
                start = end

    def _burst_end(self, payloads: list[bytes], start: int) -> int:
        """Return the end of the burst that begins at `start`: datagrams of one size, of which the last may be
        shorter."""
        size = total = len(payloads[start])
        end = start + 1
        if not size or not self._segmenting:
            return end
        while end < min(len(payloads), start + BURST_SEGMENTS) and 0 < len(payloads[end]) <= size:
            total += len(payloads[end])
            if total > BURST_BYTES:
                break
            end += 1
            if len(payloads[end - 1]) < size:
                break
        return end

    def _send(self, address: tuple[str, int], burst: list[bytes]) -> None:
        if len(burst) > 1:
            size = array.array("H", [len(burst[0])])
            try:
                self.socket.sendmsg(burst, [(socket.IPPROTO_UDP, UDP_SEGMENT, size)], 0, address)
                return
            except OSError:  # a kernel or a route that cannot: one by one from now on
                self._segmenting = False
        for payload in burst:
            try:
                self.socket.sendto(payload, address)
            except OSError:
                self.counts["out, refused by the kernel"] += 1

    def close(self) -> None:
        self.socket.close()

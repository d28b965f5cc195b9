"""Virtual ports on UDP sockets: what a client's network card would do, for any process on this machine, without root.

A client is a UDP socket that sends to the address of a virtual port. Each of its datagrams is the UDP payload of one
frame to the switch; the payloads of frames that the switch sends to that client come back as datagrams.
"""

import array
import select
import socket
import struct
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from iswitch.wire import ADDRESSES, UDP_PORT
from sim.emulator.engine import Board
from sim.emulator.faults import DIRECTIONS, Faults, Passed
from sim.emulator.pcap import Capture

__all__ = ["Card", "Client", "Emulator", "VirtualPort"]

SLICE_CYCLES = 1024
"""Cycles between two looks at the sockets while the switch is busy."""
PENDING_FRAMES = 256
"""Frames taken from a socket ahead of the switch's queue; the rest waits in the kernel."""
IDLE_SECONDS = 0.02
"""The longest sleep: the switch's timers move on only when it runs."""
BUFFER_BYTES = 8 << 20
DATAGRAM_BYTES_MOST = 16384
"""No card would send a longer frame; the switch counts those above its own limit."""
FRAME_BYTES_LEAST = 60
ADDRESS_BYTES = ADDRESSES.itemsize

# Linux's names that Python 3.11 lacks.
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
UDP_SEGMENT, UDP_GRO = 103, 104
TRAIN_SEGMENTS, TRAIN_BYTES = 64, 65507


class Client(NamedTuple):
    """A socket that talks to a virtual port. Its MAC is made of its address, so that no two clients share one."""

    ip: bytes
    udp_port: int

    @property
    def mac(self) -> bytes:
        return b"\x02" + self.ip[1:] + struct.pack(">H", self.udp_port)

    @property
    def address(self) -> tuple[str, int]:
        return socket.inet_ntoa(self.ip), self.udp_port


class Card:
    """The network card of all clients of a port: puts Ethernet, IPv4 and UDP around payloads and takes them off."""

    def __init__(self, switch_mac: bytes, switch_ip: bytes):
        self.switch_mac, self.switch_ip = switch_mac, switch_ip
        self._clients: dict[bytes, tuple[str, int]] = {}
        self._heads: dict[tuple[Client, int], tuple[bytes, int]] = {}

    def wrap(self, payload: bytes, client: Client) -> bytes:
        """The frame that the client's card would send, padded to Ethernet's minimum, with valid checksums."""
        length = len(payload)
        known = self._heads.get((client, length))
        if known is None:
            known = self._heads[client, length] = self._head(client, length)
        head, partial = known
        # 2^16 is 1 modulo 65535, so the remainder of the whole number is the ones' complement sum of its words.
        total = (partial + (int.from_bytes(payload) << 8 * (length & 1))) % 0xFFFF
        return (head + (0xFFFF - total).to_bytes(2) + payload).ljust(FRAME_BYTES_LEAST, b"\0")

    def _head(self, client: Client, length: int) -> tuple[bytes, int]:
        """All that stands before the UDP checksum, and the part of it that does not depend on the payload."""
        if len(self._heads) > 1 << 16:
            self._heads.clear()
        self._clients[client.mac + client.ip + struct.pack(">H", client.udp_port)] = client.address
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + length, 0, 0x4000, 64, 17, 0, client.ip, self.switch_ip)
        ip = ip[:10] + (0xFFFF - int.from_bytes(ip) % 0xFFFF).to_bytes(2) + ip[12:]
        udp = struct.pack(">HHH", client.udp_port, UDP_PORT, 8 + length)
        pseudo = client.ip + self.switch_ip + struct.pack(">HH", 17, 8 + length)
        return self.switch_mac + client.mac + b"\x08\x00" + ip + udp, int.from_bytes(pseudo + udp) % 0xFFFF

    def unwrap(self, frame: bytes) -> tuple[tuple[str, int], bytes] | str:
        """Whom a frame is for and its payload, or why no client gets it."""
        if len(frame) < ADDRESS_BYTES or frame[12:15] != b"\x08\x00\x45" or frame[23] != 17:
            return "not UDP over IPv4"
        address = self._clients.get(frame[:6] + frame[30:34] + frame[36:38])
        if address is None:
            return "not for a client of this port"
        length = int.from_bytes(frame[38:40])
        end = 34 + length
        if int.from_bytes(frame[16:18]) != 20 + length or length < 8 or end > len(frame):
            return "bad length"
        if int.from_bytes(frame[14:34]) % 0xFFFF:
            return "bad IPv4 checksum"
        covered = int.from_bytes(frame[26:end]) << 8 * (length & 1)
        if frame[40:42] != b"\0\0" and (covered + 17 + length) % 0xFFFF:
            return "bad UDP checksum"
        return address, frame[ADDRESS_BYTES:end]


class VirtualPort:
    """The socket of one port, its wire's faults in both directions, and its capture."""

    def __init__(self, bind: tuple[str, int], card: Card, faults: dict[str, Faults], capture: Capture | None):
        self.card, self.faults, self.capture = card, faults, capture
        self.pending: deque[Passed] = deque()
        self.counts: Counter[str] = Counter()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(bind)
        for force, plain in ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF)):
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
            except OSError:
                self.socket.setsockopt(socket.SOL_SOCKET, plain, BUFFER_BYTES)
        self._segmenting = True
        with suppress(OSError):
            self.socket.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        self._buffer = memoryview(bytearray(1 << 16))

    @property
    def address(self) -> tuple[str, int]:
        host, number = self.socket.getsockname()
        return host, number

    def drain(self, now_us: float, most: int) -> None:
        """Takes datagrams, whole trains at a time, into `pending` until that holds `most` frames."""
        wire, pending = self.faults["rx"], self.pending
        while len(pending) < most:
            try:
                size, ancillary, _, (host, number) = self.socket.recvmsg_into(
                    [self._buffer], socket.CMSG_SPACE(4), socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionRefusedError):
                break
            segment = next((int.from_bytes(value[:2], "little") for level, kind, value in ancillary
                            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO)), size) or 1
            if segment > DATAGRAM_BYTES_MOST:
                self.counts["datagrams too long"] += 1
                continue
            client = Client(socket.inet_aton(host), number)
            for start in range(0, max(size, 1), segment):
                frame = self.card.wrap(bytes(self._buffer[start:min(start + segment, size)]), client)
                self.counts["datagrams in"] += 1
                if wire.active:
                    wire.put(frame, now_us)
                else:
                    pending.append(Passed(frame, False))
        pending.extend(wire.take(now_us))

    def deliver(self, frames: list[Passed]) -> None:
        """Sends the payloads of frames that came off the wire to their clients, in trains where their sizes allow."""
        per_client: dict[tuple[str, int], list[bytes]] = {}
        for data, error in frames:
            found = "bad FCS" if error else self.card.unwrap(data)
            if isinstance(found, str):
                self.counts[f"out, {found}"] += 1
            else:
                per_client.setdefault(found[0], []).append(found[1])
        for address, payloads in per_client.items():
            self.counts["datagrams out"] += len(payloads)
            start = 0
            while start < len(payloads):
                end = self._train_end(payloads, start)
                self._send(address, payloads[start:end])
                start = end

    def _train_end(self, payloads: list[bytes], start: int) -> int:
        """Where a train ends that begins at `start`: all of one size, the last may be shorter."""
        size = total = len(payloads[start])
        end = start + 1
        if not size or not self._segmenting:
            return end
        while end < min(len(payloads), start + TRAIN_SEGMENTS) and 0 < len(payloads[end]) <= size:
            total += len(payloads[end])
            if total > TRAIN_BYTES:
                break
            end += 1
            if len(payloads[end - 1]) < size:
                break
        return end

    def _send(self, address: tuple[str, int], train: list[bytes]) -> None:
        if len(train) > 1:
            size = array.array("H", [len(train[0])])
            try:
                self.socket.sendmsg(train, [(socket.IPPROTO_UDP, UDP_SEGMENT, size)], 0, address)
                return
            except OSError:  # a kernel or a route that cannot: one by one from now on
                self._segmenting = False
        for payload in train:
            try:
                self.socket.sendto(payload, address)
            except OSError:
                self.counts["out, refused by the kernel"] += 1

    def close(self) -> None:
        self.socket.close()
        if self.capture:
            self.capture.close()


class Emulator:
    """A board whose ports are UDP sockets. `serve` until `stop`; nothing is dropped on the way into the switch: what it
    has no room for yet stays in the sockets.

    bind: host, and the UDP port of port 0; the others follow, or with 0 the kernel chooses. faults: by port and
    direction. pcap: a folder for one capture per port, of what crosses the switch's side of the wire. `rtl_seconds` and
    `busy_seconds` are processor time, in the switch and in all turns that had something to do.
    """

    def __init__(self, board: Board, bind: tuple[str, int] = ("127.0.0.1", 0), *,
                 faults: dict[tuple[int, str], Faults] | None = None, pcap: Path | None = None,
                 slice_cycles: int = SLICE_CYCLES):
        self.board, self.slice_cycles = board, slice_cycles
        self.ports: list[VirtualPort] = []
        self._started_ns, self._epoch_ns = time.monotonic_ns(), time.time_ns()
        self._running = True
        self._waking, self._wake = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._waking, select.POLLIN)
        self.rtl_seconds, self.busy_seconds, self.busy_cycles = 0.0, 0.0, 0
        if pcap:
            pcap.mkdir(parents=True, exist_ok=True)
        for number in range(board.config.ports):
            wires = {direction: (faults or {}).get((number, direction)) or Faults.none() for direction in DIRECTIONS}
            capture = Capture(pcap / f"port{number}.pcap") if pcap else None
            place = (bind[0], bind[1] + number if bind[1] else 0)
            try:
                self.ports.append(VirtualPort(place, Card(board.mac, board.ip), wires, capture))
            except OSError as error:
                self.close()
                raise OSError(error.errno, f"cannot open virtual port {number} at {place[0]}:{place[1]}: "
                                           f"{error.strerror}") from error
            self._poll.register(self.ports[-1].socket, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the sockets and captures, not the board."""
        for port in self.ports:
            port.close()
        self._waking.close()
        self._wake.close()

    @property
    def now_us(self) -> int:
        """Microseconds since the start; the switch's time."""
        return (time.monotonic_ns() - self._started_ns) // 1000

    def stop(self) -> None:
        """Makes `serve` return; from a signal handler or another thread."""
        self._running = False
        with suppress(OSError):
            self._wake.send(b"!")

    def serve(self) -> None:
        """Carries frames until `stop`."""
        while self._running:
            if not self.turn():
                self._sleep()

    def turn(self) -> bool:
        """One turn: sockets, wires, switch, wires, sockets. False if there was nothing to do."""
        begun = time.thread_time()
        moved = False
        for number, port in enumerate(self.ports):
            port.drain(self.now_us, PENDING_FRAMES)
            if port.pending:
                moved = True
                self._feed(number, port)
        before = time.thread_time()
        cycles = self.board.run(self.slice_cycles, self.now_us)
        rtl = time.thread_time() - before
        for number, port in enumerate(self.ports):
            moved |= self._collect(number, port)
        # A run that ends before its slice found nothing left to do.
        moved |= cycles == self.slice_cycles
        if moved:
            self.rtl_seconds += rtl
            self.busy_seconds += time.thread_time() - begun
            self.busy_cycles += cycles
        return moved

    def _feed(self, number: int, port: VirtualPort) -> None:
        batch = [port.pending.popleft() for _ in range(min(len(port.pending), self.board.room(number)))]
        if not batch:
            return
        self.board.send_many(number, [frame for frame, _ in batch], [error for _, error in batch])
        port.counts["frames into the switch"] += len(batch)
        for frame, error in batch:
            if port.capture and not error:
                port.capture.write(frame, time.monotonic_ns() - self._started_ns + self._epoch_ns)

    def _collect(self, number: int, port: VirtualPort) -> bool:
        wire, now_us = port.faults["tx"], self.now_us
        frames = self.board.receive(number)
        port.counts["frames out of the switch"] += len(frames)
        for frame in frames:
            if port.capture:
                port.capture.write(frame.data, time.monotonic_ns() - self._started_ns + self._epoch_ns)
            if wire.active:
                wire.put(frame.data, now_us)
        through = wire.take(now_us) if wire.active else [Passed(frame.data, False) for frame in frames]
        if through:
            port.deliver(through)
        return bool(frames or through)

    def _sleep(self) -> None:
        now_us = self.now_us
        due = [wire.due_us for port in self.ports for wire in port.faults.values() if wire.due_us is not None]
        seconds = min([IDLE_SECONDS, *(max(0.0, (time_us - now_us) / 1e6) for time_us in due)])
        self._poll.poll(1000 * seconds)

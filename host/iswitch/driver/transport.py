"""Bytes to and from the switch, time and chance: the one seam between the driver and the world."""

import contextlib
import errno
import secrets
import select
import socket
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from typing import Any, Protocol

from iswitch.driver.keepalive import KeepaliveThread
from iswitch.errors import SwitchUnreachableError
from iswitch.wire import UDP_PORT

__all__ = [
    "RECEIVE_BYTES",
    "Keepalive",
    "Buffer",
    "Transport",
    "UdpTransport",
    "WallTransport",
    "fault_of",
    "parse_address",
    "resolve",
]

Buffer = bytes | bytearray | memoryview

RECEIVE_BYTES = 1 << 16
"""What `receive` must be given room for: the longest train there can be."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_SOCKET_BUFFER_BYTES = 1 << 23
_TRAIN_BYTES, _TRAIN_SEGMENTS = 65507, 64  # an IPv4 datagram's limit and the kernel's, for one GSO send
_LONGEST_DATAGRAM = 9216  # of a switch: a jumbo frame
_NO_GSO = {errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOPROTOOPT}
_ROUTE = "check the address, the interface and the route (`ip route get {ip}`)"
_FORBIDDEN = (
    "a firewall of this machine forbids it, or it is a broadcast address",
    "check the address, and the firewall (`nft list ruleset`)",
)
_FAULTS = {
    errno.ENETUNREACH: ("this machine has no route to it", _ROUTE),
    errno.EHOSTUNREACH: ("it does not answer ARP requests, or a router has no route to it", _ROUTE),
    errno.ENETDOWN: ("the network interface on the way to it is down", "set the interface up (`ip link`)"),
    errno.EADDRNOTAVAIL: ("this machine has no address from which it can send there", _ROUTE),
    errno.EPERM: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
}


class Keepalive(Protocol):
    """Calls a function between collectives, while its worker computes. `with attending:` keeps it from that; `stop`
    ends it."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def stop(self) -> None: ...


class Transport(Protocol):
    """Carries trains: UDP payloads of equal size laid end to end, of which the last may be shorter.

    The driver cannot tell UDP from an emulator in the same process or from a recording, nor this machine's time from a
    simulated one: it waits, looks at the clock and draws random numbers here only.
    """

    def train_segments(self, segment_bytes: int) -> int:
        """The most segments of this size that one `send` takes."""

    def send(self, train: Buffer, segment_bytes: int) -> None:
        """Send every segment as a datagram of its own. May lose them, does not wait for anything but buffer space."""

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        """Wait for a train and lay it into `into` (RECEIVE_BYTES): (bytes, segment_bytes), or (0, 0) after the time."""

    def now(self) -> float:
        """Seconds, of a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait, without receiving."""

    def start_keepalive(self, serve: Callable[[], float]) -> Keepalive:
        """From now on call `serve` when something has come or the time it asked for is over; it returns seconds to its
        next call."""

    def randbits(self, bits: int) -> int:
        """A number of so many random bits, which nobody can guess."""

    def close(self) -> None: ...


class WallTransport(ABC):
    """The half of a `Transport` that all share who live in this machine's time."""

    @abstractmethod
    def fileno(self) -> int:
        """A descriptor that polls as readable when `receive` would not wait."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def start_keepalive(self, serve: Callable[[], float]) -> Keepalive:
        return KeepaliveThread(self.fileno(), serve)

    def randbits(self, bits: int) -> int:
        return secrets.randbits(bits)


def parse_address(address: str) -> tuple[str, int]:
    """Return ("host", port) of "host:port" or "host"; without a port, the switch's own port, 26963.

    Raises
    ------
    TypeError, ValueError
        If the address has another form.
    """
    if not isinstance(address, str):
        raise TypeError(f'switch address must be a str such as "10.0.0.1:{UDP_PORT}", not {address!r}')
    refused = f'switch address must be "host:port" or "host", not {address!r}'
    scheme, separator, _ = address.partition("://")
    if separator:
        raise ValueError(f'{refused}: leave out "{scheme}://"')
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(UDP_PORT)
    if ":" in host or "[" in host:
        raise ValueError(f"{refused}: iswitch uses IPv4, so pass the IPv4 address of the switch")
    if not host:
        raise ValueError(refused)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{refused}: the port is a number from 1 to 65535")
    return host, int(port)


def resolve(address: str) -> tuple[str, int]:
    """Return the IPv4 address and the UDP port of a switch.

    Raises
    ------
    SwitchUnreachableError
        If the host name has no IPv4 address, or cannot be looked up.
    TypeError, ValueError
        If the address has the wrong form.
    """
    host, port = parse_address(address)
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise SwitchUnreachableError(
                f"the host name {host!r} cannot be looked up, because no name server answers: pass the IPv4 address of the "
                "switch, or check /etc/resolv.conf"
            ) from error
        raise _no_host(host) from error
    except UnicodeError as error:  # a label is empty or too long
        raise _no_host(host) from error
    return str(found[0][4][0]), port


def _no_host(host: str) -> SwitchUnreachableError:
    return SwitchUnreachableError(
        f"there is no host {host!r} with an IPv4 address: check the spelling, or pass the IPv4 address of the switch"
    )


def fault_of(error: OSError, ip: str) -> tuple[str, str]:
    """Return why no datagram can be sent to a host, as the end of a sentence, and a remedy."""
    why, remedy = _FAULTS.get(error.errno or 0, (str(error.strerror or error), _ROUTE))
    return why, remedy.format(ip=ip)


class UdpTransport(WallTransport):
    """A connected UDP socket. Trains go through the kernel whole (GSO and GRO) where it can, datagram by datagram
    where it cannot, or with `no_offload=True`.

    Raises
    ------
    SwitchUnreachableError
        If the host name cannot be resolved, or this machine cannot send to the host.
    TypeError, ValueError
        If the address has the wrong form.
    """

    def __init__(self, address: str, *, no_offload: bool = False):
        self._peer = resolve(address)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.refused = False
        """The host of the peer has reported that no program listens at the port."""
        self.fault = ""
        """Why the kernel could not send the last datagram and how to mend it, as the end of a sentence; "" if it
        could."""
        self._kept = b""  # without GRO: a datagram longer than those before it, which begins the next train
        try:
            self._enlarge()
            self._connect()
            self.gso = not no_offload and self._has(_UDP_SEGMENT, 0)
            self.gro = not no_offload and self._has(_UDP_GRO, 1)
        except BaseException:
            self._socket.close()
            raise
        self._poll = self._new_poll()

    def _new_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return poll

    def _wait(self, timeout_s: float) -> bool:
        """Return whether something has come within that time."""
        milliseconds = max(0.0, timeout_s) * 1000
        try:
            return bool(self._poll.poll(milliseconds))
        except (
            RuntimeError
        ):  # a signal handler waits here in the middle of the same call, which Python forbids with the same object
            return bool(self._new_poll().poll(milliseconds))

    def _connect(self) -> None:
        try:
            self._socket.connect(self._peer)
        except OSError as error:
            why, remedy = fault_of(error, self._peer[0])
            raise SwitchUnreachableError(
                f"{self._peer[0]}:{self._peer[1]} cannot be reached: {why}; {remedy}"
            ) from error

    def _enlarge(self) -> None:
        for forced, usual in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
            for option in (usual, forced):  # the forced one needs a capability; without it the usual one has its cap
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        with contextlib.suppress(OSError):  # a fragment is ordinary traffic to the switch: better an error than that
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)

    def _has(self, option: int, value: int) -> bool:
        try:
            self._socket.setsockopt(_SOL_UDP, option, value)
        except OSError:
            return False
        return True

    def train_segments(self, segment_bytes: int) -> int:
        return max(1, min(_TRAIN_SEGMENTS, _TRAIN_BYTES // segment_bytes))

    def send(self, train: Buffer, segment_bytes: int) -> None:
        """Send a train. If the kernel cannot send a datagram, that datagram is lost, and `fault` says why.

        Raises
        ------
        ValueError
            If a segment does not fit the path's MTU.
        OSError
            If the transport is closed.
        """
        view = memoryview(train).cast("B")
        refused_train = False
        if self.gso and len(view) > segment_bytes:
            try:
                self._call(
                    self._socket.sendmsg,
                    [view],
                    [(_SOL_UDP, _UDP_SEGMENT, struct.pack("=H", segment_bytes))],
                    raises=_NO_GSO,
                )
                return
            except OSError as error:
                if error.errno not in _NO_GSO:
                    raise
                refused_train = True
        for at in range(0, len(view), segment_bytes):
            self._call(self._socket.send, view[at : at + segment_bytes])
        if refused_train and not self.fault:
            self.gso = False  # the kernel has it, the device does not

    def _call(self, function: Callable[..., Any], *arguments: Any, raises: Container[int] = ()) -> None:
        """Call a function of the socket. A connected socket reports the fate of an earlier datagram at a later call:
        repeat that call."""
        for _ in range(8):
            try:
                function(*arguments)
                self.fault = ""
                return
            except OSError as error:
                if error.errno in raises:
                    raise
                if not self._lose(error):
                    return

    def _lose(self, error: OSError) -> bool:
        """Record why a datagram is lost. Return True if that was an earlier datagram, and not the one of this call.

        Raises OSError if the transport is closed, ValueError if a datagram is too long for the path."""
        if isinstance(error, (ConnectionRefusedError, ConnectionResetError)):
            self.refused = True
            return True
        if error.errno == errno.EMSGSIZE:
            raise ValueError(
                "a segment does not fit the MTU of the path to the switch: join with fewer `elements`, on all workers"
            ) from error
        if error.errno == errno.EBADF:
            raise error
        self.fault = "; ".join(fault_of(error, self._peer[0]))
        return False

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if not self._kept and not self._wait(timeout_s):
            return 0, 0
        return self._receive_train(into) if self.gro else self._gather(into)

    def _receive_train(self, into: memoryview) -> tuple[int, int]:
        try:
            length, ancillary, _, _ = self._socket.recvmsg_into([into], 64, socket.MSG_DONTWAIT)
        except BlockingIOError:  # woken by a datagram with a wrong checksum
            return 0, 0
        except OSError as error:
            self._lose(error)
            return 0, 0
        self.refused, self.fault = False, ""
        for level, kind, data in ancillary:
            if level == _SOL_UDP and kind == _UDP_GRO:
                return length, int.from_bytes(data[:4], sys.byteorder)
        return length, length

    def _gather(self, into: memoryview) -> tuple[int, int]:
        """Without GRO: make a train of what has already come, as long as the sizes allow."""
        length = segment_bytes = 0
        if self._kept:
            length = segment_bytes = len(self._kept)
            into[:length], self._kept = self._kept, b""
        while not segment_bytes or len(into) - length >= _LONGEST_DATAGRAM:
            try:
                size = self._socket.recv_into(into[length:], 0, socket.MSG_DONTWAIT | socket.MSG_TRUNC)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(error)
                break
            self.refused, self.fault = False, ""
            if length + size > len(into):
                continue  # did not fit: lost, like on the wire
            if segment_bytes and size > segment_bytes:
                self._kept = bytes(into[length : length + size])
                break
            length, segment_bytes = length + size, segment_bytes or size
            if size < segment_bytes:
                break
        return length, segment_bytes

    @property
    def receive_buffer_bytes(self) -> int:
        """What the kernel keeps for the socket, its own overhead included."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

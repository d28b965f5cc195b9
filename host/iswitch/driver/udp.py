"""The transport of a real network, and of the emulator on this machine: a UDP socket."""

import contextlib
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Container
from typing import Any

from iswitch.driver.address import resolve, send_failure
from iswitch.driver.packet_filter import NOTHING, attach
from iswitch.driver.ready import Readiness
from iswitch.driver.transport import Buffer, RealTimeTransport
from iswitch.errors import SwitchUnreachableError

__all__ = ["UdpTransport"]

# Options of Linux that Python does not name.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = socket.IPPROTO_UDP, 103, 104
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_SOCKET_BUFFER_BYTES = 1 << 23
_BURST_BYTES, _BURST_SEGMENTS = 65507, 64
"""Limits of one GSO send: an IPv4 datagram's, and the kernel's."""
_LONGEST_DATAGRAM_BYTES = 9216
"""The longest datagram of a switch: a jumbo frame."""
_NO_GSO = {errno.EIO, errno.EINVAL, errno.EOPNOTSUPP}
_BY_ICMP = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EMSGSIZE,
    errno.ENONET,
    errno.ENOPROTOOPT,
    errno.EPROTO,
}
"""By such an error the kernel reports an ICMP message about an earlier datagram, once. Any host can forge one."""
_TRIES = 8
"""The most ICMP messages that one call takes for reports."""


class UdpTransport(RealTimeTransport):
    """A connected UDP socket.

    Where the kernel supports it, a burst passes the kernel as one buffer (UDP GSO and GRO), otherwise datagram by
    datagram.

    Parameters
    ----------
    address : str
        Address of the switch: "host:port" or "host".
    no_offload : bool
        If True, pass datagram by datagram in any case.

    Attributes
    ----------
    gso, gro : bool
        True if bursts are sent, and received, as one buffer.
    refused : bool
        True if the switch's host has reported that no program listens at the port.
    fault : str
        Why the kernel could not send the last datagram, and a remedy, as the end of a sentence; "" if it was sent.

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
        self.refused, self.fault = False, ""
        self._option_bytes, self._option = 0, [(0, 0, b"")]
        self._next_datagram = b""  # without GRO: a longer datagram than those before it, which begins the next burst
        try:
            self._set_options()
            self._connect()
            self.gso = not no_offload and self._supports(_UDP_SEGMENT, 0)
            self.gro = not no_offload and self._supports(_UDP_GRO, 1)
        except BaseException:
            self._socket.close()
            raise
        self._readiness = Readiness(self._socket.fileno())

    def reopen(self) -> None:
        """Send and receive by a new socket, for this machine's address may have changed. Its descriptor is the same."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as fresh:
            os.dup2(fresh.fileno(), self._socket.fileno(), inheritable=False)
        self._set_options()
        self._connect()
        self.gso, self.gro = self.gso and self._supports(_UDP_SEGMENT, 0), self.gro and self._supports(_UDP_GRO, 1)

    def _connect(self) -> None:
        try:
            self._socket.connect(self._peer)
        except OSError as error:
            cause, remedy = send_failure(error, self._peer[0])
            raise SwitchUnreachableError(
                f"{self._peer[0]}:{self._peer[1]} cannot be reached: {cause}; {remedy}"
            ) from error

    def _set_options(self) -> None:
        for forced, usual in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
            for option in (usual, forced):  # the forced option needs a capability; the usual option has a limit
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        with contextlib.suppress(OSError):
            # The switch does not sum fragments, so the kernel must not make them. Nor must it believe ICMP messages
            # about the path's MTU: any host can forge them.
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)

    def _supports(self, option: int, value: int) -> bool:
        try:
            self._socket.setsockopt(_SOL_UDP, option, value)
        except OSError:
            return False
        return True

    # Sending

    def burst_segments(self, segment_bytes: int) -> int:
        return max(1, min(_BURST_SEGMENTS, _BURST_BYTES // segment_bytes))

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send a burst. If the kernel cannot send a datagram, that datagram is lost, and `fault` says why.

        Parameters
        ----------
        burst : bytes, bytearray or memoryview
            Datagrams end to end.
        segment_bytes : int
            Bytes of a datagram; the last one may be shorter.

        Raises
        ------
        ValueError
            If a datagram does not fit the interface's MTU.
        OSError
            If the transport is closed.
        """
        view = memoryview(burst).cast("B")
        burst_refused = False
        if self.gso and len(view) > segment_bytes:
            try:
                self._call(self._socket.sendmsg, [view], self._segment_option(segment_bytes), raises=_NO_GSO)
                return
            except OSError as error:
                if error.errno not in _NO_GSO:
                    raise
                burst_refused = True
        for at in range(0, len(view), segment_bytes):
            self._call(self._socket.send, view[at : at + segment_bytes])
        if burst_refused and not self.fault:
            self.gso = False  # the kernel supports it, but the device does not

    def _segment_option(self, segment_bytes: int) -> list[tuple[int, int, bytes]]:
        """Return the control message that cuts a burst. Bursts have few sizes, so the last one is kept."""
        if self._option_bytes != segment_bytes:
            self._option_bytes = segment_bytes
            self._option = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("=H", segment_bytes))]
        return self._option

    def _call(self, function: Callable[..., Any], *arguments: Any, raises: Container[int] = ()) -> None:
        """Call a function of the socket. Repeat the call if it only reports that an earlier datagram was lost.

        Raises ValueError if the datagram is too long for the interface, OSError if the transport is closed.
        """
        for _ in range(_TRIES):
            try:
                function(*arguments)
                self.fault = ""
                return
            except OSError as error:
                if error.errno in raises:
                    raise
                if not self._record_loss(error):
                    return
                persistent = error
        if persistent.errno == errno.EMSGSIZE:
            raise ValueError(
                "a segment does not fit the MTU of the path to the switch: join with fewer `elements`, on all workers"
            ) from persistent
        self._record_fault(persistent)

    def _record_loss(self, error: OSError) -> bool:
        """Record why a datagram is lost. Return True if it is an earlier datagram than that of the present call.

        Raises OSError if the transport is closed.
        """
        if error.errno in _BY_ICMP:
            self.refused |= isinstance(error, (ConnectionRefusedError, ConnectionResetError))
            return True
        if error.errno == errno.EBADF:
            raise error
        self._record_fault(error)
        return False

    def _record_fault(self, error: OSError) -> None:
        if not isinstance(error, (ConnectionRefusedError, ConnectionResetError)):
            self.fault = "; ".join(send_failure(error, self._peer[0]))

    # Receiving

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        receive_now = self._receive_burst if self.gro else self._gather_burst
        try:
            return receive_now(into)  # the usual case: more has come while the last burst was handled
        except BlockingIOError:
            if timeout_s <= 0 or not self._readiness.wait(timeout_s):
                return 0, 0
        try:
            return receive_now(into)
        except BlockingIOError:  # a datagram with a wrong checksum ended the wait
            return 0, 0

    def _receive_burst(self, into: memoryview) -> tuple[int, int]:
        """Receive a burst that the kernel has put together (GRO). Raises BlockingIOError if there is none."""
        try:
            length, ancillary, _, _ = self._socket.recvmsg_into([into], 64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise
        except OSError as error:
            self._record_loss(error)
            return 0, 0
        self.refused, self.fault = False, ""
        for level, kind, data in ancillary:
            if level == _SOL_UDP and kind == _UDP_GRO:
                return length, int.from_bytes(data[:4], sys.byteorder)
        return length, length

    def _gather_burst(self, into: memoryview) -> tuple[int, int]:
        """Put the datagrams that have come into one burst, as long as their sizes allow. Raises BlockingIOError if
        there is none."""
        length = segment_bytes = 0
        if self._next_datagram:
            length = segment_bytes = len(self._next_datagram)
            into[:length], self._next_datagram = self._next_datagram, b""
        while not segment_bytes or len(into) - length >= _LONGEST_DATAGRAM_BYTES:
            try:
                size = self._socket.recv_into(into[length:], 0, socket.MSG_DONTWAIT | socket.MSG_TRUNC)
            except BlockingIOError:
                if not segment_bytes:
                    raise
                break
            except OSError as error:
                self._record_loss(error)
                break
            self.refused, self.fault = False, ""
            if length + size > len(into):
                continue  # the datagram is truncated: drop it
            if segment_bytes and size > segment_bytes:
                self._next_datagram = bytes(into[length : length + size])
                break
            length, segment_bytes = length + size, segment_bytes or size
            if size < segment_bytes:
                break
        return length, segment_bytes

    # The socket

    @property
    def offloads(self) -> bool:
        """True if bursts pass the kernel as one buffer in both directions."""
        return self.gso and self.gro

    def record(self, *, received: bool, error: int) -> None:
        """Record what another user of the socket found: whether a datagram came, and an error number or 0.

        Raises
        ------
        OSError
            If the transport is closed.
        """
        if received:
            self.refused, self.fault = False, ""
        if error:
            self._record_loss(OSError(error, os.strerror(error)))

    @property
    def addresses(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The IPv4 address and the UDP port of this socket, and those of the switch."""
        return self._socket.getsockname(), self._socket.getpeername()

    def drop_received(self) -> None:
        """Have the kernel drop all datagrams that come for this socket. Another socket receives the frames.

        The port stays in use, so the kernel sends no ICMP messages about it, and this socket learns of those of others.
        """
        attach(self._socket, NOTHING)

    @property
    def receive_buffer_bytes(self) -> int:
        """Bytes that the kernel holds for the socket, including its own overhead."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

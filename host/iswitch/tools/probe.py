"""A transport for `iswitch doctor` that records what it sent, the ToS of replies, and errors of the kernel."""

import contextlib
import errno
import select
import socket

from iswitch.driver.address import resolve, send_failure
from iswitch.driver.transport import Buffer, RealTimeTransport

__all__ = ["Probe", "answers_arp"]

_IP_MTU, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_RECVTOS = 14, 10, 2, 13


class Probe(RealTimeTransport):
    """A `Transport` that carries one datagram at a time, and records what happens to it.

    Attributes
    ----------
    sent, received : int
        Number of datagrams so far.
    tos : int
        Type of Service of the last received datagram; -1 if the kernel does not report it.
    refused : bool
        True if the host of the switch has reported that no program listens at the port.
    fault, remedy : str
        Why the kernel could not send the last datagram, and what to do; empty if the kernel sent it.
    peer : str
        IPv4 address of the switch.

    Raises
    ------
    SwitchUnreachableError
        If the host name cannot be resolved.
    TypeError, ValueError
        If the address has the wrong form.
    """

    def __init__(self, address: str):
        self.sent, self.received, self.tos, self.refused, self.fault, self.remedy = 0, 0, -1, False, "", ""
        self.peer, port = resolve(address)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._connected = False
        try:
            self._socket.connect((self.peer, port))
            self._connected = True
        except OSError as error:
            self.fault, self.remedy = send_failure(error, self.peer)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @property
    def mtu(self) -> int:
        """MTU of the path in bytes; 0 if the kernel has not determined it."""
        with contextlib.suppress(OSError):
            return int(self._socket.getsockopt(socket.IPPROTO_IP, _IP_MTU))
        return 0

    def burst_segments(self, segment_bytes: int) -> int:
        return 1

    def send(self, burst: Buffer, segment_bytes: int) -> None:
        """Send one datagram. Raises ValueError if it does not fit the MTU of the path."""
        self.sent += 1
        if not self._connected:
            return
        for _ in range(2):  # the first call may report that an earlier datagram was refused
            try:
                self._socket.send(burst)
                self.fault = self.remedy = ""
                return
            except (ConnectionRefusedError, ConnectionResetError):
                self.refused = True
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    raise ValueError(f"{len(burst)} bytes do not fit the path's MTU") from error
                self.fault, self.remedy = send_failure(error, self.peer)
                return

    def receive(self, into: memoryview, timeout_s: float) -> tuple[int, int]:
        if not self._poll.poll(max(0.0, timeout_s) * 1000):
            return 0, 0
        try:
            size, ancillary, _, _ = self._socket.recvmsg_into([into], 64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0, 0
        except OSError as error:
            self.refused = self.refused or isinstance(error, ConnectionRefusedError)
            return 0, 0
        self.refused = False
        self.received += 1
        for level, kind, data in ancillary:
            if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS):
                self.tos = data[0]
        return size, size

    def fileno(self) -> int:
        return self._socket.fileno()

    def reopen(self) -> None:
        """Keep the socket: a probe is of one moment."""

    def close(self) -> None:
        self._socket.close()


def answers_arp(ip: str, table: str) -> bool | None:
    """Return whether a host has answered ARP requests.

    Parameters
    ----------
    ip : str
        IPv4 address of the host.
    table : str
        Text of /proc/net/arp.

    Returns
    -------
    bool or None
        None if the table has no entry for the host: the host is behind a router, or it is this machine.
    """
    rows = [line.split() for line in table.splitlines()[1:]]
    found = [int(row[2], 16) & 2 for row in rows if row[:1] == [ip]]
    return any(found) if found else None

"""A transport that watches: what it sent, how replies were marked, what the kernel said. For `iswitch doctor`."""

import contextlib
import errno
import select
import socket

from iswitch.errors import SwitchUnreachable
from iswitch.transport import Buffer, WallTransport, parse_address

__all__ = ["Probe", "neighbour"]

_IP_MTU, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_RECVTOS = 14, 10, 2, 13
_NOWHERE = {errno.ENETUNREACH: "there is no route to it", errno.EHOSTUNREACH: "its host does not answer ARP, or a router knows no way to it",
            errno.EPERM: "a firewall of this machine forbids it"}


class Probe(WallTransport):
    """A `Transport` that carries one datagram at a time. `sent`, `received`: datagrams so far. `tos`: the Type of Service of the last received,
    if the kernel tells. `refused`: the host says that nobody listens at the port. `fault`: why the kernel could not send the last.

    SwitchUnreachable if the name does not resolve, ValueError if the address is none.
    """

    def __init__(self, address: str):
        self.sent, self.received, self.tos, self.refused, self.fault = 0, 0, -1, False, ""
        peer = parse_address(address)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.connect(peer)
        except socket.gaierror as error:
            self._socket.close()
            raise SwitchUnreachable(f"there is no host {peer[0]!r} ({error.strerror})") from error
        except OSError as error:
            self.fault = _NOWHERE.get(error.errno or 0, str(error.strerror))
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @property
    def peer(self) -> str:
        """The switch's IPv4 address; empty if there is no way to it."""
        with contextlib.suppress(OSError):
            return str(self._socket.getpeername()[0])
        return ""

    @property
    def mtu(self) -> int:
        """Of the path, as far as the kernel knows; 0 if it does not."""
        with contextlib.suppress(OSError):
            return int(self._socket.getsockopt(socket.IPPROTO_IP, _IP_MTU))
        return 0

    def train_segments(self, segment_bytes: int) -> int:
        return 1

    def send(self, train: Buffer, segment_bytes: int) -> None:
        """`Transport.send` of one datagram. ValueError if it does not fit the path's MTU."""
        self.sent += 1
        if not self.peer:
            return
        for _ in range(2):  # the first call may report that an earlier datagram was refused
            try:
                self._socket.send(train)
                self.fault = ""
                return
            except (ConnectionRefusedError, ConnectionResetError):
                self.refused = True
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    raise ValueError(f"{len(train)} bytes do not fit the path's MTU") from error
                self.fault = _NOWHERE.get(error.errno or 0, str(error.strerror))
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

    def close(self) -> None:
        self._socket.close()


def neighbour(ip: str, table: str) -> bool | None:
    """Whether a host has answered ARP, in the text of /proc/net/arp; None if nobody has asked: it is behind a router, or this machine."""
    rows = [line.split() for line in table.splitlines()[1:]]
    found = [int(row[2], 16) & 2 for row in rows if row[:1] == [ip]]
    return any(found) if found else None

"""Where the kernel would send a frame: the interface of the route, and the next hop's MAC address.

Both come from the kernel's tables by netlink, which needs no capability. Only the kernel resolves addresses (ARP): a
datagram that it sends makes it look for the next hop.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from iswitch.driver.address import send_failure
from iswitch.errors import SwitchUnreachableError

__all__ = ["Interface", "Route", "find_interface", "find_mac", "find_route"]

_NETLINK = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, lengths, tos, table, protocol, scope, type, flags
_NEIGHBOUR = struct.Struct("=B3xiHBB")  # ndmsg: family, interface, state, flags, type
_ATTRIBUTE = struct.Struct("=HH")
_GET_ROUTE, _GET_NEIGHBOUR = 26, 30
_REQUEST, _DUMP = 1, 0x300
_ERROR, _DONE = 2, 3
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_VIA = 1, 4, 5, 18
_NDA_DST, _NDA_LLADDR = 1, 2
_USABLE = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80
"""States of a neighbour whose MAC address the kernel uses: reachable, stale, delay, probe, noarp, permanent."""
_RECEIVE_BYTES = 1 << 16
_SIOCGIFHWADDR, _SIOCGIFMTU = 0x8927, 0x8921
_ETHERNET = 1
_IFREQ = struct.Struct("16s24x")


class Route(NamedTuple):
    """The path of frames to a host: the interface's index, and the IPv4 address of the next hop."""

    interface: int
    next_hop: bytes


class Interface(NamedTuple):
    """An Ethernet interface: its name, MAC address, and MTU in bytes."""

    name: str
    mac: bytes
    mtu: int


def find_route(ip: bytes) -> Route:
    """Return the route to an IPv4 address.

    Raises
    ------
    SwitchUnreachableError
        If the kernel has none.
    """
    request = _ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0) + _attribute(_RTA_DST, ip)
    try:
        (answer,) = _ask(_GET_ROUTE, request)
    except OSError as error:
        name = socket.inet_ntoa(ip)
        cause, remedy = send_failure(error, name)
        raise SwitchUnreachableError(f"{name} cannot be reached: {cause}; {remedy}") from error
    attributes = dict(_attributes(answer[_ROUTE.size :]))
    if _RTA_VIA in attributes:
        name = socket.inet_ntoa(ip)
        raise SwitchUnreachableError(
            f"the next hop of the route to {name} has an IPv6 address, and a packet socket of iswitch needs an IPv4 "
            f"one: change the route (`ip route get {name}`), or leave out the transport, for UDP sockets"
        )
    (interface,) = struct.unpack("=I", attributes[_RTA_OIF])
    return Route(interface, attributes.get(_RTA_GATEWAY, ip))


def find_mac(route: Route) -> bytes | None:
    """Return the MAC address of the next hop, or None if the kernel does not know it."""
    for entry in _ask(_GET_NEIGHBOUR, _NEIGHBOUR.pack(socket.AF_INET, route.interface, 0, 0, 0), _DUMP):
        _, interface, state, _, _ = _NEIGHBOUR.unpack_from(entry)
        if interface == route.interface and state & _USABLE:
            attributes = dict(_attributes(entry[_NEIGHBOUR.size :]))
            if attributes.get(_NDA_DST) == route.next_hop:
                return attributes.get(_NDA_LLADDR)
    return None


def find_interface(index: int) -> Interface:
    """Return an interface.

    Raises
    ------
    ValueError
        If it carries no Ethernet frames.
    """
    name = socket.if_indextoname(index)
    request = _IFREQ.pack(name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        kind, mac = struct.unpack_from("=H6s", fcntl.ioctl(probe, _SIOCGIFHWADDR, request), 16)
        (mtu,) = struct.unpack_from("=i", fcntl.ioctl(probe, _SIOCGIFMTU, request), 16)
    if kind != _ETHERNET:
        raise ValueError(
            f"the path to the switch is the interface {name}, which carries no Ethernet frames (this machine's own "
            "addresses and tunnels do not), so it has no use for a packet socket: leave out the transport, for UDP "
            "sockets"
        )
    return Interface(name, mac, mtu)


def _ask(kind: int, body: bytes, flags: int = 0) -> Iterator[bytes]:
    """Yield the bodies of the kernel's answers. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.bind((0, 0))
        asked.send(_NETLINK.pack(_NETLINK.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            received = asked.recv(_RECEIVE_BYTES)
            while received:
                length, answer, _, _, _ = _NETLINK.unpack_from(received)
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    (number,) = struct.unpack_from("=i", received, _NETLINK.size)
                    raise OSError(-number, os.strerror(-number))
                yield received[_NETLINK.size : length]
                received = received[_padded(length) :]
            if not flags & _DUMP:
                return


def _padded(length: int) -> int:
    return length + 3 & ~3


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[_padded(length) :]

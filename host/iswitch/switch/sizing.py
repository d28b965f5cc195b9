"""The `Config` of a software switch: segments that fit its interface, and a window that fits its sockets."""

import fcntl
import ipaddress
import socket
import struct
from array import array
from collections.abc import Sequence

from iswitch.config import Config, Replay
from iswitch.driver.window import in_flight_max
from iswitch.wire import HEADER, TAIL_BYTES, longest_frame_bytes

__all__ = ["config_for", "elements_for", "mtu_at"]

_SIOCGIFCONF, _SIOCGIFMTU = 0x8912, 0x8921
_IFREQ_BYTES, _ADDRESSES_MAX = 40, 256
_IP_UDP_BYTES = 28
_WORD_ELEMENTS = 16
"""Elements come in whole words of the widest bus, as in the gateware."""
_MOST_ELEMENTS = 2208
"""So that seven datagrams fill a burst of UDP GSO, and one a jumbo frame."""
_UNKNOWN_MTU = 1500


def config_for(
    sockets: Sequence[socket.socket],
    *,
    members: int = Config.members,
    jobs: int = Config.jobs,
    window: int | None = None,
    elements: int | None = None,
    replay: Replay | None = None,
) -> Config:
    """Return the `Config` of a software switch. Its queues are the kernel's: `queue_bytes` fits the elements.

    Parameters
    ----------
    sockets : sequence of socket.socket
        Its ports.
    members, jobs, window, elements, replay : optional
        As of `Config`. By default, elements fill a packet on the interface, and the window fits a port's buffer.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """
    if elements is None:
        elements = elements_for(sockets[0].getsockname()[0])
    if window is None:
        most = in_flight_max(elements, sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        window = min(Config.window, 1 << most.bit_length() - 1)
    queue_bytes = max(Config.queue_bytes, 1 << (2 * longest_frame_bytes(elements)).bit_length())
    return Config(
        ports=len(sockets),
        members=members,
        jobs=jobs,
        window=window,
        elements=elements,
        queue_bytes=queue_bytes,
        replay=replay,
        half_width=True,
    )


def mtu_at(host: str) -> int:
    """Return the largest packet, in bytes, that every interface with this address carries.

    Parameters
    ----------
    host : str
        IPv4 address of this machine; 0.0.0.0 for those of all interfaces but loopback.
    """
    found = _interfaces()
    outside = min((mtu for address, mtu in found if not address.is_loopback), default=_UNKNOWN_MTU)
    try:
        at = ipaddress.IPv4Address(socket.gethostbyname(host))
    except OSError:  # this machine has no such name; opening a socket there reports the error
        return outside
    if at.is_loopback:
        return min((mtu for address, mtu in found if address.is_loopback), default=outside)
    return min((mtu for address, mtu in found if address == at), default=outside)


def _interfaces() -> list[tuple[ipaddress.IPv4Address, int]]:
    """Return each IPv4 address of this machine, with the MTU of its interface."""
    buffer = array("B", bytes(_IFREQ_BYTES * _ADDRESSES_MAX))
    place, length = buffer.buffer_info()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        filled = struct.unpack("iP", fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", length, place)))[0]
        for at in range(0, filled, _IFREQ_BYTES):
            entry = buffer[at : at + _IFREQ_BYTES].tobytes()
            (mtu,) = struct.unpack_from("i", fcntl.ioctl(probe, _SIOCGIFMTU, entry), 16)
            found.append((ipaddress.IPv4Address(entry[20:24]), mtu))
    return found


def elements_for(host: str) -> int:
    """Return the most elements in a segment of a switch that listens at this address: what one packet carries.

    A larger segment costs less processor time for each element.
    """
    room = (mtu_at(host) - _IP_UDP_BYTES - HEADER.itemsize - TAIL_BYTES) // 4
    return max(_WORD_ELEMENTS, min(_MOST_ELEMENTS, room // _WORD_ELEMENTS * _WORD_ELEMENTS))

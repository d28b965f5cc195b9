"""The UDP sockets of a switch on this machine, and the stations that send to them."""

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["open_port", "open_ports", "station_mac"]

BUFFER_BYTES = 8 << 20
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
"""Options of Linux that Python 3.11 does not name."""
_CAUSES = {
    errno.EADDRINUSE: "another program uses this port, perhaps another switch: end that one, or choose other ports "
    "(--udp-base, or `make emulator PORT=...`), and set ISWITCH_ADDRESS to the first of them for the workers",
    errno.EACCES: "only root may open ports below 1024: choose a higher --udp-base",
    errno.EADDRNOTAVAIL: "this machine has no such address: --bind must be one of its IPv4 addresses (`ip -4 addr`)",
}


def station_mac(ip: bytes, udp_port: int) -> bytes:
    """Return the MAC address of a socket that talks to the switch: no two sockets share one."""
    return b"\x02" + ip[1:] + udp_port.to_bytes(2, "big")


def open_port(host: str, udp_port: int) -> socket.socket:
    """Open a UDP socket with large buffers.

    Parameters
    ----------
    host : str
        IPv4 address at which the socket listens.
    udp_port : int
        UDP port, 0 for any free one.

    Raises
    ------
    OSError
        If the socket cannot be opened. The message says why, and what helps.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.bind((host, udp_port))
    except OSError as error:
        opened.close()
        number = errno.EADDRNOTAVAIL if isinstance(error, socket.gaierror) else error.errno or 0
        cause = _CAUSES.get(number, str(error.strerror))
        raise OSError(error.errno, f"cannot open a UDP socket at {host}:{udp_port}: {cause}") from error
    for usual, forced in ((socket.SO_RCVBUF, SO_RCVBUFFORCE), (socket.SO_SNDBUF, SO_SNDBUFFORCE)):
        for option in (usual, forced):  # the forced option needs a capability; the usual one has a limit
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return opened


def open_ports(host: str, udp_ports: Sequence[int]) -> list[socket.socket]:
    """Open a UDP socket for each port of a switch, as `open_port` does.

    Raises
    ------
    ValueError
        If a UDP port is above 65535.
    OSError
        If a socket cannot be opened. Then the others are closed.
    """
    if max(udp_ports) > 65535:
        raise ValueError(
            f"--udp-base must be at most {65536 - len(udp_ports)}, because the switch uses {len(udp_ports)} ports from "
            f"it on, not {udp_ports[0]}"
        )
    sockets: list[socket.socket] = []
    try:
        for udp_port in udp_ports:
            sockets.append(open_port(host, udp_port))
    except BaseException:
        for opened in sockets:
            opened.close()
        raise
    return sockets

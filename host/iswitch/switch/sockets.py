"""The UDP sockets of a software switch: one for each port."""

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["open_ports"]

BUFFER_BYTES = 8 << 20
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
"""Options of Linux that Python 3.11 does not name."""
_CAUSES = {
    errno.EADDRINUSE: "another program uses this port, perhaps another switch: end that one, or choose other ports "
    "(--udp-base)",
    errno.EACCES: "only root may open ports below 1024: choose a higher --udp-base",
    errno.EADDRNOTAVAIL: "this machine has no such address: --bind must be one of its IPv4 addresses (`ip -4 addr`), "
    "or 0.0.0.0 for all of them",
}


def open_ports(host: str, udp_ports: Sequence[int]) -> list[socket.socket]:
    """Open a UDP socket for each port of a switch.

    Parameters
    ----------
    host : str
        IPv4 address at which the sockets listen.
    udp_ports : sequence of int
        UDP ports, 0 for any free one.

    Returns
    -------
    list of socket.socket
        Bound sockets that do not block.

    Raises
    ------
    OSError
        If a socket cannot be opened. The message says why, and what helps.
    """
    sockets: list[socket.socket] = []
    try:
        for udp_port in udp_ports:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sockets.append(opened)
            try:
                opened.bind((host, udp_port))
            except OSError as error:
                number = errno.EADDRNOTAVAIL if isinstance(error, socket.gaierror) else error.errno or 0
                cause = _CAUSES.get(number, str(error.strerror))
                raise OSError(number, f"cannot open a UDP socket at {host}:{udp_port}: {cause}") from error
            opened.setblocking(False)
            for usual, forced in ((socket.SO_RCVBUF, SO_RCVBUFFORCE), (socket.SO_SNDBUF, SO_SNDBUFFORCE)):
                for option in (usual, forced):  # the forced option needs a capability; the usual one has a limit
                    with suppress(OSError):
                        opened.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    except BaseException:
        for opened in sockets:
            opened.close()
        raise
    return sockets

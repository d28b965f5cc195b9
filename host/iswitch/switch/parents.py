"""Where the parents of a software switch are, as the command line names them."""

import re
import socket

from iswitch.config import MEMBERS_MAX
from iswitch.golden.tree_switch import Parent
from iswitch.switch.sockets import station_mac

__all__ = ["parse_parent"]

FORM = re.compile(r"(\d+)=([^/:]+):(\d+)/(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


def parse_parent(given: str, *, port: int) -> tuple[int, Parent]:
    """Return a job and its parent.

    Parameters
    ----------
    given : str
        JOB=HOST:PORT/RANKS, such as 0=10.0.0.9:27000/0-3,7.
    port : int
        The port of this switch that leads to the parent.

    Raises
    ------
    ValueError
        If the text has another form, a rank or the port is too large, or the host has no IPv4 address.
    """
    found = FORM.fullmatch(given)
    if not found:
        raise ValueError(f"--parent must be JOB=HOST:PORT/RANKS, such as 0=10.0.0.9:27000/0-3,7, not {given!r}")
    job, host, udp_port, spans = int(found[1]), found[2], int(found[3]), found[4]
    ranks = 0
    for span in spans.split(","):
        first, _, last = span.partition("-")
        for rank in range(int(first), int(last or first) + 1):
            if rank >= MEMBERS_MAX:
                raise ValueError(f"--parent ranks must be 0 to {MEMBERS_MAX - 1}, not {rank}")
            ranks |= 1 << rank
    if not 0 < udp_port < 1 << 16:
        raise ValueError(f"--parent port must be 1 to 65535, not {udp_port}")
    if not ranks:
        raise ValueError(f"--parent ranks must not be empty, as in {given!r}")
    try:
        ip = socket.inet_aton(socket.gethostbyname(host))
    except OSError as error:
        raise ValueError(f"--parent host {host!r} has no IPv4 address: {error.strerror}") from error
    return job, Parent(port, station_mac(ip, udp_port), ip, ranks, udp_port)

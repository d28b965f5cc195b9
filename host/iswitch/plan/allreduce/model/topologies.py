"""Named topologies, such as DCell(4,1), and the seventeen of the table in docs/allreduce.md."""

import re
from collections.abc import Callable, Sequence

import networkx as nx

from iswitch.plan.topology.server_centric import bcube, dcell, jellyfish

__all__ = ["SERVERS_MAX", "SERVER_CENTRIC", "TOPOLOGIES", "TRAINED_ON", "build_topology", "require_few_servers"]

SERVER_CENTRIC = (
    "BCube(2,1)",
    "BCube(3,1)",
    "BCube(4,1)",
    "BCube(5,1)",
    "BCube(2,2)",
    "BCube(3,2)",
    "BCube(2,3)",
    "DCell(2,1)",
    "DCell(3,1)",
    "DCell(4,1)",
    "DCell(5,1)",
    "DCell(2,2)",
)
TOPOLOGIES = (
    *SERVER_CENTRIC,
    "Jellyfish(8,3)",
    "Jellyfish(10,3)",
    "Jellyfish(16,4)",
    "Jellyfish(20,4)",
    "Jellyfish(8,3,1,2)",
)
"""The names in the order of the table."""

TRAINED_ON = ("BCube(3,1)", "DCell(3,1)", "BCube(2,2)", "Jellyfish(8,3)", "BCube(4,1)", "DCell(4,1)")
"""The topologies on which the packaged policies were trained. The others of the table are held out."""

SERVERS_MAX = 256
"""Workloads grow with the square of the servers: an episode takes 5 s of processor time with 64 servers, and half a
minute with 125."""

COUNT_MAX = 10**9
"""Servers are not counted beyond this."""
DEFAULT_SEED = 1
FAMILIES: dict[str, tuple[Callable[..., nx.Graph], int, int]] = {
    "bcube": (bcube, 2, 2),
    "dcell": (dcell, 2, 2),
    "jellyfish": (jellyfish, 2, 4),
}
"""By family, the function that makes the graph, and how few and how many numbers it takes."""


def build_topology(name: str) -> nx.Graph:
    """Return the graph of a name.

    Parameters
    ----------
    name : str
        ``BCube(n,k)``, ``DCell(n,k)`` or ``Jellyfish(switches,degree[,seed[,hosts per switch]])``; the default seed
        is 1.

    Raises
    ------
    ValueError
        If the name has another form, or above `SERVERS_MAX` servers; these are counted before the graph is made.
    """
    found = re.fullmatch(r"(\w+)\((\d+(?: *, *\d+)*)\)", name.strip())
    if not found or found[1].lower() not in FAMILIES:
        raise ValueError(f"topology must be like BCube(4,1), DCell(3,1) or Jellyfish(16,4), not {name!r}")
    make, least, most = FAMILIES[found[1].lower()]
    numbers = [int(number) for number in found[2].split(",")]
    if not least <= len(numbers) <= most:
        raise ValueError(f"{found[1]} takes {least if least == most else f'{least} to {most}'} numbers, not {name!r}")
    if make is jellyfish and len(numbers) == 2:
        numbers.append(DEFAULT_SEED)
    require_few_servers(name, _count_servers(make, numbers))
    return make(*numbers)


def require_few_servers(name: str, servers: int) -> None:
    """Raise ValueError if a network has more than `SERVERS_MAX` servers."""
    if servers > SERVERS_MAX:
        count = servers if servers < COUNT_MAX else "over 10^9"
        raise ValueError(f"{name} must have at most {SERVERS_MAX} servers to be scheduled, not {count}")


def _count_servers(make: Callable[..., nx.Graph], numbers: Sequence[int]) -> int:
    """Return the number of servers of a topology, or a number above `COUNT_MAX` if there are more."""
    if make is jellyfish:
        return numbers[0] * (numbers[3] if len(numbers) > 3 else 1)
    n, levels = numbers
    servers = n
    for _ in range(levels):
        servers *= n if make is bcube else servers + 1
        if not 1 < servers < COUNT_MAX:
            break
    return servers

"""The seventeen topologies of the table: name to graph."""

import re
from collections.abc import Callable, Sequence

import networkx as nx

from iswitch.plan.topology.server_centric import bcube, dcell, jellyfish

__all__ = ["CASES", "SERVERS_MAX", "SERVER_CENTRIC", "TRAINED_ON", "build", "demand_few"]

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
CASES = (
    *SERVER_CENTRIC,
    "Jellyfish(8,3)",
    "Jellyfish(10,3)",
    "Jellyfish(16,4)",
    "Jellyfish(20,4)",
    "Jellyfish(8,3,1,2)",
)
"""Names that `build` understands, in the order of the table."""

TRAINED_ON = ("BCube(3,1)", "DCell(3,1)", "BCube(2,2)", "Jellyfish(8,3)", "BCube(4,1)", "DCell(4,1)")
"""Those on which the packaged policies have been trained; the rest of the table is held out."""

SERVERS_MAX = 256
"""Workloads are about the square of it: one game takes 5 s of processor time with 64 servers, half a minute with
125."""

MANY = 10**9
DEFAULT_SEED = 1
FAMILIES: dict[str, tuple[Callable[..., nx.Graph], int, int]] = {
    "bcube": (bcube, 2, 2),
    "dcell": (dcell, 2, 2),
    "jellyfish": (jellyfish, 2, 4),
}


def build(name: str) -> nx.Graph:
    """Graph of "BCube(n,k)", "DCell(n,k)" or "Jellyfish(switches,degree[,seed[,hosts per switch]])"; the seed is 1
    unless given. ValueError, also above `SERVERS_MAX` servers, before anything is built."""
    found = re.fullmatch(r"(\w+)\((\d+(?: *, *\d+)*)\)", name.strip())
    if not found or found[1].lower() not in FAMILIES:
        raise ValueError(f"topology must be like BCube(4,1), DCell(3,1) or Jellyfish(16,4), not {name!r}")
    make, least, most = FAMILIES[found[1].lower()]
    numbers = [int(number) for number in found[2].split(",")]
    if not least <= len(numbers) <= most:
        raise ValueError(f"{found[1]} takes {least if least == most else f'{least} to {most}'} numbers, not {name!r}")
    if make is jellyfish and len(numbers) == 2:
        numbers.append(DEFAULT_SEED)
    demand_few(name, _servers(make, numbers))
    return make(*numbers)


def demand_few(name: str, servers: int) -> None:
    """ValueError above `SERVERS_MAX`."""
    if servers > SERVERS_MAX:
        raise ValueError(
            f"{name} must have at most {SERVERS_MAX} servers to be scheduled, not {servers if servers < MANY else 'over 10^9'}"
        )


def _servers(make: Callable[..., nx.Graph], numbers: Sequence[int]) -> int:
    """How many there will be; if more than `MANY`, only that."""
    if make is jellyfish:
        return numbers[0] * (numbers[3] if len(numbers) > 3 else 1)
    n, levels = numbers
    servers = n
    for _ in range(levels):
        servers *= n if make is bcube else servers + 1
        if not 1 < servers < MANY:
            break
    return servers

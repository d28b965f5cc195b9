"""The seventeen topologies of the table: name to graph."""

import re
from collections.abc import Callable

import networkx as nx

from iswitch.plan.server_centric import bcube, dcell, jellyfish

__all__ = ["CASES", "SERVER_CENTRIC", "TRAINED_ON", "build"]

SERVER_CENTRIC = ("BCube(2,1)", "BCube(3,1)", "BCube(4,1)", "BCube(5,1)", "BCube(2,2)", "BCube(3,2)", "BCube(2,3)",
                  "DCell(2,1)", "DCell(3,1)", "DCell(4,1)", "DCell(5,1)", "DCell(2,2)")
CASES = (*SERVER_CENTRIC, "Jellyfish(8,3)", "Jellyfish(10,3)", "Jellyfish(16,4)", "Jellyfish(20,4)", "Jellyfish(8,3,1,2)")
"""Names that `build` understands, in the order of the table."""

TRAINED_ON = ("BCube(3,1)", "DCell(3,1)", "BCube(2,2)", "Jellyfish(8,3)", "BCube(4,1)", "DCell(4,1)")
"""Those on which the packaged policies have been trained; the rest of the table is held out."""

DEFAULT_SEED = 1
FAMILIES: dict[str, tuple[Callable[..., nx.Graph], int, int]] = {"bcube": (bcube, 2, 2), "dcell": (dcell, 2, 2), "jellyfish": (jellyfish, 2, 4)}


def build(name: str) -> nx.Graph:
    """Graph of "BCube(n,k)", "DCell(n,k)" or "Jellyfish(switches,degree[,seed[,hosts per switch]])"; the seed is 1 unless given."""
    found = re.fullmatch(r"(\w+)\(([\d, ]+)\)", name.strip())
    if not found or found[1].lower() not in FAMILIES:
        raise ValueError(f"topology must be like BCube(4,1), DCell(3,1) or Jellyfish(16,4), not {name!r}")
    make, least, most = FAMILIES[found[1].lower()]
    numbers = [int(number) for number in found[2].split(",")]
    if not least <= len(numbers) <= most:
        raise ValueError(f"{found[1]} takes {least if least == most else f'{least} to {most}'} numbers, not {name!r}")
    if make is jellyfish and len(numbers) == 2:
        numbers.append(DEFAULT_SEED)
    return make(*numbers)

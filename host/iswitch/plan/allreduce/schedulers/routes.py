"""Routes of several hops between servers."""

import random
from collections import Counter
from collections.abc import Iterator

from iswitch.plan.allreduce.model.network import Network

__all__ = ["route_links", "routes_from", "shortest_routes"]

TRIALS = 20
"""Random orders of servers that `routes_from` tries."""


def shortest_routes(network: Network, root: int, server: int) -> Iterator[list[int]]:
    """Yield all routes with the fewest hops from `root` to `server`, as numbers of hops."""
    if root == server:
        yield []
        return
    for hop in network.incoming_hops[server]:
        before = int(network.source[hop])
        if network.hop_distance[root, before] == network.hop_distance[root, server] - 1:
            yield from ([*route, hop] for route in shortest_routes(network, root, before))


def route_links(network: Network, route: list[int]) -> list[int]:
    """Return the links of a route."""
    return [link for hop in route for link in network.hop_links[hop].tolist() if link >= 0]


def routes_from(network: Network, root: int) -> dict[int, list[int]]:
    """Return a shortest route from `root` to every other server, such that the busiest link has little load.

    The best of `TRIALS` random orders counts; it is not proved to be the best of all.
    """
    best: tuple[int, dict[int, list[int]]] | None = None
    distance = network.hop_distance[root].tolist()
    choices_to = [list(shortest_routes(network, root, server)) for server in range(network.size)]
    links_to = [[route_links(network, route) for route in routes] for routes in choices_to]
    for seed in range(TRIALS):
        rng, load = random.Random(seed), Counter[int]()
        found: dict[int, list[int]] = {}
        others = [server for server in range(network.size) if server != root]
        rng.shuffle(others)
        for server in sorted(others, key=lambda server: -distance[server]):
            links = links_to[server]
            choices = list(range(len(links)))
            rng.shuffle(choices)
            chosen = min(
                choices,
                key=lambda at: (max(load[link] + 1 for link in links[at]), sum(load[link] for link in links[at])),
            )
            found[server] = choices_to[server][chosen]
            load.update(links[chosen])
        if best is None or max(load.values()) < best[0]:
            best = max(load.values()), found
    assert best is not None
    return best[1]

"""Reduce-scatter and all-gather around a ring of all servers."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Path, Schedule, list_schedule
from iswitch.plan.allreduce.schedulers.routes import route_links, shortest_routes

__all__ = ["find_ring_order", "ring", "ring_rounds"]

RESTARTS, STEPS_MAX = 200, 1000
"""How often the search for an order begins anew, and after how many steps it gives up each time."""


def ring(network: Network, order: Sequence[int] | None = None, *, name: str = "ring") -> Schedule:
    """Return the schedule of a ring. A step ends before the next one begins.

    Parameters
    ----------
    network : Network
        The network.
    order : sequence of int, optional
        The servers in the order of the ring; by default in that of their numbers.
    name : str
        The name of the schedule.

    Raises
    ------
    ValueError
        If the order does not contain every server once.
    """
    order = list(range(network.size)) if order is None else list(order)
    if sorted(order) != list(range(network.size)):
        raise ValueError(f"ring order must hold each of {network.size} servers once, not {order!r}")
    size, servers = network.size, network.servers
    jobs: list[tuple[Path, list[int]]] = []
    facts: list[tuple[int, bool]] = []  # position of the sender in the ring, whether this is the last leg
    priority = []
    for position, route in enumerate(_ring_routes(network, order)):
        for leg, hop in enumerate(route):
            jobs.append((network.hops[hop], [len(jobs) - 1] if leg else []))
            facts.append((position, leg == len(route) - 1))
            priority.append(leg - len(route))
    pattern = list_schedule(jobs, priority=priority)

    def flow(index: int, chunk_of: Callable[[int], int], op: Op) -> Flow:
        position, last_leg = facts[index]
        return Flow(chunk_of(position), jobs[index][0], op if last_leg else Op.HOLD, servers[order[position]])

    rounds: list[list[Flow]] = []
    for step in range(size - 1):
        chunk_of = lambda position: (position - step) % size
        rounds += [[flow(index, chunk_of, Op.MERGE) for index in taken] for taken in pattern]
    for step in range(size - 1):
        chunk_of = lambda position: (position + 1 - step) % size
        rounds += [[flow(index, chunk_of, Op.COPY) for index in taken] for taken in pattern]
    return Schedule(name, size, rounds)


def _ring_routes(network: Network, order: Sequence[int]) -> list[list[int]]:
    """Return the route of each server to the next in the ring: shortest, over the least loaded links.

    Long routes are chosen first.
    """
    pairs = [
        (position, server, following) for position, (server, following) in enumerate(zip(order, [*order[1:], order[0]]))
    ]
    load: Counter[int] = Counter()
    routes: list[list[int]] = [[] for _ in pairs]
    for position, server, following in sorted(pairs, key=lambda pair: -network.hop_distance[pair[1], pair[2]]):
        choices = list(shortest_routes(network, server, following))
        links = [route_links(network, route) for route in choices]
        chosen = min(
            range(len(choices)),
            key=lambda at: (
                max(load[link] for link in links[at]),
                len(links[at]),
                sum(load[link] for link in links[at]),
            ),
        )
        routes[position] = choices[chosen]
        load.update(links[chosen])
    return routes


def ring_rounds(network: Network, order: Sequence[int] | None = None) -> int:
    """Return the fewest rounds of a ring over the routes of `ring`: 2(N-1) steps of the rounds of their worst link.

    If n flows cross a link, all with at least h hops before and t hops after it, a step needs h + n + t rounds.
    """
    order = list(range(network.size)) if order is None else list(order)
    crossing: dict[int, list[tuple[int, int]]] = {}
    for route in _ring_routes(network, order):
        for leg, hop in enumerate(route):
            for link in network.hop_links[hop].tolist():
                if link >= 0:
                    crossing.setdefault(link, []).append((leg, len(route) - 1 - leg))
    longest = max(
        head + tail + sum(h >= head and t >= tail for h, t in flows)
        for flows in crossing.values()
        for head in {h for h, _ in flows}
        for tail in {t for _, t in flows}
    )
    return 2 * (network.size - 1) * longest


def find_ring_order(network: Network, *, seed: int = 0) -> list[int]:
    """Return an order in which a step of the ring takes one round, with one hop and links of its own for each flow.

    If the search finds none, the order is that of the numbers.
    """
    rng = random.Random(seed)
    leaving: dict[int, list[int]] = {}
    for hop, source in enumerate(network.source.tolist()):
        leaving.setdefault(source, []).append(hop)
    for _ in range(RESTARTS):
        order = _search_cycle(network, leaving, rng)
        if order and ring_rounds(network, order) == 2 * (network.size - 1):
            return order
    return list(range(network.size))


def _search_cycle(network: Network, leaving: dict[int, list[int]], rng: random.Random) -> list[int] | None:
    """Search depth first from server 0; short hops come first, then servers with few onward hops."""
    order, seen, used = [0], {0}, set[int]()
    target = network.target.tolist()
    links = [[link for link in row if link >= 0] for row in network.hop_links.tolist()]
    steps = 0

    def extend() -> bool:
        nonlocal steps
        steps += 1
        if steps > STEPS_MAX:
            return False
        here = order[-1]
        last = len(order) == network.size
        choices = [
            hop
            for hop in leaving[here]
            if used.isdisjoint(links[hop]) and (target[hop] == 0 if last else target[hop] not in seen)
        ]
        if last:
            return bool(choices)
        onward = {
            target[hop]: sum(target[next_hop] not in seen for next_hop in leaving[target[hop]]) for hop in choices
        }
        for hop in sorted(choices, key=lambda hop: (len(links[hop]), onward[target[hop]], rng.random())):
            order.append(target[hop])
            seen.add(target[hop])
            used.update(links[hop])
            if extend():
                return True
            seen.discard(order.pop())
            used.difference_update(links[hop])
        return False

    return order if extend() else None

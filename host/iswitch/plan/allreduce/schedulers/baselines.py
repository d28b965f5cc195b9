"""What everybody does: parameter server, sharded servers, ring; plain (nobody sums on the way) or over flow trees
(servers do)."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Path, Schedule, mirrored, packed
from iswitch.plan.allreduce.schedulers.flow_trees import balanced_tree, spread

__all__ = [
    "closed_ps",
    "closed_ring",
    "good_order",
    "parameter_server",
    "plain_server",
    "ring",
    "routes",
    "sharded",
    "sharded_plain",
]

RESTARTS, STEPS = 200, 1000
"""Of the search for a ring: how often it begins, and how far it goes each time."""
TRIES = 20


# Over flow trees


def parameter_server(network: Network) -> Schedule:
    """All chunks are summed at server 0 on the way over a flow tree each, and go back by them."""
    load = [0] * len(network.links)
    out = spread([balanced_tree(network, 0, chunk, load) for chunk in range(network.size)])
    return Schedule("parameter server, merging", network.size, mirrored(out) + out)


def sharded(network: Network, draw: random.Random | None = None) -> Schedule:
    """Chunk c is summed at server c over a fixed, balanced flow tree. `draw` settles ties at random."""
    load = [0] * len(network.links)
    roots = list(range(network.size))
    if draw:
        draw.shuffle(roots)
    out = spread([balanced_tree(network, root, root, load, draw) for root in roots], draw=draw)
    return Schedule("fixed trees", network.size, mirrored(out) + out)


# Plain


def routes(network: Network, root: int) -> dict[int, list[int]]:
    """Hops from `root` to every other server: shortest ways, so that the most used link is used least (by trying, not
    proved)."""
    best: tuple[int, dict[int, list[int]]] | None = None
    distance = network.distance[root].tolist()
    ways_to = [list(_ways(network, root, server)) for server in range(network.size)]
    links_of = [
        [[link for hop in way for link in network.hop_links[hop].tolist() if link >= 0] for way in ways]
        for ways in ways_to
    ]
    for seed in range(TRIES):
        draw, load = random.Random(seed), Counter[int]()
        found: dict[int, list[int]] = {}
        others = [server for server in range(network.size) if server != root]
        draw.shuffle(others)
        for server in sorted(others, key=lambda server: -distance[server]):
            used = links_of[server]
            choices = list(range(len(used)))
            draw.shuffle(choices)
            at = min(
                choices, key=lambda at: (max(load[link] + 1 for link in used[at]), sum(load[link] for link in used[at]))
            )
            found[server] = ways_to[server][at]
            load.update(used[at])
        if best is None or max(load.values()) < best[0]:
            best = max(load.values()), found
    assert best is not None
    return best[1]


def _ways(network: Network, root: int, server: int) -> Iterator[list[int]]:
    """All ways of least hops, root first."""
    if root == server:
        yield []
        return
    for hop in network.arriving[server]:
        before = int(network.source[hop])
        if network.distance[root, before] == network.distance[root, server] - 1:
            yield from ([*way, hop] for way in _ways(network, root, before))


def plain_server(network: Network) -> Schedule:
    """Everybody's contribution goes to server 0 by itself, and each gets a copy of the sum of his own."""
    return _plain("parameter server", network, [(chunk, 0) for chunk in range(network.size)])


def sharded_plain(network: Network) -> Schedule:
    """As `plain_server`, but chunk c goes to server c."""
    return _plain("sharded", network, [(chunk, chunk) for chunk in range(network.size)])


def _plain(name: str, network: Network, roots: list[tuple[int, int]]) -> Schedule:
    ways = {root: routes(network, root) for root in {root for _, root in roots}}
    jobs: list[tuple[Path, list[int]]] = []
    facts: list[tuple[int, int, int]] = []  # chunk, root, server at the end
    ranks: list[tuple[int, ...]] = []
    for chunk, root in roots:
        for server, way in ways[root].items():
            for leg, hop in enumerate(way):
                jobs.append((network.hops[hop], [len(jobs) - 1] if leg else []))
                facts.append((chunk, root, server))
                ranks.append((leg - len(way), (chunk - server) % network.size))
    rounds = packed(jobs, priority=ranks)
    servers = network.servers

    def out(index: int) -> Flow:
        chunk, root, server = facts[index]
        path = jobs[index][0]
        return Flow(chunk, path, Op.COPY if path[-1] == servers[server] else Op.HOLD, servers[root])

    def back(index: int) -> Flow:
        chunk, root, server = facts[index]
        path = jobs[index][0][::-1]
        return Flow(chunk, path, Op.MERGE if path[-1] == servers[root] else Op.HOLD, servers[server])

    return Schedule(
        name,
        network.size,
        [[back(index) for index in taken] for taken in reversed(rounds)]
        + [[out(index) for index in taken] for taken in rounds],
    )


def closed_ps(network: Network) -> int:
    """Rounds of `plain_server`: all N chunks of all servers behind the root's fullest link, in and out again."""
    load = Counter(
        int(link) for way in routes(network, 0).values() for hop in way for link in network.hop_links[hop] if link >= 0
    )
    return 2 * network.size * max(load.values())


# Ring


def ring(network: Network, order: Sequence[int] | None = None, *, name: str = "ring") -> Schedule:
    """Reduce-scatter and all-gather round a ring of all servers, in the order of their numbers unless given; a step
    ends before the next begins."""
    order = list(range(network.size)) if order is None else list(order)
    if sorted(order) != list(range(network.size)):
        raise ValueError(f"ring order must hold each of {network.size} servers once, not {order!r}")
    size, servers = network.size, network.servers
    ways = _ring_ways(network, order)
    jobs: list[tuple[Path, list[int]]] = []
    facts: list[tuple[int, bool]] = []  # position in the ring of the sender, whether it is the last leg
    ranks = []
    for position, way in enumerate(ways):
        for leg, hop in enumerate(way):
            jobs.append((network.hops[hop], [len(jobs) - 1] if leg else []))
            facts.append((position, leg == len(way) - 1))
            ranks.append(leg - len(way))
    pattern = packed(jobs, priority=ranks)

    def step(chunk_of: Callable[[int], int], op: Op) -> list[list[Flow]]:
        return [
            [
                Flow(
                    chunk_of(facts[index][0]),
                    jobs[index][0],
                    op if facts[index][1] else Op.HOLD,
                    servers[order[facts[index][0]]],
                )
                for index in taken
            ]
            for taken in pattern
        ]

    rounds: list[list[Flow]] = []
    for turn in range(size - 1):
        rounds += step(lambda position: (position - turn) % size, Op.MERGE)
    for turn in range(size - 1):
        rounds += step(lambda position: (position + 1 - turn) % size, Op.COPY)
    return Schedule(name, size, rounds)


def _ring_ways(network: Network, order: Sequence[int]) -> list[list[int]]:
    """Way of each server in the ring to the next: shortest, the longest chosen first, over the links that carry
    least."""
    pairs = [
        (position, server, following) for position, (server, following) in enumerate(zip(order, [*order[1:], order[0]]))
    ]
    load: Counter[int] = Counter()
    ways: list[list[int]] = [[] for _ in pairs]
    for position, server, following in sorted(pairs, key=lambda pair: -network.distance[pair[1], pair[2]]):
        choices = list(_ways(network, server, following))
        used = [[link for hop in way for link in network.hop_links[hop].tolist() if link >= 0] for way in choices]
        at = min(
            range(len(choices)),
            key=lambda at: (max(load[link] for link in used[at]), len(used[at]), sum(load[link] for link in used[at])),
        )
        ways[position] = choices[at]
        load.update(used[at])
    return ways


def closed_ring(network: Network, order: Sequence[int] | None = None) -> int:
    """Least rounds of a ring over the ways that `ring` takes: 2(N-1) steps, each as long as its worst link or way
    needs.

    A link that n flows cross, all with at least h hops before and t hops after it, needs h + n + t rounds.
    """
    order = list(range(network.size)) if order is None else list(order)
    crossing: dict[int, list[tuple[int, int]]] = {}
    for way in _ring_ways(network, order):
        for leg, hop in enumerate(way):
            for link in network.hop_links[hop].tolist():
                if link >= 0:
                    crossing.setdefault(link, []).append((leg, len(way) - 1 - leg))
    longest = max(
        head + tail + sum(h >= head and t >= tail for h, t in flows)
        for flows in crossing.values()
        for head in {h for h, _ in flows}
        for tail in {t for _, t in flows}
    )
    return 2 * (network.size - 1) * longest


def good_order(network: Network, *, seed: int = 0) -> list[int]:
    """An order in which a step takes one round, every flow one hop over links of its own, if the search finds one; else
    by numbers."""
    draw = random.Random(seed)
    leaving: dict[int, list[int]] = {}
    for hop, source in enumerate(network.source.tolist()):
        leaving.setdefault(source, []).append(hop)
    for _ in range(RESTARTS):
        order = _cycle(network, leaving, draw)
        if order and closed_ring(network, order) == 2 * (network.size - 1):
            return order
    return list(range(network.size))


def _cycle(network: Network, leaving: dict[int, list[int]], draw: random.Random) -> list[int] | None:
    """Depth first from server 0, short hops and servers with few ways on first."""
    order, seen, used = [0], {0}, set[int]()
    target = network.target.tolist()
    links = [[link for link in row if link >= 0] for row in network.hop_links.tolist()]
    steps = 0

    def extend() -> bool:
        nonlocal steps
        steps += 1
        if steps > STEPS:
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
        ways_on = {target[hop]: sum(target[on] not in seen for on in leaving[target[hop]]) for hop in choices}
        for hop in sorted(choices, key=lambda hop: (len(links[hop]), ways_on[target[hop]], draw.random())):
            order.append(target[hop])
            seen.add(target[hop])
            used.update(links[hop])
            if extend():
                return True
            seen.discard(order.pop())
            used.difference_update(links[hop])
        return False

    return order if extend() else None

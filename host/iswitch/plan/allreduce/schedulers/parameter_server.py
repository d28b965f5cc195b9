"""Parameter servers, one or sharded: plain, whose contributions travel alone, or merging in flow trees."""

import random
from collections import Counter

from iswitch.plan.allreduce.model.network import Network
from iswitch.plan.allreduce.model.schedule import Flow, Op, Path, Schedule, list_schedule, mirror
from iswitch.plan.allreduce.schedulers.flow_trees import balanced_tree, broadcast
from iswitch.plan.allreduce.schedulers.routes import route_links, routes_from

__all__ = [
    "fixed_trees",
    "merging_parameter_server",
    "plain_parameter_server",
    "plain_parameter_server_rounds",
    "plain_sharded_servers",
]


def merging_parameter_server(network: Network) -> Schedule:
    """Return the schedule in which server 0 sums all chunks, each over a flow tree that merges on the path."""
    load = [0] * len(network.links)
    rounds = broadcast([balanced_tree(network, 0, chunk, load) for chunk in range(network.size)])
    return Schedule("parameter server, merging", network.size, mirror(rounds) + rounds)


def fixed_trees(network: Network, rng: random.Random | None = None) -> Schedule:
    """Return the schedule in which server c sums chunk c over a fixed, balanced flow tree.

    `rng` decides between equals; by default the lowest number does.
    """
    load = [0] * len(network.links)
    roots = list(range(network.size))
    if rng:
        rng.shuffle(roots)
    rounds = broadcast([balanced_tree(network, root, root, load, rng) for root in roots], rng=rng)
    return Schedule("fixed trees", network.size, mirror(rounds) + rounds)


def plain_parameter_server(network: Network) -> Schedule:
    """Return the schedule in which each contribution travels alone to server 0, and each server gets its own copy."""
    return _plain("parameter server", network, [(chunk, 0) for chunk in range(network.size)])


def plain_sharded_servers(network: Network) -> Schedule:
    """Return the schedule of `plain_parameter_server`, but chunk c is summed at server c."""
    return _plain("sharded", network, [(chunk, chunk) for chunk in range(network.size)])


def _plain(name: str, network: Network, roots: list[tuple[int, int]]) -> Schedule:
    """Return the plain schedule for (chunk, root) pairs."""
    routes = {root: routes_from(network, root) for root in {root for _, root in roots}}
    jobs: list[tuple[Path, list[int]]] = []
    facts: list[tuple[int, int, int]] = []  # chunk, root, server at the end of the route
    priority: list[tuple[int, ...]] = []
    for chunk, root in roots:
        for server, route in routes[root].items():
            for leg, hop in enumerate(route):
                jobs.append((network.hops[hop], [len(jobs) - 1] if leg else []))
                facts.append((chunk, root, server))
                priority.append((leg - len(route), (chunk - server) % network.size))
    rounds = list_schedule(jobs, priority=priority)
    servers = network.servers

    def copy(index: int) -> Flow:
        chunk, root, server = facts[index]
        path = jobs[index][0]
        return Flow(chunk, path, Op.COPY if path[-1] == servers[server] else Op.HOLD, servers[root])

    def merge(index: int) -> Flow:
        chunk, root, server = facts[index]
        path = jobs[index][0][::-1]
        return Flow(chunk, path, Op.MERGE if path[-1] == servers[root] else Op.HOLD, servers[server])

    return Schedule(
        name,
        network.size,
        [[merge(index) for index in taken] for taken in reversed(rounds)]
        + [[copy(index) for index in taken] for taken in rounds],
    )


def plain_parameter_server_rounds(network: Network) -> int:
    """Return the rounds of `plain_parameter_server` by a closed form.

    N chunks of all servers behind the root's busiest link pass that link in both directions.
    """
    load = Counter(link for route in routes_from(network, 0).values() for link in route_links(network, route))
    return 2 * network.size * max(load.values())

"""Execute a schedule on the graph and refuse it if it breaks a rule. Shares no code with the schedulers.

In a round every directed link carries at most one unit. A flow occupies its whole path for the round, and only switches
are inside a path. Values are those at the beginning of the round. Only hosts, and the switches that `aggregating`
names, merge. At the end every host must have every chunk, with the contribution of each host exactly once.
"""

from collections.abc import Collection, Hashable

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from iswitch.plan.allreduce.model.schedule import Schedule

__all__ = ["ScheduleError", "verify"]

Value = NDArray[np.int64]


class ScheduleError(ValueError):
    """A schedule breaks a rule, or its sums are wrong."""


def verify(graph: nx.Graph, schedule: Schedule, *, aggregating: Collection[Hashable] = ()) -> NDArray[np.int64]:
    """Verify a schedule.

    Parameters
    ----------
    graph : networkx.Graph
        The network; nodes have `kind`.
    schedule : Schedule
        The schedule.
    aggregating : collection of nodes
        Switches that sum.

    Returns
    -------
    array of int, shape (host, chunk, contributor)
        How often each host's copy of a chunk contains each host's contribution; all 1.

    Raises
    ------
    ScheduleError
        If the schedule breaks a rule. The message names the round, the flow and the rule.
    """
    hosts = [node for node, kind in graph.nodes(data="kind") if kind == "host"]
    number = {host: index for index, host in enumerate(hosts)}
    merging = set(hosts) | set(aggregating)
    if schedule.chunks != len(hosts):
        raise ScheduleError(f"{schedule.chunks} chunks for {len(hosts)} hosts")
    own: dict[tuple[Hashable, int], Value] = {}
    held: dict[tuple[Hashable, int, Hashable], Value] = {}
    for node in merging:
        for chunk in range(len(hosts)):
            own[node, chunk] = np.zeros(len(hosts), np.int64)
            if node in number:
                own[node, chunk][number[node]] = 1

    for at, flows in enumerate(schedule.rounds):
        used: set[tuple[Hashable, Hashable]] = set()
        arrivals = []
        for flow in flows:
            where = f"round {at}, chunk {flow.chunk}, {'-'.join(map(str, flow.path))}"
            source, target = flow.path[0], flow.path[-1]
            if not 0 <= flow.chunk < len(hosts):
                raise ScheduleError(f"{where}: no such chunk")
            if len(flow.path) < 2 or source not in merging or target not in merging:
                raise ScheduleError(f"{where}: a flow must go from one merging node to another")
            if any(graph.nodes[node]["kind"] != "switch" for node in flow.path[1:-1] if node in graph):
                raise ScheduleError(f"{where}: hosts do not forward within a round")
            for link in zip(flow.path, flow.path[1:]):
                if not graph.has_edge(*link):
                    raise ScheduleError(f"{where}: no link {link[0]}-{link[1]}")
                if link in used:
                    raise ScheduleError(f"{where}: link {link[0]}-{link[1]} carries two units")
                used.add(link)
            if flow.origin == source:
                value = own[source, flow.chunk]
            elif (source, flow.chunk, flow.origin) in held:
                value = held[source, flow.chunk, flow.origin]
            else:
                raise ScheduleError(f"{where}: {source} holds nothing of {flow.origin}")
            arrivals.append((flow, target, value.copy(), where))
        merged = {(target, flow.chunk) for flow, target, _, _ in arrivals if flow.op == "merge"}
        replaced = set()
        for flow, target, value, where in arrivals:
            place = (target, flow.chunk)
            if flow.op == "hold":
                held[target, flow.chunk, flow.origin] = value
            elif place in replaced:
                raise ScheduleError(f"{where}: a copy and another value arrive in one round")
            elif flow.op == "merge":
                own[place] = own[place] + value
            elif flow.op == "copy":
                if place in merged:
                    raise ScheduleError(f"{where}: a copy and another value arrive in one round")
                own[place] = value
                replaced.add(place)
            else:
                raise ScheduleError(f"{where}: unknown operation {flow.op!r}")
    counts = np.array([[own[host, chunk] for chunk in range(len(hosts))] for host in hosts])
    wrong = np.argwhere(counts != 1)
    if len(wrong):
        host, chunk, giver = wrong[0]
        raise ScheduleError(
            f"chunk {chunk} at {hosts[host]} has {counts[host, chunk, giver]} times the contribution of "
            f"{hosts[giver]}, "
            f"and {len(wrong) - 1} more such"
        )
    return counts

"""What there is to plan with: hosts, switches, cables, and the job; an undirected graph that has been looked
through."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self

import networkx as nx

from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.job import JOB_KEYS, Job

__all__ = [
    "EDGE_KEYS",
    "HOST_KEYS",
    "JOB_KEYS",
    "SWITCH_KEYS",
    "Group",
    "Job",
    "Topology",
    "TopologyError",
    "cable",
    "natural",
]

ROLES = ("worker", "ps", "other")
HOST_KEYS = {"kind": str, "role": str, "ingress_gbps": float}
SWITCH_KEYS = {"kind": str, "aggregates": bool, "capacity_gbps": float, "slots": int, "members": int}
EDGE_KEYS = {"bw_gbps": float, "name": str, "reserved_gbps": float}


class Group(NamedTuple):
    """Workers that nothing tells apart: at the same switch by cables of the same speed. A worker with several cables is
    a group of its own, at itself. nic_gbps: what is left of the cable, 0 with several."""

    at: str
    workers: tuple[str, ...]
    nic_gbps: float


def cable(a: str, b: str) -> str:
    """How a cable is called that has no name of its own."""
    return f"{a}-{b}"


class Topology:
    """A graph whose nodes have `kind` host or switch and whose edges have `bw_gbps`, each way, full duplex; other
    attributes are those of `HOST_KEYS`, `SWITCH_KEYS` and `EDGE_KEYS`, graph attributes those of `Job`.

    Hosts without a `role` are workers. A host with role `ps` is where all sums end (`ingress_gbps` is what it takes);
    without one, a switch is the root, and which one is planned. `capacity_gbps` is what a switch that `aggregates` can
    add up, headers included; `slots` how many segments of the job it can have in flight (the `window` of an iswitch),
    `members` how many members a job can have there; not said, they bind nothing.

    TopologyError, with the place, if anything is missing, not positive, or unknown; if two nodes have no way between
    them; if no worker is there.
    """

    def __init__(self, graph: nx.Graph, job: Job | None = None):
        self.graph = nx.Graph()
        known = {name: value for name, value in graph.graph.items() if name in JOB_KEYS}
        self.job = job or Job(**known)
        if unknown := graph.graph.keys() - JOB_KEYS.keys():
            raise TopologyError(f"the graph has an unknown attribute: {min(unknown)!r}", ("job", min(unknown)))
        if graph.is_directed() or graph.is_multigraph():
            raise TopologyError("a topology must be an undirected graph with at most one cable between two nodes")
        for node in sorted(graph):
            self._node(node, graph.nodes[node])
        for a, b in sorted(tuple(sorted(edge)) for edge in graph.edges):
            self._edge(a, b, graph.edges[a, b])
        self.graph.graph |= {field.name: getattr(self.job, field.name) for field in fields(Job)}
        self._whole()

    def _node(self, node: Any, given: Mapping[str, Any]) -> None:
        place = ("node", node)
        if not isinstance(node, str) or not node or not set(node).isdisjoint("=>,:"):
            raise TopologyError(f"a name must be text without '=', '>', ',' and ':', not {node!r}", place)
        if given.get("kind") not in ("host", "switch"):
            raise TopologyError(f"kind of {node} must be host or switch, not {given.get('kind')!r}", place)
        switch = given["kind"] == "switch"
        keys = SWITCH_KEYS if switch else HOST_KEYS
        data = _attributes(node, given, keys, place)
        if switch:
            data.setdefault("aggregates", False)
            if data["aggregates"] and "capacity_gbps" not in data:
                raise TopologyError(f"{node} aggregates, so it needs capacity_gbps", place)
            if data["aggregates"] and data.get("members", 1) < 1:
                raise TopologyError(f"members of {node} must be at least 1, not {data['members']!r}", place)
        else:
            data.setdefault("role", "worker")
            if data["role"] not in ROLES:
                raise TopologyError(f"role of {node} must be worker, ps or other, not {data['role']!r}", place)
        self.graph.add_node(node, **data)

    def _edge(self, a: str, b: str, given: Mapping[str, Any]) -> None:
        place = ("edge", frozenset((a, b)))
        name = cable(a, b)
        if a == b:
            raise TopologyError(f"a cable must join two nodes, not {a} with itself", place)
        data = _attributes(name, given, EDGE_KEYS, place)
        if "bw_gbps" not in data:
            raise TopologyError(f"bw_gbps of {name} is missing", place)
        if not 0 <= data.get("reserved_gbps", 0.0) <= data["bw_gbps"]:
            raise TopologyError(
                f"reserved_gbps of {name} must be 0 to its bw_gbps, not {data['reserved_gbps']!r}", place
            )
        self.graph.add_edge(a, b, **data)

    def _whole(self) -> None:
        servers = [node for node, data in self.graph.nodes(data=True) if data.get("role") == "ps"]
        if len(servers) > 1:
            raise TopologyError(f"a job has one ps, not both {servers[0]} and {servers[1]}", ("node", servers[1]))
        self.ps: str | None = servers[0] if servers else None
        if not self.workers:
            raise TopologyError("a topology must have at least one worker")
        if not self.ps and not self.aggregators:
            raise TopologyError("a topology must have a ps, or a switch that aggregates")
        names: dict[str, frozenset[str]] = {}
        for a, b, name in self.graph.edges(data="name"):
            if name is not None and names.setdefault(name, frozenset((a, b))) != frozenset((a, b)):
                raise TopologyError(
                    f"names of cables must differ, but two are called {name}", ("edge", frozenset((a, b)))
                )
        transit = self.graph.subgraph(self.switches)
        hosts = [self.ps] if self.ps else []
        for worker in (*hosts, *self.workers):
            if not len(self.graph[worker]):
                raise TopologyError(f"{worker} has no cable", ("node", worker))
        start = next(iter(self.graph[hosts[0] if hosts else self.workers[0]]))
        reached = nx.node_connected_component(transit, start) if start in transit else {start}
        for worker in (*hosts, *self.workers):
            if reached.isdisjoint(self.graph[worker]):
                raise TopologyError(
                    f"{worker} has no path to {hosts[0] if hosts else self.workers[0]}", ("node", worker)
                )

    @classmethod
    def of(
        cls,
        graph: nx.Graph,
        *,
        ps: str | None = None,
        aggregates: Mapping[str, float] | None = None,
        job: Job | None = None,
    ) -> Self:
        """Of a bare graph with `kind` and `bw_gbps`: the ps, and the capacity in Gb/s of each switch that
        aggregates."""
        graph = graph.copy()
        if ps is not None:
            graph.nodes[ps]["role"] = "ps"
        for node, capacity_gbps in (aggregates or {}).items():
            graph.nodes[node].update(aggregates=True, capacity_gbps=float(capacity_gbps))
        return cls(graph, job)

    def changed(self, **settings: Any) -> "Topology":
        """The same with other settings of the job."""
        return Topology(_bare(self.graph), replace(self.job, **settings))

    def with_capacity(self, capacities_gbps: Mapping[str, float]) -> "Topology":
        """The same where these switches aggregate, with that capacity."""
        graph = self.graph.copy()
        for switch, gbps in capacities_gbps.items():
            graph.nodes[switch].update(aggregates=True, capacity_gbps=float(gbps))
        return Topology(graph)

    @property
    def workers(self) -> list[str]:
        """In the order of their ranks: by name, numbers in it by value."""
        return sorted((node for node, role in self.graph.nodes(data="role") if role == "worker"), key=natural)

    @property
    def switches(self) -> list[str]:
        return sorted((node for node, kind in self.graph.nodes(data="kind") if kind == "switch"), key=natural)

    @property
    def aggregators(self) -> list[str]:
        return [node for node in self.switches if self.graph.nodes[node]["aggregates"]]

    def free_gbps(self, a: str, b: str) -> float:
        """What the job may use of a cable, each way."""
        data = self.graph.edges[a, b]
        return float(data["bw_gbps"] - data.get("reserved_gbps", 0.0))

    def named(self, a: str, b: str) -> str:
        """A cable by its name, or its ends."""
        return self.graph.edges[a, b].get("name") or cable(*sorted((a, b), key=natural))

    def find(self, given: str) -> tuple[str, str]:
        """The ends of the cable that is called so: `L1`, or `S1-S3` in either order."""
        for a, b in self.graph.edges:
            if given in (cable(a, b), cable(b, a), self.graph.edges[a, b].get("name")):
                return a, b
        raise TopologyError(f"there is no cable {given!r}")

    def groups(self) -> list[Group]:
        """All workers, those that are alike together."""
        found: dict[tuple[str, float], list[str]] = {}
        alone = []
        for worker in self.workers:
            if len(self.graph[worker]) > 1:
                alone.append(Group(worker, (worker,), 0.0))
            else:
                (switch,) = self.graph[worker]
                found.setdefault((switch, self.free_gbps(worker, switch)), []).append(worker)
        return [Group(at, tuple(workers), nic) for (at, nic), workers in found.items()] + alone


def natural(name: str) -> list[tuple[int, int | str]]:
    """Sorts W2 before W10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.findall(r"\d+|\D+", name)]


def _bare(graph: nx.Graph) -> nx.Graph:
    """Without the job."""
    copy = graph.copy()
    copy.graph.clear()
    return copy


def _attributes(
    name: str, given: Mapping[str, Any], keys: Mapping[str, type], place: tuple[str, Any]
) -> dict[str, Any]:
    """Known ones, of the right type; numbers finite and positive, of which 0 is allowed where nothing else would do."""
    data: dict[str, Any] = {}
    for key, value in given.items():
        kind = keys.get(key)
        if kind is None:
            raise TopologyError(f"{name} has an unknown attribute: {key!r}", place)
        if kind in (int, float):
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or (kind is int and not float(value).is_integer())
            ):
                raise TopologyError(
                    f"{key} of {name} must be {'a whole number' if kind is int else 'a number'}, not {value!r}", place
                )
            if not (0 < value < float("inf") or key == "reserved_gbps" and value == 0):
                raise TopologyError(f"{key} of {name} must be above 0, not {value!r}", place)
        elif not isinstance(value, kind):
            raise TopologyError(
                f"{key} of {name} must be {'true or false' if kind is bool else 'text'}, not {value!r}", place
            )
        data[key] = kind(value)
    return data

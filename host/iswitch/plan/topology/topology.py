"""A topology: hosts, switches and cables as an undirected graph that has been checked, and the job."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, Self

import networkx as nx

from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.job import Job
from iswitch.plan.topology.mistakes import check_attributes
from iswitch.plan.topology.records import CableRecord, HostRecord, Record, SwitchRecord, numbered_ports

__all__ = ["Group", "Job", "Topology", "TopologyError", "cable_name", "natural_key"]

NODES: dict[str, type[Record]] = {"host": HostRecord, "switch": SwitchRecord}
RESERVED = "=>,:"
"""Characters that names must not have, since options and reports separate names by them."""


class Group(NamedTuple):
    """Interchangeable workers: at the same switch `at`, by cables of the same free bandwidth `nic_gbps`.

    If results return, `nic_gbps` is at most what lets the results of so fast a gradient come back over the cable.

    A worker with several cables is a group of its own; `at` is then the worker itself, and `nic_gbps` is 0.
    """

    at: str
    workers: tuple[str, ...]
    nic_gbps: float


def cable_name(a: str, b: str) -> str:
    """Return the name of a cable that has none of its own."""
    return f"{a}-{b}"


class Topology:
    """Hosts, switches and cables, checked, and the job.

    Parameters
    ----------
    graph : networkx.Graph
        Nodes have `kind`, ``"host"`` or ``"switch"``; edges have `bw_gbps`, Gb/s per direction, full duplex; with
        `sender` and `sender_gbps`, the direction from that end has a rate of its own. Other
        attributes are the fields of `HostRecord`, `SwitchRecord` and `CableRecord`; attributes of the graph are the
        settings of `Job`. Hosts without a `role` are workers. Sums end at the host whose role is ``"ps"``; without
        one, the plan chooses a switch as the root. Hosts do not forward.
    job : Job, optional
        The job, instead of the attributes of the graph.

    Raises
    ------
    TopologyError
        If something is missing, unknown or not allowed; if there is no worker; if two nodes have no path between them.
        The error has the place.
    """

    def __init__(self, graph: nx.Graph, job: Job | None = None):
        self.graph = nx.Graph()
        self.job = job or Job(**{str(key): value for key, value in graph.graph.items()})
        if graph.is_directed() or graph.is_multigraph():
            raise TopologyError("a topology must be an undirected graph with at most one cable between two nodes")
        for node in sorted(graph, key=str):  # names that are not text are refused
            self._add_node(node, graph.nodes[node])
        for a, b in sorted(tuple(sorted(edge)) for edge in graph.edges):
            self._add_cable(a, b, graph.edges[a, b])
        self.graph.graph |= self.job.model_dump(exclude_none=True)
        self._check_root()
        self._check_names()
        self._check_ports()
        self._check_paths()

    def _add_node(self, node: Any, given: Mapping[str, Any]) -> None:
        place = ("node", node)
        if not isinstance(node, str) or not node or not set(node).isdisjoint(RESERVED):
            raise TopologyError(f"a name must be text without '=', '>', ',' and ':', not {node!r}", place)
        kind = given.get("kind")
        if kind not in ("host", "switch"):
            raise TopologyError(f"kind of {node} must be host or switch, not {kind!r}", place)
        checked = check_attributes(NODES[kind], node, {key: given[key] for key in given if key != "kind"}, place)
        data = {key: checked.get(key, kind) for key in given}
        data.setdefault(*(("aggregates", False) if kind == "switch" else ("role", "worker")))
        self.graph.add_node(node, **data)

    def _add_cable(self, a: str, b: str, given: Mapping[str, Any]) -> None:
        place = ("edge", frozenset((a, b)))
        if a == b:
            raise TopologyError(f"a cable must join two nodes, not {a} with itself", place)
        data = check_attributes(CableRecord, cable_name(a, b), given, place)
        if data.get("sender", a) not in (a, b):
            raise TopologyError(f"sender of {cable_name(a, b)} must be {a} or {b}, not {data['sender']}", place)
        self.graph.add_edge(a, b, **data)

    def _check_root(self) -> None:
        servers = [node for node, data in self.graph.nodes(data=True) if data.get("role") == "ps"]
        if len(servers) > 1:
            raise TopologyError(f"a job has one ps, not both {servers[0]} and {servers[1]}", ("node", servers[1]))
        self.ps: str | None = servers[0] if servers else None
        if not self.workers:
            raise TopologyError("a topology must have at least one worker")
        if not self.ps and not self.aggregators:
            raise TopologyError("a topology must have a ps, or a switch that aggregates")

    def _check_names(self) -> None:
        names: dict[str, frozenset[str]] = {}
        for a, b, name in self.graph.edges(data="name"):
            ends = frozenset((a, b))
            if name is not None and names.setdefault(name, ends) != ends:
                raise TopologyError(f"names of cables must differ, but two are called {name}", ("edge", ends))

    def _check_ports(self) -> None:
        for switch in self.switches:
            for neighbour in self.numbered_ports(switch):
                if neighbour not in self.graph[switch]:
                    raise TopologyError(
                        f"ports of {switch} name {neighbour}, to which it has no cable", ("node", switch)
                    )

    def _check_paths(self) -> None:
        """Refuse a worker without a path to the ps, or to the first worker, through switches only."""
        through = self.graph.subgraph(self.switches)
        hosts = [*([self.ps] if self.ps else []), *self.workers]
        for host in hosts:
            if not len(self.graph[host]):
                raise TopologyError(f"{host} has no cable", ("node", host))
        start = next(iter(self.graph[hosts[0]]))
        reached = nx.node_connected_component(through, start) if start in through else {start}
        for host in hosts:
            if reached.isdisjoint(self.graph[host]):
                raise TopologyError(f"{host} has no path to {hosts[0]}", ("node", host))

    @classmethod
    def of(
        cls,
        graph: nx.Graph,
        *,
        ps: str | None = None,
        aggregates: Mapping[str, float] | None = None,
        job: Job | None = None,
    ) -> Self:
        """Return the topology of a graph that has only `kind` and `bw_gbps`.

        Parameters
        ----------
        ps : str, optional
            The parameter server.
        aggregates : mapping of str to float, optional
            Gb/s that each aggregating switch can sum.
        job : Job, optional
            The job; by default that of `Job()`.
        """
        graph = graph.copy()
        if ps is not None:
            graph.nodes[ps]["role"] = "ps"
        for node, capacity_gbps in (aggregates or {}).items():
            graph.nodes[node].update(aggregates=True, capacity_gbps=float(capacity_gbps))
        return cls(graph, job)

    def with_job(self, **settings: Any) -> "Topology":
        """Return this topology with other settings of the job."""
        graph = self.graph.copy()
        graph.graph.clear()
        return Topology(graph, Job(**self.job.model_dump(exclude_none=True) | settings))

    def with_capacity(self, capacities_gbps: Mapping[str, float]) -> "Topology":
        """Return this topology with these switches aggregating so many Gb/s each."""
        graph = self.graph.copy()
        for switch, gbps in capacities_gbps.items():
            graph.nodes[switch].update(aggregates=True, capacity_gbps=float(gbps))
        return Topology(graph)

    @cached_property
    def workers(self) -> list[str]:
        """Workers in the order of their ranks: by name, numbers in it by value."""
        return sorted((node for node, role in self.graph.nodes(data="role") if role == "worker"), key=natural_key)

    @cached_property
    def switches(self) -> list[str]:
        """Switches, by name."""
        return sorted((node for node, kind in self.graph.nodes(data="kind") if kind == "switch"), key=natural_key)

    @cached_property
    def aggregators(self) -> list[str]:
        """Switches that aggregate, by name."""
        return [node for node in self.switches if self.graph.nodes[node]["aggregates"]]

    def free_gbps(self, a: str, b: str) -> float:
        """Return the Gb/s of a cable, from `a` to `b`, that the job may use."""
        return self.bw_gbps(a, b) - float(self.graph.edges[a, b].get("reserved_gbps", 0.0))

    def bw_gbps(self, a: str, b: str) -> float:
        """Return the Gb/s of a cable, from `a` to `b`."""
        data = self.graph.edges[a, b]
        return float(data["sender_gbps"] if data.get("sender") == a else data["bw_gbps"])

    def is_unlike(self, a: str, b: str) -> bool:
        """Return True if the two directions of a cable have unlike rates."""
        return self.bw_gbps(a, b) != self.bw_gbps(b, a)

    def slots(self, switch: str) -> int | None:
        """Return the slots of a switch that the job may use; None: any number."""
        known = [most for most in (self.graph.nodes[switch].get("slots"), self.job.max_slots) if most is not None]
        return min(known, default=None)

    def numbered_ports(self, switch: str) -> dict[str, int]:
        """Return the numbers of a switch's ports that the topology gives, by neighbour."""
        text = self.graph.nodes[switch].get("ports")
        return numbered_ports(text) if text else {}

    def cable_label(self, a: str, b: str) -> str:
        """Return the name of a cable, or its ends if it has no name."""
        return self.graph.edges[a, b].get("name") or cable_name(*sorted((a, b), key=natural_key))

    def find_cable(self, given: str) -> tuple[str, str]:
        """Return the ends of a cable that is given by its name, or by its ends, as in ``S1-S3`` or ``S3-S1``.

        Raises
        ------
        TopologyError
            If there is no such cable.
        """
        for a, b in self.graph.edges:
            if given in (cable_name(a, b), cable_name(b, a), self.graph.edges[a, b].get("name")):
                return a, b
        raise TopologyError(f"there is no cable {given!r}")

    def groups(self) -> list[Group]:
        """Return all workers, in groups of interchangeable ones."""
        return list(self._groups)

    @cached_property
    def _groups(self) -> list[Group]:
        found: dict[tuple[str, float], list[str]] = {}
        alone = []
        for worker in self.workers:
            if len(self.graph[worker]) > 1:
                alone.append(Group(worker, (worker,), 0.0))
            else:
                (switch,) = self.graph[worker]
                nic = self.free_gbps(worker, switch)
                if self.job.multicast or self.job.unicast:
                    nic = min(nic, self.free_gbps(switch, worker) * self.job.gradient_size / self.job.result_size)
                found.setdefault((switch, nic), []).append(worker)
        return [Group(at, tuple(workers), nic) for (at, nic), workers in found.items()] + alone


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Return a key that sorts W2 before W10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.findall(r"\d+|\D+", name)]

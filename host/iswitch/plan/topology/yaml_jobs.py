"""The jobs of a YAML file: which hosts are workers of which job, and the fabric as each job uses it."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import networkx as nx

from iswitch.plan.topology.document import JobEntry, Place
from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.shared_fabric import FabricJob, SharedFabric
from iswitch.plan.topology.topology import Topology

__all__ = ["JobsOfFile"]


class JobsOfFile:
    """The entries of `jobs` over a graph.

    Parameters
    ----------
    graph : networkx.Graph
        Switches, hosts and cables. Hosts have a `role` only if the file gives one.
    entries : sequence of JobEntry
        The entries of `jobs`.
    lines : mapping of Place to int
        The line of each value.
    error : function
        Makes the error of a mistake, of its line and a sentence.
    """

    def __init__(
        self,
        graph: nx.Graph,
        entries: Sequence[JobEntry],
        lines: Mapping[Place, int],
        error: Callable[[int, str], TopologyError],
    ):
        self.graph, self.entries, self.lines, self.error = graph, entries, lines, error
        self.hosts = [node for node, kind in graph.nodes(data="kind") if kind == "host"]
        self.servers = {entry.ps for entry in entries if entry.ps is not None}

    def fabric(self, line_of: Mapping[tuple[str, Any], int]) -> SharedFabric:
        """Return the fabric with its jobs.

        Parameters
        ----------
        line_of : mapping of (str, Any) to int
            The line of each node and cable.

        Raises
        ------
        TopologyError
            With the line of what is wrong.
        """
        self._check_names()
        self._check_servers(line_of)
        jobs = []
        for number, (entry, workers) in enumerate(zip(self.entries, self._workers())):
            graph = self.graph.copy()
            graph.graph |= entry.settings
            for host in self.hosts:
                graph.nodes[host]["role"] = "worker" if host in workers else "ps" if host == entry.ps else "other"
            try:
                jobs.append(FabricJob(entry.name, entry.weight, Topology(graph)))
            except TopologyError as error:
                line = line_of.get(error.place or ("", ""), self.lines["jobs", number])
                raise self.error(line, f"job {entry.name}: {error}") from error
        return SharedFabric(jobs)

    def _check_names(self) -> None:
        since: dict[str, int] = {}
        for number, entry in enumerate(self.entries):
            line = self.lines["jobs", number, "name"]
            if entry.name in since:
                raise self.error(
                    line, f"there is a job {entry.name} already, since line {since[entry.name]}: rename one"
                )
            since[entry.name] = line

    def _check_servers(self, line_of: Mapping[tuple[str, Any], int]) -> None:
        for number, entry in enumerate(self.entries):
            if entry.ps is None:
                continue
            line = self.lines["jobs", number, "ps"]
            if entry.ps not in self.graph:
                raise self.error(line, f"there is no host {entry.ps}{self._near(entry.ps, self.hosts)}")
            if entry.ps not in self.hosts:
                raise self.error(
                    line,
                    f"ps of job {entry.name} must be a host, not the switch {entry.ps}; without 'ps', sums end at a "
                    "switch that the plan chooses",
                )
            if (role := self.graph.nodes[entry.ps].get("role", "ps")) != "ps":
                raise self.error(line, f"{entry.ps} has the role {role}: remove its role, or name another ps")
        for host in self.hosts:
            if self.graph.nodes[host].get("role") == "ps" and host not in self.servers:
                raise self.error(
                    line_of["node", host],
                    f"{host} has the role ps, but is the ps of no job: write 'ps: {host}' in a job, or remove the role",
                )

    def _workers(self) -> list[set[str]]:
        """Return the workers of each job."""
        owners: dict[str, tuple[str, int]] = {}
        found = []
        for number, entry in enumerate(self.entries):
            workers: set[str] = set()
            for at, given in enumerate(entry.workers):
                line = self.lines["jobs", number, "workers", at]
                for host in self._hosts_of(given, line):
                    job, since = owners.setdefault(host, (entry.name, line))
                    if job != entry.name:
                        raise self.error(
                            line,
                            f"{host} is a worker of job {job} already, since line {since}: a host works for one job, "
                            "so name it in one of them only",
                        )
                    workers.add(host)
            found.append(workers)
        return found

    def _hosts_of(self, given: str, line: int) -> list[str]:
        """Return the hosts that a name or a pattern stands for. A switch stands for the hosts at it."""
        can_work = lambda host: host not in self.servers and self.graph.nodes[host].get("role", "worker") == "worker"
        if given in self.hosts and not can_work(given):
            role = self.graph.nodes[given].get("role", "ps")
            raise self.error(line, f"{given} is no worker, since its role is {role}: leave it out")
        named = [node for node in self.graph if node == given]
        if "*" in given:
            pattern = re.compile(".*".join(map(re.escape, given.split("*"))), re.DOTALL)
            named = [node for node in self.graph if pattern.fullmatch(node)]
        if not named:
            what = "no host or rack is called" if "*" in given else "there is no host or rack"
            raise self.error(line, f"{what} {given}{self._near(given, self.graph)}")
        hosts: list[str] = []
        for node in named:
            hosts += [near for near in (self.graph[node] if node not in self.hosts else [node]) if near in self.hosts]
        if not (found := list(dict.fromkeys(filter(can_work, hosts)))):
            raise self.error(line, f"no host at {given} can be a worker: name hosts, or racks with hosts")
        return found

    def _near(self, given: str, names: Sequence[str] | nx.Graph) -> str:
        near = difflib.get_close_matches(given, list(names), 1)
        return f"; is {near[0]} meant?" if near else ""

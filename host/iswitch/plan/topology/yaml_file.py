"""Topologies as a person writes them: YAML with racks, switches, hosts and links, and every mistake with its line."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import yaml

from iswitch.plan.topology.topology import EDGE_KEYS, HOST_KEYS, JOB_KEYS, SWITCH_KEYS, Topology, TopologyError

__all__ = ["read", "read_text"]

SUMS = {key: kind for key, kind in SWITCH_KEYS.items() if key != "kind"}
RACK = {"name": str, "count": int, "hosts": int, "nic_gbps": float, "uplinks": list} | SUMS
UPLINK = {"to": str, "bw_gbps": float, "reserved_gbps": float}
SWITCH = {"name": str, "count": int} | SUMS
HOST = {"name": str, "at": str, "bw_gbps": float} | {key: kind for key, kind in HOST_KEYS.items() if key != "kind"}
LINK = {"between": list} | EDGE_KEYS
TOP: dict[str, type] = {"job": dict, "racks": list, "switches": list, "hosts": list, "links": list}
POWER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
"""1e8, which is text to YAML 1.1, as 1.5e9 is."""
NUMBERS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "settings",
}


def read(path: Path) -> Topology:
    """Of a file: YAML; `.json` is node-link JSON, `.graphml` GraphML. TopologyError with file and line, OSError."""
    from iswitch.plan.topology.graph_file import from_graphml, from_json

    if path.suffix == ".graphml":
        return from_graphml(path)
    text = path.read_text(encoding="utf-8")
    return from_json(text, path.name) if path.suffix == ".json" else read_text(text, path.name)


def read_text(text: str, name: str = "topology") -> Topology:
    """Of YAML; `name` is what the file is called in errors."""
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise TopologyError(
            f"{name}{f':{mark.line + 1}' if mark else ''}: not YAML: {getattr(error, 'problem', None) or error}"
        ) from error
    if document is None:
        raise TopologyError(f"{name}:1: the file is empty")
    return _Reader(name).topology(document)


class _Reader:
    """Builds a graph, and remembers the line of each of its parts."""

    def __init__(self, name: str):
        self.name, self.graph = name, nx.Graph()
        self.lines: dict[tuple[str, Any], int] = {}

    def refuse(self, line: int, why: str) -> TopologyError:
        return TopologyError(f"{self.name}:{line}: {why}")

    def topology(self, document: Any) -> Topology:
        top = self.settings(document, TOP, "a topology")
        self.graph.graph |= self._job(top["job"][1]) if "job" in top else {}
        for section, one in (("switches", self._switch), ("racks", self._rack), ("hosts", self._host)):
            for node in self.items(top, section):
                one(node)
        for node in self.items(top, "racks"):
            self._uplinks(node)
        for node in self.items(top, "links"):
            self._link(node)
        try:
            return Topology(self.graph)
        except TopologyError as error:
            line = self.lines.get(error.place or ("", ""), document.start_mark.line + 1)
            raise self.refuse(line, str(error)) from error

    def items(self, top: Mapping[str, tuple[Any, Any]], section: str) -> list[Any]:
        return list(top[section][1].value) if section in top else []

    def settings(
        self, node: Any, keys: Mapping[str, type], what: str, needed: tuple[str, ...] = ()
    ) -> dict[str, tuple[Any, Any]]:
        """Of a mapping, by key (value, node); everything known, of the right type, said once."""
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise self.refuse(line, f"{what} must be settings (key: value), not {_shown(node)}")
        found: dict[str, tuple[Any, Any]] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if key not in keys:
                raise self.refuse(line, f"{what} has no setting {key!r}{_meant(key, keys)}")
            if key in found:
                raise self.refuse(line, f"{key!r} is said twice")
            found[key] = (self.value(key, value_node, keys[key]), value_node)
        for key in needed:
            if key not in found:
                raise self.refuse(node.start_mark.line + 1, f"{what} must say {key!r}")
        return found

    def value(self, key: str, node: Any, kind: type) -> Any:
        line = node.start_mark.line + 1
        shapes = {list: yaml.SequenceNode, dict: yaml.MappingNode}
        if kind in shapes:
            if isinstance(node, shapes[kind]):
                return node
            raise self.refuse(line, f"{key} must be {NUMBERS[kind]}, not {_shown(node)}")
        if key == "hosts" and isinstance(node, yaml.SequenceNode):
            return [self.value("name", each, str) for each in node.value]
        value = yaml.SafeLoader("").construct_object(node) if isinstance(node, yaml.ScalarNode) else node
        if kind in (int, float) and isinstance(value, str) and node.style is None and POWER.fullmatch(value):
            value = float(value)
        if kind is str and isinstance(node, yaml.ScalarNode) and value is not None:
            return node.value
        right = (
            isinstance(value, (int, float)) and not isinstance(value, bool)
            if kind in (int, float)
            else isinstance(value, kind)
        )
        if not right or kind is int and not float(value).is_integer():
            unit = key.rpartition("_")[2] if kind is float and "_" in key else ""
            rule = "a whole number or a list of names" if key == "hosts" else NUMBERS[kind]
            raise self.refuse(line, f"{key} must be {rule}{f', in {unit}' if unit else ''}, not {_shown(node)}")
        return kind(value)

    def node(self, name: str, line: int, **data: Any) -> None:
        if name in self.graph:
            raise self.refuse(line, f"{name} is there already, since line {self.lines['node', name]}")
        self.graph.add_node(name, **data)
        self.lines["node", name] = line

    def cable(self, a: str, b: str, line: int, **data: Any) -> None:
        for end in (a, b):
            if end not in self.graph:
                near = difflib.get_close_matches(end, self.graph.nodes, 1)
                raise self.refuse(line, f"there is no {end}{f'; is {near[0]} meant?' if near else ''}")
        if self.graph.has_edge(a, b):
            since = self.lines["edge", frozenset((a, b))]
            raise self.refuse(
                line,
                f"{a} and {b} have a cable already, since line {since}; of several make one with all their bw_gbps",
            )
        self.graph.add_edge(a, b, **data)
        self.lines["edge", frozenset((a, b))] = line

    def _job(self, node: Any) -> dict[str, Any]:
        found = self.settings(node, JOB_KEYS, "job")
        self.lines |= {("job", key): value.start_mark.line + 1 for key, (_, value) in found.items()}
        return {key: value for key, (value, _) in found.items()}

    def _names(self, found: Mapping[str, tuple[Any, Any]], line: int) -> list[str]:
        """`count` of them are numbered from 1."""
        if "count" not in found:
            return [found["name"][0]]
        count = found["count"][0]
        if count < 1:
            raise self.refuse(line, f"count must be at least 1, not {count}")
        return [f"{found['name'][0]}{number}" for number in range(1, count + 1)]

    def _sums(self, found: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        return {key: found[key][0] for key in SUMS if key in found}

    def _switch(self, node: Any) -> None:
        found, line = self.settings(node, SWITCH, "a switch", ("name",)), node.start_mark.line + 1
        for name in self._names(found, line):
            self.node(name, line, kind="switch", **self._sums(found))

    def _rack(self, node: Any) -> None:
        found, line = self.settings(node, RACK, "a rack", ("name", "hosts", "nic_gbps")), node.start_mark.line + 1
        hosts = found["hosts"][0]
        if isinstance(hosts, list) and "count" in found:
            raise self.refuse(line, "racks with a count have hosts with numbers: hosts: 4")
        if not isinstance(hosts, list) and hosts < 0:
            raise self.refuse(line, f"hosts must be 0 or more, not {hosts}")
        nic_gbps, nic = found["nic_gbps"]
        if not nic_gbps > 0:
            raise self.refuse(nic.start_mark.line + 1, f"nic_gbps must be above 0, not {nic_gbps:g}")
        for name in self._names(found, line):
            self.node(name, line, kind="switch", **self._sums(found))
            for host in hosts if isinstance(hosts, list) else [f"{name}-h{number}" for number in range(1, hosts + 1)]:
                self.node(host, found["hosts"][1].start_mark.line + 1, kind="host")
                self.cable(host, name, nic.start_mark.line + 1, bw_gbps=nic_gbps)

    def _uplinks(self, node: Any) -> None:
        found = self.settings(node, RACK, "a rack")
        for uplink in found["uplinks"][1].value if "uplinks" in found else []:
            line = uplink.start_mark.line + 1
            said = {
                key: value for key, (value, _) in self.settings(uplink, UPLINK, "an uplink", ("to", "bw_gbps")).items()
            }
            to = said.pop("to")
            for name in self._names(found, node.start_mark.line + 1):
                for end in self._spread(to, line):
                    self.cable(name, end, line, **said)

    def _spread(self, to: str, line: int) -> list[str]:
        """`spine*` is every switch whose name begins so."""
        if not to.endswith("*"):
            return [to]
        ends = [name for name, kind in self.graph.nodes(data="kind") if kind == "switch" and name.startswith(to[:-1])]
        if not ends:
            raise self.refuse(line, f"there is no switch {to}")
        return ends

    def _host(self, node: Any) -> None:
        found, line = self.settings(node, HOST, "a host", ("name",)), node.start_mark.line + 1
        name = found["name"][0]
        self.node(name, line, kind="host", **{key: found[key][0] for key in ("role", "ingress_gbps") if key in found})
        if ("at" in found) != ("bw_gbps" in found):
            raise self.refuse(line, f"the cable of {name} needs both 'at' and 'bw_gbps'")
        if "at" in found:
            self.cable(name, found["at"][0], line, bw_gbps=found["bw_gbps"][0])

    def _link(self, node: Any) -> None:
        found, line = self.settings(node, LINK, "a link", ("between", "bw_gbps")), node.start_mark.line + 1
        ends = [self.value("between", each, str) for each in found["between"][1].value]
        if len(ends) != 2 or ends[0] == ends[1]:
            raise self.refuse(line, f"a link is between two nodes, not {ends}")
        self.cable(ends[0], ends[1], line, **{key: found[key][0] for key in EDGE_KEYS if key in found})


def _shown(node: Any) -> str:
    return (
        repr(node.value)
        if isinstance(node, yaml.ScalarNode)
        else "a list"
        if isinstance(node, yaml.SequenceNode)
        else "settings"
    )


def _meant(key: str, keys: Mapping[str, type]) -> str:
    """What could be meant: with its unit, or spelt otherwise."""
    stem = key.split("_")[0]
    near = [known for known in keys if known.split("_")[0] == stem and "_" in known] or difflib.get_close_matches(
        key, keys, 1
    )
    return f"; is {near[0]!r} meant?" if near else f"; there are {', '.join(keys)}"

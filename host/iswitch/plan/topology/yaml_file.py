"""Topologies as people write them: YAML with racks, switches, hosts and links. Every mistake has its line."""

import difflib
import re
from collections.abc import Iterator
from typing import Any

import networkx as nx
import yaml
from pydantic import ValidationError

from iswitch.plan.topology.document import Document, Host, Place, Rack, Uplink, part_at
from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.mistakes import describe_mistake, field_of, suggest_key
from iswitch.plan.topology.records import Scalar
from iswitch.plan.topology.shared_fabric import SharedFabric
from iswitch.plan.topology.topology import Topology
from iswitch.plan.topology.yaml_jobs import JobsOfFile

__all__ = ["parse_fabric", "parse_yaml"]

EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
"""1e8 and 1.5e9 are text in YAML 1.1, and numbers here."""
NODES_MAX = 100_000
"""Switches and hosts of racks; a hundred times as many as have been planned with."""
DEPTH_MAX = 16
"""Levels of lists and settings; the format needs 5. An alias inside its own anchor has no end."""
VALUES_PER_CHARACTER = 10
"""Values that a text stands for, by its length; without aliases at most 1. Aliases of aliases can mean billions."""


def parse_yaml(text: str, name: str = "topology") -> Topology:
    """Return the topology that a YAML text describes.

    Parameters
    ----------
    text : str
        The text of the file.
    name : str
        The name of the file, for errors.

    Raises
    ------
    TopologyError
        If the text cannot be planned with, or has several `jobs`. Each mistake is a line of the message that begins
        with file and line.
    """
    return _read(text, name).topology()


def parse_fabric(text: str, name: str = "topology") -> Topology | SharedFabric:
    """Return what a YAML text describes: a shared fabric if the text has `jobs`. Otherwise like `parse_yaml`."""
    graph = _read(text, name)
    return graph.shared_fabric() if graph.document.jobs else graph.topology()


def _read(text: str, name: str) -> "_Graph":
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError as error:
        raise TopologyError(f"{name}: more than {DEPTH_MAX} levels of lists and settings") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error)
        remedy = "; a name that begins with '*' must be in quotes" if "undefined alias" in problem else ""
        raise TopologyError(f"{where}: not YAML: {problem}{remedy}") from error
    if document is None:
        raise TopologyError(f"{name}:1: the file is empty")
    return _Graph(_Lines(name, document, VALUES_PER_CHARACTER * len(text)))


class _Lines:
    """A YAML document as plain lists and dicts of scalars, and the line of each of its values. There may be `values` of
    them."""

    def __init__(self, name: str, document: yaml.Node, values: int):
        self.name, self._left = name, values
        self.lines: dict[Place, int] = {}
        """Lines of values; `key_lines` has the lines of their keys."""
        self.key_lines: dict[Place, int] = {}
        self.written: dict[Place, str] = {}
        """Values as they are written, for sentences."""
        self.data = self._plain(document, ())

    def error(self, line: int, sentence: str) -> TopologyError:
        """Return the error of a mistake in this file."""
        return TopologyError(f"{self.name}:{line}: {sentence}")

    def _plain(self, node: yaml.Node, place: Place) -> Any:
        """Return a value, and keep its line and how it is written."""
        line = self.lines[place] = node.start_mark.line + 1
        if len(place) > DEPTH_MAX:
            raise self.error(line, f"more than {DEPTH_MAX} levels of lists and settings")
        self._left -= 1
        if self._left < 0:
            raise self.error(line, "the aliases up to here stand for too many values: write fewer of them")
        if isinstance(node, yaml.SequenceNode):
            self.written[place] = "a list"
            return [self._plain(each, (*place, number)) for number, each in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            self.written[place] = "settings"
            return dict(self._settings(node, place))
        self.written[place] = repr(node.value) if node.style or not node.value else node.value
        try:
            value = yaml.SafeLoader("").construct_object(node)
        except (ValueError, yaml.YAMLError) as error:  # a date such as 2020-13-45, or a tag of another program
            raise self.error(line, f"{node.value!r} is not a value of YAML: write it in quotes") from error
        if node.style is None and isinstance(value, str) and EXPONENT.fullmatch(value):
            value = float(value)
        return Scalar(value, node.value)

    def _settings(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, Any]]:
        """Yield the keys and values of a mapping."""
        seen = set()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(line, "a key must be text")
            key = key_node.value
            if key in seen:
                raise self.error(line, f"{key!r} is repeated")
            seen.add(key)
            self.key_lines[*place, key] = line
            yield key, self._plain(value_node, (*place, key))

    def check(self) -> Document:
        """Return the document. Raises TopologyError, with every mistake on a line of its own, in the order of lines."""
        try:
            return Document.model_validate(self.data)
        except ValidationError as error:
            mistakes = error.errors()
        meant = set()
        for mistake in mistakes:
            if mistake["type"] == "extra_forbidden":
                *place, key = mistake["loc"]
                if near := suggest_key(str(key), part_at(tuple(place))[1].model_fields):
                    meant.add((*place, near))
        found = [
            (self._line(mistake["loc"], mistake["type"]), self._sentence(mistake))
            for mistake in mistakes
            if mistake["type"] != "missing" or mistake["loc"] not in meant
        ]
        raise TopologyError("\n".join(f"{self.name}:{line}: {sentence}" for line, sentence in sorted(found)))

    def _line(self, place: Place, kind: str) -> int:
        """Return the line of a mistake: of an unknown key, of the part that lacks a key, or of a value."""
        if kind == "extra_forbidden":
            return self.key_lines[place]
        return self.lines[place[:-1] if kind == "missing" else place]

    def _sentence(self, mistake: Any) -> str:
        place = mistake["loc"]
        part = place
        if field := field_of(mistake):
            while part[-1] != field:
                part = part[:-1]
            part = part[:-1]
        noun, model = part_at(part)
        name = self.written.get((*part, "name"))
        owner = f"{noun.partition(' ')[2]} {name}" if name else noun
        return describe_mistake(mistake, owner, model.model_fields, self.written.get(place, ""))


class _Graph:
    """Builds the graph of a document, and keeps the line of each node and cable."""

    def __init__(self, lines: _Lines):
        self.lines, self.document, self.graph = lines, lines.check(), nx.Graph()
        self.line_of: dict[tuple[str, Any], int] = {}
        self._build()

    def topology(self) -> Topology:
        """Return the topology. Raises TopologyError with the line of what is wrong."""
        if self.document.jobs:
            raise self.lines.error(
                self.lines.key_lines["jobs",], "only `iswitch plan` plans several jobs: write one job as 'job'"
            )
        try:
            return Topology(self.graph)
        except TopologyError as error:
            raise self.lines.error(
                self.line_of.get(error.place or ("", ""), self.lines.lines[()]), str(error)
            ) from error

    def shared_fabric(self) -> SharedFabric:
        """Return the fabric with its jobs. Raises TopologyError with the line of what is wrong."""
        return JobsOfFile(self.graph, self.document.jobs or [], self.lines.lines, self.lines.error).fabric(self.line_of)

    def _build(self) -> None:
        """Make the graph."""
        document, lines = self.document, self.lines.lines
        self._refuse_too_many()
        self.graph.graph |= document.job.model_dump(exclude_unset=True)
        for number, switch in enumerate(document.switches):
            for name in switch.names:
                self._node(name, lines["switches", number], switch.attributes)
        for number, rack in enumerate(document.racks):
            self._rack(rack, ("racks", number))
        for number, host in enumerate(document.hosts):
            self._host(host, lines["hosts", number])
        for number, rack in enumerate(document.racks):
            for at, uplink in enumerate(rack.uplinks):
                self._uplink(rack, uplink, lines["racks", number, "uplinks", at])
        for number, link in enumerate(document.links):
            one, other = link.between
            self._cable(one, other, lines["links", number], link.model_dump(exclude={"between"}, exclude_unset=True))

    def _refuse_too_many(self) -> None:
        """Refuse a file whose numbers stand for more nodes than can be planned with, before they are made."""
        total = 0
        for section in ("switches", "racks"):
            for number, entry in enumerate(getattr(self.document, section)):
                total += entry.nodes
                if total > NODES_MAX:
                    raise self.lines.error(
                        self.lines.lines[section, number],
                        f"the file has {total:,} nodes up to here; at most {NODES_MAX:,} can be planned with: check "
                        "'count' and 'hosts'",
                    )

    def _node(self, name: str, line: int, attributes: dict[str, Any]) -> None:
        if name in self.graph:
            raise self.lines.error(line, f"{name} exists already, since line {self.line_of['node', name]}")
        self.graph.add_node(name, **attributes)
        self.line_of["node", name] = line

    def _cable(self, a: str, b: str, line: int, attributes: dict[str, Any]) -> None:
        for end in (a, b):
            if end not in self.graph:
                near = difflib.get_close_matches(end, self.graph.nodes, 1)
                raise self.lines.error(line, f"there is no {end}{f'; is {near[0]} meant?' if near else ''}")
        if self.graph.has_edge(a, b):
            since = self.line_of["edge", frozenset((a, b))]
            raise self.lines.error(
                line,
                f"{a} and {b} have a cable already, since line {since}; write several as one, with their total bw_gbps",
            )
        self.graph.add_edge(a, b, **attributes)
        self.line_of["edge", frozenset((a, b))] = line

    def _rack(self, rack: Rack, place: Place) -> None:
        lines = self.lines.lines
        for switch in rack.names:
            self._node(switch, lines[place], rack.attributes)
            for host in rack.host_names(switch):
                self._node(host, lines[*place, "hosts"], {"kind": "host"})
                self._cable(host, switch, lines[*place, "nic_gbps"], _rates(host, rack.nic_gbps, rack.nic_sender_gbps))

    def _uplink(self, rack: Rack, uplink: Uplink, line: int) -> None:
        ends = [uplink.to]
        if uplink.to.endswith("*"):
            kinds = self.graph.nodes(data="kind")
            ends = [name for name, kind in kinds if kind == "switch" and name.startswith(uplink.to[:-1])]
            if not ends:
                raise self.lines.error(line, f"there is no switch {uplink.to}")
        for switch in rack.names:
            for end in ends:
                rates = _rates(switch, uplink.bw_gbps, uplink.sender_gbps)
                self._cable(switch, end, line, rates | uplink.model_dump(include={"reserved_gbps"}, exclude_unset=True))

    def _host(self, host: Host, line: int) -> None:
        attributes = host.model_dump(include={"role", "ingress_gbps"}, exclude_unset=True)
        self._node(host.name, line, {"kind": "host"} | attributes)
        if host.at is not None and host.bw_gbps is not None:
            self._cable(host.name, host.at, line, _rates(host.name, host.bw_gbps, host.sender_gbps))


def _rates(sender: str, bw_gbps: float, sender_gbps: float | None) -> dict[str, Any]:
    """Return the attributes of a cable, whose rate from its end `sender` is `sender_gbps` if that is not None."""
    unlike = {} if sender_gbps is None else {"sender": sender, "sender_gbps": sender_gbps}
    return {"bw_gbps": bw_gbps} | unlike

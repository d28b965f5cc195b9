"""Schedules as JSON, which can express everything.

{"format": "iswitch-allreduce", "version": 1, "name", "hosts": [node...], "aggregating": [node...], "rounds":
[[{"chunk": int, "op": "merge" | "copy" | "hold", "origin": node, "path": [node...]}...]...]}; nodes are strings.
"""

import json
from collections.abc import Collection, Hashable
from typing import Any

import networkx as nx

from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule

__all__ = ["from_json", "to_json"]

FORMAT, VERSION = "iswitch-allreduce", 1
FIELDS = {"format", "version", "name", "hosts", "aggregating", "rounds"}
FLOW_FIELDS = {"chunk", "op", "origin", "path"}


def to_json(graph: nx.Graph, schedule: Schedule, *, aggregating: Collection[Hashable] = ()) -> str:
    """Return a schedule as JSON.

    Parameters
    ----------
    graph : networkx.Graph
        The network; its nodes must be strings.
    schedule : Schedule
        The schedule.
    aggregating : collection of nodes
        Switches that must sum.
    """
    for node in graph:
        if not isinstance(node, str):
            raise ValueError(f"nodes must be strings to be exported, not {node!r}")
    rounds = [
        [{"chunk": flow.chunk, "op": str(flow.op), "origin": flow.origin, "path": list(flow.path)} for flow in flows]
        for flows in schedule.rounds
    ]
    return (
        json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "name": schedule.name,
                "hosts": [node for node, kind in graph.nodes(data="kind") if kind == "host"],
                "aggregating": sorted(map(str, aggregating)),
                "rounds": rounds,
            },
            separators=(",", ":"),
        )
        + "\n"
    )


def from_json(text: str) -> tuple[Schedule, list[str], list[str]]:
    """Return the schedule, the hosts and the aggregating switches of a JSON text.

    Raises
    ------
    ValueError
        If `to_json` would not write such a text.
    """
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError("too many levels of brackets; the format needs 5") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ValueError(f"not a schedule of format {FORMAT}, version {VERSION}")
    _require_fields("schedule", data, FIELDS)
    hosts, aggregating = _nodes("hosts", data["hosts"]), _nodes("aggregating", data["aggregating"])
    if len(set(hosts)) < len(hosts):
        raise ValueError(f"hosts must differ, but {next(host for host in hosts if hosts.count(host) > 1)} is repeated")
    if (
        not isinstance(data["name"], str)
        or not isinstance(data["rounds"], list)
        or not all(isinstance(flows, list) for flows in data["rounds"])
    ):
        raise ValueError("name must be text, rounds a list of lists")
    return (
        Schedule(
            data["name"], len(hosts), [[_flow(at, flow) for flow in flows] for at, flows in enumerate(data["rounds"])]
        ),
        hosts,
        aggregating,
    )


def _flow(at: int, flow: Any) -> Flow:
    if not isinstance(flow, dict):
        raise ValueError(f"a flow of round {at} must be an object, not {flow!r}")
    _require_fields(f"flow of round {at}", flow, FLOW_FIELDS)
    if (
        type(flow["chunk"]) is not int
        or flow["op"] not in [str(op) for op in Op]
        or not isinstance(flow["origin"], str)
    ):
        raise ValueError(f"flow of round {at} has a chunk, op or origin of the wrong kind: {flow!r}")
    return Flow(flow["chunk"], tuple(_nodes("path", flow["path"])), Op(flow["op"]), flow["origin"])


def _require_fields(what: str, data: dict[str, Any], fields: set[str]) -> None:
    if data.keys() != fields:
        raise ValueError(f"{what} must have the fields {sorted(fields)}, not {sorted(data)}")


def _nodes(what: str, nodes: Any) -> list[str]:
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ValueError(f"{what} must be a list of names, not {nodes!r}")
    return nodes

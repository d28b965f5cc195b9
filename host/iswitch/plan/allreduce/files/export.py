"""Schedules as files: JSON that says everything, and XML in the manner of MSCCL, for runtimes of GPUs.

JSON (`to_json`, `from_json`): {"format": "iswitch-allreduce", "version": 1, "name", "hosts": [node...], "aggregating":
[node...], "rounds": [[{"chunk": int, "op": "merge" | "copy" | "hold", "origin": node, "path": [node...]}...]...]};
nodes are strings.

XML (`to_xml`; `iswitch.plan.allreduce.files.msccl` reads it): <algo> of one <gpu> a host, with a <tb> (thread block) for
every peer it sends to and every peer it receives from, each a list of <step>s done in order. Types: s sends, r receives
a copy, rrc receives and adds, nop only waits. `depid` and `deps` name a thread block of the same GPU and the step of it
that must be over first, -1 none; `hasdep` is 1 where somebody waits for the step. Buffer i is the gradient, in place,
one offset a chunk; s is scratch for values held on behalf of others.
"""

import json
from collections.abc import Collection, Hashable
from typing import Any, NamedTuple
from xml.etree import ElementTree

import networkx as nx

from iswitch.plan.allreduce.model.schedule import Flow, Op, Schedule

__all__ = ["from_json", "to_json", "to_xml"]

FORMAT, VERSION = "iswitch-allreduce", 1
FIELDS = {"format", "version", "name", "hosts", "aggregating", "rounds"}
FLOW_FIELDS = {"chunk", "op", "origin", "path"}


def _hosts(graph: nx.Graph) -> list[Hashable]:
    return [node for node, kind in graph.nodes(data="kind") if kind == "host"]


def to_json(graph: nx.Graph, schedule: Schedule, *, aggregating: Collection[Hashable] = ()) -> str:
    """The schedule as text; nodes must be strings."""
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
                "hosts": _hosts(graph),
                "aggregating": sorted(map(str, aggregating)),
                "rounds": rounds,
            },
            separators=(",", ":"),
        )
        + "\n"
    )


def from_json(text: str) -> tuple[Schedule, list[str], list[str]]:
    """Schedule, hosts and aggregating switches; ValueError at whatever `to_json` would not write."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ValueError(f"not a schedule of format {FORMAT}, version {VERSION}")
    _fields("schedule", data, FIELDS)
    hosts, aggregating = _nodes("hosts", data["hosts"]), _nodes("aggregating", data["aggregating"])
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
    _fields(f"flow of round {at}", flow, FLOW_FIELDS)
    if (
        type(flow["chunk"]) is not int
        or flow["op"] not in [str(op) for op in Op]
        or not isinstance(flow["origin"], str)
    ):
        raise ValueError(f"flow of round {at} has a chunk, op or origin of the wrong kind: {flow!r}")
    return Flow(flow["chunk"], tuple(_nodes("path", flow["path"])), Op(flow["op"]), flow["origin"])


def _fields(what: str, data: dict[str, Any], fields: set[str]) -> None:
    if data.keys() != fields:
        raise ValueError(f"{what} must have the fields {sorted(fields)}, not {sorted(data)}")


def _nodes(what: str, nodes: Any) -> list[str]:
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ValueError(f"{what} must be a list of names, not {nodes!r}")
    return nodes


class _Step(NamedTuple):
    """Of a thread block, on a place of the GPU's memory, when `awaited` is over: another block of the GPU and a step of
    it."""

    kind: str
    place: tuple[str, int]
    awaited: tuple[tuple[str, int], int] | None


class _Gpu:
    """The thread blocks of one host as they fill, and who touched which place last."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[str, int], list[_Step]] = {}
        self.writer: dict[tuple[str, int], tuple[tuple[str, int], int]] = {}
        self.readers: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        self.scratch: dict[tuple[int, Hashable], int] = {}

    def place(self, chunk: int, origin: Hashable | None) -> tuple[str, int]:
        """Buffer and offset of the host's own value, or of one that it holds."""
        return ("i", chunk) if origin is None else ("s", self.scratch.setdefault((chunk, origin), len(self.scratch)))

    def step(self, block: tuple[str, int], kind: str, place: tuple[str, int]) -> None:
        """Appends one, after as many nops as it has things to wait for beyond the first."""
        steps = self.blocks.setdefault(block, [])
        waits = {}
        if place in self.writer and self.writer[place][0] != block:
            waits[self.writer[place][0]] = self.writer[place][1]
        if kind != "s":
            for other, at in self.readers.get(place, {}).items():
                if other != block:
                    waits[other] = max(at, waits.get(other, -1))
        wanted = sorted(waits.items())
        steps += [_Step("nop", ("i", -1), each) for each in wanted[:-1]]
        steps.append(_Step(kind, place, wanted[-1] if wanted else None))
        if kind == "s":
            self.readers.setdefault(place, {})[block] = len(steps) - 1
        else:
            self.writer[place] = (block, len(steps) - 1)
            self.readers.pop(place, None)


def to_xml(graph: nx.Graph, schedule: Schedule) -> str:
    """The schedule as XML; a ValueError if switches take part, for which there is no word in it."""
    hosts = _hosts(graph)
    number = {host: index for index, host in enumerate(hosts)}
    gpus = [_Gpu() for _ in hosts]
    for flows in schedule.rounds:
        for node in (end for flow in flows for end in (flow.path[0], flow.path[-1])):
            if node not in number:
                raise ValueError(f"{node!r} is no host: a schedule of aggregating switches has no XML")
        for flow in flows:  # what is sent is what was there when the round began
            sender = gpus[number[flow.path[0]]]
            sender.step(
                ("s", number[flow.path[-1]]),
                "s",
                sender.place(flow.chunk, None if flow.origin == flow.path[0] else flow.origin),
            )
        for flow in flows:
            receiver = gpus[number[flow.path[-1]]]
            place = receiver.place(flow.chunk, flow.origin if flow.op is Op.HOLD else None)
            receiver.step(("r", number[flow.path[0]]), "rrc" if flow.op is Op.MERGE else "r", place)
    algo = ElementTree.Element(
        "algo",
        name=schedule.name,
        nchunksperloop=str(schedule.chunks),
        nchannels="1",
        proto="Simple",
        ngpus=str(len(hosts)),
        coll="allreduce",
        inplace="1",
        redop="sum",
    )
    for index, gpu in enumerate(gpus):
        parent = ElementTree.SubElement(
            algo, "gpu", id=str(index), i_chunks=str(schedule.chunks), o_chunks="0", s_chunks=str(len(gpu.scratch))
        )
        numbers = {block: at for at, block in enumerate(gpu.blocks)}
        awaited = {step.awaited for steps in gpu.blocks.values() for step in steps}
        for block, steps in gpu.blocks.items():
            way, peer = block
            send, recv = (peer, -1) if way == "s" else (-1, peer)
            element = ElementTree.SubElement(
                parent, "tb", id=str(numbers[block]), send=str(send), recv=str(recv), chan="0"
            )
            for at, step in enumerate(steps):
                buffer, offset = step.place
                depid, deps = (numbers[step.awaited[0]], step.awaited[1]) if step.awaited else (-1, -1)
                ElementTree.SubElement(
                    element,
                    "step",
                    s=str(at),
                    type=step.kind,
                    srcbuf=buffer,
                    srcoff=str(offset),
                    dstbuf=buffer,
                    dstoff=str(offset),
                    cnt="0" if step.kind == "nop" else "1",
                    depid=str(depid),
                    deps=str(deps),
                    hasdep=str(int((block, at) in awaited)),
                )
    ElementTree.indent(algo)
    return ElementTree.tostring(algo, encoding="unicode") + "\n"

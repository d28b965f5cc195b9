"""Schedules as XML in the format of MSCCL, for runtimes of GPUs; `msccl` reads it.

<algo> has a <gpu> for each host. A <gpu> has a <tb> (thread block) for every peer that it sends to, and for every peer
that it receives from. A <tb> has <step>s, executed in order. Types of steps are s (send), r (receive a copy), rrc
(receive and add) and nop (wait only). `depid` and `deps` name a thread block of the same GPU, and its step that must be
complete before; -1 is none. `hasdep` is 1 if another step depends on this one. Buffer i is the gradient, in place, with
one offset for each chunk; s is scratch for values held for other hosts.
"""

from collections.abc import Hashable
from typing import NamedTuple
from xml.etree import ElementTree

import networkx as nx

from iswitch.plan.allreduce.model.schedule import Op, Schedule

__all__ = ["to_xml"]

BYTES_MAX = 2**63 - 1
"""A schedule is for gradients of any size. Runtimes need the attribute, and this is their largest number."""


class _Step(NamedTuple):
    """A step of a thread block.

    kind : ``"s"``, ``"r"``, ``"rrc"`` or ``"nop"``.
    place : buffer and offset in the memory of the GPU.
    awaited : another thread block of the GPU, and its step that must be complete before.
    """

    kind: str
    place: tuple[str, int]
    awaited: tuple[tuple[str, int], int] | None


class _Gpu:
    """The thread blocks of one host, and the last steps that read or wrote each place of its memory."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[str, int], list[_Step]] = {}
        self.writer: dict[tuple[str, int], tuple[tuple[str, int], int]] = {}
        self.readers: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        self.scratch: dict[tuple[int, Hashable], int] = {}

    def place(self, chunk: int, origin: Hashable | None) -> tuple[str, int]:
        """Return buffer and offset of the host's own value (origin None), or of a value that it holds."""
        return ("i", chunk) if origin is None else ("s", self.scratch.setdefault((chunk, origin), len(self.scratch)))

    def append_step(self, block: tuple[str, int], kind: str, place: tuple[str, int]) -> None:
        """Append a step. A step can wait for one other, so nops before it wait for the rest."""
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
    """Return a schedule as XML.

    Raises
    ------
    ValueError
        If switches sum, which the format cannot express.
    """
    hosts = [node for node, kind in graph.nodes(data="kind") if kind == "host"]
    number = {host: index for index, host in enumerate(hosts)}
    gpus = [_Gpu() for _ in hosts]
    for flows in schedule.rounds:
        for node in (end for flow in flows for end in (flow.path[0], flow.path[-1])):
            if node not in number:
                raise ValueError(f"{node!r} is not a host: the XML cannot express a schedule of aggregating switches")
        for flow in flows:  # first, since a flow carries the value at the beginning of the round
            sender = gpus[number[flow.path[0]]]
            sender.append_step(
                ("s", number[flow.path[-1]]),
                "s",
                sender.place(flow.chunk, None if flow.origin == flow.path[0] else flow.origin),
            )
        for flow in flows:
            receiver = gpus[number[flow.path[-1]]]
            place = receiver.place(flow.chunk, flow.origin if flow.op is Op.HOLD else None)
            receiver.append_step(("r", number[flow.path[0]]), "rrc" if flow.op is Op.MERGE else "r", place)
    algo = ElementTree.Element(
        "algo",
        name=schedule.name,
        nchunksperloop=str(schedule.chunks),
        nchannels="1",
        proto="Simple",
        ngpus=str(len(hosts)),
        coll="allreduce",
        inplace="1",
        outofplace="0",
        redop="sum",
        minBytes="0",
        maxBytes=str(BYTES_MAX),
    )
    for index, gpu in enumerate(gpus):
        parent = ElementTree.SubElement(
            algo, "gpu", id=str(index), i_chunks=str(schedule.chunks), o_chunks="0", s_chunks=str(len(gpu.scratch))
        )
        numbers = {block: at for at, block in enumerate(gpu.blocks)}
        awaited = {step.awaited for steps in gpu.blocks.values() for step in steps}
        for block, steps in gpu.blocks.items():
            direction, peer = block
            send, recv = (peer, -1) if direction == "s" else (-1, peer)
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

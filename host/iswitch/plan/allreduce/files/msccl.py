"""Reads the XML that `export.to_xml` writes (a part of MSCCL's), objects to what is not of its form, and runs it."""

import random
import re
from collections import deque
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

__all__ = ["Algorithm", "ProgramError", "parse", "run"]

ATTRIBUTES = {
    "algo": {"name", "nchunksperloop", "nchannels", "proto", "ngpus", "coll", "inplace", "redop"},
    "gpu": {"id", "i_chunks", "o_chunks", "s_chunks"},
    "tb": {"id", "send", "recv", "chan"},
    "step": {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"},
}


class ProgramError(ValueError):
    """An XML is not of the form, does not end, or does not sum."""


@dataclass(frozen=True)
class Step:
    kind: str
    place: tuple[str, int]
    wait: tuple[int, int] | None


@dataclass(frozen=True)
class Block:
    """`send` and `recv` are peers, -1 none."""

    send: int
    recv: int
    steps: list[Step]


@dataclass(frozen=True)
class Algorithm:
    """GPUs' thread blocks; `scratch` places of each GPU."""

    chunks: int
    scratch: list[int]
    gpus: list[list[Block]]


def parse(text: str) -> Algorithm:
    """ProgramError at the first element that is not of the form."""
    try:
        algo = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ProgramError(f"not XML: {error}") from error
    _shape(algo, "algo")
    if algo.get("coll") != "allreduce" or algo.get("inplace") != "1" or algo.get("redop") != "sum":
        raise ProgramError("only allreduce, in place, with redop sum is known")
    gpus, scratch, chunks = [], [], _number(algo, "nchunksperloop", 1)
    count = _number(algo, "ngpus", 1)
    for index, gpu in enumerate(_children(algo, "gpu")):
        if _number(gpu, "i_chunks", 0) != chunks:
            raise ProgramError(f"gpu {index}: i_chunks must be {chunks}")
        scratch.append(_number(gpu, "s_chunks", 0))
        gpus.append([_block(block, chunks, scratch[-1], count) for block in _children(gpu, "tb")])
    if len(gpus) != count:
        raise ProgramError(f"ngpus says {count}, but there are {len(gpus)}")
    for index, blocks in enumerate(gpus):
        _check_waits(index, blocks, _awaited(algo[index]))
        for way in ("send", "recv"):
            peers = [getattr(block, way) for block in blocks if getattr(block, way) >= 0]
            if len(peers) != len(set(peers)):
                raise ProgramError(f"gpu {index}: two thread blocks {way} with one peer on one channel")
    return Algorithm(chunks, scratch, gpus)


def _shape(element: ElementTree.Element, tag: str) -> None:
    if element.tag != tag or set(element.keys()) != ATTRIBUTES[tag]:
        raise ProgramError(
            f"<{element.tag}> with {sorted(element.keys())} where a <{tag}> with {sorted(ATTRIBUTES[tag])} must be"
        )


def _number(element: ElementTree.Element, name: str, least: int) -> int:
    text = element.get(name, "")
    if not re.fullmatch("-?[0-9]{1,9}", text) or int(text) < least:
        raise ProgramError(f"<{element.tag}> {name} must be a whole number from {least}, not {text!r}")
    return int(text)


def _children(parent: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    for index, child in enumerate(parent):
        _shape(child, tag)
        if _number(child, "s" if tag == "step" else "id", 0) != index:
            raise ProgramError(f"<{tag}>s of a <{parent.tag}> must be numbered in order")
    return list(parent)


def _block(block: ElementTree.Element, chunks: int, scratch: int, gpus: int) -> Block:
    send, recv = _number(block, "send", -1), _number(block, "recv", -1)
    if max(send, recv) >= gpus or (send < 0) == (recv < 0) or block.get("chan") != "0":
        raise ProgramError(
            f"thread block must send or receive, with one peer below {gpus} on channel 0: {block.attrib}"
        )
    steps = []
    for step in _children(block, "step"):
        kind, place = step.get("type", ""), (step.get("srcbuf", ""), _number(step, "srcoff", -1))
        if kind not in (("s", "nop") if send >= 0 else ("r", "rrc", "nop")):
            raise ProgramError(f"type {kind!r} is not one for a thread block with send={send}, recv={recv}")
        if (step.get("dstbuf"), _number(step, "dstoff", -1)) != place:
            raise ProgramError(f"source and target of a step must be the same place: {step.attrib}")
        if kind == "nop":
            if place[1] != -1 or step.get("cnt") != "0":
                raise ProgramError(f"a nop has no place and no count: {step.attrib}")
        elif (
            place[0] not in ("i", "s")
            or not 0 <= place[1] < (chunks if place[0] == "i" else scratch)
            or step.get("cnt") != "1"
        ):
            raise ProgramError(f"step has no such place, or not the count 1: {step.attrib}")
        wait = (_number(step, "depid", -1), _number(step, "deps", -1))
        if (wait[0] < 0) != (wait[1] < 0):
            raise ProgramError(f"depid and deps go together: {step.attrib}")
        steps.append(Step(kind, place, wait if wait[0] >= 0 else None))
    return Block(send, recv, steps)


def _awaited(gpu: ElementTree.Element) -> set[tuple[int, int]]:
    marks = [(at, number, step.get("hasdep")) for at, block in enumerate(gpu) for number, step in enumerate(block)]
    if any(mark not in ("0", "1") for _, _, mark in marks):
        raise ProgramError("hasdep must be 0 or 1")
    return {(at, number) for at, number, mark in marks if mark == "1"}


def _check_waits(index: int, blocks: list[Block], marked: set[tuple[int, int]]) -> None:
    waits = {step.wait for block in blocks for step in block.steps if step.wait}
    for block, step in waits:
        if block >= len(blocks) or step >= len(blocks[block].steps):
            raise ProgramError(f"gpu {index}: nothing is step {step} of thread block {block}")
    if waits != marked:
        raise ProgramError(f"gpu {index}: hasdep must be 1 exactly where somebody waits")


def run(algorithm: Algorithm, *, seed: int = 0) -> NDArray[np.int64]:
    """Whose contribution is how often in what: counts[gpu, chunk, contributor], all ones, or ProgramError.

    Thread blocks go on in an order drawn from `seed`, so that nothing holds by luck that no dependency says.
    """
    draw, size = random.Random(seed), len(algorithm.gpus)
    memory: list[dict[tuple[str, int], NDArray[np.int64]]] = []
    for gpu in range(size):
        memory.append({("i", chunk): np.eye(size, dtype=np.int64)[gpu] for chunk in range(algorithm.chunks)})
    wires: dict[tuple[int, int], deque[NDArray[np.int64]]] = {}
    done = [[0] * len(blocks) for blocks in algorithm.gpus]
    waiting = [(gpu, block) for gpu, blocks in enumerate(algorithm.gpus) for block in range(len(blocks))]
    while waiting:
        draw.shuffle(waiting)
        moved = False
        for gpu, at in waiting:
            block = algorithm.gpus[gpu][at]
            for _ in range(draw.randint(1, 4)):
                if done[gpu][at] == len(block.steps):
                    break
                step = block.steps[done[gpu][at]]
                if step.wait and done[gpu][step.wait[0]] <= step.wait[1]:
                    break
                if step.kind == "s":
                    if step.place not in memory[gpu]:
                        raise ProgramError(f"gpu {gpu} sends from {step.place}, where nothing is")
                    wires.setdefault((gpu, block.send), deque()).append(memory[gpu][step.place].copy())
                elif step.kind != "nop":
                    wire = wires.get((block.recv, gpu))
                    if not wire:
                        break
                    if step.kind == "rrc" and step.place not in memory[gpu]:
                        raise ProgramError(f"gpu {gpu} adds to {step.place}, where nothing is")
                    value = wire.popleft()
                    memory[gpu][step.place] = memory[gpu][step.place] + value if step.kind == "rrc" else value
                done[gpu][at] += 1
                moved = True
        waiting = [(gpu, at) for gpu, at in waiting if done[gpu][at] < len(algorithm.gpus[gpu][at].steps)]
        if waiting and not moved:
            raise ProgramError(f"{len(waiting)} thread blocks wait for ever")
    if any(wires.values()):
        raise ProgramError("something sent was never received")
    counts = np.array([[memory[gpu]["i", chunk] for chunk in range(algorithm.chunks)] for gpu in range(size)])
    if (counts != 1).any():
        raise ProgramError(f"{int((counts != 1).any(2).sum())} chunks do not hold each contribution once")
    return counts

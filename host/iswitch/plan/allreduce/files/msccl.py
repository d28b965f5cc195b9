"""Read the XML that `to_xml` writes (a part of MSCCL's format), refuse other forms, and run the program."""

import random
import re
from collections import deque
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

__all__ = ["Algorithm", "AlgorithmError", "parse", "run"]

ATTRIBUTES = {
    "algo": {"name", "nchunksperloop", "nchannels", "proto", "ngpus", "coll", "redop"}
    | {"inplace", "outofplace", "minBytes", "maxBytes"},
    "gpu": {"id", "i_chunks", "o_chunks", "s_chunks"},
    "tb": {"id", "send", "recv", "chan"},
    "step": {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"},
}


class AlgorithmError(ValueError):
    """An XML has another form, its program does not end, or its sums are wrong."""


@dataclass(frozen=True)
class Step:
    """A step: its type, its place in memory (buffer, offset), and the (thread block, step) that it waits for."""

    kind: str
    place: tuple[str, int]
    wait: tuple[int, int] | None


@dataclass(frozen=True)
class Block:
    """A thread block: the peer that it sends to or receives from (-1: none), and its steps."""

    send: int
    recv: int
    steps: list[Step]


@dataclass(frozen=True)
class Algorithm:
    """A program: the number of chunks, the scratch places of each GPU, and the thread blocks of each GPU."""

    chunks: int
    scratch: list[int]
    gpus: list[list[Block]]


def parse(text: str) -> Algorithm:
    """Return the program of an XML text.

    Raises
    ------
    AlgorithmError
        If an element has another form than `to_xml` writes.
    """
    try:
        algo = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise AlgorithmError(f"not XML: {error}") from error
    _check_shape(algo, "algo")
    wanted = {"coll": "allreduce", "inplace": "1", "outofplace": "0", "redop": "sum", "minBytes": "0"}
    if any(algo.get(name) != value for name, value in wanted.items()):
        raise AlgorithmError("only allreduce, in place, with redop sum, of any size is supported")
    gpus, scratch, chunks = [], [], _number(algo, "nchunksperloop", 1)
    count = _number(algo, "ngpus", 1)
    for index, gpu in enumerate(_children(algo, "gpu")):
        if _number(gpu, "i_chunks", 0) != chunks:
            raise AlgorithmError(f"gpu {index}: i_chunks must be {chunks}")
        scratch.append(_number(gpu, "s_chunks", 0))
        gpus.append([_block(block, chunks, scratch[-1], count) for block in _children(gpu, "tb")])
    if len(gpus) != count:
        raise AlgorithmError(f"ngpus is {count}, but there are {len(gpus)}")
    for index, blocks in enumerate(gpus):
        _check_waits(index, blocks, _awaited(algo[index]))
        for direction in ("send", "recv"):
            peers = [getattr(block, direction) for block in blocks if getattr(block, direction) >= 0]
            if len(peers) != len(set(peers)):
                raise AlgorithmError(f"gpu {index}: two thread blocks {direction} with one peer on one channel")
    return Algorithm(chunks, scratch, gpus)


def _check_shape(element: ElementTree.Element, tag: str) -> None:
    if element.tag != tag or set(element.keys()) != ATTRIBUTES[tag]:
        raise AlgorithmError(
            f"<{element.tag}> with {sorted(element.keys())} where there must be a <{tag}> "
            f"with {sorted(ATTRIBUTES[tag])}"
        )


def _number(element: ElementTree.Element, name: str, least: int) -> int:
    text = element.get(name, "")
    if not re.fullmatch("-?[0-9]{1,9}", text) or int(text) < least:
        raise AlgorithmError(f"<{element.tag}> {name} must be a whole number from {least}, not {text!r}")
    return int(text)


def _children(parent: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    for index, child in enumerate(parent):
        _check_shape(child, tag)
        if _number(child, "s" if tag == "step" else "id", 0) != index:
            raise AlgorithmError(f"<{tag}>s of a <{parent.tag}> must be numbered in order")
    return list(parent)


def _block(block: ElementTree.Element, chunks: int, scratch: int, gpus: int) -> Block:
    send, recv = _number(block, "send", -1), _number(block, "recv", -1)
    if max(send, recv) >= gpus or (send < 0) == (recv < 0) or block.get("chan") != "0":
        raise AlgorithmError(
            f"thread block must send or receive, with one peer below {gpus} on channel 0: {block.attrib}"
        )
    steps = []
    for step in _children(block, "step"):
        kind, place = step.get("type", ""), (step.get("srcbuf", ""), _number(step, "srcoff", -1))
        if kind not in (("s", "nop") if send >= 0 else ("r", "rrc", "nop")):
            raise AlgorithmError(f"type {kind!r} is not one for a thread block with send={send}, recv={recv}")
        if (step.get("dstbuf"), _number(step, "dstoff", -1)) != place:
            raise AlgorithmError(f"source and target of a step must be the same place: {step.attrib}")
        if kind == "nop":
            if place[1] != -1 or step.get("cnt") != "0":
                raise AlgorithmError(f"a nop has no place and no count: {step.attrib}")
        elif (
            place[0] not in ("i", "s")
            or not 0 <= place[1] < (chunks if place[0] == "i" else scratch)
            or step.get("cnt") != "1"
        ):
            raise AlgorithmError(f"step has no such place, or not the count 1: {step.attrib}")
        wait = (_number(step, "depid", -1), _number(step, "deps", -1))
        if (wait[0] < 0) != (wait[1] < 0):
            raise AlgorithmError(f"depid and deps go together: {step.attrib}")
        steps.append(Step(kind, place, wait if wait[0] >= 0 else None))
    return Block(send, recv, steps)


def _awaited(gpu: ElementTree.Element) -> set[tuple[int, int]]:
    marks = [(at, number, step.get("hasdep")) for at, block in enumerate(gpu) for number, step in enumerate(block)]
    if any(mark not in ("0", "1") for _, _, mark in marks):
        raise AlgorithmError("hasdep must be 0 or 1")
    return {(at, number) for at, number, mark in marks if mark == "1"}


def _check_waits(index: int, blocks: list[Block], marked: set[tuple[int, int]]) -> None:
    waits = {step.wait for block in blocks for step in block.steps if step.wait}
    for block, step in waits:
        if block >= len(blocks) or step >= len(blocks[block].steps):
            raise AlgorithmError(f"gpu {index}: thread block {block} has no step {step}")
    if waits != marked:
        raise AlgorithmError(f"gpu {index}: hasdep must be 1 exactly where another step depends")


def run(algorithm: Algorithm, *, seed: int = 0) -> NDArray[np.int64]:
    """Run a program.

    Thread blocks proceed in a random order, so that a sum is right only if the dependencies make it right.

    Parameters
    ----------
    algorithm : Algorithm
        The program.
    seed : int
        Seed of the order.

    Returns
    -------
    array of int, shape (gpu, chunk, contributor)
        How often each GPU's copy of a chunk contains each GPU's contribution; all 1.

    Raises
    ------
    AlgorithmError
        If the program does not end, reads an empty place, or sums wrongly.
    """
    rng, size = random.Random(seed), len(algorithm.gpus)
    memory: list[dict[tuple[str, int], NDArray[np.int64]]] = []
    for gpu in range(size):
        memory.append({("i", chunk): np.eye(size, dtype=np.int64)[gpu] for chunk in range(algorithm.chunks)})
    wires: dict[tuple[int, int], deque[NDArray[np.int64]]] = {}
    done = [[0] * len(blocks) for blocks in algorithm.gpus]
    waiting = [(gpu, block) for gpu, blocks in enumerate(algorithm.gpus) for block in range(len(blocks))]
    while waiting:
        rng.shuffle(waiting)
        moved = False
        for gpu, at in waiting:
            block = algorithm.gpus[gpu][at]
            for _ in range(rng.randint(1, 4)):
                if done[gpu][at] == len(block.steps):
                    break
                step = block.steps[done[gpu][at]]
                if step.wait and done[gpu][step.wait[0]] <= step.wait[1]:
                    break
                if step.kind == "s":
                    if step.place not in memory[gpu]:
                        raise AlgorithmError(f"gpu {gpu} sends from {step.place}, which is empty")
                    wires.setdefault((gpu, block.send), deque()).append(memory[gpu][step.place].copy())
                elif step.kind != "nop":
                    wire = wires.get((block.recv, gpu))
                    if not wire:
                        break
                    if step.kind == "rrc" and step.place not in memory[gpu]:
                        raise AlgorithmError(f"gpu {gpu} adds to {step.place}, which is empty")
                    value = wire.popleft()
                    memory[gpu][step.place] = memory[gpu][step.place] + value if step.kind == "rrc" else value
                done[gpu][at] += 1
                moved = True
        waiting = [(gpu, at) for gpu, at in waiting if done[gpu][at] < len(algorithm.gpus[gpu][at].steps)]
        if waiting and not moved:
            raise AlgorithmError(f"{len(waiting)} thread blocks wait forever")
    if any(wires.values()):
        raise AlgorithmError("a value was sent and never received")
    counts = np.array([[memory[gpu]["i", chunk] for chunk in range(algorithm.chunks)] for gpu in range(size)])
    if (counts != 1).any():
        raise AlgorithmError(f"{int((counts != 1).any(2).sum())} chunks do not hold each contribution once")
    return counts

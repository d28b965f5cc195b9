"""The failure of a soak: the steps of the switch that differs from its model, as few as possible, and captures."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from sim.bench.cosimulation import DivergenceError
from sim.bench.soak_pair import Cable, Entry, Frames, LoggedPair, Registers, Stalls, Step
from sim.emulator.pcap import Capture

__all__ = ["captured", "fails", "from_text", "minimised", "shortest", "to_text"]

Item = TypeVar("Item")
STEPS = {kind.__name__: kind for kind in (Frames, Cable, Stalls, Registers)}


def fails(made: Callable[[], LoggedPair], steps: Iterable[Step]) -> bool:
    """Return True if a switch that was just switched on differs from its model in these steps.

    No frame enters by a port whose cable is out: steps that were left out may have put it in.
    """
    pair, out = made(), set[int]()
    try:
        for step in steps:
            if isinstance(step, Cable):
                (out.discard if step.up else out.add)(step.port)
            if isinstance(step, Frames):
                pair.take(step._replace(entries=tuple(entry for entry in step.entries if entry.port not in out)))
            else:
                pair.take(step)
    except DivergenceError:
        return True
    finally:
        pair.close()
    return False


def shortest(items: Sequence[Item], fails: Callable[[list[Item]], bool], *, until: float) -> list[Item]:
    """Return few items, in order, for which `fails` is true as it is for all: without any single one of them it is not,
    unless `time.monotonic` passes `until` before."""
    kept, parts = list(items), 2
    while len(kept) >= 2 and time.monotonic() < until:
        size = -(-len(kept) // parts)
        for begin in range(0, len(kept), size):
            fewer = kept[:begin] + kept[begin + size :]
            if time.monotonic() < until and fails(fewer):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), 2 * parts)
    return kept


def minimised(made: Callable[[], LoggedPair], steps: Sequence[Step], *, seconds: float = 300.0) -> list[Step] | None:
    """Return few steps, with few frames, after which a new switch differs from its model; None if it does not after all
    of them.

    Parameters
    ----------
    made : callable
        Makes the switch, just switched on, with its model.
    steps : sequence of Step
        Steps after which they differ, the last one included.
    seconds : float
        The search ends after this time with what it has.
    """
    if not fails(made, steps):
        return None
    until = time.monotonic() + seconds
    few = shortest(steps, lambda some: fails(made, some), until=until)
    single = [
        Frames(step.now_us, (entry,)) if entry else step
        for step in few
        for entry in (step.entries if isinstance(step, Frames) else [None])
    ]
    if fails(made, single):  # what is seen one after another, too, is easier to read
        return shortest(single, lambda some: fails(made, some), until=until)
    flat = [(at, entry) for at, step in enumerate(few) for entry in (step.entries if isinstance(step, Frames) else [])]

    def joined(kept: list[tuple[int, Entry]]) -> list[Step]:
        return [
            step._replace(entries=tuple(entry for k, entry in kept if k == at)) if isinstance(step, Frames) else step
            for at, step in enumerate(few)
        ]

    return joined(shortest(flat, lambda kept: fails(made, joined(kept)), until=until))


def to_text(switch: int, seed: int, steps: Iterable[Step]) -> str:
    """Return steps of a switch as text, a line each, for `from_text`."""
    lines: list[object] = [{"switch": switch, "seed": seed}]
    for step in steps:
        fields = step._asdict()
        if isinstance(step, Frames):
            fields["entries"] = [[entry.port, entry.frame.hex(), entry.error] for entry in step.entries]
        lines.append({"step": type(step).__name__} | fields)
    return "\n".join(map(json.dumps, lines)) + "\n"


def from_text(text: str) -> tuple[int, int, list[Step]]:
    """Return the switch, its seed, and the steps that `to_text` wrote."""
    head, *lines = map(json.loads, text.splitlines())
    steps: list[Step] = []
    for line in lines:
        kind = STEPS[line.pop("step")]
        if kind is Frames:
            line["entries"] = tuple(Entry(port, bytes.fromhex(data), error) for port, data, error in line["entries"])
        steps.append(kind(**line))
    return head["switch"], head["seed"], steps


def captured(folder: Path, frames: Iterable[tuple[int, tuple[int, int], bytes]]) -> list[Path]:
    """Write a capture for each port. `frames`: time in microseconds, switch and port, frame."""
    folder.mkdir(parents=True, exist_ok=True)
    captures: dict[Path, Capture] = {}
    with ExitStack() as files:
        for now_us, (switch, port), frame in frames:
            path = folder / f"switch{switch}port{port}.pcap"
            if path not in captures:
                captures[path] = files.enter_context(Capture(path))
            captures[path].write(frame, 1000 * now_us)
    return sorted(captures)

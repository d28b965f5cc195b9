"""Fuzz what C takes from the network for a replay client, with sanitizers: `python -m sim.fuzz.replay_client`.

Right, wrong and damaged datagrams meet reads and pushes in any state. What C takes, and where it puts it, must
be what `iswitch.replay.messages.parse` and plain Python find; and AddressSanitizer ends the process at any byte outside
of the arrays.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from iswitch.native.loader import SOURCES, load_functions
from iswitch.native.records import header
from iswitch.replay import query_group, request_ring
from iswitch.replay.messages import encode, parse
from iswitch.replay.query_group import QueryGroup
from iswitch.replay.request_ring import RequestRing
from iswitch.wire import Type, version_type
from iswitch.wire.replay import LOAD, STATUS, UNIT_BYTES, Kind, ReplayOutcome
from sim.fuzz.runner import COMMON, SANITIZERS, sanitized_environment

__all__ = ["IN_PROCESS", "build", "fuzz_in_process"]

TOKEN, NOW_S = 0xABCD, 2.0
IN_PROCESS = """
import sys
from pathlib import Path
from sim.fuzz.replay_client import fuzz_in_process
print(fuzz_in_process(Path(sys.argv[1]), seed=int(sys.argv[2]), runs=int(sys.argv[3])), "messages taken")
"""


def build(folder: Path, *, mutant: tuple[str, str] | None = None) -> Path:
    """Compile the client's part with sanitizers, and return the library; with a mutant, if one is given: a text of
    replay.c that stands there once, and what replaces it."""
    text = (SOURCES / "replay.c").read_text(encoding="utf-8")
    if mutant:
        if text.count(mutant[0]) != 1:
            raise ValueError(f"a mutant must name one place of replay.c, not {text.count(mutant[0])}")
        text = text.replace(*mutant)
    (folder / "replay.c").write_text(text, encoding="utf-8")
    (folder / "records.h").write_text(header())
    made, compiler = folder / "replay.so", shlex.split(os.environ.get("CC", "cc"))
    flags = [*COMMON, *SANITIZERS, f"-I{folder}", f"-I{SOURCES}", "-shared"]
    subprocess.run([*compiler, *flags, str(folder / "replay.c"), "-o", str(made)], check=True)
    return made


class _Chance(np.random.Generator):
    def some(self, *values: int) -> int:
        return int(values[self.integers(len(values))])


def _message(chance: _Chance, type_: int, kind: int, first: int, bodies: list[int], status: bool) -> bytes:
    """Return a message of the switch that is right, or wrong in some way."""
    k = int(chance.integers(len(bodies)))
    if chance.random() < 0.6:
        head = bytearray(encode(Kind(kind), session=1, token=TOKEN, seq=(first + k) % 2**32))
        head[0] = type_
        return bytes(head) + (bytes(bodies[k]) if status else chance.bytes(bodies[k])) + bytes(8)
    tag = (first + k + chance.some(0, 0, 0, 0, 0, 1, -1, 2**31, len(bodies))) % 2**32
    size = max(0, bodies[k] + chance.some(0, 0, 0, 0, 0, 0, 8, -8, 1, -1, -bodies[k]))
    head = bytearray(
        encode(
            Kind(kind),
            session=chance.some(1, 1, 2),
            token=chance.some(*[TOKEN] * 6, 0, TOKEN + 1),
            seq=tag,
            count=chance.some(1, 22, 65535),
            ticket=chance.some(*[0] * 6, 1, 2**31),
        )
    )
    head[0] = chance.some(*[type_] * 6, 0, 255)
    head[1] = chance.some(*[kind] * 6, Kind.LOAD, Kind.SAMPLE, 255)
    body = bytearray(chance.bytes(size))
    if status and body:
        body[0] = chance.some(*[0] * 8, ReplayOutcome.AHEAD, ReplayOutcome.SESSION, 255)
    return bytes(head + body + bytes(8))[: chance.some(*[2000] * 12, 0, 1, 4, 21, 22, 29, 30, 94)]


def _burst(messages: list[bytes], chance: _Chance) -> tuple[memoryview, int]:
    """Return messages as one burst, and the bytes of each. A byte may be damaged."""
    segment = chance.some(len(messages[0]), len(messages[0]), len(messages[0]), 0, 1, 22, 30)
    joined = b"".join(messages)
    cut = chance.some(0, 0, 0, 0, 1, 8, int(chance.integers(len(joined) + 1)))
    burst = np.frombuffer(joined[: max(0, len(joined) - cut)], np.uint8).copy()  # its own memory, and not a byte more
    if len(burst) and chance.random() < 0.1:
        burst[chance.integers(min(len(burst), 110))] ^= 1 << int(chance.integers(8))
    return memoryview(burst), segment  # type: ignore[arg-type]


def _cut(burst: memoryview, segment: int) -> list[bytes]:
    return [bytes(burst[at : at + segment]) for at in range(0, len(burst), segment)] if segment else []


def check_reads(chance: _Chance) -> int:
    """Meet reads with bursts. Return how many replies C took.

    Raises
    ------
    AssertionError
        If C took something else than Python finds.
    """
    count, first = int(chance.integers(1, 40)), chance.some(5, 2**32 - 3)
    units = chance.integers(1, 23, count)
    ends = np.cumsum(units) * UNIT_BYTES
    group = QueryGroup(
        Kind.LOAD,
        counts=units,
        bodies=np.zeros(count, LOAD),
        body_rows=np.ones(count, np.uint32),
        target=np.zeros(ends[-1], np.uint8),
        target_at=ends - units * UNIT_BYTES,
        target_bytes=units * UNIT_BYTES,
        on_reply=lambda k, reply: None,
    )
    group.begin(session=1, token=TOKEN, first_tag=first, largest_window=256.0)
    assert group.state
    group.state.window = 8.0
    expected, lacked = np.zeros(ends[-1], np.uint8), dict[int, int]()
    while group.taken < count and chance.random() < 0.95:
        if group.state.next < count and chance.random() < 0.5:
            begun = group.state.next
            group.build(int(chance.integers(1, 9)), 1.0)
            lacked |= {k: int(units[k]) * UNIT_BYTES for k in range(begun, group.state.next)}
        sizes = (units * UNIT_BYTES).tolist()
        messages = [
            _message(chance, version_type(Type.DATA), Kind.LOAD, first, sizes, False)
            for _ in range(chance.some(1, 2, 4))
        ]
        burst, segment = _burst(messages, chance)
        offset = 0
        for datagram in _cut(burst, segment):
            reply = parse(memoryview(datagram))
            k = (reply.header.seq - first) % 2**32 if reply else -1
            if (
                reply is None
                or reply.status
                or (reply.header.kind, reply.header.token, reply.header.ticket) != (Kind.LOAD, TOKEN, 0)
                or lacked.get(k) != len(reply.rows)
            ):
                break
            expected[ends[k] - lacked.pop(k) : ends[k]] = np.frombuffer(reply.rows, np.uint8)
            offset += len(datagram)
        assert group.take(burst, len(burst), segment, 0, NOW_S) == offset, "C stopped at another datagram"
        assert np.array_equal(group.target, expected), "C wrote something else"
        assert group.state.next - group.taken == len(lacked)
    return group.taken


def check_pushes(chance: _Chance) -> int:
    """The same for pushes."""
    slots, first = int(chance.integers(1, 9)), chance.some(5, 2**32 - 3)
    ring = RequestRing(session=1, token=TOKEN, slots=slots)
    ring.begin(first_seq=first, orders=0, table=0)
    taken = 0
    while taken < 30 and chance.random() < 0.97:
        if ring.pending < slots and chance.random() < 0.6:
            ring.put_writes(np.zeros((1, 8 + UNIT_BYTES), np.uint8), 1, 9.0)
        if ring.queued and chance.random() < 0.6:
            ring.build(int(chance.integers(1, slots + 1)), 1.0, 5.0)
        low, sizes = ring.state.low, [STATUS.itemsize] * max(1, ring.flying)
        messages = [
            _message(chance, version_type(Type.ANSWER), Kind.WRITE, first + low, sizes, True)
            for _ in range(chance.some(1, 3))
        ]
        burst, segment = _burst(messages, chance)
        offset = done = 0
        for datagram in _cut(burst, segment):
            reply = parse(memoryview(datagram))
            if (
                done == ring.flying
                or reply is None
                or reply.status is None
                or reply.rows
                or (reply.header.kind, reply.header.token) != (Kind.WRITE, TOKEN)
                or (reply.header.seq, reply.status.outcome) != ((first + low + done) % 2**32, ReplayOutcome.DONE)
            ):
                break
            done, offset, status = done + 1, offset + len(datagram), reply.status
        assert ring.take(burst, len(burst), segment, 0, NOW_S) == offset, "C stopped at another datagram"
        assert ring.state.low == low + done and (not done or ring.status(low + done - 1) == status)
        taken += done
    return taken


def fuzz_in_process(library: Path, *, seed: int, runs: int) -> int:
    """Fuzz a library in this process, and return how many messages C took."""
    compiled = load_functions(library, ("replay_build", "replay_take", "replay_send", "replay_settle"))
    for module in (query_group, request_ring):
        module.compiled_library = lambda: compiled  # type: ignore[attr-defined]
    chance = _Chance(np.random.PCG64(seed))
    return sum(check_reads(chance) + check_pushes(chance) for _ in range(runs))


def main(
    runs: Annotated[int, typer.Option(min=1, help="Groups of reads, and of pushes.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bursts.")] = 1,
) -> None:
    """Fuzz in a process with sanitizers."""
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder))
        command = [sys.executable, "-c", IN_PROCESS, str(made), str(seed), str(runs)]
        raise typer.Exit(subprocess.run(command, env=sanitized_environment(), check=False).returncode)


if __name__ == "__main__":
    typer.run(main)

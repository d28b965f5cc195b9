"""Latency of the replay service at the switch's ports: cycles from the first word of a request to the last word of its
answers.

A client opens a session, adds items, samples batches, fetches their records and updates their priorities, in frames, on
an emulated board without other traffic. Samples are compared with cumulative sums by numpy. The board counts the
cycles.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from iswitch.config import Config
from iswitch.switch.replay import USUAL
from iswitch.wire import Type
from iswitch.wire.replay import ADD_ROW, BODY_BYTES, SAMPLES_PER_FRAGMENT, UPDATE_ROW, ReplayOutcome
from sim.bench.replay_client import ParsedFrame, ReplayClient, parse_frame
from sim.bench.sumtree import fractions
from sim.emulator.engine import Board, Frame, Stamp

__all__ = ["ITEMS", "PATIENCE_CYCLES", "ROWS", "Boundary", "Emulated", "Station", "boundary", "figures"]

BATCHES = (32, 256, 512)
ITEMS = 2048
"""Items that are added first, or as many as the table holds."""
PATIENCE_CYCLES = 2_000_000
FETCHES = 4
"""FETCH requests in flight: their answers fit the queue of a port."""
ROWS = BODY_BYTES // UPDATE_ROW.itemsize


class Emulated(Protocol):
    """The part of `sim.emulator.engine.Board`, made with `stamps=True`, that a measurement needs."""

    config: Config

    def send(self, port: int, frame: bytes) -> bool: ...
    def run(self, max_cycles: int) -> int: ...
    def receive(self, port: int) -> list[Frame]: ...
    def stamp(self, port: int) -> Stamp | None: ...


class Boundary(NamedTuple):
    """Cycles for a batch. `fetch` reads the records of all sampled items with `FETCHES` requests in flight, and
    `fetch_at_once` with all of them; `update` sends as many requests as the batch needs without waiting for answers."""

    batch: int
    sample: int
    fetch: int
    update: int
    fetch_at_once: int


class Station:
    """One client with a session, the only one at its port."""

    def __init__(self, board: Emulated, port: int = 0):
        if board.config.replay is None:
            raise ValueError("a Station's board must have a replay service, not none")
        self.board, self.replay = board, board.config.replay
        self.client, self.seq = ReplayClient(1, port=port), 0
        self.priorities = np.zeros(self.replay.capacity, np.uint64)
        self.adds = 0
        (answer,), _ = self.ask([self.client.open()], 1)
        self.client.opened(answer)
        self.seq = int(answer.status["next"])

    def ask(self, requests: Sequence[bytes], answers: int) -> tuple[list[ParsedFrame], int]:
        """Return all answers, and the cycles from the first word in to the last word out.

        Raises
        ------
        RuntimeError
            If another number of answers comes, or one is not DONE.
        """
        while self.board.stamp(self.client.port):
            pass
        self.board.receive(self.client.port)
        if not all([self.board.send(self.client.port, request) for request in requests]):
            raise RuntimeError("the board's queue is full")
        self.board.run(PATIENCE_CYCLES)
        stamp, frames = self.board.stamp(self.client.port), self.board.receive(self.client.port)
        if stamp is None:
            raise RuntimeError("the board keeps no stamps")
        heard = [parse_frame(frame.data) for frame in frames]
        for answer in heard:
            outcome = (
                answer.outcome
                if answer.type == Type.ANSWER
                else ReplayOutcome.OVERWRITTEN
                if answer.header["ticket"]
                else ReplayOutcome.DONE
            )
            if outcome != ReplayOutcome.DONE:
                raise RuntimeError(f"an answer says {outcome.name}, not DONE")
        if len(heard) != answers:
            raise RuntimeError(f"{len(requests)} requests have {len(heard)} answers, not {answers}")
        return heard, max(frame.last for frame in frames) - stamp.first + 1

    def numbers(self, count: int) -> range:
        """Return the numbers of the next `count` requests, at most `cached_answers`."""
        if count > self.replay.cached_answers:
            raise ValueError(f"at most {self.replay.cached_answers} requests may be on their way, not {count}")
        self.seq += count
        return range(self.seq - count, self.seq)

    def add(self, priorities: Sequence[int]) -> None:
        most = BODY_BYTES // (ADD_ROW.itemsize + self.replay.record_bytes)
        for begin in range(0, len(priorities), most):
            some, (seq,) = priorities[begin : begin + most], self.numbers(1)
            self.ask(
                [self.client.add(seq, [(priority, self.record(self.adds + k)) for k, priority in enumerate(some)])], 1
            )
            self.priorities[(self.adds + np.arange(len(some))) % self.replay.capacity] = some
            self.adds += len(some)

    def record(self, add: int) -> bytes:
        return add.to_bytes(8, "little") * (self.replay.record_bytes // 8)

    def sample(self, count: int, seed: int) -> tuple[list[tuple[int, int]], int]:
        """Return sampled items with their priorities, and cycles.

        Raises
        ------
        RuntimeError
            If numpy samples other items.
        """
        (seq,), fragments = self.numbers(1), -(-count // SAMPLES_PER_FRAGMENT)
        heard, cycles = self.ask([self.client.sample(seq, count, seed)], fragments)
        rows = [
            row for answer in sorted(heard, key=lambda answer: int(answer.header["fragments"])) for row in answer.rows
        ]
        if [(item % self.replay.capacity, priority) for item, priority in rows] != self.expected(count, seed):
            raise RuntimeError("what was drawn is not what numpy draws")
        return rows, cycles

    def expected(self, count: int, seed: int) -> list[tuple[int, int]]:
        """Return the slots and priorities that numpy samples from the present priorities."""
        ends = np.cumsum(self.priorities)
        places = np.array([int(fraction) * int(ends[-1]) >> 64 for fraction in fractions(count, seed)], np.uint64)
        return [(slot, int(self.priorities[slot])) for slot in np.searchsorted(ends, places, "right").tolist()]

    def fetch(self, items: Sequence[int], *, in_flight: int = FETCHES) -> int:
        """Cycles. RuntimeError unless all records are what was added."""
        most, cycles = self.replay.records, 0
        asked = [items[k : k + most] for k in range(0, len(items), most)]
        for k in range(0, len(asked), in_flight):
            heard, spent = self.ask(
                [self.client.fetch(some, seq=at) for at, some in enumerate(asked[k : k + in_flight])],
                len(asked[k : k + in_flight]),
            )
            cycles += spent
            for answer in heard:
                some = asked[k + int(answer.header["seq"])]
                if answer.payload != b"".join(self.record((item - self.replay.capacity) % 2**32) for item in some):
                    raise RuntimeError("a record is not what was added")
        return cycles

    def update(self, rows: Sequence[tuple[int, int]]) -> int:
        """Cycles."""
        parts = [rows[k : k + ROWS] for k in range(0, len(rows), ROWS)]
        heard, cycles = self.ask(
            [self.client.update(seq, part) for seq, part in zip(self.numbers(len(parts)), parts)], len(parts)
        )
        if sum(int(answer.status["done"]) for answer in heard) != len(rows):
            raise RuntimeError("not all updates were done")
        for item, priority in rows:
            self.priorities[item % self.replay.capacity] = priority
        return cycles


def boundary(board: Emulated, batches: Sequence[int] = BATCHES, *, port: int = 0) -> list[Boundary]:
    """One row for each batch, of a board that nothing was asked of yet. RuntimeError if the service does not do what it
    should."""
    station, rng = Station(board, port), np.random.default_rng(1)

    def some(count: int) -> list[int]:
        return [int(priority) for priority in rng.integers(1, 1 << station.replay.priority_bits, size=count)]

    station.add(some(min(ITEMS, station.replay.capacity)))
    found = []
    for batch in batches:
        rows, sample = station.sample(batch, seed=batch)
        items = [item for item, _ in rows]
        fetch = station.fetch(items)
        update = station.update([*zip(items, some(batch))])
        found.append(Boundary(batch, sample, fetch, update, station.fetch(items, in_flight=batch)))
    station.sample(max(batches), seed=1)  # by which the last updates are seen to have been done
    return found


def figures(quick: bool) -> Iterator[tuple[str, float, str]]:
    """Key, value and unit, of the emulated board."""
    with Board(Config(replay=USUAL), stamps=True) as board:
        for row in boundary(board):
            for operation, cycles in zip(row._fields[1:], row[1:]):
                yield (
                    f"replay.boundary.{row.batch}.{operation}",
                    cycles,
                    "cycles from the first word in to the last word out",
                )

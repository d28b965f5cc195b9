"""A learner's step at the switch's ports, in cycles: a batch is fetched while the next one is sampled and the
priorities of the one before are updated.

One learner keeps all three kinds of requests on their way, on an emulated board without other traffic. It reacts to an
answer at once. Every sample is compared with cumulative sums by numpy, and every record with what was added.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from iswitch.config import Config
from iswitch.switch.replay import USUAL
from iswitch.wire import Type
from iswitch.wire.replay import SAMPLES_PER_FRAGMENT, Kind, ReplayOutcome
from sim.bench.replay_boundary import ITEMS, PATIENCE_CYCLES, ROWS, Emulated, Station
from sim.bench.replay_client import ParsedFrame, parse_frame
from sim.emulator.engine import Board

__all__ = ["BATCH", "Learner", "Step", "figures", "learner_steps"]

BATCH = 512
STEPS = 8
SLICE_CYCLES = 16
"""Cycles between two looks at what has arrived: the longest time in which the learner does not react."""


class Step(NamedTuple):
    """Cycles of a step of `batch` samples and `batch` updates. `steady`: of one step among many, each of whose requests
    leaves as soon as its own data are there. `drained`: from the first request of a step to its last answer."""

    batch: int
    steady: float
    drained: int


class Learner(Station):
    """A learner that has sampled one batch, and updates the priorities of the batch before. `begin` sends a step's
    requests, and `advance` receives until the step is over."""

    def __init__(self, board: Emulated, batch: int = BATCH, *, port: int = 0, seed: int = 1):
        super().__init__(board, port)
        self.batch, self.rng = batch, np.random.default_rng(seed)
        self.add(self._some(min(ITEMS, self.replay.capacity)))
        self.cycles = self.fetched = self.updated = self.sampled = 0
        self.asked: dict[int, list[int]] = {}  # number of a FETCH: items
        self.fetches = 0
        self.updates: dict[int, int] = {}  # number of an UPDATE: rows
        self.samples: dict[int, tuple[list[tuple[int, int]], dict[int, list[tuple[int, int]]]]] = {}
        self.sampled_batches: deque[list[int]] = deque()
        self.items = [item for item, _ in self.sample(batch, seed=seed)[0]]
        self.former = [item for item, _ in self.sample(batch, seed=seed + 1)[0]]

    def _some(self, count: int) -> list[int]:
        return [int(p) for p in self.rng.integers(1, 1 << self.replay.priority_bits, size=count)]

    def begin(self) -> None:
        """Send the step's requests: UPDATEs of the former batch and a SAMPLE among the FETCHes of the present one."""
        most, frames = self.replay.records, []
        rows = list(zip(self.former, self._some(len(self.former))))
        parts = [rows[k : k + ROWS] for k in range(0, len(rows), ROWS)]
        for k in range(0, len(self.items), most):
            self.asked[self.fetches] = some = self.items[k : k + most]
            frames.append(self.client.fetch(some, seq=self.fetches))
            self.fetches += 1
        ordered = []
        for seq, part in zip(self.numbers(len(parts)), parts):
            ordered.append(self.client.update(seq, part))
            self.updates[seq] = len(part)
            for item, priority in part:
                self.priorities[item % self.replay.capacity] = priority
        (seq,) = self.numbers(1)
        seed = int(self.rng.integers(1, 1 << 63))
        ordered.append(self.client.sample(seq, self.batch, seed))
        self.samples[seq] = self.expected(self.batch, seed), {}
        between = max(1, len(frames) // len(ordered))
        for k, frame in enumerate(ordered):
            frames.insert(k * (between + 1), frame)
        if not all([self.board.send(self.client.port, frame) for frame in frames]):
            raise RuntimeError("the board's queue is full")
        self.former = self.items

    @property
    def waits(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self.asked or self.updates or self.samples)

    def advance(self, *, drain: bool) -> None:
        """Receive until the step's samples are there, or, with `drain`, until every request is answered."""
        patience = PATIENCE_CYCLES
        while self.waits if drain else not self.sampled_batches:
            spent = self.board.run(SLICE_CYCLES)
            self.cycles += spent
            patience -= max(1, spent)
            for frame in self.board.receive(self.client.port):
                self._take(parse_frame(frame.data))
            if patience < 0:
                raise RuntimeError("a request is not answered")
        self.items = self.sampled_batches.popleft()

    def _take(self, answer: ParsedFrame) -> None:
        """Check an answer against what its request asked for."""
        seq = int(answer.header["seq"])
        if answer.type == Type.DATA:
            items = self.asked.pop(seq)
            if answer.header["ticket"] or answer.payload != b"".join(
                self.record((item - self.replay.capacity) % 2**32) for item in items
            ):
                raise RuntimeError("a record is not what was added")
            self.fetched += len(items)
            return
        if answer.outcome != ReplayOutcome.DONE:
            raise RuntimeError(f"an answer says {answer.outcome.name}, not DONE")
        if answer.header["kind"] == Kind.UPDATE:
            if int(answer.status["done"]) != self.updates.pop(seq):
                raise RuntimeError("not all updates were done")
            self.updated += int(answer.status["done"])
            return
        expected, fragments = self.samples[seq]
        fragments[int(answer.header["fragments"])] = answer.rows
        if len(fragments) == -(-self.batch // SAMPLES_PER_FRAGMENT):
            rows = [row for k in sorted(fragments) for row in fragments[k]]
            if [(item % self.replay.capacity, priority) for item, priority in rows] != expected:
                raise RuntimeError("what was drawn is not what numpy draws")
            del self.samples[seq]
            self.sampled += len(rows)
            self.sampled_batches.append([item for item, _ in rows])


def learner_steps(board: Emulated, batch: int = BATCH, *, steps: int = STEPS, port: int = 0) -> Step:
    """Measure a learner's steps on a board of which nothing was requested yet.

    Raises
    ------
    RuntimeError
        If a record, a sample or an answer is not what it should be.
    """
    learner = Learner(board, batch, port=port)
    learner.begin()
    learner.advance(drain=False)
    before = learner.cycles
    for _ in range(steps):
        learner.begin()
        learner.advance(drain=False)
    steady = (learner.cycles - before) / steps
    learner.begin()
    learner.advance(drain=True)
    before = learner.cycles
    learner.begin()
    learner.advance(drain=True)
    done = (steps + 3) * batch  # with the first step and the last two
    if (learner.sampled, learner.fetched, learner.updated) != (done, done, done):
        raise RuntimeError(f"{steps + 3} steps must sample, fetch and update {done} items each")
    return Step(batch, steady, learner.cycles - before)


def figures(quick: bool) -> Iterator[tuple[str, float, str]]:
    """Key, value and unit, of the emulated board."""
    with Board(Config(replay=USUAL), stamps=True) as board:
        found = learner_steps(board, steps=3 if quick else STEPS)
        what = f"cycles of a step of {BATCH} samples, their records and {BATCH} updates"
        yield f"replay.learner_step_cycles.{BATCH}", found.steady, f"{what}, one step after another"
        yield f"replay.learner_step_cycles.{BATCH}.drained", found.drained, f"{what}, from idle to idle"

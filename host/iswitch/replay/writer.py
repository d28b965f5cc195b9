"""Transitions on their way into the table: frames and blobs to the log, records behind them, as many to a datagram as fit."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from iswitch.replay.channel import Request
from iswitch.replay.errors import MemoryExhausted
from iswitch.replay.frames import RecentFrames
from iswitch.replay.log import Hold, LogSpace
from iswitch.replay.records import Layout, units_of
from iswitch.replay.session import Session
from iswitch.replay_wire import ADD_ROW, BODY_BYTES, PAYLOAD_BYTES, UNIT_BYTES, WRITE, Fate, Kind

__all__ = ["Added", "LogWriter", "Writer", "turns_from"]

_UNITS = PAYLOAD_BYTES // UNIT_BYTES  # in a WRITE
_FRAMES_SHARE = 8
"""Frames are found again among what fits this part of the log: so far back an item may reach, and keep what is between."""


def turns_from(turn: int, count: int) -> list[int]:
    """Turns of `count` requests, of which the first has `turn`: 0, or a table's, which go from 2^32 - 1 to 1."""
    return [turn and (turn - 1 + k) % (2**32 - 1) + 1 for k in range(count)]


class Added:
    """Transitions that were handed over. turn: the table's turn behind them, if they were given one, else 0."""

    def __init__(self, session: Session, turn: int = 0):
        self._session, self.turn = session, turn
        self._parts: list[tuple[Request, slice]] = []
        self._waits: list[_Batch] = []

    @property
    def items(self) -> np.ndarray:
        """The numbers of the items, u4: their handles. Waits until all were added; NotServed if one had to be taken back."""
        for batch in self._waits:
            batch.seal()
        requests = [request for request, _ in self._parts]
        self._session.served(requests)
        return np.concatenate([numbers_of(request, self._session.config.capacity)[part] for request, part in self._parts] or [np.empty(0, "<u4")])


def numbers_of(request: Request, capacity: int) -> np.ndarray:
    """The items of an ADD that was answered, u4."""
    assert request.status is not None
    first = request.status.adds + capacity - request.count
    return (np.arange(first, first + request.count) % 2**32).astype(np.uint32)


class LogWriter:
    """Appends to a session's log. pushed: bytes sent."""

    def __init__(self, session: Session):
        self.session = session
        opened, config = session.opened, session.config
        self.space = LogSpace(units=config.log_units, written=opened.written, oldest=opened.oldest, adds=opened.adds, capacity=config.capacity)
        self.pushed = 0
        self._unsent = bytearray()
        self._start = self.space.end  # of what is unsent
        self._oldest = self.space.oldest
        self.settle = lambda: None
        """Takes notice of items that were answered."""

    def append(self, data: bytes | memoryview) -> int:
        """Whole units, from where they begin; sent at once as far as they fill requests. MemoryExhausted."""
        units = units_of(len(data))
        if self.space.room(self.session.adds) < units:
            self._make_room(units)
        start, self._oldest = self.space.append(units, self.session.adds)
        self._unsent += data
        self._unsent += bytes(units * UNIT_BYTES - len(data))
        while len(self._unsent) >= PAYLOAD_BYTES:
            self._write(_UNITS)
        return start

    def flush(self) -> None:
        """Sends what has not filled a request."""
        if self._unsent:
            self._write(len(self._unsent) // UNIT_BYTES)

    def _write(self, units: int) -> None:
        size = units * UNIT_BYTES
        head = np.array((self._start % 2**32, min(self._oldest, self._start) % 2**32), WRITE)
        self.session.put(Request(Kind.WRITE, count=units, body=head.tobytes() + bytes(self._unsent[:size])))
        del self._unsent[:size]
        self._start += units
        self.pushed += size

    def _make_room(self, units: int) -> None:
        """Looks which items are gone by now; if that is not enough, gives up what others might like to read."""
        self.session.wait(lambda: all(request.kind == Kind.SAMPLE for request in self.session.channel.requests()))
        self.settle()
        self.session.look()
        while self.space.room(self.session.adds) < units:
            if not self.space.give_way():
                raise MemoryExhausted(self._exhausted(units))

    def _exhausted(self, units: int) -> str:
        config, held = self.session.config, self.space.units - self.space.room(self.session.adds)
        return (f"the log of session {self.session.index} at {self.session.address} is full: {held * UNIT_BYTES} of its {config.log_bytes} bytes "
                f"are needed by items that are still in the table or by parameters, and {units * UNIT_BYTES} more do not fit")


class _Batch:
    """Transitions of one ADD that is not sent yet."""

    def __init__(self, writer: "Writer", hold: Hold | None):
        self.writer, self.hold = writer, hold
        self.request = Request(Kind.ADD)
        self.rows: list[bytes] = []
        self.count = 0

    def seal(self) -> None:
        if self.writer.batch is self:
            self.writer.seal()


class Writer:
    """Packs transitions and sends them. `batch`: what waits for more to fill a datagram."""

    def __init__(self, session: Session, layout: Layout, log: LogWriter):
        self.session, self.layout, self.log = session, layout, log
        self.row = np.dtype([*ADD_ROW.descr, ("record", layout.record)])
        self.per_add = BODY_BYTES // self.row.itemsize
        """Items in a request."""
        self.recent = RecentFrames(session.config.log_units // _FRAMES_SHARE)
        self.batch: _Batch | None = None
        self.added = self.pushed = 0
        """Items answered for, and bytes of them sent, without what is in the log."""
        self.handed = 0
        """Items packed."""
        self.written = 0
        """Frames written to the log."""
        self.refused: list[Request] = []
        """ADDs that were taken back, and of which nobody knows yet."""
        self._unsettled: list[tuple[Request, Hold | None]] = []
        log.settle = self.settle

    def add(self, arrays: Mapping[str, np.ndarray], priorities: np.ndarray, turn: int = 0) -> Added:
        """Transitions with a leading axis and their priorities (u4). Full datagrams are sent, the rest waits in `batch`, unless there is a turn.
        MemoryExhausted, with what came before added."""
        if turn:
            self.seal()
        count, at = len(priorities), 0
        turns = iter(turns_from(turn, -(-count // self.per_add) + 1)) if turn else itertools.repeat(0)
        result = Added(self.session)
        while at < count:
            if self.batch is None:
                self.batch = self._begin(next(turns))
                result._waits.append(self.batch)
            elif self.batch not in result._waits:
                result._waits.append(self.batch)
            batch, end = self.batch, min(count, at + self.per_add - self.batch.count)
            part = slice(at, end)
            try:
                rows = self._pack({name: array[part] for name, array in arrays.items()}, priorities[part], batch.hold)
            except MemoryExhausted as full:
                raise self._explained(full, at, count) from None
            result._parts.append((batch.request, slice(batch.count, batch.count + end - at)))
            batch.rows.append(rows.tobytes())
            batch.count += end - at
            at = end
            if batch.count == self.per_add or turn and at == count:
                self.seal()
        result.turn = next(turns)
        return result

    def _begin(self, turn: int) -> _Batch:
        self.settle()
        batch = _Batch(self, self.log.space.hold() if self.layout.logged else None)
        batch.request.turn = turn
        return batch

    def seal(self) -> None:
        """Sends what waits."""
        batch, self.batch = self.batch, None
        if batch is None:
            return
        if not batch.count:
            if batch.hold:
                self.log.space.forget(batch.hold)
            return
        self.log.flush()
        request = batch.request
        request.count, request.body = batch.count, b"".join(batch.rows)
        self.pushed += len(request.body)
        self._unsettled.append((request, batch.hold))
        self.session.put(request)

    def settle(self) -> None:
        """Takes notice of ADDs that were answered."""
        done = 0
        for request, hold in self._unsettled:
            if not request.settled:
                break
            done += 1
            if request.fate == Fate.DONE and request.status:
                self.added += request.count
                if hold:
                    behind = (self.session.adds - request.status.adds) % 2**32  # answers before this one cannot say more than the last
                    self.log.space.acknowledge(hold, self.session.adds - behind + self.session.config.capacity - 1)
            else:
                self.refused.append(request)
                if hold:
                    self.log.space.forget(hold)
        del self._unsettled[:done]

    def _pack(self, arrays: Mapping[str, np.ndarray], priorities: np.ndarray, hold: Hold | None) -> np.ndarray:
        """Rows of an ADD; what is in the log is appended there."""
        count, layout = len(priorities), self.layout
        self.handed += count
        positions = {name: np.zeros((count, layout.spec[name].stacked), "<u4") for name in layout.stacked}
        blobs = np.zeros(count, "<u4")
        if hold:
            for k in range(count):
                for name in layout.stacked:
                    for frame, image in enumerate(arrays[name][k]):
                        positions[name][k, frame] = self._frame(image.tobytes(), hold) % 2**32
            if layout.blob:
                packed = layout.pack_blobs(arrays, positions)
                for k in range(count):
                    start = self.log.append(packed[k:k + 1].tobytes())
                    hold.unit = min(hold.unit, start)
                    blobs[k] = start % 2**32
        rows = np.zeros(count, self.row)
        rows["priority"], rows["record"] = priorities, layout.pack(arrays, positions, blobs, self.session.index)
        return rows

    def _frame(self, frame: bytes, hold: Hold) -> int:
        """The unit of the log where a frame begins; written if it is not there."""
        start = self.recent.find(frame, self.log.space.oldest)
        if start is None:
            start = self.log.append(frame)
            self.recent.add(frame, start, units_of(len(frame)))
            self.written += 1
        hold.unit = min(hold.unit, start)
        return start

    def _explained(self, full: MemoryExhausted, done: int, count: int) -> MemoryExhausted:
        """With the numbers that tell what to do about it."""
        config = self.session.config
        each = self.log.pushed / max(1, self.handed)
        holds = int(config.log_bytes / each) if each else 0
        return MemoryExhausted(
            f"{full}. So far this client added {self.handed} items with {each:.0f} bytes each in the log, which therefore holds about {holds} of "
            f"them; the table holds {config.capacity} items of all clients. {done} of these {count} transitions were handed over. Build the "
            "switch with a larger `log_bytes` or a smaller `capacity`, spread the transitions over more clients, let them share frames "
            "(`stacked`), or make their fields smaller")

    @staticmethod
    def one(transition: Mapping[str, Any]) -> dict[str, Any]:
        """A transition with a leading axis."""
        return {name: np.asarray(value)[None] for name, value in transition.items()}

"""Transitions on their way into the table: frames and blobs to the log, records behind them, as many to a datagram as
fit."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from iswitch.replay.channel import Request
from iswitch.replay.errors import MemoryExhaustedError
from iswitch.replay.frames import RecentFrames
from iswitch.replay.log import ItemsHold
from iswitch.replay.log_writer import LogWriter
from iswitch.replay.records import Layout, units_of
from iswitch.replay.session import Session
from iswitch.wire.replay import ADD_ROW, BODY_BYTES, Fate, Kind

__all__ = ["Added", "Writer", "tickets_from"]

_FRAMES_SHARE = 8
"""Frames are found again among what fits this part of the log: so far back an item may reach, and keep what is
between."""


def tickets_from(ticket: int, count: int) -> list[int]:
    """Turns of `count` requests, of which the first has `ticket`: 0, or a table's, which go from 2^32 - 1 to 1."""
    return [ticket and (ticket - 1 + k) % (2**32 - 1) + 1 for k in range(count)]


class Added:
    """Transitions that were handed over. ticket: the table's ticket behind them, if they were given one, else 0."""

    def __init__(self, session: Session, ticket: int = 0):
        self._session, self.ticket = session, ticket
        self._parts: list[tuple[_Batch, slice]] = []

    def take(self, batch: "_Batch", first: int, count: int) -> None:
        """So many of them are in a datagram, from its `first` on."""
        self._parts.append((batch, slice(first, first + count)))

    @property
    def items(self) -> np.ndarray:
        """The numbers of the items, u4: their handles. Waits until all were added; NotServedError if one had to be
        taken back."""
        for batch, _ in self._parts:
            batch.seal()
        self._session.served(batch.request for batch, _ in self._parts)
        numbers = [numbers_of(batch.request, self._session.config.capacity)[part] for batch, part in self._parts]
        return np.concatenate([np.empty(0, np.uint32), *numbers])


def numbers_of(request: Request, capacity: int) -> np.ndarray:
    """The items of an ADD that was answered, u4."""
    assert request.status is not None
    first = request.status.adds + capacity - request.count
    return (np.arange(first, first + request.count) % 2**32).astype(np.uint32)


class _Batch:
    """Transitions of one ADD that is not sent yet."""

    def __init__(self, writer: "Writer", hold: ItemsHold | None):
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
        self._unsettled: list[tuple[Request, ItemsHold | None]] = []
        log.settle = self.settle

    def add(self, arrays: Mapping[str, np.ndarray], priorities: np.ndarray, ticket: int = 0) -> Added:
        """Transitions with a leading axis and their priorities (u4). Full datagrams are sent, the rest waits in
        `batch`, unless there is a ticket. MemoryExhaustedError, with what came before added."""
        if ticket:
            self.seal()
        count, at = len(priorities), 0
        tickets = iter(tickets_from(ticket, -(-count // self.per_add) + 1)) if ticket else itertools.repeat(0)
        result = Added(self.session)
        while at < count:
            if self.batch is None:
                self.batch = self._begin(next(tickets))
            batch = self.batch
            part = slice(at, min(count, at + self.per_add - batch.count))
            packed, full = self._place({name: array[part] for name, array in arrays.items()}, batch.hold)
            if full and (ticket or not packed and not batch.count):
                raise self._explained(full, at, count) from None
            result.take(batch, batch.count, packed)
            batch.rows.append(self._pack(slice(at, at + packed), arrays, priorities).tobytes())
            batch.count += packed
            at += packed
            if (
                full or batch.count == self.per_add or ticket and at == count
            ):  # if full: what is added makes room for the rest
                self.seal()
        result.ticket = next(tickets)
        return result

    def _begin(self, ticket: int) -> _Batch:
        self.settle()
        batch = _Batch(self, self.log.space.hold() if self.layout.logged else None)
        batch.request.ticket = ticket
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
                    behind = (
                        self.session.adds - request.status.adds
                    ) % 2**32  # answers before this one cannot say more than the last
                    self.log.space.acknowledge(hold, self.session.adds - behind + self.session.config.capacity - 1)
            else:
                self.refused.append(request)
                if hold:
                    self.log.space.forget(hold)
        del self._unsettled[:done]

    def _place(
        self, arrays: Mapping[str, np.ndarray], hold: ItemsHold | None
    ) -> tuple[int, MemoryExhaustedError | None]:
        """Appends to the log what belongs there, of as many items as there is room for: how many, and why not all.
        Where it is is kept for `_pack`."""
        layout, count = self.layout, len(next(iter(arrays.values())))
        self._positions = {name: np.zeros((count, layout.spec[name].stacked), "<u4") for name in layout.stacked}
        self._blobs = np.zeros(count, "<u4")
        if hold is None:
            return count, None
        for k in range(count):
            items, one = len(hold.floors), slice(k, k + 1)
            hold.begin(self.log.space.end)
            try:
                for name, positions in self._positions.items():
                    for frame, image in enumerate(arrays[name][k]):
                        positions[k, frame] = self._frame(image.tobytes(), hold) % 2**32
                if layout.blob:
                    blob = layout.pack_blobs(
                        {name: array[one] for name, array in arrays.items()},
                        {name: positions[one] for name, positions in self._positions.items()},
                    )
                    start = self.log.append(blob.tobytes())
                    hold.need(start)
                    self._blobs[k] = start % 2**32
            except MemoryExhaustedError as full:
                hold.undo(items)
                return k, full
        return count, None

    def _pack(self, part: slice, arrays: Mapping[str, np.ndarray], priorities: np.ndarray) -> np.ndarray:
        """Rows of an ADD."""
        count = part.stop - part.start
        self.handed += count
        rows = np.zeros(count, self.row)
        rows["priority"] = priorities[part]
        rows["record"] = self.layout.pack(
            {name: array[part] for name, array in arrays.items()},
            {name: positions[:count] for name, positions in self._positions.items()},
            self._blobs[:count],
            self.session.index,
        )
        return rows

    def _frame(self, frame: bytes, hold: ItemsHold) -> int:
        """The unit of the log where a frame begins; written if it is not there."""
        start = self.recent.find(frame, self.log.space.oldest)
        if start is None:
            start = self.log.append(frame)
            self.recent.add(frame, start, units_of(len(frame)))
            self.written += 1
        hold.need(start)
        return start

    def _explained(self, full: MemoryExhaustedError, done: int, count: int) -> MemoryExhaustedError:
        """With the numbers that tell what to do about it."""
        config = self.session.config
        each = self.log.pushed / max(1, self.handed)
        holds = int(config.log_bytes / each) if each else 0
        return MemoryExhaustedError(
            f"{full}. So far this client added {self.handed} items with {each:.0f} bytes each in the log, which therefore holds about {holds} of "
            f"them; the table holds {config.capacity} items of all clients. {done} of these {count} transitions were handed over. Build the "
            "switch with a larger `log_bytes` or a smaller `capacity`, spread the transitions over more clients, let them share frames "
            "(`stacked`), or make their fields smaller"
        )

    @staticmethod
    def one(transition: Mapping[str, Any]) -> dict[str, Any]:
        """A transition with a leading axis."""
        return {name: np.asarray(value)[None] for name, value in transition.items()}

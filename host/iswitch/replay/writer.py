"""Add transitions: frames and blobs go to the log, then records to the table, as many in a datagram as fit."""

import itertools
from collections.abc import Mapping

import numpy as np

from iswitch.replay.errors import MemoryExhaustedError
from iswitch.replay.frame_cache import FrameCache
from iswitch.replay.log_space import ItemsPin
from iswitch.replay.log_writer import LogWriter
from iswitch.replay.records import Layout, units_for
from iswitch.replay.request import Request
from iswitch.replay.session import Session
from iswitch.replay.tickets import consecutive_tickets
from iswitch.wire.replay import ADD_ROW, BODY_BYTES, UNIT_BYTES, Kind, ReplayOutcome

__all__ = ["PendingAdd", "Writer"]

_FRAME_CACHE_SHARE = 8
"""The frame cache covers this part of the log: an item refers at most so far back, and keeps everything behind."""


class PendingAdd:
    """Transitions that were handed to the client.

    Attributes
    ----------
    ticket : int
        The table's ticket after them if they were added with a ticket, else 0.
    """

    def __init__(self, session: Session, ticket: int = 0):
        self._session, self.ticket = session, ticket
        self._parts: list[tuple[_Datagram, slice]] = []

    def append(self, datagram: "_Datagram", first: int, count: int) -> None:
        """Record that `count` of the transitions are in a datagram, from its row `first` on."""
        self._parts.append((datagram, slice(first, first + count)))

    @property
    def items(self) -> np.ndarray:
        """Handles of the items, uint32 of shape (n,). Waits until all of them were added. Raises NotServedError if an
        add was cancelled."""
        for datagram, _ in self._parts:
            datagram.seal()
        self._session.wait_served(datagram.request for datagram, _ in self._parts)
        capacity = self._session.config.capacity
        handles = [_handles(datagram.request, capacity)[part] for datagram, part in self._parts]
        return np.concatenate([np.empty(0, np.uint32), *handles])


def _handles(request: Request, capacity: int) -> np.ndarray:
    """Return the handles of the items of an ADD that was answered, as uint32."""
    assert request.status is not None
    first = request.status.adds + capacity - request.count
    return (np.arange(first, first + request.count) % 2**32).astype(np.uint32)


class _Datagram:
    """Transitions of one ADD that is not sent yet."""

    def __init__(self, writer: "Writer", pin: ItemsPin | None):
        self.writer, self.pin = writer, pin
        self.request = Request(Kind.ADD)
        self.rows: list[bytes] = []
        self.count = 0

    def seal(self) -> None:
        if self.writer.open_datagram is self:
            self.writer.seal()


class Writer:
    """Packs transitions into ADD requests and submits them.

    Parameters
    ----------
    session : Session
        The session.
    layout : Layout
        Where fields are stored.
    log : LogWriter
        Writes to the session's log.

    Attributes
    ----------
    items_per_datagram : int
        The most items in a request.
    open_datagram : _Datagram or None
        The request that waits for more items.
    acknowledged : int
        Items that the switch acknowledged.
    packed : int
        Items that were packed into requests.
    bytes_sent : int
        Bytes of ADD requests, each counted once.
    frames_written : int
        Frames that were written to the log.
    frame_cache : FrameCache
        The frames that are in the log.
    cancelled : list of Request
        ADD requests that were cancelled, and have not been reported to the caller.
    """

    def __init__(self, session: Session, layout: Layout, log: LogWriter):
        self.session, self.layout, self.log = session, layout, log
        self._row = np.dtype([*ADD_ROW.descr, ("record", layout.record)])
        self.items_per_datagram = BODY_BYTES // self._row.itemsize
        self.frame_cache = FrameCache(session.config.log_units // _FRAME_CACHE_SHARE)
        self.open_datagram: _Datagram | None = None
        self.acknowledged = self.packed = self.bytes_sent = self.frames_written = 0
        self.cancelled: list[Request] = []
        self._submitted: list[tuple[Request, ItemsPin | None]] = []
        self._positions: dict[str, np.ndarray] = {}  # of the frames of the transitions that `_pack` packs
        self._blobs = np.zeros(0, "<u4")
        log.process_answers = self.process_answers

    def add(self, columns: Mapping[str, np.ndarray], priorities: np.ndarray, ticket: int = 0) -> PendingAdd:
        """Add transitions. Full requests are submitted. Without a ticket, the rest waits for more transitions.

        Parameters
        ----------
        columns : mapping of str to array of shape (n, ...)
            The transitions, from `Layout.to_columns`.
        priorities : uint32 array of shape (n,)
            Their priorities.
        ticket : int
            0, or the ticket of the first request. Each further request has the next ticket.

        Returns
        -------
        PendingAdd
            The transitions.

        Raises
        ------
        MemoryExhaustedError
            If the log is full. Transitions before the first that did not fit were added.
        """
        if ticket:
            self.seal()
        count, at = len(priorities), 0
        tickets = (
            iter(consecutive_tickets(ticket, -(-count // self.items_per_datagram) + 1))
            if ticket
            else itertools.repeat(0)
        )
        result = PendingAdd(self.session)
        packed = b"" if self.layout.uses_log else self._pack(slice(0, count), columns, priorities)
        while at < count:
            datagram = self.open_datagram or self._begin(next(tickets))
            if datagram.pin:
                datagram.pin.truncate(datagram.count)  # an exception may have come before its last item was packed
            part = slice(at, min(count, at + self.items_per_datagram - datagram.count))
            written, full = part.stop - at, None
            if datagram.pin:
                written, full = self._write_log({name: column[part] for name, column in columns.items()}, datagram.pin)
                if full and (ticket or not written and not datagram.count):
                    raise self._explain(full, at, count) from None
                rows = self._pack(slice(at, at + written), columns, priorities)
            else:
                rows = packed[at * self._row.itemsize : part.stop * self._row.itemsize]
            with self.session.section:
                result.append(datagram, datagram.count, written)
                datagram.rows.append(rows)
                datagram.count += written
                self.packed += written
            at += written
            # If the log is full, the items that are added now make room for the rest.
            if full or datagram.count == self.items_per_datagram or ticket and at == count:
                self.seal()
        result.ticket = next(tickets)
        return result

    def _begin(self, ticket: int) -> _Datagram:
        self.process_answers()
        with self.session.section:
            datagram = _Datagram(self, self.log.space.pin_items() if self.layout.uses_log else None)
            datagram.request.ticket = ticket
            self.open_datagram = datagram
        return datagram

    def seal(self) -> None:
        """Submit the request that waits for more items."""
        datagram = self.open_datagram
        if datagram is None:
            return
        if datagram.count:
            self.log.flush()
            self.session.make_room()
        with self.session.section:
            self.open_datagram = None
            if datagram.count:
                request = datagram.request
                request.count, request.body = datagram.count, b"".join(datagram.rows)
                self.bytes_sent += len(request.body)
                self._submitted.append((request, datagram.pin))
                self.session.put(request)
            elif datagram.pin:
                self.log.space.discard(datagram.pin)

    def process_answers(self) -> None:
        """Take note of ADD requests that are settled."""
        while self._submitted and self._submitted[0][0].settled:
            with self.session.section:
                self._process_answer(*self._submitted.pop(0))

    def _process_answer(self, request: Request, pin: ItemsPin | None) -> None:
        if request.outcome == ReplayOutcome.DONE and request.status:
            self.acknowledged += request.count
            if pin:
                # The latest answer supersedes earlier ones.
                behind = (self.session.adds - request.status.adds) % 2**32
                self.log.space.acknowledge(pin, self.session.adds - behind + self.session.config.capacity - 1)
        else:
            self.cancelled.append(request)
            if pin:
                self.log.space.discard(pin)

    def _write_log(self, columns: Mapping[str, np.ndarray], pin: ItemsPin) -> tuple[int, MemoryExhaustedError | None]:
        """Write frames and blobs of as many items as there is room for to the log, and keep their positions for
        `_pack`. Return the number of items, and the error if that is not all of them."""
        layout, count = self.layout, len(next(iter(columns.values())))
        self._positions = {name: np.zeros((count, layout.spec[name].stacked), "<u4") for name in layout.stacked}
        self._blobs = np.zeros(count, "<u4")
        if layout.blob and not layout.stacked and self._write_blobs(columns, pin):
            return count, None
        for k in range(count):
            items, one = len(pin.first_units), slice(k, k + 1)
            pin.begin_item(self.log.space.end)
            try:
                for name, positions in self._positions.items():
                    for frame, image in enumerate(columns[name][k]):
                        positions[k, frame] = self._write_frame(image.tobytes(), pin) % 2**32
                if layout.blob:
                    blob = layout.pack_blobs(
                        {name: column[one] for name, column in columns.items()},
                        {name: positions[one] for name, positions in self._positions.items()},
                    )
                    start = self.log.append(blob.tobytes())
                    pin.require(start)
                    self._blobs[k] = start % 2**32
            except MemoryExhaustedError as full:
                pin.truncate(items)
                return k, full
        return count, None

    def _write_blobs(self, columns: Mapping[str, np.ndarray], pin: ItemsPin) -> bool:
        """Write the blobs of items without frames together. Return False if there is not room for all of them."""
        blobs, units = self.layout.pack_blobs(columns, {}), self.layout.blob_units
        count = len(blobs)
        if self.log.space.free_units(self.session.adds) < count * units:
            return False
        rows = np.zeros((count, units * UNIT_BYTES), np.uint8)
        rows[:, : blobs.itemsize] = blobs.view(np.uint8).reshape(count, -1)
        pin.begin_items(self.log.space.end, units, count)
        start = self.log.append(rows.data.cast("B"))
        self._blobs[:] = (start + units * np.arange(count)) % 2**32
        return True

    def _pack(self, part: slice, columns: Mapping[str, np.ndarray], priorities: np.ndarray) -> bytes:
        """Return the rows of an ADD."""
        count = part.stop - part.start
        rows = np.zeros(count, self._row)
        rows["priority"] = priorities[part]
        self.layout.pack_records(
            {name: column[part] for name, column in columns.items()},
            {name: positions[:count] for name, positions in self._positions.items()},
            self._blobs[:count],
            self.session.index,
            rows["record"],
        )
        return rows.tobytes()

    def _write_frame(self, frame: bytes, pin: ItemsPin) -> int:
        """Return the log unit where a frame begins. Write the frame if it is not in the log."""
        start = self.frame_cache.find(frame, self.log.space.oldest)
        if start is None:
            start = self.log.append(frame)
            self.frame_cache.add(frame, start, units_for(len(frame)))
            self.frames_written += 1
        pin.require(start)
        return start

    def _explain(self, full: MemoryExhaustedError, added: int, count: int) -> MemoryExhaustedError:
        """Return the error with the numbers that show what to do about it."""
        config = self.session.config
        bytes_each = self.log.bytes_sent / max(1, self.packed)
        fitting = int(config.log_bytes / bytes_each) if bytes_each else 0
        return MemoryExhaustedError(
            f"{full}. So far this client added {self.packed} items with {bytes_each:.0f} bytes each in the log, "
            "which therefore holds "
            f"about {fitting} of them; the table holds {config.capacity} items of all clients. {added} of these "
            f"{count} transitions "
            "were added. Build the switch with a larger `log_bytes` or a smaller `capacity`, use more clients, let "
            "transitions share "
            "frames (`stacked`), or make their fields smaller"
        )

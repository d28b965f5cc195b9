"""Read records, log units and complete transitions, with as many requests in flight as the network holds. What was
overwritten in the meantime becomes zeros and is flagged."""

import struct
from functools import partial
from itertools import pairwise

import numpy as np

from iswitch.replay.messages import Reply
from iswitch.replay.queries import Query
from iswitch.replay.query_group import QueryGroup
from iswitch.replay.records import Layout, units_for
from iswitch.replay.session import Session
from iswitch.wire.replay import FETCH_ROW, LOAD, PAYLOAD_BYTES, UNIT_BYTES, Kind

__all__ = ["LogRead", "RecordRead", "TransitionRead"]

_LOAD_UNITS = PAYLOAD_BYTES // UNIT_BYTES
"""The most units in a LOAD."""
_SERIAL = 1 << 32
_LOAD_ROW = struct.Struct("<IB3x")
if _LOAD_ROW.size != LOAD.itemsize:
    raise ImportError(f"a LOAD is {LOAD.itemsize} bytes, not {_LOAD_ROW.size}")


class RecordRead:
    """Reads the records of items.

    Parameters
    ----------
    session : Session
        The session.
    items : uint32 array of shape (n,)
        Handles of the items, each once.

    Attributes
    ----------
    records : uint8 array of shape (n, record_bytes)
        The records, complete when `done` returns True.
    overwritten : bool array of shape (n,)
        Items that are not in the table any more.
    queries : list of Query and QueryGroup
        The requests.
    """

    def __init__(self, session: Session, items: np.ndarray):
        self.records = np.zeros((len(items), session.config.record_bytes), np.uint8)
        self.overwritten = np.zeros(len(items), np.bool_)
        rows = np.zeros(len(items), FETCH_ROW)
        rows["item"] = items
        self._limit = session.config.records
        firsts = np.arange(0, len(items), self._limit)
        counts = np.minimum(self._limit, len(items) - firsts)
        self._missing = len(firsts)  # that Python has not stored
        self._group = QueryGroup(
            Kind.FETCH,
            counts=counts,
            bodies=rows,
            body_rows=counts,
            target=self.records,
            target_at=firsts * session.config.record_bytes,
            target_bytes=counts * session.config.record_bytes,
            on_reply=self._store,
        )
        self.queries = [self._group]
        session.query_group(self._group)

    def done(self) -> bool:
        """Return True if all records are here."""
        return self._missing == self._group.taken

    def _store(self, k: int, reply: Reply) -> None:
        at, count = k * self._limit, int(self._group.counts[k])
        part = self.records[at : at + count]
        part[:] = np.frombuffer(reply.rows, np.uint8).reshape(part.shape)
        self.overwritten[at : at + count] = reply.header.ticket >> np.arange(count) & 1
        self._missing -= 1


class LogRead:
    """Reads ranges of logs. A range that is named several times is read once, and neighbours are read together.

    Parameters
    ----------
    session : Session
        The session.
    sessions : uint8 array of shape (n,)
        Index of the session that owns the log, for each range.
    starts : uint32 array of shape (n,)
        The first unit of each range.
    units : int
        Units of each range.

    Attributes
    ----------
    index : int array of shape (n,)
        For each range, its row in `data` and `overwritten`.
    queries : list of Query and QueryGroup
        The requests.
    """

    def __init__(self, session: Session, sessions: np.ndarray, starts: np.ndarray, units: int):
        keys = sessions.astype(np.int64) * _SERIAL + starts.astype(np.int64)
        self._keys, self.index = np.unique(keys, return_inverse=True)
        self.units, self._session = units, session
        self._flat = np.zeros(len(self._keys) * units * UNIT_BYTES, np.uint8)
        self._overwritten_units = np.zeros(len(self._keys) * units, np.bool_)
        # Ranges that are adjacent are requested together.
        is_first = np.diff(self._keys, prepend=-1) != units
        is_first |= np.diff(self._keys // _SERIAL, prepend=-1) != 0
        firsts = np.flatnonzero(is_first)
        begins, ends = firsts * units, np.append(firsts, len(self._keys))[1:] * units
        requests = -(-(ends - begins) // _LOAD_UNITS)
        number = np.arange(requests.sum()) - np.repeat(np.cumsum(requests) - requests, requests)
        self._begins = np.repeat(begins, requests) + number * _LOAD_UNITS  # of each request, as they lie in `_flat`
        self._ends = np.minimum(self._begins + _LOAD_UNITS, np.repeat(ends, requests))
        rows = np.zeros(len(self._begins), LOAD)
        key = self._keys[self._begins // units]
        rows["start"], rows["session"] = (key + self._begins % units) % _SERIAL, key // _SERIAL
        counts = self._ends - self._begins
        self._missing = len(counts)  # that Python has not stored
        self._group = QueryGroup(
            Kind.LOAD,
            counts=counts,
            bodies=rows,
            body_rows=np.ones(len(counts), np.uint32),
            target=self._flat,
            target_at=self._begins * UNIT_BYTES,
            target_bytes=counts * UNIT_BYTES,
            on_reply=lambda k, reply: self._store(int(self._begins[k]), int(self._ends[k]), reply),
        )
        self.queries: list[Query | QueryGroup] = [self._group]
        session.query_group(self._group)

    def _request(self, begin: int, end: int) -> None:
        """Request units once more, counted as they lie in `_flat`."""
        for unit in range(begin, end, _LOAD_UNITS):
            key, count = int(self._keys[unit // self.units]), min(_LOAD_UNITS, end - unit)
            body = _LOAD_ROW.pack((key + unit % self.units) % _SERIAL, key // _SERIAL)
            on_reply = partial(self._store, unit, unit + count)
            self.queries.append(self._session.query(Kind.LOAD, count=count, body=body, on_reply=on_reply))
            self._missing += 1

    @property
    def data(self) -> np.ndarray:
        """The distinct ranges, uint8 of shape (m, 64 * units)."""
        return self._flat.reshape(-1, self.units * UNIT_BYTES)

    @property
    def overwritten(self) -> np.ndarray:
        """Ranges that are not in the log any more, bool of shape (m,)."""
        return np.asarray(self._overwritten_units.reshape(-1, self.units).any(axis=1))

    def done(self) -> bool:
        """Return True if all ranges are here."""
        return self._missing == self._group.taken

    def _store(self, unit: int, end: int, reply: Reply) -> None:
        self._missing -= 1
        if not reply.header.ticket and len(reply.rows) == (end - unit) * UNIT_BYTES:
            self._flat[unit * UNIT_BYTES : end * UNIT_BYTES] = np.frombuffer(reply.rows, np.uint8)
        elif unit // self.units == (end - 1) // self.units:
            self._overwritten_units[unit:end] = True
        else:  # some of it was overwritten, and perhaps not all: request each range by itself
            cuts = [unit, *range((unit // self.units + 1) * self.units, end, self.units), end]
            for begin, cut in pairwise(cuts):
                self._request(begin, cut)


class TransitionRead:
    """Reads complete transitions: first records, then the blobs that they refer to, then the frames.

    Parameters
    ----------
    session : Session
        The session.
    layout : Layout
        Where fields are stored.
    items : uint32 array of shape (n,)
        Handles of the items, each once.

    Attributes
    ----------
    columns : dict of str to array of shape (n, ...)
        The fields, complete when `advance` returns True. Overwritten items are zeros.
    overwritten : bool array of shape (n,)
        Items that are not in the table any more, or whose data is not in the log any more.
    """

    def __init__(self, session: Session, layout: Layout, items: np.ndarray):
        self.session, self.layout = session, layout
        self.columns: dict[str, np.ndarray] = {}
        self._records_read = RecordRead(session, items)
        self._blobs_read: LogRead | None = None
        self._frames_read: dict[int, LogRead] = {}  # by their size in units
        self._stage = 0

    @property
    def queries(self) -> list[Query | QueryGroup]:
        """All requests so far."""
        reads = [*([self._blobs_read] if self._blobs_read else []), *self._frames_read.values()]
        return [*self._records_read.queries, *(query for read in reads for query in read.queries)]

    def advance(self) -> bool:
        """Continue as far as possible with what has come. Return True if everything is here."""
        if self._stage == 0 and self._records_read.done():
            self.overwritten = self._records_read.overwritten
            self._present = np.flatnonzero(~self.overwritten)
            self._records = self._records_read.records.view(self.layout.record)[self._present, 0]
            if self.layout.blob:
                sessions, starts = self.layout.sessions(self._records), self.layout.blob_starts(self._records)
                self._blobs_read = LogRead(self.session, sessions, starts, self.layout.blob_units)
            self._stage = 1
        if self._stage == 1 and (self._blobs_read is None or self._blobs_read.done()):
            self._unpack(self._blobs_read)
            self._request_frames()
            self._stage = 2
        if self._stage == 2 and all(frames.done() for frames in self._frames_read.values()):
            self._assemble()
            self._stage = 3
        return self._stage == 3

    def _unpack(self, blobs: LogRead | None) -> None:
        """Unpack the fields of records and blobs, of the items that are present so far."""
        self._packed = {name: self._records[name] for name in self._records.dtype.names or ()}
        if blobs is not None and self.layout.blob:
            octets = np.ascontiguousarray(blobs.data[blobs.index, : self.layout.blob.itemsize])
            rows = octets.view(self.layout.blob)[:, 0]
            present = ~blobs.overwritten[blobs.index]
            self.overwritten[self._present[~present]] = True
            columns = self._packed | {name: rows[name] for name in rows.dtype.names or ()}
            self._packed = {name: column[present] for name, column in columns.items()}
            self._records, self._present = self._records[present], self._present[present]

    def _request_frames(self) -> None:
        """Request the frames of all stacked fields. Frames of the same size are requested together."""
        self._sizes = {name: units_for(self.layout.spec[name].frame_bytes) for name in self.layout.stacked}
        for units in set(self._sizes.values()):
            names = [name for name, size in self._sizes.items() if size == units]
            positions = np.concatenate([self._packed[name].ravel() for name in names])
            sessions = [
                np.repeat(self.layout.sessions(self._records), self.layout.spec[name].stacked) for name in names
            ]
            self._frames_read[units] = LogRead(self.session, np.concatenate(sessions), positions, units)

    def _assemble(self) -> None:
        """Put the stacks together, and spread all fields over the requested items."""
        used = dict.fromkeys(self._frames_read, 0)  # of each size, places that belong to the fields before
        for name, units in self._sizes.items():
            field, frames = self.layout.spec[name], self._frames_read[units]
            positions = self._packed[name]
            index = frames.index[used[units] : used[units] + positions.size].reshape(positions.shape)
            used[units] += index.size
            self.overwritten[self._present] |= frames.overwritten[index].any(axis=1)
            images = np.ascontiguousarray(frames.data[:, : field.frame_bytes]).view(field.wire_dtype)
            self._packed[name] = images.reshape(-1, *field.axes[1:])[index]
        for name, field in self.layout.spec.items():
            column = np.zeros((len(self.overwritten), *field.axes), field.wire_dtype)
            column[self._present] = self._packed[name]
            column[self.overwritten] = 0
            self.columns[name] = column

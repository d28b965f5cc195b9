"""Items and pieces of logs, read with as many requests at a time as the network holds. What is gone by then is zeros,
and said."""

import struct
from functools import partial
from itertools import pairwise

import numpy as np

from iswitch.replay.inquiries import Inquiry
from iswitch.replay.messages import Reply
from iswitch.replay.records import Layout, units_of
from iswitch.replay.session import Session
from iswitch.wire.replay import FETCH_ROW, LOAD, PAYLOAD_BYTES, UNIT_BYTES, Kind

__all__ = ["Fetching", "Loading", "Reading"]

_UNITS = PAYLOAD_BYTES // UNIT_BYTES  # in a LOAD
_SERIAL = 1 << 32
_PLACE = struct.Struct("<IB3x")  # a LOAD
if _PLACE.size != LOAD.itemsize:
    raise ImportError(f"a LOAD is {LOAD.itemsize} bytes, not {_PLACE.size}")


class Fetching:
    """Records of items, u4, each of which is named once. When it is `done`: `records` (n, record_bytes) and `gone`
    (n,)."""

    def __init__(self, session: Session, items: np.ndarray):
        self.records = np.zeros((len(items), session.config.record_bytes), np.uint8)
        self.gone = np.zeros(len(items), np.bool_)
        rows = np.zeros(len(items), FETCH_ROW)
        rows["item"] = items
        most = session.config.records
        self.inquiries = []
        for at in range(0, len(items), most):
            part = rows[at : at + most]
            self.inquiries.append(
                session.ask(Kind.FETCH, count=len(part), body=part.tobytes(), then=partial(self._take, at, len(part)))
            )
        self._left = len(self.inquiries)

    def done(self) -> bool:
        return not self._left

    def _take(self, at: int, count: int, reply: Reply) -> None:
        part = self.records[at : at + count]
        part[:] = np.frombuffer(reply.rows, np.uint8).reshape(part.shape)
        self.gone[at : at + count] = reply.header.ticket >> np.arange(count) & 1
        self._left -= 1


class Loading:
    """Ranges of logs, each once however often it is named, neighbours together. sessions, starts: (n,), units: of each.

    When it is `done`, `index` tells for each range asked for which row of `data` (m, 64 units) has it, and `gone` (m,)
    what is not there.
    """

    def __init__(self, session: Session, sessions: np.ndarray, starts: np.ndarray, units: int):
        keys = sessions.astype(np.uint64) * np.uint64(_SERIAL) + starts.astype(np.uint64)
        distinct, self.index = np.unique(keys, return_inverse=True)
        self.units, self._session = units, session
        self._keys: list[int] = distinct.tolist()
        self._flat = np.zeros(len(distinct) * units * UNIT_BYTES, np.uint8)
        self._gone_units = np.zeros(len(distinct) * units, np.bool_)
        self.inquiries: list[Inquiry] = []
        self._left = 0
        first = 0
        for k in range(1, len(distinct) + 1):
            if (
                k == len(distinct)
                or self._keys[k] != self._keys[k - 1] + units
                or self._keys[k] // _SERIAL != self._keys[first] // _SERIAL
            ):
                self._ask(first * units, k * units)  # they lie one behind another
                first = k

    def _ask(self, begin: int, end: int) -> None:
        """For units, counted as they lie in `_flat`."""
        for unit in range(begin, end, _UNITS):
            key, count = self._keys[unit // self.units] + unit % self.units, min(_UNITS, end - unit)
            body = _PLACE.pack(key % _SERIAL, key // _SERIAL)
            self.inquiries.append(
                self._session.ask(Kind.LOAD, count=count, body=body, then=partial(self._take, unit, unit + count))
            )
            self._left += 1

    @property
    def data(self) -> np.ndarray:
        return self._flat.reshape(-1, self.units * UNIT_BYTES)

    @property
    def gone(self) -> np.ndarray:
        return np.asarray(self._gone_units.reshape(-1, self.units).any(axis=1))

    def done(self) -> bool:
        return not self._left

    def _take(self, unit: int, end: int, reply: Reply) -> None:
        self._left -= 1
        if not reply.header.ticket and len(reply.rows) == (end - unit) * UNIT_BYTES:
            self._flat[unit * UNIT_BYTES : end * UNIT_BYTES] = np.frombuffer(reply.rows, np.uint8)
        elif unit // self.units == (end - 1) // self.units:
            self._gone_units[unit:end] = True
        else:  # something of it is gone, and perhaps not all: each range by itself
            for begin, cut in pairwise([unit, *range((unit // self.units + 1) * self.units, end, self.units), end]):
                self._ask(begin, cut)


class Reading:
    """Whole transitions: records first, then the blobs they name, then the frames. items: u4, each once.

    When `advance` says so: `columns` by field, (n, ...), zeros where `gone` (n,) is set.
    """

    def __init__(self, session: Session, layout: Layout, items: np.ndarray):
        self.session, self.layout = session, layout
        self.columns: dict[str, np.ndarray] = {}
        self._fetching = Fetching(session, items)
        self._blobs: Loading | None = None
        self._frames: dict[int, Loading] = {}  # by their size in units
        self._stage = 0

    @property
    def inquiries(self) -> list[Inquiry]:
        """What is on its way."""
        loadings = [*([self._blobs] if self._blobs else []), *self._frames.values()]
        return [*self._fetching.inquiries, *(inquiry for loading in loadings for inquiry in loading.inquiries)]

    def advance(self) -> bool:
        """Goes on as far as what has come allows; whether all is here."""
        if self._stage == 0 and self._fetching.done():
            self.gone = self._fetching.gone
            self._there = np.flatnonzero(~self.gone)
            self._records = self._fetching.records.view(self.layout.record)[self._there, 0]
            if self.layout.blob:
                starts = self.layout.blob_starts(self._records)
                self._blobs = Loading(self.session, self.layout.sessions(self._records), starts, self.layout.blob_units)
            self._stage = 1
        if self._stage == 1 and (self._blobs is None or self._blobs.done()):
            self._take_records(self._blobs)
            self._ask_for_frames()
            self._stage = 2
        if self._stage == 2 and all(frames.done() for frames in self._frames.values()):
            self._assemble()
            self._stage = 3
        return self._stage == 3

    def _take_records(self, blobs: Loading | None) -> None:
        """Fields as they are packed, of the items that are there so far."""
        self._packed = {name: self._records[name] for name in self._records.dtype.names or ()}
        if blobs is not None and self.layout.blob:
            rows = np.ascontiguousarray(blobs.data[blobs.index, : self.layout.blob.itemsize]).view(self.layout.blob)[
                :, 0
            ]
            whole = ~blobs.gone[blobs.index]
            self.gone[self._there[~whole]] = True
            self._packed = {
                name: column[whole]
                for name, column in (self._packed | {name: rows[name] for name in rows.dtype.names or ()}).items()
            }
            self._records, self._there = self._records[whole], self._there[whole]

    def _ask_for_frames(self) -> None:
        """Those of one size together, whichever field they are in."""
        self._sizes = {name: units_of(self.layout.spec[name].frame_bytes) for name in self.layout.stacked}
        for units in set(self._sizes.values()):
            positions = np.concatenate(
                [self._packed[name].ravel() for name, size in self._sizes.items() if size == units]
            )
            each = [
                np.repeat(self.layout.sessions(self._records), self.layout.spec[name].stacked)
                for name, size in self._sizes.items()
                if size == units
            ]
            self._frames[units] = Loading(self.session, np.concatenate(each), positions, units)

    def _assemble(self) -> None:
        taken = dict.fromkeys(self._frames, 0)  # of each size, so many places belong to the fields before
        for name, units in self._sizes.items():
            field, loading = self.layout.spec[name], self._frames[units]
            index = loading.index[taken[units] : taken[units] + self._packed[name].size].reshape(
                self._packed[name].shape
            )
            taken[units] += index.size
            self.gone[self._there] |= loading.gone[index].any(axis=1)
            images = (
                np.ascontiguousarray(loading.data[:, : field.frame_bytes]).view(field.kind).reshape(-1, *field.axes[1:])
            )
            self._packed[name] = images[index]
        for name, field in self.layout.spec.items():
            column = np.zeros((len(self.gone), *field.axes), field.kind)
            column[self._there] = self._packed[name]
            column[self.gone] = 0
            self.columns[name] = column

"""Items and pieces of logs, read with as many requests at a time as the network holds. What is gone by then is zeros, and said."""

from itertools import pairwise

import numpy as np

from iswitch.replay.inquiries import Inquiry
from iswitch.replay.records import Layout, units_of
from iswitch.replay.session import Session
from iswitch.replay_wire import FETCH_ROW, LOAD, PAYLOAD_BYTES, UNIT_BYTES, Kind

__all__ = ["Fetching", "Loading", "Reading"]

_UNITS = PAYLOAD_BYTES // UNIT_BYTES  # in a LOAD
_SERIAL = 1 << 32


class Fetching:
    """Records of items, u4, each of which is named once. Poll `done`; then `records` (n, record_bytes) and `gone` (n,)."""

    def __init__(self, session: Session, items: np.ndarray):
        self.records = np.zeros((len(items), session.config.record_bytes), np.uint8)
        self.gone = np.zeros(len(items), np.bool_)
        rows = np.zeros(len(items), FETCH_ROW)
        rows["item"] = items
        most = session.config.records
        self._asked = [(at, session.ask(Kind.FETCH, count=len(part), body=part.tobytes()))
                       for at in range(0, len(items), most) for part in [rows[at:at + most]]]

    @property
    def inquiries(self) -> list[Inquiry]:
        return [inquiry for _, inquiry in self._asked]

    def advance(self) -> bool:
        """Takes what has come; whether that is all."""
        waiting = []
        for at, inquiry in self._asked:
            if inquiry.reply is None:
                waiting.append((at, inquiry))
                continue
            part = self.records[at:at + inquiry.count]
            part[:] = np.frombuffer(inquiry.reply.rows, np.uint8).reshape(part.shape)
            self.gone[at:at + inquiry.count] = inquiry.reply.header.turn >> np.arange(inquiry.count) & 1
        self._asked = waiting
        return not waiting


class Loading:
    """Ranges of logs, each once however often it is named, neighbours together. sessions, starts: (n,), units: of each.

    When `advance` says so, `index` tells for each range asked for which row of `data` (m, 64 units) has it, and `gone` (m,) what is not there.
    """

    def __init__(self, session: Session, sessions: np.ndarray, starts: np.ndarray, units: int):
        keys = sessions.astype(np.uint64) * np.uint64(_SERIAL) + starts.astype(np.uint64)
        distinct, self.index = np.unique(keys, return_inverse=True)
        self.units, self._session = units, session
        self._keys: list[int] = distinct.tolist()
        self._flat = np.zeros(len(distinct) * units * UNIT_BYTES, np.uint8)
        self._gone_units = np.zeros(len(distinct) * units, np.bool_)
        self._asked: list[tuple[int, Inquiry]] = []  # with the first unit, as they lie in `_flat`
        first = 0
        for k in range(1, len(distinct) + 1):
            if k == len(distinct) or self._keys[k] != self._keys[k - 1] + units or self._keys[k] // _SERIAL != self._keys[first] // _SERIAL:
                self._ask(first * units, k * units)  # they lie one behind another
                first = k

    def _ask(self, begin: int, end: int) -> None:
        for unit in range(begin, end, _UNITS):
            key = self._keys[unit // self.units] + unit % self.units
            body = np.zeros(1, LOAD)
            body["start"], body["session"] = key % _SERIAL, key // _SERIAL
            self._asked.append((unit, self._session.ask(Kind.LOAD, count=min(_UNITS, end - unit), body=body.tobytes())))

    @property
    def inquiries(self) -> list[Inquiry]:
        return [inquiry for _, inquiry in self._asked]

    @property
    def data(self) -> np.ndarray:
        return self._flat.reshape(-1, self.units * UNIT_BYTES)

    @property
    def gone(self) -> np.ndarray:
        return np.asarray(self._gone_units.reshape(-1, self.units).any(axis=1))

    def advance(self) -> bool:
        """Takes what has come; whether that is all."""
        asked, self._asked = self._asked, []
        for unit, inquiry in asked:
            if inquiry.reply is None:
                self._asked.append((unit, inquiry))
                continue
            rows, end = inquiry.reply.rows, unit + inquiry.count
            if not inquiry.reply.header.turn and len(rows) == inquiry.count * UNIT_BYTES:
                self._flat[unit * UNIT_BYTES:end * UNIT_BYTES] = np.frombuffer(rows, np.uint8)
            elif unit // self.units == (end - 1) // self.units:
                self._gone_units[unit:end] = True
            else:  # something of it is gone, and perhaps not all: each range by itself
                cuts = [unit, *range((unit // self.units + 1) * self.units, end, self.units), end]
                for begin, cut in pairwise(cuts):
                    self._ask(begin, cut)
        return not self._asked


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
        if self._stage == 0 and self._fetching.advance():
            self.gone = self._fetching.gone
            self._there = np.flatnonzero(~self.gone)
            self._records = self._fetching.records.view(self.layout.record)[self._there, 0]
            if self.layout.blob:
                starts = self.layout.blob_starts(self._records)
                self._blobs = Loading(self.session, self.layout.sessions(self._records), starts, self.layout.blob_units)
            self._stage = 1
        if self._stage == 1 and (self._blobs is None or self._blobs.advance()):
            self._take_records(self._blobs)
            self._ask_for_frames()
            self._stage = 2
        if self._stage == 2 and all([frames.advance() for frames in self._frames.values()]):
            self._assemble()
            self._stage = 3
        return self._stage == 3

    def _take_records(self, blobs: Loading | None) -> None:
        """Fields as they are packed, of the items that are there so far."""
        self._packed = {name: self._records[name] for name in self._records.dtype.names or ()}
        if blobs is not None and self.layout.blob:
            rows = np.ascontiguousarray(blobs.data[blobs.index, :self.layout.blob.itemsize]).view(self.layout.blob)[:, 0]
            whole = ~blobs.gone[blobs.index]
            self.gone[self._there[~whole]] = True
            self._packed = {name: column[whole] for name, column in (self._packed | {name: rows[name] for name in rows.dtype.names or ()}).items()}
            self._records, self._there = self._records[whole], self._there[whole]

    def _ask_for_frames(self) -> None:
        """Those of one size together, whichever field they are in."""
        self._sizes = {name: units_of(self.layout.spec[name].frame_bytes) for name in self.layout.stacked}
        for units in set(self._sizes.values()):
            positions = np.concatenate([self._packed[name].ravel() for name, size in self._sizes.items() if size == units])
            each = [np.repeat(self.layout.sessions(self._records), self.layout.spec[name].stacked)
                    for name, size in self._sizes.items() if size == units]
            self._frames[units] = Loading(self.session, np.concatenate(each), positions, units)

    def _assemble(self) -> None:
        taken = dict.fromkeys(self._frames, 0)  # of each size, so many places belong to the fields before
        for name, units in self._sizes.items():
            field, loading = self.layout.spec[name], self._frames[units]
            index = loading.index[taken[units]:taken[units] + self._packed[name].size].reshape(self._packed[name].shape)
            taken[units] += index.size
            self.gone[self._there] |= loading.gone[index].any(axis=1)
            images = np.ascontiguousarray(loading.data[:, :field.frame_bytes]).view(field.kind).reshape(-1, *field.axes[1:])
            self._packed[name] = images[index]
        for name, field in self.layout.spec.items():
            column = np.zeros((len(self.gone), *field.axes), field.kind)
            column[self._there] = self._packed[name]
            column[self.gone] = 0
            self.columns[name] = column

"""Items and pieces of logs, read with as many requests at a time as the network holds. What is gone by then is zeros, and said."""

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
        self.units = units
        self._flat = np.zeros(len(distinct) * units * UNIT_BYTES, np.uint8)
        self._gone_units = np.zeros(len(distinct) * units, np.bool_)
        self._asked: list[tuple[int, Inquiry]] = []
        at, numbers = 0, distinct.tolist()
        while at < len(numbers):
            end = at + 1  # ranges that lie one behind another are one run
            while end < len(numbers) and numbers[end] == numbers[end - 1] + units and numbers[end] // _SERIAL == numbers[at] // _SERIAL:
                end += 1
            for unit in range(0, (end - at) * units, _UNITS):
                count = min(_UNITS, (end - at) * units - unit)
                body = np.zeros(1, LOAD)
                body["start"], body["session"] = (numbers[at] + unit) % _SERIAL, numbers[at] // _SERIAL
                self._asked.append((at * units + unit, session.ask(Kind.LOAD, count=count, body=body.tobytes())))
            at = end

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
        waiting = []
        for unit, inquiry in self._asked:
            if inquiry.reply is None:
                waiting.append((unit, inquiry))
                continue
            rows = inquiry.reply.rows
            if inquiry.reply.header.turn or len(rows) != inquiry.count * UNIT_BYTES:
                self._gone_units[unit:unit + inquiry.count] = True
            else:
                self._flat[unit * UNIT_BYTES:unit * UNIT_BYTES + len(rows)] = np.frombuffer(rows, np.uint8)
        self._asked = waiting
        return not waiting


class Reading:
    """Whole transitions: records first, then the blobs they name, then the frames. items: u4, each once; fixed: records that are here already.

    When `advance` says so: `columns` by field, (n, ...), zeros where `gone` (n,) is set.
    """

    def __init__(self, session: Session, layout: Layout, items: np.ndarray):
        self.session, self.layout = session, layout
        self.fetching = Fetching(session, items)
        self._blobs: Loading | None = None
        self._frames: dict[str, Loading] = {}
        self._stage = 0
        self.columns: dict[str, np.ndarray] = {}

    @property
    def inquiries(self) -> list[Inquiry]:
        loadings = [*([self._blobs] if self._blobs else []), *self._frames.values()]
        return [*self.fetching.inquiries, *(inquiry for loading in loadings for inquiry in loading.inquiries)]

    def advance(self) -> bool:
        """Goes on as far as what has come allows; whether all is here."""
        if self._stage == 0 and self.fetching.advance():
            self.gone = self.fetching.gone
            self.there = np.flatnonzero(~self.gone)
            self.records = self.fetching.records.view(self.layout.record)[self.there, 0]
            if self.layout.blob:
                self._blobs = Loading(self.session, self.layout.sessions(self.records), self.layout.blob_starts(self.records),
                                      self.layout.blob_units)
            self._stage = 1
        if self._stage == 1 and (self._blobs is None or self._blobs.advance()):
            self._packed = self.records
            self.blobs: np.ndarray | None = None
            if self._blobs is not None and self.layout.blob:
                self.gone[self.there] |= self._blobs.gone[self._blobs.index]
                size = self.layout.blob.itemsize
                self.blobs = np.ascontiguousarray(self._blobs.data[self._blobs.index, :size]).view(self.layout.blob)[:, 0]
            for name in self.layout.stacked:
                self._frames[name] = self._frames_of(name)
            self._stage = 2
        if self._stage == 2 and all([frames.advance() for frames in self._frames.values()]):
            self._assemble()
            self._stage = 3
        return self._stage == 3

    def _part(self, name: str) -> np.ndarray:
        """A field as it is packed, of the items whose records are there."""
        if self.blobs is not None and name in (self.blobs.dtype.names or ()):
            return np.asarray(self.blobs[name])
        return np.asarray(self.records[name])

    def _frames_of(self, name: str) -> Loading:
        positions = self._part(name)
        kept = ~self.gone[self.there]
        sessions = np.broadcast_to(self.layout.sessions(self.records)[kept, None], positions[kept].shape)
        return Loading(self.session, sessions.reshape(-1), positions[kept].reshape(-1), units_of(self.layout.spec[name].frame_bytes))

    def _assemble(self) -> None:
        kept = np.flatnonzero(~self.gone[self.there])
        stacks = {}
        lost = self.gone.copy()
        for name, loading in self._frames.items():
            field = self.layout.spec[name]
            index = loading.index.reshape(len(kept), field.stacked)
            lost[self.there[kept]] |= loading.gone[index].any(axis=1)
            images = np.ascontiguousarray(loading.data[:, :field.frame_bytes]).view(field.kind).reshape(-1, *field.axes[1:])
            stacks[name] = images[index]
        for name, field in self.layout.spec.items():
            column = np.zeros((len(self.gone), *field.axes), field.kind)
            if name in stacks:
                column[self.there[kept]] = stacks[name]
            else:
                column[self.there[kept]] = self._part(name)[kept]
            column[lost] = 0
            self.columns[name] = column
        self.gone = lost

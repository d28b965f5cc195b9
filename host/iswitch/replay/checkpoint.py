"""A table's items in a file and back, while others go on adding and drawing.

A file is numpy's .npz without pickled objects. It holds each item as it was at one moment, but not all at the same
moment: items that were overwritten while the table was read are left out. Each frame is in it once. Not in it: limits
and parameters, which whoever set them sets again.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from iswitch.replay.reading import Fetching, Loading
from iswitch.replay.records import Field, Layout, units_of
from iswitch.replay.session import Session
from iswitch.wire.replay import LIST, SAMPLED_ROW, SAMPLES_PER_FRAGMENT, Kind

__all__ = ["Snapshot", "read_table"]

_FORMAT = 1
_SLOTS = 16 * SAMPLES_PER_FRAGMENT  # read at a time
_SERIAL = np.uint64(1 << 32)


class Snapshot:
    """Items of a table, the oldest first. items, priorities (as the switch has them): u4, (n,). records: as `layout`
    says, (n,). blobs: in the same order. frames: by their size, all of them as (keys, data): session * 2^32 + unit,
    rising, and bytes, (m, size)."""

    def __init__(
        self,
        layout: Layout,
        scale: float,
        items: np.ndarray,
        priorities: np.ndarray,
        records: np.ndarray,
        blobs: np.ndarray | None,
        frames: dict[int, tuple[np.ndarray, np.ndarray]],
    ):
        self.layout, self.scale, self.items, self.priorities, self.records = layout, scale, items, priorities, records
        self.blobs, self.frames = blobs, frames

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into a file that is there whole or not at all."""
        about = {
            "format": _FORMAT,
            "record_bytes": self.layout.record_bytes,
            "scale": self.scale,
            "spec": {
                name: [list(field.axes), field.kind.str, field.stacked] for name, field in self.layout.spec.items()
            },
        }
        arrays: dict[str, Any] = {
            "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
            "items": self.items,
            "priorities": self.priorities,
            "records": self.records.view(np.uint8).reshape(-1, self.layout.record_bytes),
        }
        if self.blobs is not None:
            arrays["blobs"] = self.blobs
        for size, (keys, data) in self.frames.items():
            arrays |= {f"keys.{size}": keys, f"frames.{size}": data}
        beside = Path(f"{os.fspath(path)}.part")
        with beside.open("wb") as file:
            np.savez(file, **arrays)
        beside.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Snapshot":
        """From a file. ValueError if it is none of these."""
        with np.load(path, allow_pickle=False) as file:
            if "about" not in file or (about := json.loads(file["about"].tobytes()))["format"] != _FORMAT:
                raise ValueError(
                    f"a checkpoint must be a file that `save` of this version has written, but {os.fspath(path)!r} is not"
                )
            spec = {name: Field(tuple(shape), kind, stacked) for name, (shape, kind, stacked) in about["spec"].items()}
            layout = Layout(spec, about["record_bytes"])
            frames = {
                int(name.partition(".")[2]): (file[name], file["frames." + name.partition(".")[2]])
                for name in file.files
                if name.startswith("keys.")
            }
            return cls(
                layout,
                about["scale"],
                file["items"],
                file["priorities"],
                file["records"].view(layout.record)[:, 0],
                file.get("blobs"),
                frames,
            )

    def __len__(self) -> int:
        return len(self.items)

    def shares(self, of: int) -> np.ndarray:
        """For each item, which of so many clients should restore it: those that share frames go together. (n,)"""
        if not self.layout.logged:
            return np.arange(len(self)) % of
        return np.unique(self.layout.sessions(self.records), return_inverse=True)[1] % of

    def columns(self, which: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of some of the items, by their places, with a leading axis."""
        records, layout = self.records[which], self.layout
        blobs = None
        if layout.blob and self.blobs is not None:
            blobs = np.ascontiguousarray(self.blobs[which, : layout.blob.itemsize]).view(layout.blob)[:, 0]
        columns = {}
        for name, field in layout.spec.items():
            part = np.asarray(blobs[name] if blobs is not None and name in (blobs.dtype.names or ()) else records[name])
            if field.stacked:
                keys, data = self.frames[field.frame_bytes]
                at = np.searchsorted(keys, layout.sessions(records)[:, None].astype(np.uint64) * _SERIAL + part)
                part = data[at].view(field.kind).reshape(len(which), *field.axes)
            columns[name] = part
        return columns


def read_table(session: Session, layout: Layout, scale: float) -> Snapshot:
    """Reads all items that are there."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]] = []
    found: dict[int, dict[int, np.ndarray]] = {layout.spec[name].frame_bytes: {} for name in layout.stacked}
    for items, priorities in _listed(session):
        fetching = Fetching(session, items)
        session.wait(fetching.done)
        there = ~fetching.gone
        records = fetching.records.view(layout.record)[:, 0]
        blobs = None
        if layout.blob:
            loading = Loading(
                session, layout.sessions(records[there]), layout.blob_starts(records[there]), layout.blob_units
            )
            session.wait(loading.done)
            blobs = np.zeros((len(items), loading.data.shape[1]), np.uint8)
            blobs[there] = loading.data[loading.index]
            there[there] &= ~loading.gone[loading.index]
        for name in layout.stacked:
            there[there] &= _load_frames(
                session,
                layout,
                name,
                records[there],
                None if blobs is None else blobs[there],
                found[layout.spec[name].frame_bytes],
            )
        parts.append((items[there], priorities[there], records[there], None if blobs is None else blobs[there]))
    items, priorities, records = (np.concatenate([part[k] for part in parts]) for k in range(3))  # type: ignore[misc]
    order = np.argsort(items - np.uint32(session.adds % 2**32), kind="stable")
    blobs = np.concatenate([part[3] for part in parts if part[3] is not None])[order] if layout.blob else None
    return Snapshot(
        layout,
        scale,
        items[order],
        priorities[order],
        np.ascontiguousarray(records[order]),
        blobs,
        {size: _table(frames, size) for size, frames in found.items()},
    )


def _listed(session: Session) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Items and priorities, some slots at a time."""
    capacity = session.config.capacity
    for first in range(0, capacity, _SLOTS):
        asked = []
        for slot in range(first, min(first + _SLOTS, capacity), SAMPLES_PER_FRAGMENT):
            body = np.zeros(1, LIST)
            body["slot"] = slot
            asked.append(session.ask(Kind.LIST, count=min(SAMPLES_PER_FRAGMENT, capacity - slot), body=body.tobytes()))
        session.wait(lambda asked=asked: all(inquiry.reply is not None for inquiry in asked))  # type: ignore[misc]
        rows = np.concatenate([np.frombuffer(inquiry.reply.rows, SAMPLED_ROW) for inquiry in asked if inquiry.reply])
        rows = rows[rows["item"] != 0]
        yield rows["item"].copy(), rows["priority"].copy()


def _load_frames(
    session: Session,
    layout: Layout,
    name: str,
    records: np.ndarray,
    blobs: np.ndarray | None,
    found: dict[int, np.ndarray],
) -> np.ndarray:
    """Adds to `found` what a stacked field's records refer to; which of them it is all there for."""
    field = layout.spec[name]
    if blobs is not None and layout.blob and name in (layout.blob.names or ()):
        positions = np.ascontiguousarray(blobs[:, : layout.blob.itemsize]).view(layout.blob)[name][:, 0]
    else:
        positions = np.asarray(records[name])
    keys = layout.sessions(records)[:, None].astype(np.uint64) * _SERIAL + positions
    missing = np.array([key for key in np.unique(keys).tolist() if key not in found], np.uint64)
    loading = Loading(
        session,
        (missing // _SERIAL).astype(np.uint8),
        (missing % _SERIAL).astype(np.uint32),
        units_of(field.frame_bytes),
    )
    session.wait(loading.done)
    images, gone = loading.data[loading.index, : field.frame_bytes], loading.gone[loading.index]
    found.update((key, image) for key, image, lost in zip(missing.tolist(), images, gone.tolist()) if not lost)
    return np.array([all(key in found for key in row) for row in keys.tolist()], np.bool_)


def _table(frames: dict[int, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    keys = sorted(frames)
    return np.array(keys, np.uint64), np.array([frames[key] for key in keys], np.uint8).reshape(len(keys), size)

"""Checkpoints: the items of a table as a file, while other clients add and sample.

A file is numpy's .npz without pickled objects. It holds each item as it was at one moment, but not all items at the
same moment. Items that were overwritten while the table was read are left out. Each frame is in the file once. Limits
and parameters are not in it: the program sets them again.
"""

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from iswitch.replay.queries import Query
from iswitch.replay.reading import LogRead, RecordRead
from iswitch.replay.records import Field, Layout, units_for
from iswitch.replay.session import Session
from iswitch.replay.unserved import corrupt_error
from iswitch.wire.replay import LIST, SAMPLED_ROW, SAMPLES_PER_FRAGMENT, Kind, ReplayOutcome

__all__ = ["Checkpoint", "read_table"]

_FORMAT = 1
_SLOTS_AT_ONCE = 16 * SAMPLES_PER_FRAGMENT
_SERIAL = np.uint64(1 << 32)


class Checkpoint:
    """The items of a table, the oldest first.

    Parameters
    ----------
    layout : Layout
        Where fields are stored in the records.
    scale : float
        The integer that stands for priority 1.
    items : uint32 array of shape (n,)
        Handles.
    priorities : uint32 array of shape (n,)
        Integers of the switch.
    records : array of shape (n,) and type `layout.record`
        The records.
    blobs : uint8 array of shape (n, bytes) or None
        The blobs, if the layout has any.
    frames : dict of int to (uint64 array of shape (m,), uint8 array of shape (m, size))
        The frames by their size in bytes. The first array has session * 2^32 + log unit of each frame, in ascending
        order.
    """

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
        """Write the file. If writing fails, a file that was there before stays as it was."""
        about = {
            "format": _FORMAT,
            "record_bytes": self.layout.record_bytes,
            "scale": self.scale,
            "spec": {
                name: [list(field.axes), field.wire_dtype.str, field.stacked]
                for name, field in self.layout.spec.items()
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
        temporary = Path(f"{os.fspath(path)}.part")
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
        temporary.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Checkpoint":
        """Read a file. Raises ValueError if `save` of this version did not write it."""
        with np.load(path, allow_pickle=False) as file:
            if "about" not in file or (about := json.loads(file["about"].tobytes()))["format"] != _FORMAT:
                raise ValueError(
                    f"a checkpoint must be a file that `save` of this version has written, but {os.fspath(path)!r} "
                    "is not"
                )
            spec = {
                name: Field(tuple(shape), dtype, stacked) for name, (shape, dtype, stacked) in about["spec"].items()
            }
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

    def shares(self, clients: int) -> np.ndarray:
        """Divide the items among clients that restore them together. Items that share frames belong to the same client.

        Parameters
        ----------
        clients : int
            Number of clients.

        Returns
        -------
        int array of shape (n,)
            For each item, the client that restores it, 0 to clients - 1.
        """
        if not self.layout.uses_log:
            return np.arange(len(self)) % clients
        return np.unique(self.layout.sessions(self.records), return_inverse=True)[1] % clients

    def columns(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields of some items, where `chosen` has their places in this checkpoint."""
        records, layout = self.records[chosen], self.layout
        blobs = None
        if layout.blob and self.blobs is not None:
            blobs = np.ascontiguousarray(self.blobs[chosen, : layout.blob.itemsize]).view(layout.blob)[:, 0]
        columns = {}
        for name, field in layout.spec.items():
            in_blob = blobs is not None and name in (blobs.dtype.names or ())
            part = np.asarray(blobs[name] if blobs is not None and in_blob else records[name])
            if field.stacked:
                keys, data = self.frames[field.frame_bytes]
                at = np.searchsorted(keys, layout.sessions(records)[:, None].astype(np.uint64) * _SERIAL + part)
                part = data[at].view(field.wire_dtype).reshape(len(chosen), *field.axes)
            columns[name] = part
        return columns


def read_table(session: Session, layout: Layout, scale: float) -> Checkpoint:
    """Read all items of the session's table.

    Parameters
    ----------
    session : Session
        The session.
    layout : Layout
        Where fields are stored.
    scale : float
        The integer that stands for priority 1.

    Returns
    -------
    Checkpoint
        The items.
    """
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]] = []
    found: dict[int, dict[int, np.ndarray]] = {layout.spec[name].frame_bytes: {} for name in layout.stacked}
    for items, priorities in _list_items(session):
        read = RecordRead(session, items)
        session.wait_until(read.done)
        present = ~read.overwritten
        records = read.records.view(layout.record)[:, 0]
        blobs = None
        if layout.blob:
            starts = layout.blob_starts(records[present])
            blobs_read = LogRead(session, layout.sessions(records[present]), starts, layout.blob_units)
            session.wait_until(blobs_read.done)
            blobs = np.zeros((len(items), blobs_read.data.shape[1]), np.uint8)
            blobs[present] = blobs_read.data[blobs_read.index]
            present[present] &= ~blobs_read.overwritten[blobs_read.index]
        for name in layout.stacked:
            present[present] &= _read_frames(
                session,
                layout,
                name,
                records[present],
                None if blobs is None else blobs[present],
                found[layout.spec[name].frame_bytes],
            )
        parts.append((items[present], priorities[present], records[present], None if blobs is None else blobs[present]))
    items, priorities, records = (np.concatenate([part[k] for part in parts]) for k in range(3))  # type: ignore[misc]
    order = np.argsort(items - np.uint32(session.adds % 2**32), kind="stable")
    blobs = np.concatenate([part[3] for part in parts if part[3] is not None])[order] if layout.blob else None
    return Checkpoint(
        layout,
        scale,
        items[order],
        priorities[order],
        np.ascontiguousarray(records[order]),
        blobs,
        {size: _frame_table(frames, size) for size, frames in found.items()},
    )


def _all_answered(queries: Sequence[Query]) -> bool:
    """Return True if every query has its reply."""
    return all(query.reply is not None for query in queries)


def _list_items(session: Session) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield handles and priorities of all items, some slots at a time."""
    capacity = session.config.capacity
    for first in range(0, capacity, _SLOTS_AT_ONCE):
        queries = []
        for slot in range(first, min(first + _SLOTS_AT_ONCE, capacity), SAMPLES_PER_FRAGMENT):
            body = np.zeros(1, LIST)
            body["slot"] = slot
            count = min(SAMPLES_PER_FRAGMENT, capacity - slot)
            queries.append(session.query(Kind.LIST, count=count, body=body.tobytes()))
        session.wait_until(partial(_all_answered, queries))
        for query in queries:
            if query.reply and query.reply.status and query.reply.status.outcome == ReplayOutcome.CORRUPT:
                raise corrupt_error(session.table, address=session.address)
        rows = np.concatenate([np.frombuffer(query.reply.rows, SAMPLED_ROW) for query in queries if query.reply])
        rows = rows[rows["item"] != 0]
        yield rows["item"].copy(), rows["priority"].copy()


def _read_frames(
    session: Session,
    layout: Layout,
    name: str,
    records: np.ndarray,
    blobs: np.ndarray | None,
    found: dict[int, np.ndarray],
) -> np.ndarray:
    """Read the frames of a stacked field that are not in `found`, and add them to it. Return for each record whether
    all its frames are there, bool of shape (n,)."""
    field = layout.spec[name]
    if blobs is not None and layout.blob and name in (layout.blob.names or ()):
        positions = np.ascontiguousarray(blobs[:, : layout.blob.itemsize]).view(layout.blob)[name][:, 0]
    else:
        positions = np.asarray(records[name])
    keys = layout.sessions(records)[:, None].astype(np.uint64) * _SERIAL + positions
    missing = np.array([key for key in np.unique(keys).tolist() if key not in found], np.uint64)
    sessions, starts = (missing // _SERIAL).astype(np.uint8), (missing % _SERIAL).astype(np.uint32)
    read = LogRead(session, sessions, starts, units_for(field.frame_bytes))
    session.wait_until(read.done)
    images, overwritten = read.data[read.index, : field.frame_bytes], read.overwritten[read.index]
    found.update(
        (key, image)
        for key, image, is_overwritten in zip(missing.tolist(), images, overwritten.tolist())
        if not is_overwritten
    )
    return np.array([all(key in found for key in row) for row in keys.tolist()], np.bool_)


def _frame_table(frames: dict[int, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    keys = sorted(frames)
    return np.array(keys, np.uint64), np.array([frames[key] for key in keys], np.uint8).reshape(len(keys), size)

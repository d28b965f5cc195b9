"""What a transition is made of, and where its parts lie: in the item's record, and what does not fit in the session's
log.

A record is, in this order: one byte with the index of the session in whose log the rest is, if there is a rest; the
first unit of the item's own blob in that log, if there is one; then fields and the positions of stacked fields' frames,
the smallest first, as many as fit. The others are in the blob, in the same order. All is packed and little-endian.
Every client with the same fields and the same `record_bytes` comes to the same layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iswitch.wire.replay import UNIT_BYTES

__all__ = ["Field", "Layout", "units_of"]

_POSITION = np.dtype("<u4")
_SESSION, _BLOB, _SPARE = "log.session", "log.blob", "log.spare"


def units_of(size: int) -> int:
    """Units of a log that so many bytes take."""
    return -(-size // UNIT_BYTES)


def _fits(array: np.ndarray, kind: "np.dtype[Any]") -> bool:
    """Integers that another type of integers has too."""
    if array.dtype.kind not in "iub" or kind.kind not in "iu":
        return False
    return not array.size or bool(np.iinfo(kind).min <= array.min() and array.max() <= np.iinfo(kind).max)


@dataclass(frozen=True)
class Field:
    """One of the arrays of which a transition consists.

    stacked: its first axis is a stack of so many frames; every distinct frame is sent and kept once, however many
    transitions it is part of. 0: it is not.
    """

    shape: tuple[int, ...] | int
    dtype: npt.DTypeLike
    stacked: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.axes)
        object.__setattr__(self, "dtype", self.kind)
        if self.kind.hasobject:
            raise TypeError("a Field's dtype must be plain numbers, not Python objects")
        if self.stacked and (len(self.axes) < 2 or self.axes[0] != self.stacked):
            raise ValueError(
                f"a stacked Field's shape must begin with the number of its frames, {self.stacked}, not be {self.shape}: move that axis "
                "to the front"
            )

    @property
    def kind(self) -> "np.dtype[Any]":
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def axes(self) -> tuple[int, ...]:
        return (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the whole."""
        return self.kind.itemsize * int(np.prod(self.axes, dtype=np.int64))

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame of a stack."""
        return self.size // self.stacked


class Layout:
    """Where the fields of a transition lie. record: dtype of a record. blob: of what is in the log for each item; None
    if nothing. stacked: names of stacked fields. logged: anything is in the log.

    ValueError if the spec is empty or a name starts with "log.".
    """

    def __init__(self, spec: Mapping[str, Field], record_bytes: int):
        if not spec or any(name.startswith("log.") for name in spec):
            raise ValueError(f'a spec must have fields, none of them named "log.", not {list(spec)}')
        for name, field in spec.items():
            if not isinstance(field, Field):
                raise TypeError(f"spec[{name!r}] must be a Field, not {type(field).__name__}")
        self.spec, self.record_bytes = dict(spec), record_bytes
        self.stacked = [name for name, field in spec.items() if field.stacked]
        parts: dict[str, tuple[Any, ...]] = {
            name: (name, _POSITION, (field.stacked,)) if field.stacked else (name, field.kind, field.axes)
            for name, field in spec.items()
        }
        sizes = {name: np.dtype([part]).itemsize for name, part in parts.items()}
        order = sorted(parts, key=lambda name: (sizes[name], name))
        whole = sum(sizes.values())
        header: list[tuple[Any, ...]] = []
        inline = order
        if self.stacked or whole > record_bytes:
            header = [(_SESSION, "u1")]
        if whole + len(header) > record_bytes:
            header.append((_BLOB, _POSITION))
            room = record_bytes - 1 - _POSITION.itemsize
            inline = []
            for name in order:
                room -= sizes[name]
                if room < 0:
                    break
                inline.append(name)
        rest = order[len(inline) :]
        packed = header + [parts[name] for name in inline]
        spare = record_bytes - np.dtype(packed).itemsize
        self.record = np.dtype([*packed, *([(_SPARE, "u1", (spare,))] if spare else [])])
        self.blob = np.dtype([parts[name] for name in rest]) if rest else None
        self.logged = bool(header)

    @property
    def blob_units(self) -> int:
        """Units of the log that each item has to itself."""
        return units_of(self.blob.itemsize) if self.blob else 0

    @property
    def item_bytes(self) -> int:
        """Bytes of a whole transition, every frame counted as often as it is in it."""
        return sum(field.size for field in self.spec.values())

    def columns(self, data: Mapping[str, Any]) -> tuple[int, dict[str, np.ndarray]]:
        """The number of transitions in arrays with a leading axis, and the arrays in the fields' types. ValueError,
        TypeError if they are not what the spec says."""
        if set(data) != set(self.spec):
            lacking, strange = sorted(set(self.spec) - set(data)), sorted(set(data) - set(self.spec))
            raise ValueError(
                "a transition must have the fields of the spec: "
                + "; ".join(
                    [
                        f"{', '.join(lacking)} lack" if lacking else "",
                        f"{', '.join(strange)} are unknown" if strange else "",
                    ]
                ).strip("; ")
            )
        arrays, count = {}, -1
        for name, field in self.spec.items():
            array = np.asarray(data[name])
            if not (np.can_cast(array.dtype, field.kind, "same_kind") or _fits(array, field.kind)):
                raise TypeError(
                    f"{name} must be {field.kind}, not {array.dtype}, which would lose what it means: convert it before"
                )
            array = array.astype(field.kind, copy=False)
            if array.shape[1:] != field.axes or array.ndim == 0:
                raise ValueError(
                    f"{name} must have the shape (n, {', '.join(map(str, field.axes))}), not {array.shape}".replace(
                        ", )", ",)"
                    )
                )
            if count not in (-1, len(array)):
                raise ValueError(
                    f"all fields must have as many transitions as the first, {count}, but {name} has {len(array)}"
                )
            arrays[name], count = array, len(array)
        return count, arrays

    def pack(
        self, arrays: Mapping[str, np.ndarray], positions: Mapping[str, np.ndarray], blobs: np.ndarray, session: int
    ) -> np.ndarray:
        """Records, of arrays with a leading axis. positions: of stacked fields' frames, (n, k). blobs: where each
        item's is, (n,)."""
        count = len(next(iter(arrays.values())))
        records = np.zeros(count, self.record)
        for name in self.record.names or ():
            if name == _SESSION:
                records[name] = session
            elif name == _BLOB:
                records[name] = blobs
            elif name != _SPARE:
                records[name] = positions[name] if name in positions else arrays[name]
        return records

    def pack_blobs(self, arrays: Mapping[str, np.ndarray], positions: Mapping[str, np.ndarray]) -> np.ndarray:
        """What goes to the log for each item, (n,) of `blob`."""
        blobs = np.zeros(len(next(iter(arrays.values()))), self.blob)
        for name in blobs.dtype.names or ():
            blobs[name] = positions[name] if name in positions else arrays[name]
        return blobs

    def sessions(self, records: np.ndarray) -> np.ndarray:
        """In whose log the rest of each record is, u1."""
        return np.asarray(records[_SESSION])

    def blob_starts(self, records: np.ndarray) -> np.ndarray:
        """First units of the items' blobs, u4."""
        return np.asarray(records[_BLOB])

"""The fields of a transition, and where they are stored: in the item's record, and in the session's log.

A record contains, in this order:

1. one byte with the index of the session whose log holds the rest, if there is a rest;
2. the first log unit of the item's own blob, if the item has one;
3. fields, and the log positions of frames of stacked fields: the smallest first, as many as fit.

All other fields are in the blob, in the same order. Everything is packed and little-endian. All clients with the same
fields and the same `record_bytes` compute the same layout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iswitch.wire.replay import UNIT_BYTES

__all__ = ["Field", "Layout", "units_for"]

_POSITION = np.dtype("<u4")
_SESSION, _BLOB, _PADDING = "log.session", "log.blob", "log.padding"


def units_for(size: int) -> int:
    """Return how many log units `size` bytes take."""
    return -(-size // UNIT_BYTES)


def _converted(name: str, array: np.ndarray, dtype: "np.dtype[Any]") -> np.ndarray:
    """Return a field's array in the type of the field.

    Floating-point numbers are rounded. An integer or a character string must keep its value, and a number that is
    finite stays finite. Values are only looked at where the type alone does not decide. Raises TypeError.
    """
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype, copy=False)
    lost: object = None
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        lost = next((edge for edge in _range(array) if not limits.min <= edge <= limits.max), None)
    elif not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(
            f"{name} must be {dtype}, not {array.dtype}, because the conversion would lose information: pass "
            f"`{name}.astype('{dtype}')`, or declare another dtype in the spec"
        )
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    wrong: np.ndarray | None = None
    if dtype.kind in "fc":
        wrong = np.isinf(converted)
        wrong = wrong & np.isfinite(array) if wrong.any() else None
    elif dtype.kind in "SU":
        wrong = converted != array
    if wrong is not None and wrong.any():
        lost = array[wrong][0]
    if lost is not None:
        raise TypeError(
            f"{name} must be {dtype}, and its value {lost} does not fit, because it is {array.dtype}: clip the values, "
            "or declare another dtype in the spec"
        )
    return converted


def _range(array: np.ndarray) -> tuple[int, ...]:
    """Return the lowest and the highest of an array's integers; nothing if it is empty."""
    return (int(array.min()), int(array.max())) if array.size else ()


@dataclass(frozen=True)
class Field:
    """One array of a transition.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the array in one transition; () for a number.
    dtype : data-type
        Type of its elements, not object.
    stacked : int
        Number of frames if the first axis is a stack of frames, else 0. Each distinct frame is sent and stored once,
        however many transitions contain it.

    Raises
    ------
    TypeError
        If the type is or contains object.
    ValueError
        If the first axis of a stacked field is not `stacked` long.
    """

    shape: tuple[int, ...] | int
    dtype: npt.DTypeLike
    stacked: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.axes)
        object.__setattr__(self, "dtype", self.wire_dtype)
        if self.wire_dtype.hasobject:
            raise TypeError("a Field's dtype must be numeric, not object: declare a dtype of numbers")
        if self.stacked and (len(self.axes) < 2 or self.axes[0] != self.stacked):
            raise ValueError(
                f"a stacked Field's shape must begin with the number of its frames, {self.stacked}, not be "
                f"{self.shape}: move that axis "
                "to the front"
            )

    @property
    def wire_dtype(self) -> "np.dtype[Any]":
        """The type as a numpy dtype, little-endian."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def axes(self) -> tuple[int, ...]:
        """The shape as a tuple."""
        return (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the complete array."""
        return self.wire_dtype.itemsize * int(np.prod(self.axes, dtype=np.int64))

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame of a stack."""
        return self.size // self.stacked


class Layout:
    """Where the fields of a transition are stored.

    Parameters
    ----------
    spec : mapping of str to Field
        The fields of a transition.
    record_bytes : int
        Size of a record in the switch.

    Attributes
    ----------
    record : dtype
        Type of a record.
    blob : dtype or None
        Type of what each item has in the log for itself; None if it has nothing.
    stacked : list of str
        Names of the stacked fields.
    uses_log : bool
        True if anything is in the log.

    Raises
    ------
    ValueError
        If there are no fields, or a name starts with "log.".
    TypeError
        If a value of `spec` is not a Field.
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
            name: (name, _POSITION, (field.stacked,)) if field.stacked else (name, field.wire_dtype, field.axes)
            for name, field in spec.items()
        }
        sizes = {name: np.dtype([part]).itemsize for name, part in parts.items()}
        order = sorted(parts, key=lambda name: (sizes[name], name))
        needed = sum(sizes.values())
        header: list[tuple[Any, ...]] = []
        inline = order
        if self.stacked or needed > record_bytes:
            header = [(_SESSION, "u1")]
        if needed + len(header) > record_bytes:
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
        padding = record_bytes - np.dtype(packed).itemsize
        self.record = np.dtype([*packed, *([(_PADDING, "u1", (padding,))] if padding else [])])
        self.blob = np.dtype([parts[name] for name in rest]) if rest else None
        self.uses_log = bool(header)

    @property
    def blob_units(self) -> int:
        """Log units that each item has to itself."""
        return units_for(self.blob.itemsize) if self.blob else 0

    @property
    def item_bytes(self) -> int:
        """Bytes of one transition, where every frame counts as often as the transition contains it."""
        return sum(field.size for field in self.spec.values())

    def to_columns(self, data: Mapping[str, Any]) -> tuple[int, dict[str, np.ndarray]]:
        """Convert transitions to arrays of the fields' types.

        Parameters
        ----------
        data : mapping of str to array of shape (n, ...)
            The transitions, by field.

        Returns
        -------
        count : int
            The number of transitions, n.
        columns : dict of str to array of shape (n, ...)
            The arrays, in the types of the fields.

        Raises
        ------
        ValueError
            If fields are missing or unknown, or shapes are wrong.
        TypeError
            If a conversion would lose information: of an integer, or all of a floating-point number that is too large.
        """
        if set(data) != set(self.spec):
            missing, unknown = sorted(set(self.spec) - set(data)), sorted(set(data) - set(self.spec))
            complaints = [
                f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing" if missing else "",
                f"{', '.join(unknown)} {'are' if len(unknown) > 1 else 'is'} unknown" if unknown else "",
            ]
            raise ValueError("a transition must have the fields of the spec: " + "; ".join(filter(None, complaints)))
        columns, count = {}, -1
        for name, field in self.spec.items():
            array = _converted(name, np.asarray(data[name]), field.wire_dtype)
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
            columns[name], count = array, len(array)
        return count, columns

    def pack_records(
        self,
        columns: Mapping[str, np.ndarray],
        positions: Mapping[str, np.ndarray],
        blobs: np.ndarray,
        session: int,
        into: np.ndarray | None = None,
    ) -> np.ndarray:
        """Pack transitions into records.

        Parameters
        ----------
        columns : mapping of str to array of shape (n, ...)
            The transitions, by field.
        positions : mapping of str to uint32 array of shape (n, stacked)
            For each stacked field, the first log unit of each frame.
        blobs : uint32 array of shape (n,)
            The first log unit of each item's blob.
        session : int
            Index of the session that owns the log.
        into : array of shape (n,) and type `record`, or None
            Zeros to pack into; None: a new array.

        Returns
        -------
        array of shape (n,) and type `record`
            The records.
        """
        records = np.zeros(len(next(iter(columns.values()))), self.record) if into is None else into
        for name in self.record.names or ():
            if name == _SESSION:
                records[name] = session
            elif name == _BLOB:
                records[name] = blobs
            elif name != _PADDING:
                records[name] = positions[name] if name in positions else columns[name]
        return records

    def pack_blobs(self, columns: Mapping[str, np.ndarray], positions: Mapping[str, np.ndarray]) -> np.ndarray:
        """Pack what goes to the log for each item. Parameters as in `pack_records`; returns an array of shape (n,) and
        type `blob`."""
        blobs = np.zeros(len(next(iter(columns.values()))), self.blob)
        for name in blobs.dtype.names or ():
            blobs[name] = positions[name] if name in positions else columns[name]
        return blobs

    def sessions(self, records: np.ndarray) -> np.ndarray:
        """Return the index of the session whose log holds the rest of each record, as uint8."""
        return np.asarray(records[_SESSION])

    def blob_starts(self, records: np.ndarray) -> np.ndarray:
        """Return the first log unit of each item's blob, as uint32."""
        return np.asarray(records[_BLOB])

"""Contributions laid out as trains, ready for one send: headers filled as columns, payloads copied as a matrix."""

from collections.abc import Iterator

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.wire import FLAGS_SHIFT, HEADER, ContributionFlag, Type, version_type

__all__ = ["Packer", "Payloads"]

_BOUNDARY = int(ContributionFlag.BOUNDARY) << FLAGS_SHIFT  # arithmetic on enumerations is slow


class Payloads:
    """An array cut into segments.

    values: 1-D, C-contiguous, of 4-byte elements. rows: its whole segments as a u8 matrix (segments, bytes); last: the
    bytes of a shorter last segment, u8, or empty. Both are views. size: number of segments.
    """

    def __init__(self, values: np.ndarray, elements: int):
        flat, segment_bytes = values.view(np.uint8), 4 * elements
        whole = flat.size // segment_bytes
        self.rows = flat[: whole * segment_bytes].reshape(whole, segment_bytes)
        self.last = flat[whole * segment_bytes :]
        self.size = whole + bool(self.last.size)


class Packer:
    """Builds one member's trains in a buffer of its own, which each train overwrites."""

    def __init__(self, membership: Membership, train_segments: int):
        size = HEADER.itemsize + 4 * membership.elements
        self.segment_bytes, self.most = size, train_segments
        self._buffer = np.zeros(train_segments * size, np.uint8)
        self._view = self._buffer.data
        self._payloads = self._buffer.reshape(train_segments, size)[:, HEADER.itemsize :]
        headers = np.ndarray(train_segments, HEADER, self._buffer, 0, (size,))
        headers["version_type"] = version_type(Type.CONTRIBUTION)
        headers["count"] = 1
        for name in ("job", "epoch", "member", "token"):
            headers[name] = getattr(membership, name)
        self._seq, self._behind, self._format = headers["seq"], headers["behind"], headers["format_flags"]

        self._ramp = np.arange(train_segments, dtype=np.uint32)

        receipts = np.zeros(train_segments, HEADER)
        receipts[:] = headers
        receipts["version_type"] = version_type(Type.RECEIPT)
        receipts["count"] = 0
        self._receipts = receipts
        self._receipts_view = receipts.view(np.uint8).data

    def contributions(
        self, payloads: Payloads, first: int, last: int, *, base: int, low: int, format_flags: int
    ) -> Iterator[memoryview]:
        """Trains of the segments `first` to `last` - 1, numbered from seq `base`; `low`: the lowest segment lacked.
        Each train is good until the next is asked for."""
        for at in range(first, last, self.most):
            count = min(last - at, self.most)
            self._seq[:count] = self._ramp[:count] + np.uint32((base + at) % 2**32)
            self._behind[:count] = self._ramp[:count] + np.uint32(at - low)
            yield self._finish(payloads, slice(at, at + count), count, at + count == payloads.size, format_flags)

    def scattered(
        self, payloads: Payloads, indices: np.ndarray, *, base: int, low: int, format_flags: int
    ) -> Iterator[memoryview]:
        """The same for segments that need not be neighbours: `indices`, i8, ascending."""
        for at in range(0, len(indices), self.most):
            chosen = indices[at : at + self.most]
            count = len(chosen)
            self._seq[:count] = (chosen + base).astype(np.uint32)
            self._behind[:count] = chosen - low
            yield self._finish(payloads, chosen, count, int(chosen[-1]) == payloads.size - 1, format_flags)

    def _finish(
        self, payloads: Payloads, which: slice | np.ndarray, count: int, boundary: bool, format_flags: int
    ) -> memoryview:
        self._format[:count] = format_flags
        nbytes = count * self.segment_bytes
        if boundary:
            self._format[count - 1] = format_flags | _BOUNDARY
            if payloads.last.size:
                count -= 1
                self._payloads[count, : payloads.last.size] = payloads.last
                nbytes += HEADER.itemsize + payloads.last.size - self.segment_bytes
                which = which[:count] if isinstance(which, np.ndarray) else which
        if count:
            self._payloads[:count] = payloads.rows[which]
        return self._view[:nbytes]

    def receipts(self, indices: np.ndarray, *, base: int, low: int, want: bool) -> memoryview:
        """One train of receipts for `indices` (i8, low to low + W); all say that everything below `low` is held."""
        count = min(len(indices), self.most)
        receipts, chosen = self._receipts[:count], indices[:count]
        receipts["seq"] = (chosen + base).astype(np.uint32)
        receipts["behind"] = chosen - low
        receipts["format_flags"] = ContributionFlag.WANT << FLAGS_SHIFT if want else 0
        return self._receipts_view[: count * HEADER.itemsize]

"""Received datagrams of a job: new results are told from frames that are old, forged, or something else."""

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.driver.segment_ledger import SegmentLedger
from iswitch.wire import FLAGS_SHIFT, HEADER, RESULT_HEADER, TAIL_BYTES, ResultFlag, Type, version_type

__all__ = ["RESENT", "ResultFrames", "Results", "datagrams"]

RESENT = int(ResultFlag.RESENT) << FLAGS_SHIFT
"""The flag in `Results.format_flags` of results that the switch sent again. Arithmetic on enumerations is slow."""

_START = struct.Struct("<IIxBxxxxxxxxI")
"""Of a result's header: version, type, job and epoch; seq; number format and flags; token."""
_SEQ_BYTES = 8
"""The bytes of a header up to the end of `seq`. Results that differ in `seq` alone are copied at once."""
_REST = np.dtype((np.void, RESULT_HEADER.itemsize - _SEQ_BYTES))


class Results(NamedTuple):
    """New results with the same number format, flags and length.

    Parameters
    ----------
    positions : slice or numpy.ndarray
        Their positions: int64, ascending if the frames came in order.
    records : numpy.ndarray
        uint8, shape (results, bytes): the datagrams. They are in the receive buffer, which the next burst overwrites.
    format_flags : int
        Number format and flags of each.
    """

    positions: slice | np.ndarray
    records: np.ndarray
    format_flags: int

    @property
    def is_resent(self) -> bool:
        """True if the switch has sent them again."""
        return bool(self.format_flags & RESENT)

    @property
    def headers(self) -> np.ndarray:
        """uint8, shape (results, bytes)."""
        return self.records[:, : HEADER.itemsize]

    @property
    def bodies(self) -> np.ndarray:
        """uint8, shape (results, bytes): the payloads."""
        return self.records[:, HEADER.itemsize : -TAIL_BYTES]

    @property
    def tails(self) -> np.ndarray:
        """uint8, shape (results, bytes)."""
        return self.records[:, -TAIL_BYTES:]

    @property
    def members(self) -> np.ndarray:
        """uint32, shape (results,): a bit for each member in the sum."""
        count, size = self.records.shape
        return np.ndarray(count, RESULT_HEADER, np.ascontiguousarray(self.records), 0, (size,))["members"]

    def select(self, which: slice | np.ndarray) -> "Results":
        """Return some of the results: a slice or a mask of them."""
        positions = self.positions
        if isinstance(positions, slice) and isinstance(which, slice):
            first, end, _ = which.indices(positions.stop - positions.start)
            chosen: slice | np.ndarray = slice(positions.start + first, positions.start + end)
        else:
            chosen = self.indices[which]
        return Results(chosen, self.records[which], self.format_flags)

    def copy(self) -> "Results":
        """Return a copy that outlives the receive buffer."""
        return self._replace(records=self.records.copy())

    def segments(self, begin: int) -> slice | np.ndarray:
        """Return the positions, counted from another one."""
        if isinstance(self.positions, slice):
            return slice(self.positions.start - begin, self.positions.stop - begin)
        return self.positions - begin

    def below(self, position: int) -> "Results":
        """Return the results below a position."""
        if isinstance(self.positions, slice):
            return self.select(slice(0, max(0, position - self.positions.start)))
        return self.select(self.positions < position)

    def since(self, position: int) -> "Results":
        """Return the results from a position on."""
        if isinstance(self.positions, slice):
            return self.select(slice(max(0, position - self.positions.start), None))
        return self.select(self.positions >= position)

    def between(self, begin: int, end: int) -> "Results":
        """Return the results from position `begin` to `end` - 1."""
        positions = self.positions
        if not isinstance(positions, slice):
            return self.select((positions >= begin) & (positions < end))
        if begin <= positions.start and positions.stop <= end:
            return self  # the usual case
        first = max(0, begin - positions.start)
        return self.select(slice(first, max(first, end - positions.start)))

    @property
    def indices(self) -> np.ndarray:
        """int64: the positions."""
        if isinstance(self.positions, slice):
            return np.arange(self.positions.start, self.positions.stop)
        return self.positions

    @property
    def first(self) -> int:
        """The lowest position."""
        return self.positions.start if isinstance(self.positions, slice) else int(self.positions.min())

    @property
    def last(self) -> int:
        """The highest position."""
        return self.positions.stop - 1 if isinstance(self.positions, slice) else int(self.positions.max())


def datagrams(buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> Iterator[np.ndarray]:
    """Yield the datagrams of a burst as views: uint8, shape (datagrams, bytes), each of one size.

    Parameters
    ----------
    buffer : numpy.ndarray or memoryview
        The datagrams end to end, `segment_bytes` each; the last one may be shorter.
    size : int
        Bytes of the burst.
    segment_bytes : int
        Bytes of a datagram.
    """
    count, rest = divmod(size, segment_bytes)
    if count and segment_bytes >= HEADER.itemsize:
        yield np.ndarray((count, segment_bytes), np.uint8, buffer)
    if rest >= HEADER.itemsize:
        yield np.ndarray((1, rest), np.uint8, buffer, size - rest)


def _ramp(count: int) -> np.ndarray:
    """Return the numbers from 0 on where the seq stands in a header's first 8 bytes."""
    return (np.arange(count, dtype=np.uint64) << np.uint64(32)).astype("<u8")


class ResultFrames:
    """Finds the new results of a membership among received datagrams.

    Attributes
    ----------
    forged : int
        Results that were ignored because they do not carry the job's token.
    dropped_from : float
        The lowest `limit` at which a result was ignored because its position was not below, or infinity. The owner
        resets this.
    """

    def __init__(self) -> None:
        self._ramp = _ramp(64)
        self.forged = 0
        self.dropped_from = math.inf

    def begin(self, membership: Membership, ledger: SegmentLedger) -> None:
        """Find results of this membership that are lacked in this ledger, from now on."""
        self._membership, self._ledger = membership, ledger
        self._first_word = version_type(Type.RESULT) | membership.job << 8 | membership.epoch << 16

    def position_of(self, seq: int) -> int:
        """Return the position of a seq that is less than 2^31 away from `low`."""
        low = self._ledger.low
        return low + (seq - self._membership.first_seq - low + 2**31) % 2**32 - 2**31

    def parse(self, records: np.ndarray, limit: int) -> tuple[list[Results], np.ndarray | None]:
        """Parse datagrams of one size.

        Parameters
        ----------
        records : numpy.ndarray
            uint8, shape (datagrams, bytes).
        limit : int
            Results from this position on are ignored.

        Returns
        -------
        results : list of Results
            The new results.
        others : numpy.ndarray or None
            `HEADER`: the headers of frames that are not results of this epoch.
        """
        word, seq, format_flags, token = _START.unpack_from(records.data)
        if word == self._first_word and token == self._membership.job_token:
            ledger, count, first = self._ledger, len(records), self.position_of(seq)
            end = first + count
            if ledger.high <= first and end <= min(limit, ledger.low + ledger.reach) and self._are_a_run(records):
                return [Results(slice(first, end), records, format_flags)], None  # the usual case
        return self._sort_out(records, limit)

    def _are_a_run(self, records: np.ndarray) -> bool:
        """Return True if the headers are the same but for seq, which counts up."""
        count, size = records.shape
        if count == 1:
            return True
        if count > len(self._ramp):
            self._ramp = _ramp(2 * count)
        starts = np.ndarray(count, "<u8", records, 0, (size,))
        rest = np.ndarray(count, _REST, records, _SEQ_BYTES, (size,)).tobytes()
        return starts.tobytes() == (self._ramp[:count] + starts[0]).tobytes() and rest == rest[: _REST.itemsize] * count

    def _sort_out(self, records: np.ndarray, limit: int) -> tuple[list[Results], np.ndarray | None]:
        count, size = records.shape
        headers = np.ndarray(count, RESULT_HEADER, records, 0, (size,))
        ours = np.ndarray(count, "<u4", records, 0, (size,)) == self._first_word
        others = None if ours.all() else np.ndarray(count, HEADER, records, 0, (size,))[~ours]
        genuine = headers["token"] == self._membership.job_token
        self.forged += int(np.count_nonzero(ours & ~genuine))
        low = self._ledger.low
        low_seq = np.uint32((self._membership.first_seq + low) % 2**32)
        positions = (headers["seq"] - low_seq).view(np.int32).astype(np.int64) + low
        new = ours & genuine & self._ledger.new(positions)
        if (positions[new] >= limit).any():
            self.dropped_from = min(self.dropped_from, limit)
        new &= positions < limit
        results = []
        for format_flags in np.unique(headers["format_flags"][new]).tolist():
            chosen = np.flatnonzero(new & (headers["format_flags"] == format_flags))
            results.append(Results(positions[chosen], records[chosen], format_flags))
        return results, others

"""Contributions and receipts as bursts, ready to send: headers are filled as columns, payloads copied as a matrix."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.wire import CONTRIBUTION_HEADER, FLAGS_SHIFT, HEADER, Collective, ContributionFlag, Type, version_type

__all__ = ["Packer", "Payloads"]

_BOUNDARY = int(ContributionFlag.BOUNDARY) << FLAGS_SHIFT  # arithmetic on enumerations is slow


class Payloads:
    """An array cut into segments.

    Parameters
    ----------
    values : numpy.ndarray
        1-D, C-contiguous.
    elements : int
        Elements in a segment.
    element_bytes : int
        Bytes of an element: 2 in half-width formats. The bytes of `values` are then a multiple of 4.

    Attributes
    ----------
    octets : numpy.ndarray
        uint8: a view of the whole array.
    size, full : int
        Number of segments, and of full ones.
    segment_bytes : int
        Bytes of a full segment.
    last_bytes : int
        Bytes of the shorter last segment, or 0 if all are full.
    """

    def __init__(self, values: np.ndarray, elements: int, element_bytes: int = 4):
        self.octets, self.segment_bytes = values.view(np.uint8), element_bytes * elements
        self.full, self.last_bytes = divmod(self.octets.size, self.segment_bytes)
        self.size = self.full + bool(self.last_bytes)

    # Views for the driver in Python. The exchange in C needs none, so they are made when they are used

    @cached_property
    def rows(self) -> np.ndarray:
        """uint8, shape (full segments, bytes): a view of the full segments."""
        return self.octets[: self.full * self.segment_bytes].reshape(self.full, self.segment_bytes)

    @cached_property
    def last(self) -> np.ndarray:
        """uint8: a view of the shorter last segment, or empty."""
        return self.octets[self.full * self.segment_bytes :]

    def put(self, which: slice | np.ndarray, bodies: np.ndarray) -> bool:
        """Fill segments with results.

        Parameters
        ----------
        which : slice or numpy.ndarray
            The segments.
        bodies : numpy.ndarray
            uint8, shape (segments, bytes).

        Returns
        -------
        bool
            False if the results do not fit the segments in size. Then nothing is filled.
        """
        bounds = (which.start, which.stop - 1) if isinstance(which, slice) else (int(which.min()), int(which.max()))
        if bodies.shape[1] == self.segment_bytes and bounds[1] < self.full:
            self.rows[which] = bodies
        elif bodies.shape[1] == self.last_bytes and bounds[0] == self.full:
            self.last[:] = bodies[0]
        else:
            return False
        return True


class Packer:
    """Builds one member's bursts in a buffer, which each burst overwrites.

    Parameters
    ----------
    membership : Membership
        The member, for the headers.
    burst_segments : int
        The most segments in a burst.
    element_bytes : int
        Bytes of an element.
    """

    def __init__(self, membership: Membership, burst_segments: int, element_bytes: int = 4):
        size = HEADER.itemsize + element_bytes * membership.elements
        self.segment_bytes, self.most = size, burst_segments
        self._buffer = np.zeros(burst_segments * size, np.uint8)
        self._view = self._buffer.data
        self._payloads = self._buffer.reshape(burst_segments, size)[:, HEADER.itemsize :]
        headers = np.ndarray(burst_segments, CONTRIBUTION_HEADER, self._buffer, 0, (size,))
        headers["version_type"] = version_type(Type.CONTRIBUTION)
        for name in ("job", "epoch", "member", "token"):
            headers[name] = getattr(membership, name)
        self._seq, self._behind, self._format_flags = headers["seq"], headers["behind"], headers["format_flags"]
        self._collective, self._digest = headers["collective"], headers["digest"]

        self._said: tuple[Collective, int] | None = None

        self._ramp = np.arange(burst_segments, dtype=np.uint32)

        receipts = np.zeros(burst_segments, HEADER)
        receipts["version_type"] = version_type(Type.RECEIPT)
        for name in ("job", "epoch", "member", "token"):
            receipts[name] = getattr(membership, name)
        self._receipts = receipts
        self._receipts_view = receipts.view(np.uint8).data

    def begin_collective(self, collective: Collective, digest: int) -> None:
        """Set what all contributions say from now on.

        Parameters
        ----------
        collective : Collective
            The collective to which they belong.
        digest : int
            Digest of the results that this worker has applied, 16 bits.
        """
        if self._said != (collective, digest):
            self._said = collective, digest
            self._collective[:], self._digest[:] = collective.word, digest

    def contributions(
        self, payloads: Payloads, first: int, end: int, *, base: int, low: int, format_flags: int
    ) -> Iterator[memoryview]:
        """Yield bursts of neighbouring segments.

        Parameters
        ----------
        payloads : Payloads
            The array.
        first, end : int
            Send the segments from `first` to `end` - 1.
        base : int
            Seq of the array's first segment.
        low : int
            The lowest segment whose result is lacked.
        format_flags : int
            Number format and flags, for the headers.

        Yields
        ------
        memoryview
            A burst, valid until the next one.
        """
        for at in range(first, end, self.most):
            count = min(end - at, self.most)
            self._seq[:count] = self._ramp[:count] + np.uint32((base + at) % 2**32)
            self._behind[:count] = self._ramp[:count] + np.uint32(at - low)
            yield self._fill(payloads, slice(at, at + count), count, at + count == payloads.size, format_flags)

    def scattered(
        self, payloads: Payloads, indices: np.ndarray, *, base: int, low: int, format_flags: int
    ) -> Iterator[memoryview]:
        """Yield bursts of any segments, as `contributions` does for neighbours. `indices`: int64, ascending."""
        for at in range(0, len(indices), self.most):
            chosen = indices[at : at + self.most]
            count = len(chosen)
            self._seq[:count] = (chosen + base).astype(np.uint32)
            self._behind[:count] = chosen - low
            yield self._fill(payloads, chosen, count, int(chosen[-1]) == payloads.size - 1, format_flags)

    def _fill(
        self, payloads: Payloads, which: slice | np.ndarray, count: int, ends: bool, format_flags: int
    ) -> memoryview:
        """Fill in flags and payloads, and return the burst. `ends`: it ends with the array's last segment."""
        self._format_flags[:count] = format_flags
        nbytes = count * self.segment_bytes
        if ends:
            self._format_flags[count - 1] = format_flags | _BOUNDARY
            if payloads.last_bytes:
                count -= 1
                self._payloads[count, : payloads.last_bytes] = payloads.last
                nbytes += HEADER.itemsize + payloads.last_bytes - self.segment_bytes
                which = which[:count] if isinstance(which, np.ndarray) else which
        if count:
            self._payloads[:count] = payloads.rows[which]
        return self._view[:nbytes]

    def receipts(self, indices: np.ndarray, *, base: int, low: int, want: bool) -> memoryview:
        """Return one burst of receipts, all of which acknowledge every result below `low`.

        Parameters
        ----------
        indices : numpy.ndarray
            int64: segments from `low` to `low` plus the window. What exceeds a burst is left out.
        base : int
            Seq of segment 0.
        low : int
            The lowest segment whose result is lacked.
        want : bool
            Request the results of these segments.

        Returns
        -------
        memoryview
            A burst, valid until the next one.
        """
        count = min(len(indices), self.most)
        receipts, chosen = self._receipts[:count], indices[:count]
        receipts["seq"] = (chosen + base).astype(np.uint32)
        receipts["behind"] = chosen - low
        receipts["format_flags"] = ContributionFlag.WANT << FLAGS_SHIFT if want else 0
        return self._receipts_view[: count * HEADER.itemsize]

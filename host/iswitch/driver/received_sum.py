"""The results of one synchronous collective, put together in the order in which they come."""

import numpy as np

from iswitch.driver.packing import Payloads
from iswitch.driver.progress import result_checks
from iswitch.driver.result_frames import RESENT, Results
from iswitch.errors import MismatchError
from iswitch.wire import FLAGS_SHIFT, HEADER, RESULT_HEADER, TAIL, Format, ResultFlag
from iswitch.wire.formats import FORMATS

__all__ = ["ReceivedSum"]

_FORMAT_MASK = (1 << FLAGS_SHIFT) - 1
_PARTIAL = int(ResultFlag.PARTIAL) << FLAGS_SHIFT
_MEMBERS_CHANGED = int(ResultFlag.MEMBERS_CHANGED) << FLAGS_SHIFT


class ReceivedSum:
    """A sum whose results have come in part or completely.

    Parameters
    ----------
    payloads : Payloads
        The caller's array, which the results replace.
    format : int
        Number format of the sum.
    identity : int
        The identity of its results, 16 bits.

    Attributes
    ----------
    header_rows : numpy.ndarray
        uint8, shape (segments, `HEADER.itemsize`): the headers of the results. Rows are copied faster than records.
    checks : numpy.ndarray
        uint16, shape (segments,): what `result_checks` returns.
    is_foreign : bool
        True if a result has another identity, so that it belongs to another collective.
    """

    def __init__(self, payloads: Payloads, format: int, identity: int):
        self._payloads, self._format, self.identity = payloads, format, identity
        self.header_rows = np.empty((payloads.size, HEADER.itemsize), np.uint8)
        self.checks = np.empty(payloads.size, np.uint16)
        self.is_foreign = False
        self._flags = 0  # of all results, except RESENT

    @property
    def headers(self) -> np.ndarray:
        """`RESULT_HEADER`, shape (segments,): the headers of the results."""
        return self.header_rows.view(RESULT_HEADER)[:, 0]

    @property
    def partial(self) -> bool:
        """True if a result lacks a member of the job."""
        return bool(self._flags & _PARTIAL)

    @property
    def flagged(self) -> bool:
        """True if a result is partial or tainted."""
        return bool(self._flags & ~_MEMBERS_CHANGED)

    @property
    def admitted(self) -> bool:
        """True if joining members take part from the next collective on."""
        return bool(self._flags & _MEMBERS_CHANGED)

    def store(self, results: Results, base: int) -> None:
        """Copy results into the array.

        Parameters
        ----------
        results : Results
            New results of the collective.
        base : int
            Position of the collective's first segment.

        Raises
        ------
        MismatchError
            If a result differs in size or number format from this worker's array.
        """
        format, segments = results.format_flags & _FORMAT_MASK, results.segments(base)
        if format != self._format or not self._payloads.put(segments, results.bodies):
            known = FORMATS[Format(format)]
            raise MismatchError(
                f"a result has {results.bodies.shape[1] // known.element.itemsize} {known.element_name} elements, "
                "which does not fit this worker's array: all workers of a job must call the same collectives, on "
                "arrays of the same size and dtype, in the same order"
            )
        self._flags |= results.format_flags & ~_FORMAT_MASK & ~RESENT
        headers = np.ascontiguousarray(results.headers).reshape(-1).view(RESULT_HEADER)
        tails = np.ascontiguousarray(results.tails).reshape(-1).view(TAIL)
        self.header_rows[segments], self.checks[segments] = results.headers, result_checks(headers, tails)
        self.is_foreign |= bool((tails["identity"] != self.identity).any())

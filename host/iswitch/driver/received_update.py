"""The results of one update of an asynchronous job, put together in the order in which they come."""

import numpy as np

from iswitch.driver.packing import Payloads
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.wire import FLAGS_SHIFT, RESULT_HEADER, Format
from iswitch.wire.formats import FORMATS

__all__ = ["ReceivedUpdate"]

_FORMAT_MASK = (1 << FLAGS_SHIFT) - 1


class ReceivedUpdate:
    """An update whose results have come in part or completely.

    Where no result has come, or no worker has contributed, headers, sum and trailer are zeros.

    Parameters
    ----------
    layout : UpdateLayout
        How the update is cut into segments.
    format : Format
        Number format of the vector.

    Attributes
    ----------
    headers : numpy.ndarray
        `RESULT_HEADER`, shape (segments,).
    sum : numpy.ndarray
        float32 or int32, shape (size,).
    trailer : numpy.ndarray
        `TRAILER_ENTRY`, shape (world,).
    """

    def __init__(self, layout: UpdateLayout, format: Format):
        self.headers = np.zeros(layout.segments, RESULT_HEADER)
        self.sum = np.zeros(layout.size, FORMATS[format].element)
        self.trailer = layout.empty_trailer()
        vector = Payloads(self.sum, layout.elements)
        trailer = Payloads(self.trailer.view(np.uint8), layout.elements)
        self._parts = (
            (vector, int(format), 0, layout.vector_segments),
            (trailer, int(Format.INT32), layout.vector_segments, layout.segments),
        )

    def store(self, segments: np.ndarray, headers: np.ndarray, bodies: np.ndarray) -> None:
        """Copy new results into the update. Results without a contribution are zeros, and may be shorter than others.

        Parameters
        ----------
        segments : numpy.ndarray
            int64: the segments, counted from the update's first one.
        headers : numpy.ndarray
            `RESULT_HEADER`, (results,).
        bodies : numpy.ndarray
            uint8, (results, bytes): the payloads.

        Raises
        ------
        MismatchError
            If a result differs in size or number format from this worker's vectors.
        """
        self.headers[segments] = headers
        contributed = headers["members"] > 0
        for payloads, format, first, end in self._parts:
            which = contributed & (first <= segments) & (segments < end)
            if not which.any():
                continue
            rows, size = segments[which] - first, bodies.shape[1]
            same_format = (headers["format_flags"][which] & _FORMAT_MASK == format).all()
            if same_format and size == payloads.rows.shape[1] and (rows < len(payloads.rows)).all():
                payloads.rows[rows] = bodies[which]
            elif same_format and size == payloads.last.size and (rows == len(payloads.rows)).all():
                payloads.last[:] = bodies[which][0]
            else:
                raise MismatchError(
                    "a result differs in size or number format from this worker's vectors: start all workers of the "
                    "job with the same `size` and `format`"
                )

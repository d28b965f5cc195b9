"""The results of one update of an asynchronous job, put together in the order in which they come."""

import numpy as np

from iswitch.driver.packing import Payloads
from iswitch.driver.result_frames import Results
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.wire import FLAGS_SHIFT, HEADER, RESULT_HEADER, Format
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
        self._header_rows = np.zeros((layout.segments, HEADER.itemsize), np.uint8)  # copied faster than records
        self.headers = self._header_rows.reshape(-1).view(RESULT_HEADER)
        self.sum = np.zeros(layout.size, FORMATS[format].element)
        self.trailer = layout.empty_trailer()
        vector = Payloads(self.sum, layout.elements)
        trailer = Payloads(self.trailer.view(np.uint8), layout.elements)
        self._parts = (
            (vector, int(format), 0, layout.vector_segments),
            (trailer, int(Format.INT32), layout.vector_segments, layout.segments),
        )

    def store(self, results: Results, base: int) -> None:
        """Copy new results into the update. Results without a contribution are zeros, and may be shorter than others.

        Parameters
        ----------
        results : Results
            New results of the update.
        base : int
            Position of the update's first segment.

        Raises
        ------
        MismatchError
            If a result differs in size or number format from this worker's vectors.
        """
        self._header_rows[results.segments(base)] = results.headers
        contributed = results.members > 0
        if not contributed.all():
            results = results.select(contributed)
        format = results.format_flags & _FORMAT_MASK
        for payloads, own_format, first, end in self._parts:
            part = results.between(base + first, base + end)
            if not len(part.records):
                continue
            if format != own_format or not payloads.put(part.segments(base + first), part.bodies):
                raise MismatchError(
                    "a result differs in size or number format from this worker's vectors: start all workers of the "
                    "job with the same `size` and `format`"
                )

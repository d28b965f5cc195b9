"""Sums of a program's arrays: one vector of their elements, as the elements travel, and the results back in place."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from iswitch.driver.arrays import FlatBuffer, as_array
from iswitch.driver.buffers import FLOAT, require_reducible, wire_type_of
from iswitch.driver.half_width import half_views, narrow, widen
from iswitch.results import Reduction
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS

__all__ = ["ArraySums"]

Collect = Callable[[np.ndarray, Format], Reduction]
"""Sums a vector of elements over the job, in place."""


class ArraySums:
    """Replaces arrays by their sum or mean over the job. The vectors of a call are kept for the next one.

    Parameters
    ----------
    format : Format
        Number format of the job.
    """

    def __init__(self, format: Format):
        self._format, self._is_half_width = format, FORMATS[format].is_half_width
        self._flat_buffer = FlatBuffer(FLOAT if self._is_half_width else FORMATS[format].element)  # of lists
        self._half_buffer = np.zeros(0, "<u2")  # of elements that are converted

    def reduce(self, array: Any, op: str, collect: Collect) -> Reduction:
        """Replace an array, or the arrays of a list, by their sum or mean, by one collective.

        Parameters
        ----------
        array, op
            As in `Worker.allreduce`.
        collect : callable
            Calls the collective.

        Raises
        ------
        TypeError, ValueError
            If the switch cannot sum the array. Nothing was sent.
        IswitchError
            The errors of `collect`.
        """
        arrays = array if isinstance(array, (list, tuple)) else None
        if self._is_half_width and (halves := half_views([array] if arrays is None else arrays, self._format)):
            return self._reduce_halves(halves, op, collect)
        array = as_array(array) if arrays is None else self._flat_buffer.gather(arrays)
        format, wire_type = wire_type_of(array, op, self._format)
        values = np.ascontiguousarray(array, wire_type).reshape(-1)
        converts = self._is_half_width and wire_type == FLOAT
        reduction = self._reduce_converted(values, collect) if converts else collect(values, format)
        if values.size:
            if op == "mean":
                reduction.divide(values)
            if not np.may_share_memory(values, array):
                array[...] = values.reshape(array.shape)
            if arrays is not None:
                self._flat_buffer.scatter(array, arrays)
        return reduction

    def _reduce_converted(self, values: np.ndarray, collect: Collect) -> Reduction:
        """Sum float32 elements, in place, as elements of the job's half-width format."""
        wire = self._half_vector(values.size)
        narrow(values, self._format, wire)
        reduction = collect(wire, self._format)
        widen(wire, self._format, values)
        return reduction

    def _reduce_halves(self, arrays: Sequence[np.ndarray], op: str, collect: Collect) -> Reduction:
        """Replace arrays of half-width elements, uint16, by their sum or mean in one collective. A mean is the rounded
        sum, divided and rounded."""
        for array in arrays:
            require_reducible(array, op)
        size = sum(array.size for array in arrays)
        wire = self._half_vector(size)
        np.concatenate([array.reshape(-1) for array in arrays], out=wire[:size])
        reduction = collect(wire, self._format)
        if size:
            if op == "mean":
                values = np.empty(size, FLOAT)
                widen(wire, self._format, values)
                reduction.divide(values)
                narrow(values, self._format, wire)
            self._flat_buffer.scatter(wire, arrays)
        return reduction

    def _half_vector(self, size: int) -> np.ndarray:
        """Return room for half-width elements: of an odd number, a zero follows."""
        padded = size + size % 2
        if self._half_buffer.size != padded:
            self._half_buffer = np.zeros(padded, "<u2")
        self._half_buffer[size:] = 0
        return self._half_buffer

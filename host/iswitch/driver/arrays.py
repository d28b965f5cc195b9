"""Arrays of a collective as programs pass them: numpy arrays and CPU tensors, one or several."""

import numbers
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from iswitch.driver.buffers import require_array

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Arrays", "FlatBuffer", "as_array", "as_bits"]

Arrays: TypeAlias = "np.ndarray | Tensor | Sequence[np.ndarray | Tensor]"
"""A numpy array, a torch tensor on the CPU, or several of them."""


def as_array(value: Any) -> Any:
    """Return a numpy array that shares the memory of a CPU tensor, and any other value as it is.

    torch is not imported for that: if the program has not imported it, the value is no tensor.

    Parameters
    ----------
    value : object
        What the program passes. A parameter that requires gradients is allowed.

    Returns
    -------
    object
        The array. A tensor without a numpy equivalent (another device, bfloat16, sparse) is returned as it is, and
        `require_array` then says what to pass instead.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    try:
        return value.detach().numpy()
    except (TypeError, RuntimeError):
        return value


def as_bits(value: Any) -> Any:
    """Return an array that shares the memory of a CPU tensor of any dtype, for copies of its bytes.

    Parameters
    ----------
    value : object
        What the program passes.

    Returns
    -------
    object
        As `as_array`. A tensor of a dtype that numpy lacks, such as bfloat16, gives integers of the same size.
    """
    array = as_array(value)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or array.is_neg() or array.is_conj():
        return array
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(array.element_size())
    try:
        return array.detach().view(integer).numpy()
    except (TypeError, RuntimeError):  # on another device, or sparse
        return array


class FlatBuffer:
    """Copies several arrays into one vector and back. The vector is kept for the next collective of the same size.

    Parameters
    ----------
    dtype : numpy.dtype
        Type of the vector of an empty list.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._vector = np.zeros(0, dtype)

    def gather(self, arrays: Sequence[Any]) -> np.ndarray:
        """Return one vector with the elements of all arrays, in their order.

        Parameters
        ----------
        arrays : sequence of numpy.ndarray or torch.Tensor
            Of any shapes and of one dtype.

        Raises
        ------
        TypeError, ValueError
            If a value is not an array, the dtypes differ, or an array is not writeable.
        """
        if any(isinstance(entry, numbers.Number) for entry in arrays):
            require_array("array", arrays, self._vector.dtype)  # its advice is about a list of numbers
        views = [as_array(array) for array in arrays]
        for index, view in enumerate(views):
            require_array(f"array[{index}]", view)
            if view.dtype != views[0].dtype:
                raise TypeError(
                    f"the arrays of one collective must have one dtype: array[0] has {views[0].dtype}, "
                    f"array[{index}] has {view.dtype}. Call the collective once for each dtype"
                )
            if not view.flags.writeable:
                raise ValueError(
                    f"array[{index}] must be writeable, because the result replaces its elements: pass a copy"
                )
        size = sum(view.size for view in views)
        dtype = views[0].dtype if views else self._vector.dtype
        if self._vector.size != size or self._vector.dtype != dtype:
            self._vector = np.empty(size, dtype)
        np.concatenate([view.reshape(-1) for view in views] or [self._vector], out=self._vector)
        return self._vector

    @staticmethod
    def scatter(vector: np.ndarray, arrays: Sequence[Any]) -> None:
        """Copy the elements of a vector that `gather` returned back into its arrays."""
        start = 0
        for array in arrays:
            view = as_array(array)
            view[...] = vector[start : start + view.size].reshape(view.shape)
            start += view.size

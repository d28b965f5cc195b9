"""Arrays of half-width elements: float32 to bfloat16 or binary16 and back, and tensors that are such arrays already."""

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from iswitch.driver.arrays import as_bits
from iswitch.native.loader import LibraryError, library
from iswitch.wire import Format
from iswitch.wire.formats import FORMATS

__all__ = ["half_views", "narrow", "widen"]

_FP16 = np.dtype("<f2")
_NAN = np.uint16(0x7FC0)  # of bfloat16


def half_views(arrays: Sequence[Any], format: Format) -> list[np.ndarray]:
    """Return the memory of the arrays of one collective, if their elements are those of a half-width format.

    Parameters
    ----------
    arrays : sequence of object
        What the program passes: for `bf16` torch.bfloat16 tensors on the CPU, for `fp16` float16 arrays or tensors.
    format : Format
        The number format of the job, a half-width one.

    Returns
    -------
    list of numpy.ndarray
        uint16, of the arrays' shapes. Empty if no array has such elements.

    Raises
    ------
    TypeError
        If only some of the arrays have such elements.
    """
    views = [_half_view(array, format) for array in arrays]
    found = [view for view in views if view is not None]
    if found and len(found) < len(views):
        one, other = (next(k for k, view in enumerate(views) if (view is None) == is_none) for is_none in (False, True))
        raise TypeError(
            f"the arrays of one collective must have one dtype: array[{one}] has {FORMATS[format].element_name}, "
            f"array[{other}] has {getattr(arrays[other], 'dtype', type(arrays[other]).__name__)}. Call the collective "
            "once for each dtype"
        )
    return found


def _half_view(value: Any, format: Format) -> np.ndarray | None:
    """Return the memory of an array whose elements are those of a format, uint16, or None for every other value."""
    if isinstance(value, np.ndarray):
        return value.view("<u2") if format == Format.FP16 and value.dtype == _FP16 and _is_plain(value) else None
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if value.dtype != (torch.bfloat16 if format == Format.BF16 else torch.float16):
        return None
    bits = as_bits(value)
    return None if bits is value else bits.view("<u2")  # on another device, or sparse


def _is_plain(array: np.ndarray) -> bool:
    return not isinstance(array, np.ma.MaskedArray)


@cache
def _native() -> Any:
    """Return the compiled library, or None if there is none."""
    try:
        return library()
    except LibraryError:
        return None


def narrow(values: np.ndarray, format: Format, out: np.ndarray) -> None:
    """Round float32 elements once to a half-width format, ties to even. NaNs stay NaNs.

    Parameters
    ----------
    values : numpy.ndarray
        float32, 1-D, contiguous.
    format : Format
        BF16 or FP16.
    out : numpy.ndarray
        uint16, 1-D, contiguous: receives the elements, at its beginning.
    """
    native, out = _native(), out[: values.size]
    if native is not None:
        native.narrow_elements(int(format), values.ctypes.data, out.ctypes.data, values.size)
        return
    if format == Format.FP16:
        with np.errstate(over="ignore", invalid="ignore"):
            out[:] = values.astype(_FP16).view(np.uint16)
        return
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
    out[:] = np.where((bits & 0x7FFFFFFF) > 0x7F800000, _NAN, rounded)


def widen(elements: np.ndarray, format: Format, out: np.ndarray) -> None:
    """Convert half-width elements to float32, which is exact.

    Parameters
    ----------
    elements : numpy.ndarray
        uint16, 1-D, contiguous.
    format : Format
        BF16 or FP16.
    out : numpy.ndarray
        float32, 1-D, contiguous, as long as `elements` or shorter.
    """
    native, elements = _native(), elements[: out.size]
    if native is not None:
        native.widen_elements(int(format), elements.ctypes.data, out.ctypes.data, out.size)
    elif format == Format.FP16:
        out[:] = elements.view(_FP16)
    else:
        out.view(np.uint32)[:] = elements.astype(np.uint32) << 16

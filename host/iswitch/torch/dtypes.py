"""Tensors of each dtype as vectors that the switch sums, and back.

| dtype | on the wire | the result |
|---|---|---|
| float32 | float32 | the exact sum, rounded once |
| float16, bfloat16 | float32 | the exact sum, rounded to float32 and then to the dtype |
| int32 | int32 | modulo 2^32 |
| int8, uint8, int16 | int32 | modulo 2^8 or 2^16, as a sum in the dtype itself |
| int64 | three int32 for each element | modulo 2^64 |

float64, bool and complex tensors are refused: a sum in float32 would lose digits without a word.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["UnsupportedError", "Vector", "from_vector", "to_vector"]

_NARROW_FLOATS = (torch.float16, torch.bfloat16)
_NARROW_INTEGERS = (torch.int8, torch.uint8, torch.int16)
_LIMB_BITS = 22
_LIMB_MASK = (1 << _LIMB_BITS) - 1
"""An int64 element is sent as limbs of 22, 22 and 20 bits: sums of 32 limbs stay below 2^31."""


class UnsupportedError(NotImplementedError):
    """The switch cannot do this collective. Nothing was sent."""


class Vector(NamedTuple):
    """A tensor as the switch sums it."""

    values: np.ndarray
    """float32 or int32, 1-D, contiguous. It shares the tensor's memory where that is possible."""
    shared: bool
    """True if a result in `values` is in the tensor already."""


def to_vector(tensor: Tensor) -> Vector:
    """Return a tensor as a vector that the switch sums.

    Parameters
    ----------
    tensor : torch.Tensor
        On any device, of any shape.

    Raises
    ------
    UnsupportedError
        If the switch cannot sum this dtype, or the tensor is sparse; the message says what to pass instead.
    """
    if tensor.layout != torch.strided:
        raise UnsupportedError("the switch sums dense tensors, not sparse ones: pass `tensor.to_dense()`")
    flat = tensor.detach().reshape(-1).resolve_neg()
    if tensor.dtype in (torch.float32, torch.int32):
        host = flat.cpu()
        return Vector(host.numpy(), host.data_ptr() == tensor.data_ptr() and host.device == tensor.device)
    if tensor.dtype in _NARROW_FLOATS:
        return Vector(flat.to("cpu", torch.float32).numpy(), False)
    if tensor.dtype in _NARROW_INTEGERS:
        return Vector(flat.to("cpu", torch.int32).numpy(), False)
    if tensor.dtype == torch.int64:
        numbers = flat.cpu().numpy()
        limbs = [numbers & _LIMB_MASK, numbers >> _LIMB_BITS & _LIMB_MASK, numbers >> 2 * _LIMB_BITS]
        return Vector(np.concatenate(limbs).astype(np.int32), False)
    advice = {
        torch.float64: "`tensor.float()`, if 24 bits of precision are enough",
        torch.bool: "`tensor.int()`",
        torch.complex64: "`torch.view_as_real(tensor)`",
    }.get(tensor.dtype, "a tensor of another dtype")
    raise UnsupportedError(
        "the switch sums float32, float16, bfloat16, int8, uint8, int16, int32 and int64, not "
        f"{str(tensor.dtype).removeprefix('torch.')}: pass {advice}"
    )


def from_vector(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return a summed vector as a 1-D CPU tensor of a dtype."""
    if dtype == torch.int64:
        low, middle, high = values.astype(np.int64).reshape(3, -1)
        with np.errstate(over="ignore"):
            return torch.from_numpy(low + (middle << _LIMB_BITS) + (high << 2 * _LIMB_BITS))
    return torch.from_numpy(values).to(dtype)

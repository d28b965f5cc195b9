"""Layouts of tensors in memory that a collective cannot fill, and those that gloo does not read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["contiguous", "require_own_memory"]


def _shares_memory(tensor: Tensor) -> bool:
    """Return True if two elements of a tensor are at the same place in memory."""
    steps = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    if any(stride == 0 for stride, _ in steps):
        return True
    extent, disjoint = 1, True
    for stride, size in steps:
        disjoint &= stride >= extent  # each step passes all elements of the smaller ones
        extent += (size - 1) * stride
    if disjoint:
        return False
    places = torch.arange(extent).as_strided(tensor.shape, tensor.stride())
    return len(places.unique()) < tensor.numel()


def require_own_memory(outputs: Any) -> None:
    """Refuse tensors that cannot hold a result.

    Parameters
    ----------
    outputs : torch.Tensor, or nested lists of them
        Tensors that a collective fills.

    Raises
    ------
    ValueError
        If elements of one of the tensors share their memory.
    """
    if isinstance(outputs, (list, tuple)):
        for output in outputs:
            require_own_memory(output)
    elif outputs.layout == torch.strided and outputs.numel() and _shares_memory(outputs):
        raise ValueError(
            f"elements of this tensor of shape {tuple(outputs.shape)} share their memory (strides {outputs.stride()}), "
            "so that it cannot hold a result. `expand` makes such tensors: pass `tensor.contiguous()`"
        )


@contextmanager
def contiguous(tensor: Tensor) -> Iterator[Tensor]:
    """Give a tensor that gloo may reduce: the tensor itself, or a copy that is copied back at the end.

    gloo takes `numel` elements from the first one on, whatever the strides and the bits of negation and conjugation
    are. Of a sparse tensor it changes the list of elements, which a tensor made by `detach` has for itself.
    """
    dense = tensor.detach()
    if strided := dense.layout == torch.strided:
        dense = dense.contiguous().resolve_neg().resolve_conj()
    yield dense
    if not strided or dense.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(dense)

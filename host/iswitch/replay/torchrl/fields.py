"""The leaves of a tensordict as fields of the replay service's records, and back without a copy."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Composite

from iswitch.replay.records import Field

__all__ = ["RESERVED", "Key", "TensorFields", "field_name"]

Key = str | tuple[str, ...]
"""The key of a leaf: of a nested one a tuple."""
RESERVED = ("index", "priority_weight", "overwritten")
"""Keys that sampling adds to a batch."""
_UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
_LOG = "log."


def field_name(key: Key) -> str:
    """Return the name of a leaf's field: the parts of its key with "/" between them. No two keys have the same name.

    A "/" in a part becomes "~1", and "~" becomes "~0", as in a JSON pointer (RFC 6901). A name that would begin with
    "log.", which the records reserve, begins with "log~2".
    """
    parts = (key,) if isinstance(key, str) else key
    name = "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)
    return f"log~2{name[len(_LOG) :]}" if name.startswith(_LOG) else name


@cache
def _stored_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type whose bits are stored: that of unsigned integers if numpy lacks the type, such as bfloat16."""
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return _UNSIGNED[dtype.itemsize]
    return dtype


def _leaves(data: TensorDictBase) -> Iterator[tuple[Key, Any]]:
    """Yield keys and values, also of what is no tensor."""
    is_leaf = lambda kind: not issubclass(kind, TensorDictBase)
    for key in data.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf):
        yield key, data.get(key)


class TensorFields:
    """Which leaves a transition has, and the field of each one.

    Parameters
    ----------
    example : TensorDictBase or Composite
        A transition, or with a batch dimension several; or TorchRL's spec of one. Keys, shapes and dtypes count.
    stacked : iterable of keys
        Leaves whose first axis is a stack of frames. Each distinct frame is sent and stored once.

    Attributes
    ----------
    spec : dict of str to Field
        The fields, for `ReplayClient`.
    item_shape : torch.Size
        Batch dimensions of one transition, usually none.

    Raises
    ------
    TypeError
        If the example is no tensordict, or a leaf is no tensor.
    ValueError
        If there are no leaves, or a key has a reserved name.
    """

    def __init__(self, example: Any, *, stacked: Iterable[Key] = ()):
        if isinstance(example, Composite):
            example = example.zero()
        if not isinstance(example, TensorDictBase):
            raise TypeError(f"an example must be a tensordict or a Composite, not {type(example).__name__}")
        self.item_shape = example.batch_size[1:]
        batched, stacks = bool(example.batch_dims), set(stacked)
        self.dtypes: dict[Key, torch.dtype] = {}
        self.spec: dict[str, Field] = {}
        for key, tensor in _leaves(example):
            if key in RESERVED:
                raise ValueError(
                    f"a transition must not have a key {key!r}, because a sampled batch has it: rename it, or leave it "
                    "out of the example"
                )
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{key!r} must be a tensor, not {type(tensor).__name__}: leave it out of the example")
            shape = tuple(tensor.shape[batched:])
            dtype = torch.empty(0, dtype=_stored_dtype(tensor.dtype)).numpy().dtype
            self.dtypes[key] = tensor.dtype
            self.spec[field_name(key)] = Field(shape, dtype, stacked=shape[0] if key in stacks and shape else 0)
        if not self.spec:
            raise ValueError("an example must have at least one key")
        if unknown := stacks - set(self.dtypes):
            raise ValueError(f"stacked must name keys of the example, not {sorted(map(str, unknown))}")

    def to_columns(self, data: TensorDictBase, *, ignored: Iterable[Key] = ()) -> dict[str, np.ndarray]:
        """Convert a batch of transitions to arrays, by field.

        Parameters
        ----------
        data : TensorDictBase
            The batch; its first dimension counts transitions.
        ignored : iterable of keys
            Keys that are left out, as those in `RESERVED` are.

        Returns
        -------
        dict of str to array
            For `ReplayClient.extend`, which reports missing and unknown fields. Tensors in the memory of the processor
            are not copied.

        Raises
        ------
        TypeError
            If a leaf is no tensor, or of a type that numpy lacks and not the declared one.
        """
        left_out = {*RESERVED, *ignored}
        columns = {}
        for key, tensor in _leaves(data):
            if key not in self.dtypes and key in left_out:
                continue
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{key!r} must be a tensor, not {type(tensor).__name__}")
            columns[field_name(key)] = self._to_array(key, tensor.detach().cpu().resolve_conj().resolve_neg())
        return columns

    def _to_array(self, key: Key, tensor: Tensor) -> np.ndarray:
        declared = self.dtypes.get(key, tensor.dtype)
        stored = _stored_dtype(declared)
        if stored == declared and _stored_dtype(tensor.dtype) == tensor.dtype:
            return tensor.numpy()
        if tensor.dtype != declared:
            raise TypeError(f"{key!r} must be {declared}, as in the example, not {tensor.dtype}: convert it with `.to`")
        return tensor.contiguous().view(stored).numpy()

    def to_tensordict(self, columns: Mapping[str, np.ndarray], count: int) -> TensorDict:
        """Return a batch of `count` transitions as tensors in the memory of the arrays."""
        leaves = {
            key: torch.from_numpy(columns[field_name(key)]).view(dtype)
            if _stored_dtype(dtype) != dtype
            else torch.from_numpy(columns[field_name(key)])
            for key, dtype in self.dtypes.items()
        }
        return TensorDict(leaves, batch_size=[count, *self.item_shape])

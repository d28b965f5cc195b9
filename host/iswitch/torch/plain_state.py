"""States of modules and optimizers as bytes, which every worker can load without running code of another one."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import torch

__all__ = ["plain", "state_bytes", "state_from"]


def plain(value: Any) -> Any:
    """Return a state with plain numbers in place of numpy's scalars, which `state_from` would refuse.

    Parameters
    ----------
    value : object
        Dictionaries, lists and tuples of tensors and numbers.

    Returns
    -------
    object
        An equal state. Parts without such scalars, or the whole, are those of `value`.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        items = [(plain(key), plain(entry)) for key, entry in value.items()]
        if all(new is old for pair, own in zip(items, value.items(), strict=True) for new, old in zip(pair, own)):
            return value
        made = copy.copy(value)
        made.clear()
        made.update(items)
        getattr(made, "__dict__", {}).update(getattr(value, "__dict__", {}))  # a module's versions
        return made
    if type(value) in (list, tuple):
        entries = [plain(entry) for entry in value]
        return value if all(new is old for new, old in zip(entries, value, strict=True)) else type(value)(entries)
    return value


def state_bytes(states: dict[str, Any]) -> bytes:
    """Return states by name as bytes, after a check that `state_from` loads them.

    Raises
    ------
    TypeError
        If it does not. The message names the state.
    """
    data = _saved(states)
    try:
        state_from(data)
    except pickle.UnpicklingError:
        for name, state in states.items():
            try:
                state_from(_saved(state))
            except pickle.UnpicklingError as error:
                raise TypeError(
                    f"the other workers could not load the state of `{name}`, so nothing was sent: its `state_dict()` "
                    "must consist of tensors and plain values (numbers, text, lists, dictionaries). Pass "
                    f"`torch.from_numpy(array)` in place of an array. torch says: {error}"
                ) from None
        raise
    return data


def state_from(data: bytes) -> Any:
    """Return what `state_bytes` was given, in new tensors."""
    return torch.load(io.BytesIO(data), weights_only=True)


def _saved(state: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()

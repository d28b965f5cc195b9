"""Collectives in programs that torch.compile compiles."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

__all__ = ["outside_graphs"]

Group = TypeVar("Group", bound=type[dist.ProcessGroup])


def outside_graphs(group: Group) -> Group:
    """Decorate a process group in Python, so that torch.compile calls its collectives as they are.

    The compiler sees their code, other than that of a group in C++, and would trace it.
    """
    for name in vars(group):
        if name.islower() and not name.startswith("__") and hasattr(dist.ProcessGroup, name):
            setattr(group, name, _outside_graphs(getattr(group, name)))
    return group


def _outside_graphs(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():  # only now: the compiler takes as long to load as torch itself
            return torch.compiler.disable(method)(*arguments, **keywords)
        return method(*arguments, **keywords)

    return call

"""Collectives in the trace of torch.profiler."""

from collections.abc import Callable

import torch
from torch.autograd.profiler import record_function

__all__ = ["profiled"]


def profiled(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """Return a call that is an event "iswitch:NAME" of a profiler that runs, from now to its end in whatever thread."""
    if not torch.autograd._profiler_enabled():
        return call
    event = record_function(f"iswitch:{name}")
    event.__enter__()

    def recorded() -> None:
        try:
            call()
        finally:
            event.__exit__(None, None, None)

    return recorded

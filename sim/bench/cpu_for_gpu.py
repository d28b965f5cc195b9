"""Cases of PyTorch that ask for a GPU for each rank, with their tensors on the CPU.

What they check of a backend (how DistributedDataParallel calls it, with which sums) does not depend on the device.
`count_no_gpus` and `keep_on_cpu` replace what counts GPUs and what moves tensors to them, for the whole process.
"""

import contextlib
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal import common_distributed

__all__ = ["count_no_gpus", "keep_on_cpu"]

_FACTORIES = ("arange", "empty", "full", "ones", "rand", "randn", "tensor", "zeros", "zeros_like")


def _is_gpu(device: Any) -> bool:
    return (isinstance(device, int) and not isinstance(device, bool)) or str(device).startswith("cuda")


def _without_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that ignores `device=` if it names a GPU."""

    @functools.wraps(function)
    def on_cpu(*arguments: Any, **keywords: Any) -> Any:
        if _is_gpu(keywords.get("device")):
            del keywords["device"]
        return function(*arguments, **keywords)

    return on_cpu


class _ParallelOnCpu(DistributedDataParallel):
    """DistributedDataParallel without `device_ids`, which a model on the CPU must not have."""

    def __init__(self, *arguments: Any, device_ids: Any = None, output_device: Any = None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)


def _stay(to: Callable[..., Any]) -> Callable[..., Any]:
    """Return `to` of a tensor or module that moves nothing to a GPU."""

    def moved(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if (arguments and _is_gpu(arguments[0])) or _is_gpu(keywords.get("device")):
            return self
        return to(self, *arguments, **keywords)

    return moved


def _stay_here() -> Callable[..., Any]:
    """Return a `cuda` of a tensor or module. torch.compile wants another function for each."""
    return lambda self, *_, **__: self


def _do_nothing() -> Callable[..., None]:
    return lambda *_, **__: None


def _always(*_: Any, **__: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: function


def count_no_gpus() -> None:
    """Let no case be skipped for lack of GPUs. Call it before the cases are imported."""
    common_distributed.skip_if_lt_x_gpu = _always
    common_distributed.skip_if_no_gpu = lambda function: function
    common_distributed.init_multigpu_helper = lambda world_size, backend: {rank: [rank] for rank in range(world_size)}


def keep_on_cpu(cases: ModuleType) -> None:
    """Leave all tensors on the CPU. Call it with the module of the cases, after its import."""
    for name in _FACTORIES:
        setattr(torch, name, _without_gpu(getattr(torch, name)))
    for kind in (torch.Tensor, torch.nn.Module):
        kind.cuda = _stay_here()
        kind.to = _stay(kind.to)
    for name in ("set_device", "synchronize", "manual_seed"):
        setattr(torch.cuda, name, _do_nothing())
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    torch.nn.parallel.DistributedDataParallel = cases.DistributedDataParallel = _ParallelOnCpu

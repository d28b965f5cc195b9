"""A communication hook for DistributedDataParallel: the switch averages each bucket of gradients."""

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from iswitch.torch.dtypes import UnsupportedError
from iswitch.torch.work import to_torch_future
from iswitch.worker import Worker

__all__ = ["compressed_hook", "hook"]


def hook(worker: Worker, bucket: dist.GradBucket, *, compress: str | None = None) -> torch.futures.Future[Tensor]:
    """Average a bucket of gradients over the workers while the backward pass goes on.

    `model.register_comm_hook(worker, iswitch.torch.hook)` makes DistributedDataParallel call it for each bucket. All
    ranks receive the same bits. `no_sync()` works as with other hooks.

    With a worker of format "bf16" or "fp16" (`iswitch.init(format="bf16")`), gradients travel in two bytes: each is
    rounded to the format, the switch adds exactly and rounds the sum once, and the mean is that sum divided in float32.

    Parameters
    ----------
    worker : Worker
        This rank's worker, as `iswitch.init()` makes it. The job has as many workers as the process group has ranks.
    bucket : torch.distributed.GradBucket
        The bucket. A buffer in float32 on the CPU is averaged in place. One in float16 or bfloat16 is copied to float32
        on the CPU, and its mean is rounded once to the buffer's dtype.
    compress : {"bf16", "fp16"}, optional
        The format in which the program wants gradients to travel, as a check; see `compressed_hook`. Default: whatever
        the worker's format is.

    Returns
    -------
    torch.futures.Future
        The bucket's buffer, with the mean.

    Raises
    ------
    UnsupportedError
        If the gradients have another dtype: float32 would lose their digits.
    ValueError
        If the worker has another format than `compress`.
    """
    if compress not in (None, worker.format):
        raise ValueError(
            f"compress={compress!r} needs a worker of that format, not {worker.format!r}: make it with "
            f"`iswitch.init(format={compress!r})`, at all ranks"
        )
    buffer = bucket.buffer()
    if buffer.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise UnsupportedError(
            f"the switch averages gradients in float32, float16 and bfloat16, "
            f"not {buffer.dtype}: call `model.float()`, or leave this hook out"
        )
    own = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(worker.format)  # the dtype that the switch sums as it is
    dtype = buffer.dtype if buffer.dtype == own else torch.float32
    host = buffer.detach().to("cpu", dtype)  # the buffer itself, if it is such a tensor already
    done = to_torch_future(worker.allreduce(host, "mean", async_op=True), host)
    if host.data_ptr() == buffer.data_ptr():
        return done
    return done.then(lambda mean: buffer.copy_(mean.value()))


def compressed_hook(compress: str) -> Callable[[Worker, dist.GradBucket], torch.futures.Future[Tensor]]:
    """Return `hook` with `compress`, for `register_comm_hook`, which takes no `functools.partial`: it asks for a name.

    Parameters
    ----------
    compress : {"bf16", "fp16"}
        The format in which gradients are to travel. The hook raises ValueError if the worker has another one.

    Returns
    -------
    callable
        The hook.

    Examples
    --------
    >>> model.register_comm_hook(worker, iswitch.torch.compressed_hook("bf16"))  # doctest: +SKIP
    """
    return functools.update_wrapper(functools.partial(hook, compress=compress), hook)

"""The backend `iswitch` of torch.distributed: `init_process_group("cpu:iswitch")`.

Each collective is one or several sums of a `Reducer`. A group has one job at the switch. Calls run in the order in
which the program makes them, in a thread of their own if the program does not wait.
"""

import warnings
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from iswitch.control.call_queue import CallQueue
from iswitch.torch.compiled import outside_graphs
from iswitch.torch.dtypes import UnsupportedError, from_vector, to_vector
from iswitch.torch.fallback import FallbackReducer
from iswitch.torch.group_job import GroupJob
from iswitch.torch.layout import contiguous, require_own_memory
from iswitch.torch.options import Options
from iswitch.torch.profiled import profiled
from iswitch.torch.reducer import GlooReducer, SwitchReducer
from iswitch.torch.work import CollectiveWork

__all__ = ["IswitchProcessGroup", "register"]

_EXTREMES = ((dist.ReduceOp.MIN, torch.minimum), (dist.ReduceOp.MAX, torch.maximum))
_OTHER_OPERATIONS = ("PRODUCT", "BAND", "BOR", "BXOR")
_GATHER_BYTES_MAX = 1 << 28
"""The largest table of a gather: every rank receives the table, and sends as much."""
_REMEDY = (
    "A program with a process group does not call `rejoin`: start the script again from a checkpoint (torchrun "
    "--max-restarts does so). With ISWITCH_FALLBACK=gloo a step completes over gloo while the switch does not answer"
)


def _octets(tensor: Tensor) -> np.ndarray:
    """Return a copy of a tensor's bytes, padded to a multiple of 4, as int32."""
    size = tensor.numel() * tensor.element_size()
    padded = torch.zeros(-(-size // 4), dtype=torch.int32)
    if size:
        padded.view(torch.uint8)[:size].view(tensor.dtype).copy_(tensor.detach().reshape(-1))
    return padded.numpy()


def _fill(tensor: Tensor, words: np.ndarray) -> None:
    """Fill a tensor with bytes that `_octets` returned for one of the same size and dtype."""
    if tensor.numel():
        octets = torch.from_numpy(words.view(np.uint8)[: tensor.numel() * tensor.element_size()])
        tensor.detach().copy_(octets.view(tensor.dtype).view(tensor.shape))


@outside_graphs
class IswitchProcessGroup(dist.ProcessGroup):
    """A process group whose sums the switch computes.

    Parameters
    ----------
    store : torch.distributed.Store
        The store of the group.
    rank, size : int
        This rank, and the number of ranks, 1 to 32.
    timeout : timedelta
        The longest time without progress in a collective.
    options : Options
        Address of the switch, and others.
    default_group : bool
        True if the group has the job number of the options. Another group takes a free number.
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, options: Options, *, default_group: bool
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._timeout, self._options = rank, size, timeout, options
        self._calls = CallQueue()
        self._gloo: Any = None
        self._said: set[str] = set()  # collectives of which a warning has said that gloo does them
        self._name = ""
        self._job = job = GroupJob(store, rank, size, timeout, options)
        worker = job.join() if default_group else job.join_free_job()
        self._reducer: SwitchReducer | FallbackReducer
        if options.fallback is None:
            self._reducer = SwitchReducer(worker, _REMEDY)
        else:
            self._reducer = FallbackReducer(
                lambda period: worker if period == 0 else job.join(period),
                GlooReducer(self._gloo_group(), options.fraction),
                dist.PrefixStore("fallback", job.store),
                rank,
                size,
            )

    def _gloo_group(self) -> Any:
        if self._gloo is None:
            store = dist.PrefixStore("gloo", self._job.store)
            self._gloo = dist.ProcessGroupGloo(store, self._rank, self._size, self._timeout)
        return self._gloo

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return "iswitch"

    def setGroupName(self, name: str) -> None:
        """Keep the name by which functional collectives find the group. The base class has no place for it."""
        self._name = name

    def getGroupName(self) -> str:
        """Return the name of the group."""
        return self._name

    def shutdown(self) -> None:
        """Leave the job after all calls. With a fallback, wait until the other ranks do the same."""
        self._calls.wait()
        self._calls.close()
        self._reducer.finish()
        self._reducer.close()

    def abort(self) -> None:
        """Leave the job at once. A collective in progress raises an error."""
        self._calls.close()
        self._reducer.close()

    # How a call runs

    def _run(
        self, name: str, opts: Any, outputs: list[Any], call: Callable[[], None], *, fills: bool = True
    ) -> CollectiveWork:
        """Make a call after all earlier ones, and wait for it unless the program asked not to.

        Parameters
        ----------
        name : str
            The collective, for a profiler.
        opts : object
            Options of torch.distributed.
        outputs : list
            Tensors of the result, or lists of them.
        call : callable
            The collective.
        fills : bool
            True if this rank's `outputs` change.
        """
        if fills:
            require_own_memory(outputs)
        call = profiled(name, call)
        if opts.asyncOp:
            return CollectiveWork(self._calls.submit(call), outputs)
        self._calls.wait()
        done: Future[None] = Future()
        try:
            call()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)
            if not isinstance(error, Exception):
                raise
        return CollectiveWork(done, outputs)

    def _or_gloo(self, name: str, call: Callable[[], None], gloo_call: Callable[[Any], Any]) -> None:
        """Make a call. If the switch cannot do it, let gloo do it, or raise the error without a fallback."""
        try:
            call()
        except UnsupportedError as reason:
            if self._options.fallback is None:
                raise UnsupportedError(
                    f'{reason}. With `iswitch.torch.Options(fallback="gloo")`, or ISWITCH_FALLBACK=gloo, gloo does it'
                ) from None
            if str(reason) not in self._said:
                self._said.add(str(reason))
                warnings.warn(f"gloo does {name}: {reason}", stacklevel=2)
            gloo_call(self._gloo_group()).wait()

    def _only_gloo(self, name: str, opts: Any, outputs: list[Any], gloo_call: Callable[[Any], Any]) -> CollectiveWork:
        """Return the work of a collective that only gloo can do."""

        def refuse() -> None:
            raise UnsupportedError(f"the switch cannot do {name}: it sums vectors of all ranks")

        return self._run(name, opts, outputs, lambda: self._or_gloo(name, refuse, gloo_call))

    # Sums, and what is made of them

    def _sum(self, tensor: Tensor, op: Any) -> None:
        """Replace a tensor by its sum or mean over the ranks."""
        vector = to_vector(tensor)
        mean = op == dist.ReduceOp.AVG
        if mean and not tensor.is_floating_point():
            raise UnsupportedError("a mean of integers is not an integer: use ReduceOp.SUM, or a tensor of floats")
        values = vector.values
        if not values.flags.writeable or not values.flags.c_contiguous:
            values, vector = values.copy(), vector._replace(shared=False)
        if values.size and self._reducer.sum(values):
            values[:] = self._sum_beyond_range(values)
        if mean:
            values /= np.float32(self._size)
        if not vector.shared:
            tensor.detach().copy_(from_vector(values, tensor.dtype).view(tensor.shape))

    def _sum_beyond_range(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of elements beyond the range of the switch's fixed-point numbers: every rank adds all ranks'
        elements in rank order."""
        stride = _GATHER_BYTES_MAX // (values.itemsize * self._size)
        result = np.empty_like(values)
        for start in range(0, values.size, stride):
            table = self._gather(values[start : start + stride].view(np.int32)).view(np.float32)
            with np.errstate(all="ignore"):
                result[start : start + stride] = table.sum(axis=0, dtype=np.float64)
        return result

    def _gather(self, words: np.ndarray) -> np.ndarray:
        """Return the int32 vectors of all ranks, shape (size, n)."""
        if words.nbytes * self._size > _GATHER_BYTES_MAX:
            raise ValueError(
                f"a gather of {words.nbytes:,} bytes from each of {self._size} ranks exceeds {_GATHER_BYTES_MAX:,} "
                "bytes, because each rank sends the whole table to the switch: gather parts of the tensor"
            )
        table = np.zeros((self._size, words.size), np.int32)
        table[self._rank] = words
        if words.size:
            self._reducer.sum(table.reshape(-1))
        return table

    def _reduce(self, tensor: Tensor, op: Any) -> None:
        """Replace a tensor by its reduction over the ranks."""
        if op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG:  # a ReduceOp is not equal to its type, nor in a tuple
            self._sum(tensor, op)
            return
        combine = next((function for extreme, function in _EXTREMES if op == extreme), None)
        if combine is None:
            name = next((name for name in _OTHER_OPERATIONS if op == getattr(dist.ReduceOp, name)), "this operation")
            raise UnsupportedError(f"the switch cannot reduce by {name}: it computes SUM, AVG, MIN and MAX")
        rows = self._gather(_octets(tensor))
        result = tensor.detach().clone()
        _fill(result, rows[0])
        other = torch.empty_like(result)
        for row in rows[1:]:
            _fill(other, row)
            result = combine(result, other)
        tensor.detach().copy_(result)

    def _reduce_or_gloo(self, name: str, tensor: Tensor, op: Any) -> None:
        """Reduce a tensor for the collective of a name, in the switch or, if the switch cannot do so, with gloo."""
        with contiguous(tensor) as dense:
            self._or_gloo(name, lambda: self._reduce(dense, op), lambda gloo: gloo.allreduce([dense], op))

    # Collectives as torch.distributed calls them. It checks shapes and ranks before.

    def allreduce(self, tensors: list[Tensor] | Tensor, opts: Any = None) -> CollectiveWork:
        """Replace each tensor by its reduction over the ranks.

        Parameters
        ----------
        tensors : list of torch.Tensor, or torch.Tensor
            The tensors. `DistributedDataParallel.join` passes one tensor alone.
        opts : torch.distributed.AllreduceOptions or torch.distributed.ReduceOp, optional
            The operation, and whether to wait. Default: SUM, and the caller waits for the work.
        """
        if isinstance(tensors, Tensor):
            tensors = [tensors]
        if opts is None or isinstance(opts, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            operation, opts = opts, dist.AllreduceOptions()
            opts.reduceOp = dist.ReduceOp.SUM if operation is None else operation

        def call() -> None:
            for tensor in tensors:
                self._reduce_or_gloo("all_reduce", tensor, opts.reduceOp)

        return self._run("all_reduce", opts, tensors, call)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> CollectiveWork:
        """Replace each tensor by its reduction over the ranks."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[Tensor], opts: Any) -> CollectiveWork:
        """Give one rank the reduction. The tensors of the others stay as they are."""

        def call() -> None:
            for tensor in tensors:
                result = tensor.detach().clone()
                self._reduce_or_gloo("reduce", result, opts.reduceOp)
                if self._rank == opts.rootRank:
                    with torch.no_grad():  # a sparse tensor made by `detach` would have the elements for itself
                        tensor.copy_(result)

        return self._run("reduce", opts, tensors, call, fills=self._rank == opts.rootRank)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> CollectiveWork:
        """Give all ranks the root's bits. The tensors may have any dtype."""

        def call() -> None:
            for tensor in tensors:
                words = self._broadcast(tensor, opts.rootRank)
                if self._rank != opts.rootRank:
                    _fill(tensor, words)

        return self._run("broadcast", opts, tensors, call, fills=self._rank != opts.rootRank)

    def _broadcast(self, tensor: Tensor, root: int) -> np.ndarray:
        """Return the bytes of the root's tensor, as `_octets` does."""
        words = _octets(tensor)
        if self._rank != root:
            words[:] = 0
        if words.size:
            self._reducer.sum(words)
        return words

    def barrier(self, opts: Any = None) -> CollectiveWork:
        """Wait for all ranks."""
        return self._run("barrier", opts or dist.BarrierOptions(), [], self._barrier)

    def _barrier(self) -> None:
        self._reducer.sum(np.zeros(1, np.int32))

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> CollectiveWork:
        """Give all ranks the tensors of all ranks, of any dtype and of one size."""

        def call() -> None:
            for parts, tensor in zip(outputs, inputs, strict=True):
                for part, row in zip(parts, self._gather(_octets(tensor)), strict=True):
                    _fill(part, row)

        return self._run("all_gather", opts, outputs, call)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> CollectiveWork:
        """Give all ranks the tensors of all ranks: `outputs` has a list of tensors for each rank."""

        def call() -> None:
            for tensor, parts in zip(inputs, zip(*outputs, strict=True), strict=True):
                for part, row in zip(parts, self._gather(_octets(tensor)), strict=True):
                    _fill(part, row)

        return self._run("all_gather", opts, outputs, call)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> CollectiveWork:
        """Give all ranks the tensors of all ranks, one after another in one tensor."""
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> CollectiveWork:
        """Do as `all_gather_single` for each pair of tensors."""

        def call() -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                rows = self._gather(_octets(tensor))
                parts = [torch.empty_like(tensor) for _ in rows]
                for part, row in zip(parts, rows, strict=True):
                    _fill(part, row)
                output.detach().copy_(torch.cat([part.reshape(-1) for part in parts]).view(output.shape))

        return self._run("all_gather", opts, outputs, call)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> CollectiveWork:
        """Give one rank the tensors of all ranks."""

        def call() -> None:
            rows = self._gather(_octets(inputs[0]))
            if self._rank == opts.rootRank:
                for part, row in zip(outputs[0], rows, strict=True):
                    _fill(part, row)

        return self._run("gather", opts, outputs, call)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> CollectiveWork:
        """Give each rank its tensor of the root's list."""

        def call() -> None:
            output = outputs[0]
            words = _octets(output)
            table = np.zeros((self._size, words.size), np.int32)
            if self._rank == opts.rootRank:
                for row, tensor in zip(table, inputs[0], strict=True):
                    row[:] = _octets(tensor)
            if table.size:
                self._reducer.sum(table.reshape(-1))
            _fill(output, table[self._rank])

        return self._run("scatter", opts, outputs, call)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> CollectiveWork:
        """Give each rank the reduction of its tensors in the lists of all ranks."""
        return self._run(
            "reduce_scatter", opts, outputs, lambda: self._reduce_scatter(outputs[0], inputs[0], opts.reduceOp)
        )

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any) -> CollectiveWork:
        """Give each rank the reduction of its part of the tensors of all ranks."""
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> CollectiveWork:
        """Do as `reduce_scatter_single` for each pair of tensors."""

        def call() -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                parts = list(tensor.reshape(-1).chunk(self._size)) if tensor.numel() else [tensor] * self._size
                self._reduce_scatter(output, parts, opts.reduceOp)

        return self._run("reduce_scatter", opts, outputs, call)

    def _reduce_scatter(self, output: Tensor, parts: list[Tensor], op: Any) -> None:
        whole = torch.cat([part.detach().reshape(-1) for part in parts])
        self._or_gloo("reduce_scatter", lambda: self._reduce(whole, op), lambda gloo: gloo.allreduce([whole], op))
        start = sum(part.numel() for part in parts[: self._rank])
        output.detach().copy_(whole[start : start + output.numel()].view(output.shape))

    # The names of earlier versions of torch
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> CollectiveWork:
        """Let gloo do it, or refuse it."""
        return self._only_gloo("all_to_all", opts, outputs, lambda gloo: gloo.alltoall(outputs, inputs, opts))

    def alltoall_base(
        self, output: Tensor, tensor: Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any
    ) -> CollectiveWork:
        """Let gloo do it, or refuse it."""
        return self._only_gloo(
            "all_to_all",
            opts,
            [output],
            lambda gloo: gloo.alltoall_base(output, tensor, output_sizes, input_sizes, opts),
        )

    all_to_all_single = alltoall_base

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> Any:
        """Let gloo send to one rank, or refuse it."""
        return self._point_to_point("send", lambda gloo: gloo.send(tensors, rank, tag))

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> Any:
        """Let gloo receive from one rank, or refuse it."""
        return self._point_to_point("recv", lambda gloo: gloo.recv(tensors, rank, tag))

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Any:
        """Let gloo receive from any rank, or refuse it."""
        return self._point_to_point("recv from any rank", lambda gloo: gloo.recv_anysource(tensors, tag))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Let gloo do it, or refuse it."""
        limit = self._timeout if timeout is None else timeout
        self._point_to_point("monitored_barrier", lambda gloo: gloo.monitored_barrier(limit, wait_all_ranks))

    def _point_to_point(self, name: str, gloo_call: Callable[[Any], Any]) -> Any:
        """Return what gloo's call returns. It keeps no order with the collectives, as in other backends."""
        if self._options.fallback is None:
            raise UnsupportedError(
                f"the switch cannot do {name}: it sums vectors of all ranks. With "
                '`iswitch.torch.Options(fallback="gloo")`, or ISWITCH_FALLBACK=gloo, gloo does it'
            )
        return gloo_call(self._gloo_group())


def _create(backend_options: Any, options: Any) -> IswitchProcessGroup:
    """Make a process group for torch.distributed. Without options it has those of the default group."""
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"pg_options must be iswitch.torch.Options, not {type(options).__name__}")
    default = dist.group.WORLD
    if options is None:
        options = default._options if isinstance(default, IswitchProcessGroup) else Options()
    return IswitchProcessGroup(
        backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        backend_options.timeout,
        options,
        default_group=default is None,
    )


def register() -> None:
    """Register the backend `iswitch`. `import iswitch.torch` does so."""
    dist.Backend.register_backend("iswitch", _create, extended_api=True, devices=["cpu"])

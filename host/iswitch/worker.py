"""A worker of a synchronous job: sums, broadcasts and barriers over all workers, computed by the switch.

`Worker` is what a program calls. `control/array_sums.py` makes one vector of a program's arrays; `driver/ring.py`
sends, receives and retransmits; `control/collective_caller.py` turns its errors into those that a program sees;
`control/job_worker.py` joins and leaves the job; `control/recovery.py` returns to it after an error.
"""

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from iswitch.control.array_sums import ArraySums
from iswitch.control.call_queue import CallQueue
from iswitch.control.collective_caller import CollectiveCaller
from iswitch.control.job_key import job_key
from iswitch.control.job_worker import JobWorker, brings_network, switch_address
from iswitch.control.recovery import Recovery
from iswitch.control.settings import require_int, require_one_of, require_seconds, require_settings, usual_fraction
from iswitch.control.state_sync import StateSync, Transfer, bytes_transfer, vector_transfer
from iswitch.control.state_transfer import pack_arrays, unpack_arrays
from iswitch.driver.arrays import Arrays, as_bits
from iswitch.driver.buffers import INT, Bytes, buffer_octets, fill_buffer
from iswitch.driver.exchange import open_exchange
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError
from iswitch.driver.progress import STATELESS
from iswitch.driver.ring import Ring
from iswitch.driver.transport import Transport
from iswitch.driver.window import in_flight_max
from iswitch.errors import IswitchError, MembershipChangedError, NoContributionError, RefusedError
from iswitch.results import Reduction, rejected_values
from iswitch.wire import DEADLINE_US_MAX, NO_MEMBER, RESULT_HEADER, CollectiveKind, Format, Mode, Reason
from iswitch.wire.formats import FORMATS, JOB_FORMATS

__all__ = ["Worker"]

_MODES = {"quarantine": Mode.QUARANTINE, "propagate": Mode.PROPAGATE}
_BACKLOG_WINDOWS = 16

logger = logging.getLogger("iswitch")


class Worker(JobWorker):
    """One of the `world` workers of a synchronous job, which sum arrays in the switch.

    Making a Worker joins the job and waits until all workers have joined.

    Parameters
    ----------
    address : str, optional
        Address of the switch: "host:port", or "host" for the switch's own port 26963. Default: the environment variable
        ISWITCH_ADDRESS or, without it, 127.0.0.1:27000, the first port of the emulator.
    world : int
        Number of workers in the job, 1 to 32.
    job : int
        Number of the job at the switch, default 0.
    rank : int, optional
        This worker's rank, 0 to world - 1. Default: the switch chooses. A tree of switches needs it if some workers are
        attached to the root.
    key : int
        A 64-bit number that keeps other programs out of the job, the same for all workers. Default: the number in the
        environment variable ISWITCH_KEY; or else a number that follows from the run that torchrun or Slurm has
        started; or else, at an emulator on this machine, with a `world` of 1, and with an own `transport`, a random
        number that the threads of this process share, and the processes that `multiprocessing` starts from it. A job
        of several workers at another switch needs a key.
    format : {"window64", "fp32", "int32", "bf16", "fp16"}
        Arithmetic of the switch. "window64", the default, gives the same bits in any order of arrival; "fp32" is IEEE
        addition in the order of arrival; "int32" is addition modulo 2^32. "bf16" and "fp16" are "window64" with
        elements of 2 bytes on the wire: float32 elements are rounded to bfloat16 or binary16, added exactly, and the
        sum is rounded once to that format.
    fraction : int, optional
        Fraction bits of "window64", "bf16" and "fp16": the switch rounds elements to multiples of 2^-fraction, and
        rejects elements with |x| >= 2^(58 - fraction). Default 44, that is 16384; of "fp16" 42, which rejects no
        number.
    threshold : int, optional
        Number of workers that complete a sum. Below `world`, a sum lacks the slow workers. Default: `world`.
    mode : {"quarantine", "propagate"}
        Treatment of a segment with NaN, an infinity or an element out of range: "quarantine", the default, leaves it
        out of the sum; "propagate" makes the sum NaN.
    on_taint : {"raise", "warn", "ignore"}
        Reaction of a collective to such a segment, after the result is in place: raise TaintedError (default), issue
        TaintWarning, or do nothing.
    elements : int, optional
        Elements in a segment, the same for all workers. Default: the most that the switch, or the tree of switches,
        accepts. A tree needs it if some workers are attached to the root: pass the number of elements in a tree that
        `iswitch status` shows for a leaf.
    timeout_s : float
        Seconds without progress before a collective raises CollectiveTimeoutError, default 300. Set it above the
        longest compute time of the slowest worker.
    switch_timeout_s : float
        Seconds without an answer before a call raises SwitchUnreachableError, default 10. It also applies in the middle
        of a collective.
    join_timeout_s : float
        Seconds to wait for the other workers to join, default 120.
    backlog : int, optional
        Segments of results that this worker stores while it lags behind a job with threshold < world. The other workers
        can be ahead by this number of segments and two windows. Default: 16 windows.
    evict_s : float
        Seconds of silence before the switch evicts a member that another member waits for, default 5; 0 means never. A
        worker is not silent while the program computes: a thread of the driver answers the switch.
    deadline_s : float
        Seconds before a segment completes without the missing workers; 0, the default, means no deadline. Choose
        several times the longest latency of a sum, or each lost packet makes a worker miss.
    elastic : bool
        If True, the worker also joins a running job, in the place of a worker that has left, as soon as the present
        collective ends. Default False.
    transport : Transport, optional
        Another path to the switch than a UDP socket, such as `PacketTransport("10.0.0.1")`. The worker closes it.
    no_offload : bool
        If True, UDP datagrams pass the kernel one by one, without segmentation offload; see `UdpTransport`.

    Raises
    ------
    SwitchUnreachableError
        If no switch answers at the address.
    RefusedError
        If the job exists with other settings, another worker has the rank, or the job is running and `elastic` is
        False.
    CollectiveTimeoutError
        If the other workers do not join within `join_timeout_s`.
    TypeError, ValueError
        If an argument is wrong.

    See Also
    --------
    AsyncWorker : a worker that does not wait for the slow ones.

    Notes
    -----
    All workers call the same collectives in the same order, each worker from one thread. A collective that fails leaves
    own elements in one part of the array and sums in the other. After a `RecoverableError`, call `rejoin` and then
    `sync_state`; until then each other collective raises MembershipChangedError or IswitchError, so that a worker never
    adds one step to another worker's next step. After NoContributionError and TaintedError the worker needs no
    recovery.

    An elastic job begins with `sync_state` and calls it again whenever `needs_sync` is True.

    A worker leaves its job when the `with` block or the interpreter ends, when the program drops the worker, and when
    SIGTERM ends the process. If the program has its own handler for SIGTERM, that handler decides (see
    `iswitch.driver.termination`). If a process is killed, the other workers have its worker evicted. If all processes
    are killed and the same command starts again, the new workers watch the old job for `evict_s`, end it and create a
    new one. A child process of `multiprocessing` leaves only at the end of the `with` block.

    Examples
    --------
    >>> with Worker("10.0.0.1", world=4, rank=rank) as worker:  # doctest: +SKIP
    ...     worker.allreduce(gradient, op="mean")
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        world: int,
        job: int = 0,
        rank: int | None = None,
        key: int | None = None,
        format: Literal["window64", "fp32", "int32", "bf16", "fp16"] = "window64",
        fraction: int | None = None,
        threshold: int | None = None,
        mode: Literal["quarantine", "propagate"] = "quarantine",
        on_taint: Literal["raise", "warn", "ignore"] = "raise",
        elements: int | None = None,
        timeout_s: float = 300.0,
        switch_timeout_s: float = 10.0,
        join_timeout_s: float = 120.0,
        backlog: int | None = None,
        evict_s: float = 5.0,
        deadline_s: float = 0.0,
        elastic: bool = False,
        transport: Transport | None = None,
        no_offload: bool = False,
    ):
        fraction = usual_fraction(format) if fraction is None else fraction
        require_settings(
            world=world,
            threshold=threshold,
            job=job,
            rank=rank,
            key=0 if key is None else key,
            format=format,
            fraction=fraction,
            elements=elements,
            timeout_s=timeout_s,
            switch_timeout_s=switch_timeout_s,
            join_timeout_s=join_timeout_s,
            evict_s=evict_s,
            on_taint=on_taint,
        )
        key = job_key(
            key, world=world, address=switch_address(address, transport), own_transport=brings_network(transport)
        )
        require_one_of("mode", mode, _MODES)
        require_int("backlog", 0 if backlog is None else backlog, 0, 2**24)
        if not 0 <= deadline_s * 1e6 < DEADLINE_US_MAX:
            raise ValueError(f"deadline_s must be 0 to {DEADLINE_US_MAX / 1e6:.0f}, not {deadline_s!r}")

        super().__init__(
            address,
            timeout_s=timeout_s,
            switch_timeout_s=switch_timeout_s,
            join_timeout_s=join_timeout_s,
            transport=transport,
            no_offload=no_offload,
        )
        self.on_taint = on_taint
        self.warns_missing = True  # False: the caller reads `Reduction.absent`, and no MissingWarning stands beside it
        self._calls = CallQueue()
        self._array_sums = ArraySums(JOB_FORMATS[format])
        self._collectives = 0  # makes the text of each warning new: Python shows the same text once
        self._reported_missing: tuple[int, ...] = ()  # ranks in the last MissingWarning
        self._admitted = False  # the last collective admitted joining workers
        self._default_elements = elements is None
        request = Membership(
            job=job,
            key=key,
            world=world,
            threshold=threshold or world,
            format=JOB_FORMATS[format],
            fraction=fraction,
            elements=elements or self.switch_info.elements,
            mode=_MODES[mode],
            deadline_us=int(deadline_s * 1e6),
            evict_us=int(evict_s * 1e6),
            nonce=self._nonce(),
            token=self._transport.randbits(32),
            job_token=self._transport.randbits(32),
            wanted=NO_MEMBER if rank is None else rank,
        )
        exchange = open_exchange(self._transport)  # may compile the library: a member must not be silent for so long
        with self._joined(request, elastic=elastic) as membership:
            backlog = _BACKLOG_WINDOWS * membership.window if backlog is None else backlog
            buffer_bytes = self._transport.receive_buffer_bytes
            self._ring = Ring(
                self._transport,
                membership,
                backlog=backlog,
                exchange=exchange,
                in_flight=None if buffer_bytes is None else in_flight_max(membership.elements, buffer_bytes),
            )
            self._recovery = Recovery(
                self._control, self._ring, state=self._state, job_name=f"job {job} at {self.address}"
            )
            self._recovery.needs_sync = (
                elastic or self._control.joined_running_job
            )  # an elastic job begins with `sync_state`
            self._state_sync = StateSync(
                self._transport,
                world=world,
                rank=membership.member,
                has_state=not self._control.joined_running_job,
                job_name=f"job {job} at {self.address}",
            )
            self._start_keepalive(self._ring)
            self._caller = CollectiveCaller(self._recovery, self.switch_info, self._counters_at_join)
        logger.info("rank %d of %d has joined %s", self.rank, world, self._job_name)

    def _request_join(self, request: Membership, **options: Any) -> Membership:
        try:
            return super()._request_join(request, **options)
        except RefusedError as refusal:  # segments are shorter in a tree of switches
            if refusal.reason != Reason.ELEMENTS or not self._default_elements:
                raise
            elements = self.switch_info.uplink_elements
            if FORMATS[request.format].is_half_width:
                elements -= elements % 2
            return super()._request_join(replace(request, elements=elements), **options)

    # Properties of the job

    @property
    def world(self) -> int:
        """Number of workers in the job."""
        return self._ring.membership.world

    @property
    def format(self) -> str:
        """Number format of the job, as `Worker` takes it."""
        return self._ring.membership.format.name.lower()

    @property
    def threshold(self) -> int:
        """Number of workers that complete a sum, as this worker has recorded it."""
        return self._ring.membership.threshold

    @property
    def needs_sync(self) -> bool:
        """True if the next collective must be `sync_state`: the switch has admitted joining workers, perhaps this one,
        or the job was reset."""
        return self._recovery.needs_sync

    @property
    def elements(self) -> int:
        """Elements in a segment."""
        return self._ring.membership.elements

    @property
    def segments_completed(self) -> int:
        """Segments of all collectives that this worker has completed."""
        return self._ring.segments

    # Collectives

    @overload
    def allreduce(
        self, array: Arrays, op: Literal["sum", "mean"] = ..., *, async_op: Literal[False] = ...
    ) -> Reduction: ...

    @overload
    def allreduce(
        self, array: Arrays, op: Literal["sum", "mean"] = ..., *, async_op: Literal[True]
    ) -> Future[Reduction]: ...

    def allreduce(
        self, array: Arrays, op: Literal["sum", "mean"] = "sum", *, async_op: bool = False
    ) -> Reduction | Future[Reduction]:
        """Replace an array by its sum or mean over the workers of the job.

        Parameters
        ----------
        array : numpy.ndarray, torch.Tensor, or a list of them
            float32 of any shape, or int32, which is summed modulo 2^32. A job of format "fp16" also sums float16, and
            one of format "bf16" tensors in bfloat16, without a conversion. The array must be writeable, a tensor must
            be on the CPU. All workers must pass the same number of elements. 0 elements cause no traffic. An array that
            is not C-contiguous is copied there and back. The arrays of a list have one dtype and are one collective:
            they are copied into one vector, and each receives its part of the result.
        op : {"sum", "mean"}
            "mean" divides each segment by the number of workers in it. An int32 array needs "sum".
        async_op : bool
            If True, return at once. The collective runs in another thread, after the earlier ones, and all later
            collectives of this worker come after it. Do not use the arrays until the collective is done; a list itself
            may change.

        Returns
        -------
        Reduction
            The workers that are in the sum of each segment. With `async_op`, a `concurrent.futures.Future` of it, whose
            `result()` waits, and raises the errors.

        Raises
        ------
        TypeError, ValueError
            If the switch cannot sum this array. Nothing was sent. The call counts as a collective: if this worker alone
            repeats it, or the others do not make it, the next one raises MismatchError.
        MembershipChangedError
            If the next collective must be `sync_state`. Nothing was sent.
        IswitchError
            If another thread is in a collective of this worker, or if an earlier collective failed.
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        CollectiveTimeoutError
            If no result comes for `timeout_s`.
        JobResetError
            If another worker resets the job.
        NotAMemberError
            If the switch has no record of this worker.
        MismatchError
            If the workers call different collectives: at different steps, of different kinds, or on arrays of different
            sizes or number formats. Nothing was added.
        DivergedError
            If the workers have applied different results in earlier collectives. Nothing was added.
        NoContributionError
            If a segment contains no worker's elements.
        TaintedError
            If a contribution held NaN, an infinity or an element out of range, and `on_taint` is "raise".
        """
        if async_op:
            # the program may fill its list with other arrays meanwhile
            return self._calls.submit(self.allreduce, list(array) if isinstance(array, list) else array, op)
        with self._counted_call():
            reduction = self._array_sums.reduce(array, op, self._collect)
            if len(reduction.headers):
                self._report_if_flagged(reduction)
        return reduction

    def _report_if_flagged(self, reduction: Reduction) -> None:
        if reduction.flagged or not reduction.complete or self._reported_missing:
            self._report_problems(reduction)

    def _report_problems(self, reduction: Reduction) -> None:
        """Raise or warn about a result that is in place. A MissingWarning comes each time that other ranks are
        missing."""
        expects_all = self.threshold == self.world
        missing = reduction.absent if expects_all else ()
        reduction.report_problems(
            warn_missing=missing if self.warns_missing and missing != self._reported_missing else (),
            number=self._collectives,
            rejected=rejected_values(self._ring.membership.format, self._ring.membership.fraction),
            on_taint=self.on_taint,
        )
        self._reported_missing = missing

    def broadcast(self, buffer: Bytes, root: int = 0) -> Bytes:
        """Give every worker the bytes of the root's buffer.

        The broadcast waits for all workers, whatever the threshold is.

        Parameters
        ----------
        buffer : bytearray, memoryview, numpy.ndarray, torch.Tensor or bytes
            The root's bytes; at the other workers, a buffer of the same length to fill.
        root : int
            Rank whose bytes all workers receive.

        Returns
        -------
        bytearray, memoryview, numpy.ndarray, torch.Tensor or bytes
            The same buffer, filled in place; for `bytes`, new bytes.

        Raises
        ------
        NoContributionError
            If the root has left the job.
        IswitchError
            As `allreduce`.
        """
        with self._counted_call():
            require_int("root", root, 0, self.world - 1)
            array = as_bits(buffer)
            data = buffer_octets(array)
            values = np.zeros(-(-data.size // 4), INT)
            if self.rank == root:
                values.view(np.uint8)[: data.size] = data
            reduction = self._collect(values, Format.INT32, CollectiveKind.BROADCAST, argument=root, all_members=True)
        if not (reduction.member_masks >> np.uint32(root) & 1).all():
            raise NoContributionError(
                f"the broadcast has no bytes of its root, rank {root}, because that worker has left {self._job_name}: "
                "on all workers, choose a root that is a member"
            )
        if self.rank == root:
            return buffer
        filled = fill_buffer(array, values.view(np.uint8)[: data.size])
        return filled if array is buffer else buffer  # a tensor shares the memory of its array

    def barrier(self) -> None:
        """Wait until every worker has called `barrier`, whatever the threshold is.

        Raises
        ------
        IswitchError
            As `allreduce`.
        """
        with self._counted_call():
            self._collect(np.zeros(1, INT), Format.INT32, CollectiveKind.BARRIER, all_members=True)

    def sync_state(self, state: Arrays, step: int) -> int:
        """Give every worker the state of the most advanced worker, bit for bit.

        This is the first collective of an elastic job, and the next one whenever `needs_sync` is True. If the chosen
        worker leaves meanwhile, the workers choose another one.

        Parameters
        ----------
        state : numpy.ndarray, torch.Tensor, or sequence of them
            Writeable arrays, or CPU tensors, of any dtype but object, of the same sizes on all workers; filled in
            place.
        step : int
            Step of this worker's state, 0 to 2^62 - 1. The workers take the state with the highest step and, among
            equal steps, that of the lowest rank.

        Returns
        -------
        int
            Step of the state that all workers have now.

        Raises
        ------
        TypeError, ValueError
            If an array cannot be filled, or `step` is out of range. Nothing was sent.
        CollectiveTimeoutError
            If all workers with the state of the job are away for `timeout_s`.
        IswitchError
            As `allreduce`.
        """
        self._calls.wait()
        require_int("step", step, 0, 2**62 - 1)
        single = as_bits(state)
        arrays = [single] if isinstance(single, np.ndarray) else [as_bits(array) for array in state]
        values, highest_step = self._sync(step, vector_transfer(pack_arrays(arrays)))
        if values is not None:
            unpack_arrays(arrays, values)
        return highest_step

    def sync_bytes(self, data: bytes, step: int) -> tuple[bytes, int]:
        """Give every worker the bytes of the most advanced worker, as `sync_state`, where lengths may differ.

        Parameters
        ----------
        data : bytes
            This worker's state, of any length, for example what `torch.save` has written.
        step : int
            Step of this worker's state, 0 to 2^62 - 1.

        Returns
        -------
        data : bytes
            The state that all workers have now.
        step : int
            Its step.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong. Nothing was sent.
        IswitchError
            As `sync_state`.
        """
        self._calls.wait()
        require_int("step", step, 0, 2**62 - 1)
        received, highest_step = self._sync(step, bytes_transfer(bytes(data)))
        return (bytes(data) if received is None else received.tobytes()), highest_step

    def _sync(self, step: int, transfer: Transfer) -> tuple[np.ndarray | None, int]:
        """Copy the state of the most advanced worker, as `StateSync.run` describes it."""
        self._require_open()
        with self._exclusive_call():
            state, highest_step = self._state_sync.run(
                self._collect_state, step, self._ring.progress, self.timeout_s, transfer
            )
            self._recovery.needs_sync = False
        return state, highest_step

    def _collect_state(self, values: np.ndarray, kind: CollectiveKind) -> tuple[Reduction, bool]:
        """Sum a vector over all members. Return the reduction, and True if it admitted joining workers."""
        return self._collect(values, Format.INT32, kind, all_members=True), self._admitted

    # Control of the job

    def set_threshold(self, threshold: int) -> None:
        """Set the number of workers that complete a sum, for all workers of the job.

        Parameters
        ----------
        threshold : int
            1 to `world`.

        Raises
        ------
        RefusedError
            If the switch refuses the threshold, for example in a tree of switches.
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        """
        require_int("threshold", threshold, 1, self.world)
        self._require_open()
        with self._keepalive:
            self._ring.membership = self._control.set_threshold(self._ring.membership, threshold)
            self._ring.set_threshold(threshold)

    def reset(self) -> None:
        """Restart the job with the same members.

        The switch drops the collective in progress, so the present or next collective of the other workers raises
        JobResetError. The next collective of all workers must be `sync_state`, because one worker may have received a
        result that another worker has not.

        Raises
        ------
        RefusedError
            If the switch refuses the reset.
        NotAMemberError
            If the switch has no record of this worker; then call `rejoin`.
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        """
        self._require_open()
        with self._keepalive:
            self._recovery.reset()

    def rejoin(self, timeout_s: float | None = None) -> None:
        """Return to the job after any `RecoverableError`. The next collective must be `sync_state`.

        While the switch does not answer, this call waits. If the worker is still a member, the call resets the
        job, once for all workers that call it. Otherwise the worker joins again, or creates the job again after a
        restart of the switch. If no collective has failed, the call does nothing. Call it as often as needed, also
        after it has failed.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds for all these steps. Default: the worker's `join_timeout_s`.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer within `timeout_s`.
        CollectiveTimeoutError
            If the job does not admit the worker, or lacks other workers, after `timeout_s`.
        RefusedError
            If another worker has this worker's place.
        """
        limit_s = self._join_timeout_s if timeout_s is None else timeout_s
        require_seconds(timeout_s=limit_s)
        self._require_open()
        self._calls.wait()
        if not self._recovery.failure:
            return

        def join(remaining_s: float) -> Membership:
            request = replace(
                self._ring.membership,
                nonce=self._nonce(),
                token=self._transport.randbits(32),
                job_token=self._transport.randbits(32),
            )
            return self._join(request, elastic=True, timeout_s=remaining_s)

        with self._keepalive:
            self._recovery.rejoin(join, timeout_s=limit_s)

    def close(self) -> bool:
        """Leave the job and close the transport. The other workers no longer wait for this one.

        A second call does nothing. The end of a `with` block calls this method. If another thread is in a call of this
        worker, that call raises ClosedError first.

        Returns
        -------
        bool
            True if the switch has confirmed it.
        """
        self._recovery.failure = "it has left the job"
        self._calls.close()
        return super().close()

    # One collective at the ring

    def _handle_burst(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        if not self._recovery.failure or self._recovery.querying:
            # The next collective, or the next retransmission, receives the notice again.
            with contextlib.suppress(MembershipRejectedError, CollectiveConflictError):
                self._ring.handle_burst(buffer, size, segment_bytes)

    def _serve(self) -> float:
        try:
            if not self._recovery.failure:
                return self._ring.serve()
            return self._ring.discard()
        except MembershipRejectedError as rejection:  # the next collective receives the notice again
            if rejection.moved:  # without this, other workers could have this one evicted while it computes
                with contextlib.suppress(IswitchError):
                    self._rebind()
            return 1.0

    @contextlib.contextmanager
    def _counted_call(self) -> Iterator[None]:
        """Wait for the earlier calls, count this one, and refuse it if another thread is in one.

        It surrounds the whole call, because its buffers belong to the worker: a refused call must not touch them. A
        refused call counts, since the program may go on with another one than the other workers' programs."""
        self._calls.wait()
        try:
            self._require_open()
            self._begin_exclusive_call()
            try:
                yield
            finally:
                self._end_exclusive_call()
        finally:
            self._ring.progress.count_call()

    def _collect(
        self,
        values: np.ndarray,
        format: Format,
        kind: CollectiveKind = CollectiveKind.ALLREDUCE,
        *,
        argument: int = 0,
        all_members: bool = False,
    ) -> Reduction:
        """Sum `values` over the job, in place. The caller is in an exclusive call: no other thread fills `values`.

        Parameters
        ----------
        values : numpy.ndarray
            1-D, C-contiguous, little-endian, elements as on the wire; of a half-width format an even number.
        format : Format
            Number format of the sum.
        kind : CollectiveKind
            What the program calls. `needs_sync` stays True until `sync_state` has succeeded, so that an interrupted one
            is called again.
        argument : int
            A number on which all workers must agree.
        all_members : bool
            Wait for all members, whatever the threshold is.
        """
        self._require_open()
        recovery = self._recovery
        if recovery.failure:
            raise IswitchError(f"this worker cannot call a collective: {recovery.failure}")
        within_sync = kind in STATELESS
        if recovery.needs_sync and not within_sync:
            raise MembershipChangedError(
                "call `sync_state` before the next collective, on all workers: the switch has admitted new "
                "workers, which need the "
                "state of the job, or the job was reset and the workers may be at different steps (`needs_sync` "
                "is then True)"
            )
        started = self._transport.now()
        if values.size:
            try:
                with self._keepalive:
                    headers, retransmissions, flagged, self._admitted = self._caller.reduce(
                        values,
                        format,
                        kind,
                        argument=argument,
                        all_members=all_members,
                        timeout_s=self.timeout_s,
                        switch_timeout_s=self.switch_timeout_s,
                    )
            except IswitchError as error:
                if self.meter is not None:
                    self.meter.record_error(error)
                raise
            recovery.needs_sync = self._admitted or within_sync
            self._collectives += 1
        else:
            headers, retransmissions, flagged, self._admitted = np.zeros(0, RESULT_HEADER), 0, False, False
        reduction = Reduction(self.world, self.elements, retransmissions, headers, flagged)
        if self.meter is not None and values.size:
            self.meter.record(kind, self._transport.now() - started, values.nbytes, reduction)
        return reduction

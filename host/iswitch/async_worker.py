"""A worker of an asynchronous job: gradients go to the switch when they are ready, and all workers receive the same
updates in the same order.

This is iSwitch's pipeline of three stages (Li et al., "Accelerating Distributed Reinforcement Learning with In-Switch
Computing", ISCA 2019, section IV): while the program computes a gradient, the switch sums the one before it, and
updates that other workers took part in arrive.

`AsyncWorker` is what a program calls. `driver/stream.py` sends, receives and retransmits; `control/update_reader.py`
reads what comes; `control/quiet_stream.py` queries the switch when nothing comes; `control/job_worker.py` joins and
leaves the job; `control/state_transfer.py` copies the weights to a joining worker.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NoReturn

import numpy as np

from iswitch.caller_warning import warn_program
from iswitch.control.counters import unusual_rises
from iswitch.control.job_key import job_key
from iswitch.control.job_worker import JobWorker, brings_network, switch_address
from iswitch.control.lost_membership import lost_membership_error
from iswitch.control.quiet_stream import QuietStream
from iswitch.control.settings import require_int, require_one_of, require_settings
from iswitch.control.state_transfer import TRANSFER_NOTE, copy_state, free_job, transfer_key
from iswitch.control.update_reader import UpdateReader
from iswitch.driver.buffers import require_array
from iswitch.driver.claims import Vector
from iswitch.driver.membership import Membership
from iswitch.driver.notices import MembershipRejectedError
from iswitch.driver.received_update import ReceivedUpdate
from iswitch.driver.stream import Stream
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.update_layout import UpdateLayout
from iswitch.driver.window import in_flight_max
from iswitch.errors import (
    CollectiveTimeoutError,
    DivergedError,
    HaltedWarning,
    IswitchError,
    JobResetError,
    MembershipChangedError,
    MismatchError,
    NotAMemberError,
    RefusedError,
    SwitchUnreachableError,
    TaintedError,
    TaintWarning,
)
from iswitch.results import TAINT_ADVICE, Update, rejected_values
from iswitch.wire import NO_MEMBER, SEGMENTS_MAX, STALENESS_MAX, Mode, Reason
from iswitch.wire.formats import FORMATS, JOB_FORMATS
from iswitch.worker import Worker

__all__ = ["AsyncWorker"]

_PENDING_PERIOD_S = 0.01
"""While a vector is pending, the keepalive thread serves the stream at least this often, because `push` can add one
while the thread sleeps."""
_BACKLOG, _BACKLOG_BYTES = 16, 1 << 26
_UNBOUNDED = 2**24
_TRANSFER_S = 3.0
"""Time for which the two ends of a state transfer wait for each other. The joining worker then sends a new request."""

logger = logging.getLogger("iswitch")


class AsyncWorker(JobWorker):
    """One of the `world` workers of an asynchronous job, whose weights receive the same updates in the same order.

    An update is the sum of the vectors of some workers. Making an AsyncWorker joins the job and waits until all workers
    have joined; the weights of all workers must be equal then.

    Parameters
    ----------
    address : str, optional
        Address of the switch, as in `Worker`. Default: the environment variable ISWITCH_ADDRESS or, without it,
        127.0.0.1:27000.
    world : int
        Number of workers in the job, 1 to 32.
    size : int
        Elements in a vector.
    staleness : int
        The most updates, 0 to 7, that may lie between the weights that a vector was computed with and its own update;
        default 3. The switch refuses an older vector.
    threshold : int, optional
        Number of vectors that make an update. Below `world`, no worker waits for the slow ones. Default: `world`.
    job, rank, key, format, fraction, elements
        As in `Worker`. The sum lacks a vector's segment with NaN, an infinity or an element out of range.
    on_taint : {"raise", "warn", "ignore"}
        Reaction of `updates` to an update with such a segment: raise TaintedError in place of the update (default), at
        all workers at the same update; issue TaintWarning; or do nothing. `TaintedError.result` is the update: a
        program can go on without it, as all other workers do.
    backlog : int, optional
        Updates to store, above `staleness`, for a program that does not take them. When the backlog is full, this
        worker acknowledges nothing more, and the other workers wait for it when the ring is full. A program that
        computes for long takes its updates meanwhile, or has a large backlog. Default: the updates that fit in 64 MiB,
        at least 16.
    timeout_s : float
        Seconds that `push` waits without anything new from the switch before CollectiveTimeoutError; default 300. Set
        it above the longest compute time of the slowest worker that the job waits for.
    switch_timeout_s, join_timeout_s, evict_s
        As in `Worker`.
    elastic : bool
        If True, the worker also joins a running job, in the place of a worker that has left. A program of an elastic
        job calls `sync_state` between `updates` and `push`, because `push` may wait for the joining worker. A joining
        worker calls `sync_state` before anything else. Default False.
    transport, no_offload
        As in `Worker`.

    Raises
    ------
    SwitchUnreachableError, RefusedError, CollectiveTimeoutError
        As in `Worker`.
    TypeError, ValueError
        If an argument is wrong.

    See Also
    --------
    Worker : a worker whose collectives wait for all workers.

    Notes
    -----
    A worker that stops pushing calls `close`, because the others wait for `threshold` vectors of the workers that are
    in the job; its pending vectors are dropped. All workers stop after the same update if the condition depends on the
    updates alone. Use a worker from one thread only. A thread of the driver answers the switch while the program
    computes.

    A program may catch KeyboardInterrupt, or the exception of an alarm, and go on: no update is lost or returned twice.
    If the exception comes in the middle of a message, the next call raises IswitchError, and a new AsyncWorker is
    needed.

    Examples
    --------
    >>> for update in worker.updates():  # doctest: +SKIP
    ...     weights -= learning_rate * update.mean()
    >>> worker.push(gradient_of(weights))  # doctest: +SKIP
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        world: int,
        size: int,
        staleness: int = 3,
        threshold: int | None = None,
        job: int = 0,
        rank: int | None = None,
        key: int | None = None,
        format: Literal["window64", "fp32", "int32"] = "window64",
        fraction: int = 44,
        on_taint: Literal["raise", "warn", "ignore"] = "raise",
        elements: int | None = None,
        backlog: int | None = None,
        timeout_s: float = 300.0,
        switch_timeout_s: float = 10.0,
        join_timeout_s: float = 120.0,
        evict_s: float = 5.0,
        elastic: bool = False,
        transport: Transport | None = None,
        no_offload: bool = False,
    ):
        require_one_of("format", format, JOB_FORMATS)
        if FORMATS[JOB_FORMATS[format]].is_half_width:
            raise ValueError(
                f"format of an AsyncWorker must be 'window64', 'fp32' or 'int32', not {format!r}: only a `Worker` sums "
                "half-width elements"
            )
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
        require_int("staleness", staleness, 0, STALENESS_MAX)
        require_int("backlog", _UNBOUNDED if backlog is None else backlog, staleness + 1, _UNBOUNDED)
        require_int("size", size, 1, SEGMENTS_MAX)

        super().__init__(
            address,
            timeout_s=timeout_s,
            switch_timeout_s=switch_timeout_s,
            join_timeout_s=join_timeout_s,
            transport=transport,
            no_offload=no_offload,
        )
        self.on_taint = on_taint
        self._failure: IswitchError | MembershipRejectedError | None = None
        self._moved = False  # the switch knows this worker at another port or address
        self._discarded = memoryview(bytearray(RECEIVE_BYTES))
        self._layout = UpdateLayout(size, elements or self.switch_info.elements, world)
        request = Membership(
            job=job,
            key=key,
            world=world,
            threshold=threshold or world,
            format=JOB_FORMATS[format],
            fraction=fraction,
            elements=self._layout.elements,
            mode=Mode.QUARANTINE,
            evict_us=int(evict_s * 1e6),
            staleness=staleness,
            segments=self._layout.segments,
            nonce=self._nonce(),
            token=self._transport.randbits(32),
            job_token=self._transport.randbits(32),
            wanted=NO_MEMBER if rank is None else rank,
        )
        with self._joined(request, elastic=elastic) as membership:
            buffer_bytes = self._transport.receive_buffer_bytes
            self._stream = Stream(
                self._transport,
                membership,
                self._layout,
                backlog=max(_BACKLOG, _BACKLOG_BYTES // (4 * size)) if backlog is None else backlog,
                in_flight=None if buffer_bytes is None else in_flight_max(membership.elements, buffer_bytes),
            )
            self._start_keepalive(self._stream)
        self._dtype = FORMATS[membership.format].element
        self.needs_sync: bool = self._control.joined_running_job
        """True if this worker has joined a running job and has no weights yet: call `sync_state`."""
        self._first_update = 0  # number of the update with which this member began, once it is known
        self._reader = UpdateReader(self._layout, membership)
        self._refused_before = 0
        self._quiet_stream = QuietStream(self._control, self._stream, self._layout, self._job_name)
        logger.info("rank %d of %d has joined %s, which is asynchronous", self.rank, world, self._job_name)

    # Properties of the job

    @property
    def world(self) -> int:
        """Number of workers in the job."""
        return self._stream.membership.world

    @property
    def version(self) -> int:
        """Number of updates that `updates` has returned: the updates in the program's weights."""
        return self._first_update + self._stream.updates_taken

    @property
    def segments(self) -> int:
        """Segments in an update: those of the vector, then those of the trailer that names the workers in it."""
        return self._stream.segments

    @property
    def refused(self) -> int:
        """Number of this worker's vectors that were dropped, because their weights were too old."""
        return self._stream.claims.refused

    @property
    def ages(self) -> Counter[int]:
        """By age, the number of this worker's vectors in updates. An age is the number of updates between a vector's
        weights and its own update."""
        return self._stream.claims.ages.copy()

    @property
    def retransmissions(self) -> int:
        """Number of contributions that this worker retransmitted."""
        return self._stream.retransmissions

    @property
    def digest(self) -> str:
        """SHA-256 of all updates that `updates` has returned, 64 hexadecimal digits. The digest after an update covers
        the digest before it, the update's number, its members and its bytes."""
        return self._reader.digests.after(self.version).hex()

    def confirmed_updates(self) -> dict[int, int]:
        """Return how many updates other workers have received exactly as this one.

        Each vector carries the digest of the updates that its worker had received. `updates` compares the digest when
        it returns the vector's update, and raises DivergedError if it differs.

        Returns
        -------
        dict of int to int
            By rank, this worker's rank included: the number of updates, counted from the first one.

        Raises
        ------
        IswitchError
            The errors of `updates`.
        """
        self._raise_failure()
        return dict(sorted((self._reader.confirmed | {self.rank: self.version}).items()))

    # Vectors and updates

    def updates(self) -> Iterator[Update]:
        """Yield the updates that are complete and were not returned before, in order. The iterator does not wait.

        Yields
        ------
        Update
            The next update.

        Raises
        ------
        TaintedError
            In place of a tainted update, if `on_taint` is "raise".
        MembershipChangedError
            If this worker has no weights yet.
        JobResetError, NotAMemberError, MismatchError
            After the last update, if the job cannot go on.
        DivergedError
            If another worker has received other updates.
        """
        self._require_weights()
        with self._keepalive:
            self._serve_stream(0.0)
        while True:
            with self._keepalive:
                self._note_torn_section()
                received = None if isinstance(self._failure, IswitchError) else self._stream.next_update()
            if received is None:
                break
            update = self._to_update(received)
            # Between this and the program's `for`, no signal handler runs: the update is not lost.
            self._stream.updates_taken += 1
            yield update
        self._raise_failure()

    def push(self, vector: np.ndarray, *, version: int | None = None) -> None:
        """Submit a copy of a vector, which becomes part of one update.

        The call waits while two vectors are pending, so the switch sums one, and the driver claims an update for
        another, while the program computes the next. If the vector's weights are too old for `staleness`, the switch
        refuses the vector: it is dropped, and `refused` counts it. The switch would refuse another vector with these
        weights too, so the next call waits for an update that they lack, and drops its vector, which lacks it as well.

        Parameters
        ----------
        vector : numpy.ndarray
            float32, or int32 in a job of format "int32"; `size` elements of any shape.
        version : int, optional
            `AsyncWorker.version` when the computation of the vector began. Default: the present one, which is right if
            the program has taken no updates meanwhile.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong. Nothing was sent.
        MembershipChangedError
            If this worker has no weights yet. Nothing was sent.
        CollectiveTimeoutError
            If the call has to wait, and nothing new comes from the switch, for `timeout_s`. The time does not count
            while the job is halted.
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        JobResetError, NotAMemberError, MismatchError
            If the job cannot go on.
        """
        require_array("vector", vector, self._dtype)
        if vector.dtype.newbyteorder("=") != (wanted := self._dtype.newbyteorder("=")):
            raise TypeError(
                f"vector must be an array of {wanted}, not {vector.dtype}: pass `vector.astype(numpy.{wanted})`"
            )
        if vector.size != self._layout.size:
            raise ValueError(f"vector must have {self._layout.size} elements, the job's `size`, not {vector.size}")
        self._require_weights()
        version = self.version if version is None else version
        require_int("version", version, 0, self.version)
        values, trailer = np.array(vector, self._dtype, order="C").reshape(-1), self._layout.empty_trailer()
        trailer[self.rank] = version, 0, np.frombuffer(self._reader.digests.after(version), "<u8", 1)[0]
        self._submit(Vector(values, trailer, version - self._first_update, self._layout.elements))

    def _submit(self, vector: Vector) -> None:
        """Put a vector into the pipeline as soon as the stream is ready. Time in which the job is halted does not
        count."""
        stream = self._stream
        begun, progress = self._transport.now(), stream.progress
        while not self._wait_until(lambda: stream.is_ready, self.timeout_s):
            ended = self._transport.now()
            with self._keepalive:
                halted = self._quiet_stream.halted_since(begun)
            if not halted and stream.progress == progress:
                self._raise_stalled()
            begun, progress = ended, stream.progress
        self._hand_over(vector)

    def _hand_over(self, vector: Vector) -> None:
        """Put a vector into a pipeline that has room."""
        with self._keepalive:
            self._note_torn_section()
            self._raise_failure()
            self._stream.submit(vector)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `updates` can return an update, or a vector was refused.

        Parameters
        ----------
        timeout_s : float, optional
            The most seconds to wait. Default: the worker's `timeout_s`.

        Returns
        -------
        bool
            True if that has happened in time.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        JobResetError, NotAMemberError, MismatchError, DivergedError
            If the job cannot go on.
        """
        happened = self._wait_until(
            lambda: self._stream.updates_ready > 0 or self.refused != self._refused_before,
            self.timeout_s if timeout_s is None else timeout_s,
        )
        self._refused_before = self.refused
        return happened

    # The job

    def set_threshold(self, threshold: int) -> None:
        """Set the number of vectors that make an update, for all workers of the job.

        Parameters
        ----------
        threshold : int
            1 to `world`.

        Raises
        ------
        RefusedError
            If the switch refuses the threshold.
        SwitchUnreachableError
            If the switch does not answer for `switch_timeout_s`.
        """
        require_int("threshold", threshold, 1, self._layout.world)
        self._require_open()
        with self._keepalive:
            self._control.set_threshold(self._stream.membership, threshold)

    def sync_state(self, state: np.ndarray | Sequence[np.ndarray]) -> None:
        """Receive the weights at a joining worker, or send them to joining workers that have requested them.

        At a joining worker, the call fills in the state, and `version` becomes that of the sender. At another worker,
        the call sends the state if this worker was chosen as the sender, and otherwise returns at once. The state goes
        over UDP by a job of its own, for which the switch needs a free job.

        Parameters
        ----------
        state : numpy.ndarray or sequence of numpy.ndarray
            Arrays as `Worker.sync_state` takes them. At a sender, they contain exactly the updates that `updates` has
            returned.

        Raises
        ------
        TypeError, ValueError
            If an array cannot be filled.
        CollectiveTimeoutError
            At a joining worker, if no worker sends its weights within `timeout_s`.
        IswitchError
            At a joining worker, if the switch has no free job; otherwise the errors of `updates`.
        """
        arrays = [state] if isinstance(state, np.ndarray) else list(state)
        self._require_open()
        if self.needs_sync:
            backlog, self._stream.backlog = self._stream.backlog, _UNBOUNDED
            try:
                self._receive_state(arrays)
            finally:
                self._stream.backlog = backlog
        for rank, (sender, job) in self._reader.transfer_jobs.items():
            if sender == self.rank:
                note = np.zeros(1, TRANSFER_NOTE)
                next_seq = self._stream.seq_of(self._stream.updates_taken)
                note[0] = self.version, next_seq, np.frombuffer(self._reader.digests.after(self.version), np.uint8)
                with contextlib.suppress(CollectiveTimeoutError, RefusedError):  # it has left, or requests again
                    self._copy_state(arrays, note, job=job, joining_rank=rank)
                    logger.info(
                        "rank %d of %s has received the weights of update %d", rank, self._job_name, self.version
                    )
        self._reader.transfer_jobs.clear()

    # Weights of a joining worker

    def _copy_state(self, arrays: Sequence[np.ndarray], note: np.ndarray, *, job: int, joining_rank: int) -> None:
        """Copy the state between the two ends of a transfer, in a synchronous job of two. Raises the errors of
        `Worker`."""
        sends = joining_rank != self.rank
        with Worker(
            self.address,
            world=2,
            rank=0 if sends else 1,
            job=job,
            key=transfer_key(self._stream.membership.key, joining_rank),
            format="int32",
            timeout_s=_TRANSFER_S,
            switch_timeout_s=_TRANSFER_S,
            join_timeout_s=_TRANSFER_S,
        ) as peer:
            copy_state(peer, arrays, note, sends=sends)

    def _receive_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Request the weights until a worker sends them. Updates are stored meanwhile; skip those in the weights."""
        stream, note = self._stream, np.zeros(1, TRANSFER_NOTE)
        deadline = self._transport.now() + self.timeout_s
        while True:
            with self._keepalive:
                job = free_job(self._control, self.switch_info.jobs)
            try:
                self._request_state(job, deadline)
                self._copy_state(arrays, note, job=job, joining_rank=self.rank)
                break
            except (CollectiveTimeoutError, RefusedError) as failure:
                if self._transport.now() >= deadline:
                    raise CollectiveTimeoutError(
                        f"no worker of {self._job_name} has sent its weights within {self.timeout_s:g} s "
                        "(`timeout_s`): check that the "
                        "other workers are at work and call `sync_state`, or raise `timeout_s`"
                    ) from failure
        skipped = stream.update_of(int(note["seq"][0]))
        while stream.updates_taken < skipped:
            with self._keepalive:
                received = stream.take_update()
            if received is None and not self._wait_until(lambda: stream.updates_ready > 0, self.timeout_s):
                self._raise_stalled()
        version = int(note["updates"][0])
        self._reader.digests.restart(version, note["digest"][0].tobytes())
        self._first_update, self.needs_sync = version - skipped, False
        stream.claims.refused = 0
        stream.claims.ages.clear()

    def _request_state(self, job: int, deadline: float) -> None:
        """Make a vector of zeros with the request part of an update. Raises CollectiveTimeoutError.

        Parameters
        ----------
        job : int
            The job in which this worker waits for the weights.
        deadline : float
            Time in seconds.
        """
        stream, granted = self._stream, self._stream.claims.ages.total()
        trailer = self._layout.empty_trailer()
        trailer["transfer_job"][self.rank] = job + 1
        version = -1
        while stream.claims.ages.total() == granted:
            left_s = deadline - self._transport.now()
            if not self._wait_until(lambda: stream.is_ready and stream.updates_complete > version, left_s):
                raise CollectiveTimeoutError("no update is complete")
            version = stream.updates_complete  # the claim names weights of all updates that are complete here
            self._hand_over(Vector(np.zeros(self._layout.size, self._dtype), trailer, version, self._layout.elements))
            if not self._wait_until(lambda: not stream.claims.pending, left_s):
                raise CollectiveTimeoutError("no update is granted")

    # Updates, as the program receives them

    def _to_update(self, received: ReceivedUpdate) -> Update:
        """Return the next update for the program, which has not taken it yet. Raises DivergedError, TaintedError."""
        try:
            update = self._reader.read(self.version, received)
        except DivergedError as failure:
            self._failure = failure
            raise
        if update.tainted and self.on_taint != "ignore":
            rejected = rejected_values(self._stream.membership.format, self._stream.membership.fraction)
            message = f"in update {update.number}, {update.reduction.describe_taint(rejected)}. {TAINT_ADVICE}"
            if self.on_taint == "raise":
                error = TaintedError(message, update)
                self._stream.updates_taken += 1  # the error is in place of the update
                raise error
            try:
                warn_program(message, TaintWarning)
            except TaintWarning:  # the program has made the warning an error
                self._stream.updates_taken += 1
                raise
        return update

    # The stream, while the program computes or waits

    def _handle_burst(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        try:
            self._stream.handle_burst(buffer, size, segment_bytes)
        except (MembershipRejectedError, MismatchError) as failure:
            self._record_failure(failure)

    def _record_failure(self, failure: IswitchError | MembershipRejectedError) -> None:
        """Record an error that ends the job for this worker, or that the worker has moved."""
        if isinstance(failure, MembershipRejectedError) and failure.moved:
            self._moved = True
        else:
            self._failure = failure

    def _note_torn_section(self) -> None:
        """Record an error if an exception has stopped the driver in the middle of something. The keepalive thread must
        be suspended, since it may be in the middle itself."""
        if self._stream.section.is_torn and self._failure is None:
            self._failure = IswitchError(
                f"an exception, such as KeyboardInterrupt of Ctrl-C, stopped this worker of {self._job_name} in the "
                "middle of a message, so its next updates could be wrong: call `close`, and make a new AsyncWorker, "
                "with saved weights or, in an elastic job, those of the others (`sync_state`)"
            )

    def _bind_to_new_place(self) -> None:
        """Bind a worker that has moved to its present port and address. If the switch does not answer, the next notice
        starts this again."""
        try:
            renewed = self._rebind()
        except NotAMemberError:
            self._failure = MembershipRejectedError(Reason.MEMBER)
        except SwitchUnreachableError:
            pass
        else:
            if renewed.epoch != self._stream.membership.epoch:
                self._failure = MembershipRejectedError(Reason.EPOCH)
        self._moved = False  # notices that came meanwhile were about earlier frames

    def _serve(self) -> float:
        return min(self._serve_stream(0.0), _PENDING_PERIOD_S if self._stream.claims.pending else 1.0)

    def _serve_stream(self, wait_s: float) -> float:
        """Let the stream work, and wait up to `wait_s` seconds for a frame. Return the seconds to the next call."""
        self._note_torn_section()
        if self._moved:
            self._bind_to_new_place()
        if self._failure is None:
            try:
                return self._stream.serve(wait_s)
            except (MembershipRejectedError, MismatchError) as failure:
                self._record_failure(failure)
                if self._moved:
                    return 0.0
        while self._transport.receive(self._discarded, 0.0)[0]:
            pass
        return 1.0

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Serve the stream until a condition holds. Return True if it holds within `timeout_s`. Issue a HaltedWarning,
        once, if the job is halted meanwhile.

        Raises SwitchUnreachableError if no frame comes and the switch does not answer a request either.
        """
        self._require_open()
        with self._exclusive_call(), self._keepalive:
            deadline, rest_s, warned = self._transport.now() + timeout_s, 0.0, False
            while not condition():
                self._raise_failure()
                if cause := self._quiet_stream.inquire_if_due(self.switch_timeout_s):
                    self._failure = self._failure or cause.mismatch
                    if cause.is_halted and not warned:
                        warned = True
                        warn_program(
                            "the job is halted: vectors wait until a worker of the job calls `resume`", HaltedWarning
                        )
                now = self._transport.now()
                if now >= deadline:
                    return False
                rest_s = self._serve_stream(min(rest_s, deadline - now))
        return True

    # Errors

    def _require_weights(self) -> None:
        self._require_open()
        if self.needs_sync:
            raise MembershipChangedError(
                "this worker has joined a running job and has no weights yet: call `sync_state` first"
            )

    def _raise_failure(self) -> None:
        """Raise the error that has ended the job for this worker, if there is one."""
        if isinstance(self._failure, MembershipRejectedError):
            if self._failure.reason == Reason.EPOCH:
                raise JobResetError(
                    f"another worker has reset {self._job_name}. The workers may have applied different numbers of "
                    "updates: call `close`, and "
                    "begin again with a new AsyncWorker from saved weights"
                )
            self._state["member"] = False
            raise lost_membership_error(self._member, self._job_name, self._failure.reason, "make a new AsyncWorker")
        if self._failure is not None:
            raise self._failure

    def _raise_stalled(self) -> NoReturn:
        """Raise CollectiveTimeoutError with the counters that rose, or SwitchUnreachableError."""
        with self._keepalive:
            risen = unusual_rises(self._counters_at_join, self._control.counters(self.switch_info.ports))
            job = self._control.job(self._stream.membership.job)
        if self._stream.awaits_newer_weights:
            cause = (
                "a worker has not sent its vector, which the next update contains. The switch answers, so most likely "
                "that worker was stopped or killed: end its process. The switch evicts a killed worker after `evict_s` "
                "seconds, which must not be 0 for that, and the update is complete without it."
            )
        else:
            cause = (
                f"the next update waits until {job.threshold} of {job.live} workers have a vector ready. The switch "
                "answers, so most likely the other workers do not push: they compute, have stopped, or were killed. If "
                "they compute for longer than that, raise `timeout_s`. A worker that stops for good calls `close`. "
                "With `set_threshold`, fewer workers make an update."
            )
        raise self._timeout_error(
            f"nothing new came from {self._job_name} for {self.timeout_s:g} s (`timeout_s`): {cause}", risen
        )

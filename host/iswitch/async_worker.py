"""A worker of an asynchronous job: gradients go to the switch when they are ready, updates come back in one order for
all.

iSwitch's pipeline of three stages (Li et al., "Accelerating Distributed Reinforcement Learning with In-Switch
Computing", ISCA 2019, section IV): while the program computes a gradient, the one before is summed in the switch, and
updates that others took part in come in.

One class, the program's side of a job: segments and time-outs are those of `stream.py`, joining is that of
`joining.py`.
"""

import contextlib
import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NoReturn

import numpy as np

from iswitch.control.counters import unusual_rises
from iswitch.control.inspection import read_slot
from iswitch.control.job_worker import JobWorker
from iswitch.control.settings import require_int, require_settings
from iswitch.driver.buffers import require_array
from iswitch.driver.membership import Membership
from iswitch.driver.notices import MembershipRejectedError
from iswitch.driver.stream import DEPTH, Arrival, Stream, Vector
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.update_layout import TRAILER_ENTRY, UpdateLayout
from iswitch.errors import (
    CollectiveTimeoutError,
    DivergedError,
    HaltedWarning,
    IswitchError,
    JobResetError,
    MembershipChangedError,
    MismatchError,
    RefusedError,
    TaintedError,
    TaintWarning,
)
from iswitch.handover import NOTE, free_job, hand_over
from iswitch.results import TAINT_ADVICE, Reduction, Update, format_ranks, rejected_values
from iswitch.wire import NO_MEMBER, SEGMENTS_MAX, STALENESS_MAX, Mode, Reason, SlotState
from iswitch.wire.formats import FORMATS, JOB_FORMATS

__all__ = ["AsyncWorker"]

_SOON_S = 0.01
"""A vector that is pushed while the keepalive sleeps has its time-outs looked at after this."""
_QUIET_S = 1.0
"""After so long without anything the switch is asked whether it is there."""
_BACKLOG, _BACKLOG_BYTES = 16, 1 << 26
_UNBOUNDED = 2**24
_HANDOVER_S = 3.0
"""How long the two ends of a handover wait for each other. A newcomer then asks again."""


class AsyncWorker(JobWorker):
    """One of `world` workers whose weights get the same updates in the same order, each the sum of some workers'
    vectors. Making an AsyncWorker joins a job and waits for all the others; their weights must be equal then.

    Parameters
    ----------
    address : str or None
        As in `Worker`: None is the environment variable ISWITCH_ADDRESS or, without it, 127.0.0.1:27000.
    world : int
        Number of workers in the job, 1 to 32.
    size : int
        Elements in a vector.
    staleness : int
        A vector is summed with at most so many updates granted since the weights that it was computed with, 0 to 7; an
        older one is refused.
    threshold : int or None
        So many vectors make an update; below `world` no worker waits for the slow ones. None: world.
    job, rank, key, format, fraction, elements
        As in `Worker`. A vector's segment with NaN, an infinity or a number out of range is left out of its sum.
    on_taint : {"raise", "warn", "ignore"}
        What `updates` does at an update with such a segment: raise TaintedError in place of the update, at every worker
        at the same update; issue TaintWarning; or nothing. The error's `result` is the update: a program that goes on
        without it does so as all others do.
    backlog : int or None
        So many whole updates are kept for a program that does not take them, above `staleness`. Then this worker
        acknowledges nothing more, and when the ring is full the others wait for it: a program that computes for long
        takes its updates meanwhile, or the backlog is large. None: as many as there are in 64 MiB, at least 16.
    timeout_s : float
        Seconds to wait for a place in the pipeline without anything new from the switch, until CollectiveTimeoutError.
        Set it above the longest compute time of the slowest worker that is waited for.
    switch_timeout_s, join_timeout_s, evict_s
        As in `Worker`.
    elastic : bool
        Join also a job that runs already, in the place of a worker that has left. A program whose job is to take
        newcomers in calls `sync_state` between `updates` and `push`, for `push` may wait for the newcomer; and a newcomer
        calls `sync_state` before anything else.
    transport, no_offload
        As in `Worker`.

    Raises
    ------
    SwitchUnreachableError, RefusedError, CollectiveTimeoutError
        As `Worker`.
    ValueError, TypeError
        If an argument is wrong.

    Examples
    --------
        for update in worker.updates():
            weights -= rate * update.mean()
        worker.push(gradient_of(weights))

    Notes
    ----- A worker that stops pushing calls `close`, because the others wait for `threshold` vectors of the workers that
    are there; its vectors on their way are given up. All workers stop after the same update if the condition is in the
    updates. Use a worker from one thread only; another thread of its own answers the switch while that one computes.
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
        key: int = 0,
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
        require_settings(
            world=world,
            threshold=threshold,
            job=job,
            rank=rank,
            key=key,
            format=format,
            fraction=fraction,
            elements=elements,
            timeout_s=timeout_s,
            switch_timeout_s=switch_timeout_s,
            join_timeout_s=join_timeout_s,
            evict_s=evict_s,
            on_taint=on_taint,
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
        self._discarded = memoryview(bytearray(RECEIVE_BYTES))
        self._layout = UpdateLayout(size, elements or self.config.elements, world)
        wish = Membership(
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
            wanted=NO_MEMBER if rank is None else rank,
        )
        with self._joined(wish, elastic=elastic) as membership:
            self._stream = Stream(
                self._transport,
                membership,
                self._layout,
                backlog=max(_BACKLOG, _BACKLOG_BYTES // (4 * size)) if backlog is None else backlog,
            )
            self._start_keepalive(self._stream)
        self._dtype = FORMATS[membership.format].element
        self.newcomer = self._control.joined_running_job
        """This worker came to a running job, and has no weights yet: call `sync_state`."""
        self._first = 0  # the number of the update with which this member began, once it is known
        self._digests = {} if self.newcomer else {0: bytes(32)}  # by number of updates, of the latest
        self._confirmed: dict[int, int] = {}
        self._asking: dict[int, tuple[int, int]] = {}  # newcomers by rank: who answers them, and in which job
        self._givers: list[int] = []  # ranks with weights, of the latest update that had some
        self._refused_seen = 0

    # Facts

    @property
    def version(self) -> int:
        """Updates that `updates` has handed out: what the program's weights are made of."""
        return self._first + self._stream.taken

    @property
    def segments(self) -> int:
        """Segments in an update: the vector's, and one or more that say whose vectors they are."""
        return self._stream.segments

    @property
    def refused(self) -> int:
        """Vectors of this worker that were dropped, because their weights were too old."""
        return self._stream.refused

    @property
    def ages(self) -> Counter[int]:
        """Of this worker's vectors that were granted an update: how many updates lie between their weights and that,
        and how often."""
        return self._stream.ages.copy()

    @property
    def retransmissions(self) -> int:
        """Contributions that this worker sent more than once."""
        return self._stream.retransmissions

    @property
    def digest(self) -> str:
        """Of all updates that `updates` has handed out, in hex: SHA-256 of the digest before, the update's number,
        members and bytes."""
        return self._digests[max(self._digests)].hex()

    def check(self) -> dict[int, int]:
        """By rank: so many first updates are known to be the same there as here. Each vector brings with it the digest
        of what its worker was given before, and when its update is handed out that is compared: `updates` raises
        DivergedError if it differs."""
        self._demand()
        return dict(sorted((self._confirmed | {self.rank: self.version}).items()))

    # Vectors and updates

    def updates(self) -> Iterator[Update]:
        """Returns all updates that are complete and were not handed out before, in their order, without waiting. Raises
        TaintedError in place of a tainted update (`on_taint`); after the last update, what has gone wrong:
        JobResetError, NotAMemberError, MismatchError, DivergedError."""
        self._require_weights()
        with self._keepalive:
            self._step(0.0)
        while True:
            with self._keepalive:
                arrival = None if isinstance(self._failure, IswitchError) else self._stream.take()
            if arrival is None:
                break
            yield self._hand_out(arrival)
        self._demand()

    def push(self, vector: np.ndarray, *, version: int | None = None) -> None:
        """Hands over a copy of `vector`, which becomes part of one update, or is refused if `staleness` is too small
        for it.

        vector: float32, or int32 in a job of format "int32"; `size` numbers of any shape. version: `version` when its
        computation began; None: as it is now, which is right if no updates were taken meanwhile. Waits while two
        vectors are on their way; so one is summed, and one claims its place, while the next is computed. Raises
        TypeError, ValueError before anything happens; CollectiveTimeoutError, SwitchUnreachableError, JobResetError,
        NotAMemberError, MismatchError.
        """
        require_array("vector", vector, self._dtype)
        if vector.dtype.newbyteorder("=") != (wanted := self._dtype.newbyteorder("=")):
            raise TypeError(
                f"vector must be an array of {wanted}, not {vector.dtype}: pass `vector.astype(numpy.{wanted})`"
            )
        if vector.size != self._layout.size:
            raise ValueError(f"vector must have {self._layout.size} numbers, the job's `size`, not {vector.size}")
        self._require_weights()
        version = self.version if version is None else version
        require_int("version", version, 0, self.version)
        values, trailer = np.array(vector, self._dtype, order="C").reshape(-1), self._layout.empty_trailer()
        trailer[self.rank] = version, 0, np.frombuffer(self._digests.get(version, bytes(8)), "<u8", 1)[0]
        self._offer(Vector(values, trailer, version - self._first, self._layout.elements))

    def _offer(self, vector: Vector) -> None:
        """Puts it into the pipeline as soon as there is a place."""
        while True:
            news = self._stream.news
            if self._until(lambda: self._stream.queued < DEPTH, self.timeout_s):
                break
            if self._stream.halted:
                self._stream.halted = False
                warnings.warn(
                    "the job is halted: `push` waits until a worker lets it go on", HaltedWarning, stacklevel=3
                )
            elif self._stream.news == news:
                self._stalled()
        with self._keepalive:
            self._demand()
            self._stream.offer(vector)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until there is an update to take or a vector was refused, for programs that have nothing else to do;
        whether that came within `timeout_s` (None: the worker's). Raises as `updates`."""
        happened = self._until(
            lambda: bool(self._stream.ready) or self._stream.refused != self._refused_seen,
            self.timeout_s if timeout_s is None else timeout_s,
        )
        self._refused_seen = self._stream.refused
        return happened

    def sync_state(self, state: np.ndarray | Sequence[np.ndarray]) -> None:
        """At a newcomer: fills in the state of the others, and `version` is then theirs. At the others: gives theirs to
        newcomers who have asked for it, if it is this worker's turn; else returns at once.

        state: arrays as `Worker.sync_state` takes them, of which this worker's weights are made after all updates that
        `updates` has handed out. It goes by a job of its own, over UDP, for which the switch must have a free number.
        Raises TypeError, ValueError; CollectiveTimeoutError at a newcomer to whom nobody gives anything; else as
        `updates`.
        """
        arrays = [state] if isinstance(state, np.ndarray) else list(state)
        self._require_open()
        if self.newcomer:
            self._enter(arrays)
        for rank, (giver, job) in self._asking.items():
            if giver == self.rank:
                note = np.zeros(1, NOTE)
                note[0] = (
                    self.version,
                    self._stream.seq_of(self._stream.taken),
                    np.frombuffer(self._digests[self.version], np.uint8),
                )
                with contextlib.suppress(CollectiveTimeoutError, RefusedError):  # it is gone, or asks again
                    hand_over(
                        self.address,
                        note,
                        arrays,
                        giver=True,
                        job=job,
                        rank=rank,
                        key=self._stream.membership.key,
                        timeout_s=_HANDOVER_S,
                    )
        self._asking.clear()

    # The job

    def set_threshold(self, threshold: int) -> None:
        """From now on `threshold` vectors make an update, for all workers of the job. RefusedError,
        SwitchUnreachableError."""
        require_int("threshold", threshold, 1, self._layout.world)
        self._require_open()
        with self._keepalive:
            self._control.set_threshold(self._stream.membership, threshold)

    # Within

    def _enter(self, arrays: Sequence[np.ndarray]) -> None:
        """Asks for the weights until somebody gives them; updates are kept meanwhile, and those that are in the weights
        are skipped."""
        stream, note = self._stream, np.zeros(1, NOTE)
        backlog, stream.backlog = stream.backlog, _UNBOUNDED
        deadline = self._transport.now() + self.timeout_s
        while True:
            with self._keepalive:
                job = free_job(self._control, self.config.jobs)
            try:
                self._ask(job, deadline)
                hand_over(
                    self.address,
                    note,
                    arrays,
                    giver=False,
                    job=job,
                    rank=self.rank,
                    key=stream.membership.key,
                    timeout_s=_HANDOVER_S,
                )
                break
            except (CollectiveTimeoutError, RefusedError) as failure:
                if self._transport.now() >= deadline:
                    raise CollectiveTimeoutError(
                        f"no worker of {self._job_name} has given its weights within {self.timeout_s:g} s: "
                        "the others must be at work and call `sync_state`; or raise `timeout_s`"
                    ) from failure
        skipped = stream.update_of(int(note["seq"][0]))
        while stream.taken < skipped:
            with self._keepalive:
                arrival = stream.take()
            if arrival is None and not self._until(lambda: bool(stream.ready), self.timeout_s):
                self._stalled()
        number = int(note["number"][0])
        self._first, self._digests, self.newcomer = number - skipped, {number: note["digest"][0].tobytes()}, False
        stream.backlog, stream.refused = backlog, 0
        stream.ages.clear()

    def _ask(self, job: int, deadline: float) -> None:
        """Becomes part of an update with zeros and the question. A claim tells of weights: those of all updates that
        are complete here, which is what it is for. CollectiveTimeoutError."""
        stream, granted = self._stream, self._stream.ages.total()
        trailer = self._layout.empty_trailer()
        trailer["transfer_job"][self.rank] = job + 1
        version = -1
        while stream.ages.total() == granted:
            left_s = deadline - self._transport.now()
            if not self._until(lambda: stream.complete > version, left_s):
                raise CollectiveTimeoutError("no update is complete")
            version = stream.complete
            self._offer(Vector(np.zeros(self._layout.size, self._dtype), trailer, version, self._layout.elements))
            if not self._until(lambda: not stream.queued, left_s):
                raise CollectiveTimeoutError("no update is granted")

    def _hand_out(self, arrival: Arrival) -> Update:
        """An update with its digest reckoned and its members' digests compared. The latest digests are kept for as long
        as a vector can refer to them."""
        number, vector = self.version - 1, self._layout.vector_segments
        members = np.bitwise_and.reduce(arrival.headers["members"][vector:])
        entries = {rank: arrival.trailer[rank] for rank in range(self._layout.world) if members >> np.uint32(rank) & 1}
        asking = {rank: int(entry["transfer_job"]) - 1 for rank, entry in entries.items() if entry["transfer_job"]}
        entries = {rank: entry for rank, entry in entries.items() if rank not in asking}
        for rank, entry in entries.items():
            self._compare(number, rank, entry)
        self._givers = sorted(entries) or self._givers
        self._asking |= {rank: (self._givers[0], job) for rank, job in asking.items() if self._givers}
        headers = arrival.headers[:vector]
        chain = hashlib.sha256(self._digests[number] + number.to_bytes(8, "little") + headers["members"].tobytes())
        chain.update(arrival.sum.data)
        for rank in asking:  # zeros, which are no part of a mean
            headers["count"] -= (headers["members"] >> np.uint32(rank) & 1).astype(np.uint16)
            headers["members"] &= np.uint32(~(1 << rank) & 0xFFFFFFFF)
        self._digests[number + 1] = chain.digest()
        self._digests.pop(number - self._stream.membership.staleness - 1, None)
        update = Update(
            number,
            arrival.sum,
            {rank: int(entry["version"]) for rank, entry in entries.items()},
            Reduction(self._layout.world, self._layout.elements, 0, headers),
        )
        if update.tainted and self.on_taint != "ignore":
            limit = rejected_values(self._stream.membership.format, self._stream.membership.fraction)
            message = f"{update.reduction.describe_taint(limit)}, in update {number}. {TAINT_ADVICE}"
            if self.on_taint == "raise":
                raise TaintedError(message, update)
            warnings.warn(message, TaintWarning, stacklevel=3)
        return update

    def _compare(self, number: int, rank: int, entry: np.void) -> None:
        version = int(entry["version"])
        own = self._digests.get(version)
        if own is None and version < min(self._digests):  # from before this worker came
            return
        if own is None or own[: TRAILER_ENTRY["digest"].itemsize] != entry["digest"].tobytes():
            self._failure = DivergedError(
                f"rank {rank} was not given the same first {version} updates as rank {self.rank}, says its vector in update {number}: "
                "their weights differ. Begin again from saved weights, and look for a switch or a link that damages packets"
            )
            raise self._failure
        self._confirmed[rank] = version

    def _handle_train(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        try:
            self._stream.handle_train(buffer, size, segment_bytes)
        except (MembershipRejectedError, MismatchError) as failure:
            self._failure = failure

    def _step(self, patience_s: float) -> float:
        """Lets the stream work, and waits up to `patience_s` for something to come. Returns after how many seconds to
        call again."""
        if self._failure is None:
            try:
                return self._stream.serve(patience_s)
            except (MembershipRejectedError, MismatchError) as failure:
                self._failure = failure
        while self._transport.receive(self._discarded, 0.0)[0]:
            pass
        return 1.0

    def _serve(self) -> float:
        return min(self._step(0.0), _SOON_S if self._stream.queued else 1.0)

    def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Works for the stream until something holds. Returns whether it does within `timeout_s`. Raises
        SwitchUnreachableError if nothing comes although the switch was asked."""
        self._require_open()
        with self._exclusive_call(), self._keepalive:
            now = self._transport.now()
            deadline, rest_s = now + timeout_s, 0.0
            quiet_s = min(_QUIET_S, self.switch_timeout_s)
            inquiry, trains = now + quiet_s, self._stream.trains
            while not holds():
                self._demand()
                if now >= deadline:
                    return False
                rest_s = self._step(min(rest_s, deadline - now))
                now = self._transport.now()
                if now >= inquiry:
                    if trains == self._stream.trains:
                        self._inquire()
                        now = self._transport.now()
                    inquiry, trains = now + quiet_s, self._stream.trains
        return True

    def _inquire(self) -> None:
        """Asks the switch why nothing comes. Raises SwitchUnreachableError; what is found otherwise is raised like any
        other failure."""
        stream, layout = self._stream, self._layout
        low, m = stream.low, stream.membership
        slot = read_slot(self._control, m.job, stream.low_seq, m.window)
        first = (
            layout.vector_segments - 1
        ) * layout.elements  # of the vector's last segment; Joins compare the number of segments
        theirs = first + slot.length // 4
        last = low == stream.low and low % layout.segments == layout.vector_segments - 1 and slot.seq == stream.low_seq
        if last and slot.state == SlotState.COLLECTING and theirs != layout.size:
            self._failure = MismatchError(
                f"the workers of {self._job_name} push vectors of different sizes: {theirs:,} elements by "
                f"{format_ranks(slot.arrived)}, and {layout.size:,} by this worker, rank {m.member}. Start all workers with the same `size`"
            )

    def _require_weights(self) -> None:
        self._require_open()
        if self.newcomer:
            raise MembershipChangedError(
                "this worker has come to a job that runs, and has no weights yet: call `sync_state` first"
            )

    def _demand(self) -> None:
        """Raises what the protocol has ended with, if it has."""
        if isinstance(self._failure, MembershipRejectedError):
            if self._failure.reason == Reason.EPOCH:
                raise JobResetError(
                    f"{self._job_name} was reset by another worker. Workers may have applied different numbers of updates: leave, and begin "
                    "again with a new AsyncWorker from saved weights"
                )
            self._state["member"] = False
            raise self._not_a_member_error(self._failure.reason, "make a new AsyncWorker")
        if self._failure is not None:
            raise self._failure

    def _stalled(self) -> NoReturn:
        """CollectiveTimeoutError with the counters that rose, or SwitchUnreachableError."""
        with self._keepalive:
            risen = unusual_rises(self._counters_at_join, self._control.counters(self.config.ports))
            job = self._control.job(self._stream.membership.job)
        raise self._timeout_error(
            f"nothing new came from {self._job_name} for {self.timeout_s:g} s (`timeout_s`): this worker's vector waits until "
            f"{job.threshold} of {job.live} workers have one ready; the switch answers, so most likely the others do not push "
            "(computing, stopped, killed). If they compute for longer than that, raise `timeout_s`; a worker that stops for good "
            "calls `close`; `set_threshold` makes do with fewer.",
            risen,
        )

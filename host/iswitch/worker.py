"""A worker of a job: sums, broadcasts and barriers over all its workers, computed by the switch.

One class, what a program calls; windows and time-outs are those of `ring.py`, joining is that of `joining.py`.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

import numpy as np

from iswitch.control.membership import (
    FORMATS,
    JobWorker,
    require_int,
    require_one_of,
    require_seconds,
    require_settings,
)
from iswitch.control.stall import Stall
from iswitch.control.state_transfer import elect, fill, flat
from iswitch.driver.buffers import INT, Bytes, filled, octets_of, summed_as
from iswitch.driver.membership import Membership
from iswitch.driver.ring import CollectiveResult, MembershipRejectedError, NoProgressError, Ring
from iswitch.driver.transport import Transport
from iswitch.errors import (
    IswitchError,
    JobResetError,
    MembershipChangedError,
    NoContributionError,
    NotAMemberError,
    RefusedError,
    SwitchUnreachableError,
)
from iswitch.results import Reduction, rejected_values
from iswitch.wire import DEADLINE_US_MAX, HEADER, NO_MEMBER, Format, Mode, Reason, Register

__all__ = ["Worker"]

_MODES = {"quarantine": Mode.QUARANTINE, "propagate": Mode.PROPAGATE}
_BACKLOG_WINDOWS = 16
_REMEDY = "call `rejoin`, then `sync_state`, or make a new Worker"
_QUIET_S = 1.0
"""After so long without a result a collective asks the switch why."""
_LAST_TRY_S = 0.1
"""The least time for a step of `rejoin`, and the pause between two."""


class Worker(JobWorker):
    """One of `world` workers that sum arrays in the switch. Making a Worker joins a job and waits for all the others.

    Parameters
    ----------
    address : str or None
        The switch's address, "host:port", or "host" for the switch's usual port, 26963. None: the environment variable
        ISWITCH_ADDRESS or, without it, 127.0.0.1:27000, the emulator's first port.
    world : int
        Number of workers in the job, 1 to 32.
    job : int
        Number of the job at the switch.
    rank : int or None
        This worker's index, 0 to world - 1. None: the switch chooses. Necessary in a tree of switches where some
        workers are at the root.
    key : int
        A number that keeps other programs out of the job; the same for all workers.
    format : {"window64", "fp32", "int32"}
        How the switch adds: "window64" (the same bits in any order of arrival), "fp32" (IEEE addition in order of
        arrival) or "int32".
    fraction : int
        Of "window64": elements are rounded to multiples of 2^-fraction and must be below 2^(58 - fraction), 16384 by
        default.
    threshold : int or None
        A sum is complete with this many workers; below `world`, slow workers are left out. None: world.
    mode : {"quarantine", "propagate"}
        A segment with NaN, an infinity or a number out of range is left out of the sum ("quarantine") or makes the sum
        NaN ("propagate").
    on_taint : {"raise", "warn", "ignore"}
        What a collective does when that has happened: raise TaintedError after the result is in place, issue
        TaintWarning, or nothing.
    elements : int or None
        Elements in a segment, the same for all workers. None: as many as the switch, or the tree of switches, takes.
        Necessary in a tree where some workers are at the root: `Config.uplink_elements`.
    timeout_s : float
        Seconds without any result until a collective raises CollectiveTimeoutError. Set it above the longest compute
        time of the slowest worker.
    switch_timeout_s : float
        Seconds without an answer of the switch until SwitchUnreachableError, also in the middle of a collective.
    join_timeout_s : float
        Seconds to wait for the other workers to join.
    backlog : int or None
        Segments of results that are kept while this worker is behind a job with threshold < world. The others can be
        ahead by this and two windows. None: 16 windows.
    evict_s : float
        Seconds of silence after which the switch evicts a member that another member waits for; 0: never. A worker
        gives signs of life while the program computes, from a thread of its own.
    deadline_s : float
        Seconds after which a segment is complete with the workers that have contributed; 0: there is no deadline.
        Choose several times the longest delay of a sum, or a lost packet is a missing worker.
    elastic : bool
        Join also a job that runs already, in the place of a worker that has left, when its present collective ends.
    transport : Transport or None
        Another path to the switch than UDP; the worker closes it.
    plain : bool
        See `UdpTransport`.

    Raises
    ------
    SwitchUnreachableError
        If nothing answers at the address.
    RefusedError
        If the job exists with other settings, the rank is taken by a live worker, or the job is running and `elastic`
        is False.
    CollectiveTimeoutError
        If the other workers do not join within `join_timeout_s`.
    ValueError, TypeError
        If an argument is wrong.

    Notes
    ----- All workers must call the same collectives in the same order, each worker from one thread. A failed collective
    leaves in the array partly own elements and partly sums. After any error that is a `RecoverableError`, call `rejoin`
    and then `sync_state`; until then every other collective raises MembershipChangedError or IswitchError, so that a worker
    never adds one step to another worker's next one. NoContributionError and TaintedError leave the worker in step.

    An elastic job begins with `sync_state` and calls it again whenever `needs_sync` is true.

    A worker leaves its job when the `with` block or the interpreter ends and when SIGTERM ends the process. If the
    program has a handler for SIGTERM, that decides (see `iswitch.driver.termination`). If a process is killed, the
    others evict its worker; if all are killed, the same command started again watches their job for `evict_s`, ends it
    and begins a new one. A child of `multiprocessing` leaves only at the end of the `with` block.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        world: int,
        job: int = 0,
        rank: int | None = None,
        key: int = 0,
        format: Literal["window64", "fp32", "int32"] = "window64",
        fraction: int = 44,
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
        plain: bool = False,
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
            plain=plain,
        )
        self.on_taint = on_taint
        self._collectives = 0  # for warnings, which Python shows once for a text
        self._missing: tuple[int, ...] = ()  # ranks that the last warning named
        self._inquiring = False
        self._admitted = False  # newcomers, by the last collective
        self._stall: Stall | None = None
        self._renewed: Membership  # as the switch told it at the last notice of another epoch
        self._any_length = elements is None
        self._broken = ""  # why no collective is possible, as the end of a sentence
        wish = Membership(
            job=job,
            key=key,
            world=world,
            threshold=threshold or world,
            format=FORMATS[format],
            fraction=fraction,
            elements=elements or self.config.elements,
            mode=_MODES[mode],
            deadline_us=int(deadline_s * 1e6),
            evict_us=int(evict_s * 1e6),
            nonce=self._nonce(),
            wanted=NO_MEMBER if rank is None else rank,
        )
        with self._joined(wish, elastic=elastic) as membership:
            self._needs_sync = elastic or self._control.newcomer  # an elastic job begins with `sync_state`
            backlog = _BACKLOG_WINDOWS * membership.window if backlog is None else backlog
            self._ring = Ring(self._transport, membership, backlog=backlog)
            self._start_keepalive(self._ring)

    def _request_join(self, wish: Membership, **how: Any) -> Membership:
        try:
            return super()._request_join(wish, **how)
        except RefusedError as refusal:  # in a tree of switches segments are shorter
            if refusal.reason != Reason.ELEMENTS or not self._any_length:
                raise
            return super()._request_join(replace(wish, elements=self.config.uplink_elements), **how)

    # Facts

    @property
    def world(self) -> int:
        """Workers of the job."""
        return self._ring.membership.world

    @property
    def threshold(self) -> int:
        """How many workers complete a sum, as far as this worker knows."""
        return self._ring.membership.threshold

    @property
    def needs_sync(self) -> bool:
        """The next collective must be `sync_state`: newcomers take part from now on, this worker perhaps among them, or the
        job began again."""
        return self._needs_sync

    @property
    def elements(self) -> int:
        """Numbers in a segment."""
        return self._ring.membership.elements

    @property
    def segments(self) -> int:
        """Segments of all collectives that this worker has come to the end of."""
        return self._ring.segments

    # Collectives

    def allreduce(self, array: np.ndarray, op: Literal["sum", "mean"] = "sum") -> Reduction:
        """Replaces `array` by its sum, or mean, over the job's workers.

        array: float32 of any shape, writeable; or int32, summed modulo 2^32 (op "sum" only). Not C-contiguous arrays
        are copied there and back. All workers must pass the same number of elements; 0 is possible, and no traffic.
        "mean" divides each segment by the number of workers in it.

        Raises TypeError, ValueError before anything is sent; CollectiveTimeoutError, SwitchUnreachableError,
        JobResetError, NotAMemberError, which are `RecoverableError`; MismatchError, NoContributionError, TaintedError;
        MembershipChangedError if the collective must be `sync_state`; IswitchError if another thread is in a collective, or
        if one failed before.
        """
        format, wire_type = summed_as(array, op, self._ring.membership.format)
        values = np.ascontiguousarray(array, wire_type).reshape(-1)
        reduction = self._collect(values, format)
        if values.size:
            if op == "mean":
                reduction.divide(values)
            if not np.may_share_memory(values, array):
                array[...] = values.reshape(array.shape)
            if reduction.flagged or not reduction.complete or self._missing:
                self._judge(reduction)
        return reduction

    def _judge(self, reduction: Reduction) -> None:
        """What is to be said of a result that is in place; a warning each time that other ranks are missing."""
        everybody = self.threshold == self.world
        missing = reduction.absent if everybody else ()
        reduction.report_problems(
            warn_missing=missing if missing != self._missing else (),
            number=self._collectives,
            rejected=rejected_values(self._ring.membership.format, self._ring.membership.fraction),
            on_taint=self.on_taint,
        )
        self._missing = missing

    def broadcast(self, buffer: Bytes, root: int = 0) -> Bytes:
        """Gives every worker the bytes of `root`'s buffer; lengths must be equal.

        buffer: bytearray, writeable memoryview or array of any dtype: filled in place and returned; or bytes: returned
        anew. It waits for everybody, whatever the threshold. Raises NoContributionError if the root has left, else
        as `allreduce`.
        """
        require_int("root", root, 0, self.world - 1)
        data = octets_of(buffer)
        values = np.zeros(-(-data.size // 4), INT)
        if self.rank == root:
            values.view(np.uint8)[: data.size] = data
        reduction = self._collect(values, Format.INT32, whole=True)
        if not (reduction.member_masks >> np.uint32(root) & 1).all():
            raise NoContributionError(f"the broadcast has nothing of its root, rank {root}: it has left the job")
        return buffer if self.rank == root else filled(buffer, values.view(np.uint8)[: data.size])

    def barrier(self) -> None:
        """Returns when every worker has called it, whatever the threshold. Raises as `allreduce`."""
        self._collect(np.zeros(1, INT), Format.INT32, whole=True)

    def sync_state(self, state: np.ndarray | Sequence[np.ndarray], step: int) -> int:
        """Gives every worker the state of the most advanced worker, bit for bit, and returns its step.

        Parameters
        ----------
        state : array or sequence of arrays
            Of any dtype but objects, writeable, of the same sizes on all workers; filled in place.
        step : int
            How far this worker's state is, 0 to 2^62. Of several workers with the highest step, the lowest rank's state
            is taken.

        Returns
        -------
        int
            The step of the state that all workers now have.

        It is the first collective of an elastic job, and the next one whenever `needs_sync` is true. If the chosen worker
        leaves meanwhile, another one is chosen. Raises as `allreduce`.
        """
        require_int("step", step, 0, 2**62)
        arrays = [state] if isinstance(state, np.ndarray) else list(state)
        own = flat(arrays)
        while True:
            election = np.zeros(3 * self.world, INT)
            election[3 * self.rank : 3 * self.rank + 3] = 1, step & 0x7FFFFFFF, step >> 31
            self._collect(election, Format.INT32, whole=True, within_sync=True)
            root, farthest = elect(election)
            values = own.copy() if root == self.rank else np.zeros_like(own)
            # All see the same members and the same change, and so all begin again, or none does.
            if self._admitted:
                continue
            spread = self._collect(values, Format.INT32, whole=True, within_sync=True)
            if (spread.member_masks >> np.uint32(root) & 1).all() and not self._admitted:
                break
        self._needs_sync = False
        if root != self.rank:
            fill(arrays, values)
        return farthest

    # The job

    def set_threshold(self, threshold: int) -> None:
        """From now on `threshold` workers complete a sum, for all workers of the job. RefusedError,
        SwitchUnreachableError."""
        require_int("threshold", threshold, 1, self.world)
        self._require_open()
        with self._keepalive:
            self._ring.membership = self._control.set_h(self._ring.membership, threshold)
            self._ring.set_threshold(threshold)

    def reset(self) -> None:
        """Begins the job anew with the same members. Drops what is under way; the present or next collective of the
        others raises JobResetError. The next collective of all must be `sync_state`: one worker may have got a result that
        another one has not.

        Raises RefusedError, SwitchUnreachableError; NotAMemberError, after which `rejoin` helps.
        """
        self._require_open()
        with self._keepalive:
            try:
                self._begin_again()
            except NotAMemberError as gone:
                self._broken, self._state["member"] = str(gone), False
                raise
            self._needs_sync = True

    def _begin_again(self) -> None:
        """The job's new epoch, of this worker's making or of another's. Raises NotAMemberError, RefusedError,
        SwitchUnreachableError."""
        m = self._ring.membership
        known = self._control.renew(m) if self._broken else m
        if known.epoch == m.epoch:
            try:
                known = self._control.reset(m)
            except RefusedError as refused:
                if refused.reason in (Reason.JOB, Reason.MEMBER, Reason.TOKEN):
                    raise self._not_a_member_error(refused.reason, _REMEDY) from None
                if refused.reason != Reason.EPOCH:
                    raise
                known = self._control.renew(m)
        self._ring.restart(known)
        self._broken = ""

    def rejoin(self, timeout_s: float | None = None) -> None:
        """Brings this worker back into its job after any `RecoverableError` error. The next collective must be `sync_state`.

        If the switch does not answer, this waits until it does. If the switch still knows the worker, the job is reset,
        once for all workers that call this; otherwise the worker joins again, or creates the job again after a restart
        of the switch. Does nothing if the worker is in step. Call it as often as needed, also after it has failed.

        Parameters
        ----------
        timeout_s : float or None
            Seconds for all of that. None: the worker's `join_timeout_s`.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer for `timeout_s`.
        CollectiveTimeoutError
            If the job does not let the worker in, or is not complete, within `timeout_s`.
        RefusedError
            If another worker has this worker's place.
        """
        limit_s = self._join_timeout_s if timeout_s is None else timeout_s
        require_seconds(timeout_s=limit_s)
        self._require_open()
        if not self._broken:
            return
        deadline = self._transport.now() + limit_s
        with self._keepalive:
            while self._broken:
                try:
                    self._control.read(Register.MAGIC, timeout_s=max(deadline - self._transport.now(), _LAST_TRY_S))
                    self._come_back(max(deadline - self._transport.now(), _LAST_TRY_S))
                except SwitchUnreachableError as lost:
                    if self._transport.now() >= deadline:
                        raise SwitchUnreachableError(
                            f"{lost}. `rejoin` gave up after its `timeout_s` of {limit_s:g} s; it can be called again"
                        ) from None
                    self._transport.sleep(_LAST_TRY_S)
            self._needs_sync = True

    def _come_back(self, limit_s: float) -> None:
        """To a job whose switch answers. Raises SwitchUnreachableError, RefusedError, CollectiveTimeoutError."""
        if self._state["member"]:
            try:
                return self._begin_again()
            except NotAMemberError:
                self._state["member"] = False
        m = replace(self._ring.membership, nonce=self._nonce(), token=0)
        self._ring.restart(self._join(m, elastic=True, timeout_s=limit_s))
        self._state["member"], self._broken = True, ""

    def halt(self) -> None:
        """Suspends the job: collectives of all its workers wait, with a HaltedWarning, until one calls `resume`.
        RefusedError, SwitchUnreachableError."""
        self._switch_on(False)

    def resume(self) -> None:
        """Lets a halted job go on. RefusedError, SwitchUnreachableError."""
        self._switch_on(True)

    def _switch_on(self, on: bool) -> None:
        self._require_open()
        with self._keepalive:
            self._control.halt(self._ring.membership, not on)

    def close(self) -> bool:
        self._broken = "it has left the job"
        return super().close()

    # Within

    def _handle_train(self, buffer: memoryview, size: int, segment_bytes: int) -> None:
        if not self._broken or self._inquiring:
            with contextlib.suppress(MembershipRejectedError):  # the next collective will get it again
                self._ring.handle_train(buffer, size, segment_bytes)

    def _serve(self) -> float:
        try:
            if not self._broken:
                return self._ring.serve()
            return self._ring.discard()
        except MembershipRejectedError:
            return 1.0

    def _collect(
        self, values: np.ndarray, format: Format, *, whole: bool = False, within_sync: bool = False
    ) -> Reduction:
        """Sums `values` (1-D, C-contiguous, 4 bytes each, little-endian) over the job, in place; `whole`: over all
        members. A `sync_state` that is interrupted between its collectives must be called again: `needs_sync` stays true until
        it has succeeded."""
        self._require_open()
        with self._exclusive_call():
            if self._broken:
                raise IswitchError(f"this worker can take part in no collective: {self._broken}")
            if self._needs_sync and not within_sync:
                raise MembershipChangedError(
                    "call `sync_state` before the next collective, on all workers: newcomers were let into the job and wait for "
                    "its state, or the job began again and the workers may be at different steps (`needs_sync` says when)"
                )
            if values.size:
                headers, resent, odd, self._admitted = self._reduce(values, format, whole)
                self._needs_sync = self._admitted or within_sync
                self._collectives += 1
            else:
                headers, resent, odd, self._admitted = np.zeros(0, HEADER), 0, False, False
        return Reduction(self.world, self.elements, resent, headers, odd)

    def _reduce(self, values: np.ndarray, format: Format, whole: bool) -> CollectiveResult:
        """One collective at the switch, whose errors become those of this package. This worker is broken until it has
        succeeded."""
        with self._keepalive:
            self._stall = None
            self._broken = "a collective before it failed. Call `rejoin`, then `sync_state`"
            try:
                tally = self._ring.reduce(
                    values,
                    format,
                    self.timeout_s,
                    whole=whole,
                    inquire=lambda: self._inquire(values.size, format),
                    inquire_s=min(_QUIET_S, self.switch_timeout_s),
                    verify=self._verify,
                )
            except MembershipRejectedError as notice:
                self._noticed(notice.reason)
            except NoProgressError as stalled:
                raise self._stall_of(values.size, format).timeout(
                    self._counters_at_join, self.timeout_s, str(stalled)
                ) from None
            except SwitchUnreachableError as lost:
                raise SwitchUnreachableError(
                    f"in the middle of a collective of {self._job_name}: {lost}. `rejoin(timeout_s=...)` waits for the switch; "
                    "then call `sync_state`"
                ) from None
            self._broken = ""
        return tally

    def _stall_of(self, elements: int, format: Format) -> Stall:
        """What is known of why the present collective makes no progress."""
        self._stall = self._stall or Stall(self._control, self.config, self._ring, elements, format, self._job_name)
        return self._stall

    def _inquire(self, elements: int, format: Format) -> None:
        """Asks the switch why no result comes. Raises MismatchError, SwitchUnreachableError."""
        self._inquiring = True
        try:
            self._stall_of(elements, format).look()
        finally:
            self._inquiring = False

    def _verify(self, notice: MembershipRejectedError) -> None:
        """Returns if the notice is of an epoch before the present one: the network has delivered it late. Otherwise
        raises the notice; NotAMemberError, SwitchUnreachableError."""
        if notice.reason != Reason.EPOCH:
            raise notice
        self._inquiring = True
        try:
            self._renewed = self._control.renew(self._ring.membership)
        except NotAMemberError as gone:
            self._broken, self._state["member"] = str(gone), False
            raise
        finally:
            self._inquiring = False
        if self._renewed.epoch != self._ring.membership.epoch:
            raise notice

    def _noticed(self, reason: Reason) -> NoReturn:
        if reason == Reason.EPOCH:
            self._ring.restart(self._renewed)
            self._broken, self._needs_sync = "", True
            raise JobResetError(
                f"{self._job_name} was reset by another worker, and what was under way is lost: call `sync_state`, which brings all workers to "
                "the same step, then go on"
            ) from None
        self._state["member"] = False
        self._broken = f"the switch does not know it any more as a member of {self._job_name}. C{_REMEDY[1:]}"
        raise self._not_a_member_error(reason, _REMEDY) from None

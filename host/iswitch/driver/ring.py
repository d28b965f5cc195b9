"""One member's end of a job's ring of slots: the window, retransmission, receipts. Section 3 of `docs/protocol.md`.

The ring has no thread and waits for nothing but the transport. `segment_ledger.py` records which results are lacked and
finds lost segments; this module sends, receives, and keeps time. A segment's index is its seq minus `base`, the seq
with which the present collective begins. If the job's threshold is below its world and this member lags, results of
later collectives come. The ring stores up to `backlog` segments of them, and acknowledges no more than it stores.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from iswitch.driver.activity import ActivityMeter
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError, handle_notice
from iswitch.driver.packing import Packer, Payloads
from iswitch.driver.progress import STATELESS, Progress
from iswitch.driver.segment_ledger import SegmentLedger
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.window import SendWindow
from iswitch.errors import HaltedWarning, MismatchError
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    RESULT_HEADER,
    TAIL,
    TAIL_BYTES,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    ResultFlag,
    Type,
    result_identity,
    version_type,
)
from iswitch.wire.formats import FORMATS

__all__ = ["CollectiveResult", "NoProgressError", "Ring"]

_RETRANSMISSION = int(ContributionFlag.RETRANSMISSION) << FLAGS_SHIFT  # arithmetic on enumerations is slow
_REQUIRES_ALL = int(ContributionFlag.REQUIRES_ALL) << FLAGS_SHIFT
_PARTIAL = int(ResultFlag.PARTIAL) << FLAGS_SHIFT
_RESENT = int(ResultFlag.RESENT) << FLAGS_SHIFT
_MEMBERS_CHANGED = int(ResultFlag.MEMBERS_CHANGED) << FLAGS_SHIFT
_FORMAT_MASK = (1 << FLAGS_SHIFT) - 1
_LONGEST_TIMEOUT_S = 1.0
_PARTIAL_TIMEOUT_S = 0.05
"""Longest time-out where other members go on without this one: a slot can be blocked until this member's receipt."""
_PARTIAL_IDLE_S = 0.02
"""Time to the first receipt between collectives, where other members go on without this one."""
_SIGNS_OF_LIFE = 5
"""Least number of messages in the time after which the switch evicts a silent member."""


class NoProgressError(Exception):
    """A collective received no result for its time limit.

    The driver raises this error within the package only: a worker turns it into CollectiveTimeoutError.
    """

    def __init__(self, held: int, segments: int):
        super().__init__(f"{held} of {segments} results have come")


class CollectiveResult(NamedTuple):
    """Result of one collective; the sum itself is in the caller's array.

    Parameters
    ----------
    headers : numpy.ndarray
        `RESULT_HEADER`, shape (segments,): the headers of the results.
    retransmissions : int
        Retransmitted contributions.
    flagged : bool
        True if a result is partial or tainted.
    admitted : bool
        True if joining members take part from the next collective on.
    """

    headers: np.ndarray
    retransmissions: int
    flagged: bool
    admitted: bool


class Ring:
    """Sends and receives for one member: `reduce` runs one collective, `serve` works between two.

    One thread calls the ring at a time. After MembershipRejectedError, CollectiveConflictError, NoProgressError,
    MismatchError or an interrupt, the ring is desynchronised until `restart`.

    Parameters
    ----------
    transport : Transport
        Carries frames and provides the clock.
    membership : Membership
        The granted membership.
    backlog : int
        Segments of later collectives to store.
    """

    def __init__(self, transport: Transport, membership: Membership, *, backlog: int):
        self.transport, self.backlog = transport, backlog
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self.segments = 0
        """Segments of all completed collectives."""
        self.forged = 0
        """Results that were ignored because they do not carry the job's token."""
        self.activity = ActivityMeter(transport.now())
        self.progress = Progress()
        """What this member has applied. It stays the same when the ring restarts."""
        self.collective = Collective(0, 0, 0)
        """The present collective, or the last one."""
        self.restart(membership)

    def restart(self, membership: Membership) -> None:
        """Drop all state, and begin at the membership's epoch and first seq."""
        self.membership = membership
        self.window = SendWindow(membership.window)
        self.packer = Packer(membership, self.transport.burst_segments(HEADER.itemsize + 4 * membership.elements))
        self.set_threshold(membership.threshold)
        self.base = membership.first_seq
        self._first_word = version_type(Type.RESULT) | membership.job << 8 | membership.epoch << 16  # of our results
        self._stored: list[np.ndarray] = []  # bursts of results for later collectives, as received
        self._nothing = Payloads(np.empty(0, np.float32), membership.elements)
        self._format = self._format_flags = int(membership.format)
        self.halted = False
        """The switch has reported that the job is halted, since the program last cleared this."""
        self.activity.restart(self.transport.now())
        self._ledger = SegmentLedger(self.backlog)
        self._open(self._nothing)
        self._acknowledged = self.base  # the switch has recorded that this member holds every result below this seq

    def set_threshold(self, threshold: int) -> None:
        """Set the job's threshold. Below the world, or with a deadline, other members go on without this one."""
        m = self.membership
        self.partial = threshold < m.world or m.deadline_us > 0
        sign_of_life_s = m.evict_us / 1e6 / _SIGNS_OF_LIFE or _LONGEST_TIMEOUT_S
        self._cap_s = min(_LONGEST_TIMEOUT_S, sign_of_life_s)
        self.timer = RetransmissionTimer(cap_s=self._longest_timeout_s())
        self._restart_idle_timer()

    def _longest_timeout_s(self) -> float:
        """Return the longest time-out. A retransmission makes the switch look at a deadline, so it must not be
        later."""
        limits_s = [self._cap_s]
        if self.partial:
            limits_s.append(_PARTIAL_TIMEOUT_S)
        if self.membership.deadline_us:
            limits_s.append(self.membership.deadline_us / 2e6)
        return min(limits_s)

    def _expect_partial(self) -> None:
        """Record that other members go on without some member: a threshold was lowered, or a slot forced."""
        if not self.partial:
            self.partial = True
            self.timer.cap_s = self._longest_timeout_s()
            self._restart_idle_timer()

    @property
    def low(self) -> int:
        """The lowest seq whose result is lacked."""
        return (self.base + self._ledger.low) % 2**32

    @property
    def lacked(self) -> tuple[int, int]:
        """The index of the lowest segment that is lacked, and the bytes of this worker's contribution to it."""
        low, payloads = self._ledger.low, self._payloads
        return low, payloads.rows.shape[1] if low < len(payloads.rows) else payloads.last.size

    # A collective

    def reduce(
        self,
        values: np.ndarray,
        format: Format,
        timeout_s: float,
        *,
        kind: CollectiveKind = CollectiveKind.ALLREDUCE,
        argument: int = 0,
        all_members: bool = False,
        inquire: Callable[[], None] | None = None,
        inquire_s: float = 1.0,
        confirm: Callable[[MembershipRejectedError], None] | None = None,
    ) -> CollectiveResult:
        """Sum an array over the job, in place.

        Parameters
        ----------
        values : numpy.ndarray
            1-D, C-contiguous, four bytes an element.
        format : Format
            Number format of the sum.
        timeout_s : float
            Seconds without any result before NoProgressError. A halted job does not count.
        kind : CollectiveKind
            What the members call. The switch adds only contributions of one kind and one position.
        argument : int
            A number on which all members must agree, such as the root of a broadcast.
        all_members : bool
            Wait for all members, whatever the job's threshold and deadline are.
        inquire : callable, optional
            Called each time that no result has come for `inquire_s`. The function may call `handle_burst` with what
            comes meanwhile, and raises what it finds.
        inquire_s : float
            Seconds.
        confirm : callable, optional
            Called with a MembershipRejectedError. The function may call `handle_burst`; it returns if the rejection is
            void, and raises otherwise.

        Returns
        -------
        CollectiveResult
            The headers of the results, and their combined flags.

        Raises
        ------
        MembershipRejectedError
            If the switch rejects this member and `confirm` is None.
        CollectiveConflictError
            If another member calls another collective, or has applied other results.
        MismatchError
            If a result does not fit the array, or belongs to another collective.
        NoProgressError
            If no result has come for `timeout_s`.
        """
        self._format, self._format_flags = int(format), int(format) | all_members * _REQUIRES_ALL
        payloads = Payloads(values, self.membership.elements)
        self.collective, digest = self.progress.collective(kind, payloads.size), self.progress.digest(kind, argument)
        self.packer.begin_collective(self.collective, digest)
        self._open(payloads)
        ledger, segments = self._ledger, self._payloads.size
        now = self.transport.now()
        self.activity.mark(now)
        self._send_new(now)
        self._begun_at = now
        expiry, deadline, inquiry = now + self._timeout_s, now + timeout_s, now + inquire_s
        while ledger.low < segments:
            low = ledger.low
            try:
                new_results = self._receive(min(expiry, deadline) - now)
                now = self.transport.now()
                while (
                    new_results
                    and ledger.next < segments
                    and ledger.next - ledger.low > self.window.size * 3 // 4
                    and self._receive(0.0)
                ):
                    pass  # the window allows few segments: send them together with those of further results
            except MembershipRejectedError as rejection:
                if confirm is None:
                    raise
                confirm(rejection)
                new_results, now = ledger.low - low, self.transport.now()
            self.activity.mark(now)
            if new_results:
                self._measure_delay(now)
                self._send_new(now)
                self._retransmit(ledger.lost(now, self.timer), now)
                expiry, deadline, inquiry = now + self._timeout_s, now + timeout_s, now + inquire_s
            elif self.halted:
                self.halted = False
                deadline = now + timeout_s
                expiry = now + min(self._timeout_s, timeout_s / 4)
                warnings.warn(
                    "the job is halted: this collective waits until a worker of the job calls `resume`",
                    HaltedWarning,
                    stacklevel=5,
                )
            elif now >= deadline:
                raise NoProgressError(ledger.held, segments)
            elif now >= expiry:
                self._retransmit(ledger.probes(now, self.timer, has_results=self._first_result_at is not None), now)
                self.timer.back_off()
                if inquire and now >= inquiry:
                    inquire()
                    now = self.transport.now()
                    inquiry = now + inquire_s
                    self._send_new(now)
                expiry = now + self._timeout_s
        if (self._tails["identity"] != result_identity(self.collective.word, digest)).any():
            raise MismatchError(
                "a result belongs to another collective than this worker's: the workers are at different steps, or "
                "have applied different results. On all workers, call `rejoin`, then `sync_state`, and go on from the "
                "step that it returns"
            )
        if kind not in STATELESS:
            self.progress.extend(self._headers, self._tails)
        flags = self._flags
        result = CollectiveResult(
            self._headers, ledger.retransmissions, bool(flags & ~_MEMBERS_CHANGED), bool(flags & _MEMBERS_CHANGED)
        )
        self._close(segments)
        self.activity.forget(before=self._begun_at)
        return result

    def _open(self, payloads: Payloads) -> None:
        """Begin a collective with these payloads, and take the results that have come for it already."""
        self._payloads = payloads
        self._ledger.open(payloads.size)
        seqs = np.arange(self.base, self.base + payloads.size).astype(np.uint32)
        # The first 8 bytes of each segment's result, to recognise a burst of results at once.
        self._starts = (seqs.astype(np.uint64) << np.uint64(32)) | np.uint64(self._first_word)
        self._headers = np.zeros(payloads.size, RESULT_HEADER)
        self._tails = np.zeros(payloads.size, TAIL)
        # The same as rows of bytes, which are copied three times as fast.
        self._header_rows = self._headers.view(np.uint8).reshape(-1, HEADER.itemsize)
        self._tail_rows = self._tails.view(np.uint8).reshape(-1, TAIL_BYTES)
        self._flags = 0  # of all results, except RESENT
        self._first_result_at: float | None = None
        self._measured = -1  # the segment whose delay was measured last
        if self._stored:
            stored, self._stored = self._stored, []
            for records in stored:
                self._handle_datagrams(records)
            self._ledger.advance()

    def _close(self, segments: int) -> None:
        """End the collective, and count from its end. The payloads belong to the caller again."""
        self.base = (self.base + segments) % 2**32
        self.segments += segments
        self.window.end_collective()
        self._payloads, self._starts = self._nothing, self._starts[:0]
        self._ledger.close()
        self._restart_idle_timer()
        if self.partial:
            self._send_receipts(np.array([self._ledger.low]), want=False)

    # Sending

    def _send_new(self, now: float) -> None:
        """Send all that the window allows. If it allows nothing and other members may go on, send a receipt when many
        results are not yet acknowledged."""
        ledger = self._ledger
        first = max(ledger.next, ledger.low)
        end = min(ledger.low + self.window.size, self._payloads.size)
        if first >= end:
            self._acknowledge()
            return
        ledger.next = end
        lacked = ledger.lacked[first:end]
        if np.count_nonzero(lacked) < end - first:
            self._send(np.flatnonzero(lacked) + first, now, 0)
            return
        for burst in self.packer.contributions(
            self._payloads, first, end, base=self.base, low=ledger.low, format_flags=self._format_flags
        ):
            self.transport.send(burst, self.packer.segment_bytes)
        ledger.sent_at[first:end] = now
        self._acknowledged = self.low

    def _send(self, indices: np.ndarray, now: float, flags: int) -> None:
        for burst in self.packer.scattered(
            self._payloads, indices, base=self.base, low=self._ledger.low, format_flags=self._format_flags | flags
        ):
            self.transport.send(burst, self.packer.segment_bytes)
        self._ledger.sent_at[indices] = now
        self._acknowledged = self.low

    def _retransmit(self, indices: np.ndarray, now: float) -> None:
        if len(indices):
            self._ledger.record_retransmissions(indices)
            self._send(indices, now, _RETRANSMISSION)

    def _acknowledge(self) -> None:
        """Send a receipt if other members may wait for one, and many results are held since the last one."""
        if self.partial and (self.low - self._acknowledged) % 2**32 >= max(1, self.window.most // 4):
            self._send_receipts(np.array([self._ledger.low]), want=False)

    def _send_receipts(self, indices: np.ndarray, *, want: bool) -> None:
        low = self._ledger.low
        self.transport.send(
            self.packer.receipts(indices, base=self.base, low=low, want=want and low < self.backlog), HEADER.itemsize
        )
        self._acknowledged = self.low

    @property
    def _timeout_s(self) -> float:
        """Seconds from now, after a new result or a time-out, to the next time-out."""
        return self.timer.first_timeout_s if self._first_result_at is None else self.timer.timeout_s

    # Receiving

    def _receive(self, timeout_s: float) -> int:
        """Receive one burst. Return the number of new results in it."""
        size, segment_bytes = self.transport.receive(self._view, timeout_s)
        return self.handle_burst(self._buffer, size, segment_bytes) if size else 0

    def handle_burst(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> int:
        """Handle a burst of received datagrams.

        Parameters
        ----------
        buffer : numpy.ndarray or memoryview
            The datagrams end to end, `segment_bytes` each; the last one may be shorter.
        size : int
            Bytes of the burst.
        segment_bytes : int
            Bytes of a datagram.

        Returns
        -------
        int
            The number of new results.

        Raises
        ------
        MembershipRejectedError
            If the switch rejects this member.
        CollectiveConflictError
            If another member calls another collective.
        MismatchError
            If a result does not fit this member's array.
        """
        count, rest = divmod(size, segment_bytes)
        try:
            new_results = self._handle_datagrams(np.ndarray((count, segment_bytes), np.uint8, buffer))
            if rest:
                new_results += self._handle_datagrams(np.ndarray((1, rest), np.uint8, buffer, size - rest))
        finally:
            self._ledger.advance()
        return new_results

    def _handle_datagrams(self, records: np.ndarray) -> int:
        """Handle datagrams of one size, uint8, shape (datagrams, bytes). Return the number of new results."""
        count, size = records.shape
        if size < HEADER.itemsize:
            return 0
        ledger = self._ledger
        headers = np.ndarray(count, RESULT_HEADER, records, 0, (size,))
        starts = np.ndarray(count, "<u8", records, 0, (size,))
        first = (int(starts[0]) >> 32) - self.base
        genuine = headers["token"] == self.membership.job_token
        if first >= ledger.high and genuine.all() and starts.tobytes() == self._starts[first : first + count].tobytes():
            self._store(headers, records, slice(first, first + count), first, first + count)  # the usual case
            return count

        ours = starts.astype(np.uint32) == self._first_word
        if not ours.all():
            for header in np.ndarray(count, HEADER, records, 0, (size,))[~ours]:
                self._handle_other(header)
        self.forged += int(np.count_nonzero(ours & ~genuine))
        ours &= genuine
        headers, records = headers[ours], records[ours]
        indices = (headers["seq"] - np.uint32(self.base)).view(np.int32)
        new = (indices >= 0) & (indices < len(ledger.lacked) - 1)
        new[new] = ledger.lacked[indices[new]]
        headers, records, indices = headers[new], records[new], indices[new]
        later = indices >= self._payloads.size
        if later.any():
            self._expect_partial()
            self._stored.append(records[later])
            ledger.record_later_results(indices[later])
        if not later.all():
            indices = indices[~later]
            self._store(headers[~later], records[~later], indices, int(indices.min()), int(indices.max()) + 1)
        return len(later)

    def _handle_other(self, header: np.void) -> None:
        """Handle a frame that is not a result of this epoch."""
        try:
            self.halted |= handle_notice(header, self.membership)
        except CollectiveConflictError as conflict:  # void if it is late: the segment's result has come
            index = (conflict.seq - self.base) % 2**32
            if index < self._payloads.size and self._ledger.lacked[index]:
                raise

    def _store(self, headers: np.ndarray, records: np.ndarray, which: slice | np.ndarray, first: int, end: int) -> None:
        """Copy new results of the present collective into the array. All of them are from `first` to `end` - 1."""
        payloads, size = self._payloads, records.shape[1] - HEADER.itemsize - TAIL_BYTES
        full = size == self.packer.segment_bytes - HEADER.itemsize and (not payloads.last.size or end < payloads.size)
        short = first == payloads.size - 1 and size == payloads.last.size
        format_flags, resent = headers["format_flags"], 0
        if format_flags.tobytes() != bytes((self._format,)) * len(format_flags):
            self._flags |= int(np.bitwise_or.reduce(format_flags)) & ~_FORMAT_MASK & ~_RESENT
            if resent := int(np.count_nonzero(format_flags & _RESENT)):
                self.timer.record_loss()
            if np.count_nonzero(format_flags & _FORMAT_MASK != self._format):
                full = short = False
            if self._flags & _PARTIAL:
                self._expect_partial()
        body = records[:, HEADER.itemsize : -TAIL_BYTES]
        if full:
            payloads.rows[which] = body
        elif short:
            payloads.last[:] = body[0]
        else:
            element = FORMATS[Format(int(format_flags[0]) & _FORMAT_MASK)].element
            raise MismatchError(
                f"a result has {size // 4} {element.name} elements, which does not fit "
                "this worker's array: all workers of a job must call the same collectives, on arrays of the same "
                "size and dtype, in the "
                "same order"
            )
        self._header_rows[which], self._tail_rows[which] = records[:, : HEADER.itemsize], records[:, -TAIL_BYTES:]
        retransmitted = self._ledger.record_results(which, first, end)
        self.window.record_results(len(headers), retransmitted=retransmitted, resent=resent)

    def _measure_delay(self, now: float) -> None:
        """Measure the delay of new results. The time to a collective's first result is not the network's alone."""
        newest = self._ledger.newest
        if self._first_result_at is None:
            self._first_result_at = now
            self.timer.add_first_delay(now - self._begun_at)
        elif newest > self._measured:
            self.timer.add_delay(now - max(float(self._ledger.sent_at[newest]), self._first_result_at))
        self._measured = newest
        self.timer.end_backoff()

    # Between collectives

    def _restart_idle_timer(self) -> None:
        self._idle_s = _PARTIAL_IDLE_S if self.partial else self._cap_s
        self._idle_until = self.transport.now() + self._idle_s

    def serve(self) -> float:
        """Between collectives: receive what has come, and acknowledge it.

        A receipt can be lost, and a job with a threshold below its world would then stop. So the ring repeats receipts
        at growing intervals, with a request for the results that it lacks. If all members must contribute, the next
        contribution carries all information of a receipt.

        Returns
        -------
        float
            Seconds to the next call, at the latest.

        Raises
        ------
        MembershipRejectedError
            If the switch rejects this member.
        """
        self.activity.mark(self.transport.now())
        while self._receive(0.0):
            self._restart_idle_timer()
        self._acknowledge()
        now = self.transport.now()
        if now >= self._idle_until:
            ledger = self._ledger
            top = min(max(ledger.high, ledger.low + 1), ledger.low + self.window.most + 1)
            self._send_receipts(np.flatnonzero(ledger.lacked[ledger.low : top]) + ledger.low, want=True)
            self._idle_s = min(2 * self._idle_s, self._longest_timeout_s())
            self._idle_until = now + self._idle_s
        return max(0.0, self._idle_until - now)

    def discard(self) -> float:
        """Between collectives of a desynchronised ring: discard received frames and send a periodic keepalive.

        A received frame triggers no keepalive, because that frame may be the switch's notice about the last keepalive.

        Returns
        -------
        float
            Seconds to the next call, at the latest.
        """
        while self.transport.receive(self._view, 0.0)[0]:
            pass
        now = self.transport.now()
        self.activity.mark(now)
        if now >= self._idle_until:
            self._send_receipts(np.array([self._ledger.low]), want=False)
            self._idle_until = now + self._cap_s
        return max(0.0, self._idle_until - now)

"""One member's end of a job's ring of slots: the window, retransmission, receipts. Section 3 of `docs/protocol.md`.

No threads and no waiting for anybody but the transport. Segments are spoken of by *index*: seq minus `base`, the seq
with which the present collective began. Results for later collectives, which come when a job's threshold is below its
world and this member lags, are kept up to `backlog` segments and are acknowledged only as far as they are kept.

One class, for what may be sent, what is sent again and what is acknowledged all follow from one record of what is
lacked.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.driver.packing import Packer, Payloads
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.window import SendWindow
from iswitch.errors import HaltedWarning, MismatchError
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    TAIL_BYTES,
    ContributionFlag,
    Format,
    Reason,
    ResultFlag,
    Type,
    version_type,
)

__all__ = ["MembershipRejectedError", "Ring", "NoProgressError", "CollectiveResult"]

_NOTICE = version_type(Type.NOTICE)
_RETRANSMISSION = int(ContributionFlag.RETRANSMISSION) << FLAGS_SHIFT  # arithmetic on enumerations is slow
_REQUIRES_ALL = int(ContributionFlag.REQUIRES_ALL) << FLAGS_SHIFT
_PARTIAL, _RESENT, _CHANGE = (
    int(ResultFlag.PARTIAL) << FLAGS_SHIFT,
    int(ResultFlag.RESENT) << FLAGS_SHIFT,
    int(ResultFlag.MEMBERS_CHANGED) << FLAGS_SHIFT,
)
_GAP = 3
"""A segment is taken for lost when so many that were sent after it have come back."""
_PROBES, _PROBES_LOSSY = 1, 8
"""So many of the last segments lacked are sent again after a time-out, and so many where loss is proven."""
_NO_SEGMENTS = np.empty(0, np.int64)
_PARTIAL_CAP_S = 0.05
"""With a threshold below the world a slot can be held for a laggard's receipt, so nobody waits longer to try again."""
_REST_PARTIAL_S, _CAP_S = 0.02, 1.0
_SIGNS_OF_LIFE = 5
"""At least so many messages go out in the time after which a silent member is evicted."""


class MembershipRejectedError(Exception):
    """The switch does not know this member, or not in this epoch."""

    def __init__(self, reason: Reason):
        super().__init__(reason.name)
        self.reason = reason


class NoProgressError(Exception):
    """No result came for the time allowed."""

    def __init__(self, held: int, segments: int):
        super().__init__(f"{held} of {segments} segments have come back")


class CollectiveResult(NamedTuple):
    """Of one collective. headers: those of its results, (segments,) `HEADER`. retransmissions: contributions sent again.
    flagged: some results are partial or tainted. admitted: the switch admits joining members to the next collective."""

    headers: np.ndarray
    retransmissions: int
    flagged: bool
    admitted: bool


class Ring:
    """Sends and receives for one member. `reduce` runs one collective; `serve` is for the time between.

    Not safe for threads: one call at a time. After `MembershipRejectedError`, `NoProgressError`, `MismatchError` or an interrupt the ring is out
    of step with the others' until `restart`.
    """

    def __init__(self, transport: Transport, membership: Membership, *, backlog: int):
        self.transport, self.backlog = transport, backlog
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self.segments = 0
        self.restart(membership)

    def restart(self, membership: Membership) -> None:
        """Forgets everything and begins at the membership's epoch and first seq."""
        self.membership = membership
        self.window = SendWindow(membership.window)
        self.packer = Packer(membership, self.transport.train_segments(HEADER.itemsize + 4 * membership.elements))
        self.set_threshold(membership.threshold)
        self.base = membership.first_seq
        self._word = version_type(Type.RESULT) | membership.job << 8 | membership.epoch << 16
        self._kept: list[np.ndarray] = []  # trains of results for later collectives, as received
        self._nothing = Payloads(np.empty(0, np.float32), membership.elements)
        self._format = self._flags = int(membership.format)
        self.halted = False  # the switch has said so since this was last looked at
        self._open(self._nothing)
        self._told = self.base  # the switch knows that we hold everything below this seq

    def set_threshold(self, threshold: int) -> None:
        """What the job's threshold is now. Below the world, or with a deadline, others go on without this member."""
        m = self.membership
        self.partial = threshold < m.world or m.deadline_us > 0
        alive_s = m.evict_us / 1e6 / _SIGNS_OF_LIFE or _CAP_S
        self._cap_s = min(_CAP_S, alive_s)
        self.timer = RetransmissionTimer(cap_s=self._longest_s())
        self._rest()

    def _longest_s(self) -> float:
        """The longest time until a repeat. A deadline is looked at when somebody repeats."""
        shortest = [self._cap_s, *([_PARTIAL_CAP_S] if self.partial else [])]
        return min(shortest + ([self.membership.deadline_us / 2e6] if self.membership.deadline_us else []))

    def _expect_partial(self) -> None:
        """Others go on without some member: the threshold was lowered, or a slot forced."""
        if not self.partial:
            self.partial = True
            self.timer.cap_s = self._longest_s()
            self._rest()

    @property
    def low(self) -> int:
        """The lowest seq whose result is lacked."""
        return (self.base + self._low) % 2**32

    @property
    def lacked(self) -> tuple[int, int]:
        """The lowest segment that is lacked, counted from the collective's first, and the bytes of this worker's
        contribution to it."""
        whole = self._low < len(self._payloads.rows)
        return self._low, self._payloads.rows.shape[1] if whole else self._payloads.last.size

    # A collective

    def reduce(
        self,
        values: np.ndarray,
        format: Format,
        timeout_s: float,
        *,
        all_members: bool = False,
        inquire: Callable[[], None] | None = None,
        inquire_s: float = 1.0,
        confirm: Callable[[MembershipRejectedError], None] | None = None,
    ) -> CollectiveResult:
        """Sums `values` (1-D, C-contiguous, 4-byte elements) over the job, in place. timeout_s: the longest time
        without any result, unless the job is halted. all_members: wait for all members, whatever the job's threshold and
        deadline say. inquire: is called each time that no result has come for `inquire_s`, may `handle_train` what comes
        meanwhile, and raises what it finds. confirm: is called with a MembershipRejectedError, may `handle_train` likewise, and returns if the
        notice is void; otherwise it raises. Raises MembershipRejectedError, NoProgressError, MismatchError."""
        self._format, self._flags = int(format), int(format) | all_members * _REQUIRES_ALL
        self._open(Payloads(values, self.membership.elements))
        segments = self._payloads.size
        now = self.transport.now()
        self._send_new(now)
        self._begun_at = now
        expiry, deadline, inquiry = now + self._timeout_s, now + timeout_s, now + inquire_s
        while self._low < segments:
            low = self._low
            try:
                fresh = self._receive(min(expiry, deadline) - now)
                now = self.transport.now()
                while (
                    fresh
                    and self._next < segments
                    and self._next - self._low > self.window.size * 3 // 4
                    and self._receive(0.0)
                ):
                    pass  # what little we could send goes with what more has come
            except MembershipRejectedError as notice:
                if confirm is None:
                    raise
                confirm(notice)
                fresh, now = self._low - low, self.transport.now()
            if fresh:
                self._clock(now)
                self._send_new(now)
                self._send_gaps(now)
                expiry, deadline, inquiry = now + self._timeout_s, now + timeout_s, now + inquire_s
            elif self.halted:
                self.halted = False
                deadline = now + timeout_s
                expiry = now + min(self._timeout_s, timeout_s / 4)
                warnings.warn(
                    "the job is halted: this collective waits until a worker calls `resume`",
                    HaltedWarning,
                    stacklevel=4,
                )
            elif now >= deadline:
                raise NoProgressError(segments - int(self._lack[:segments].sum()), segments)
            elif now >= expiry:
                self._expire(now)
                if inquire and now >= inquiry:
                    inquire()
                    now = self.transport.now()
                    inquiry = now + inquire_s
                    self._send_new(now)
                expiry = now + self._timeout_s
        result = CollectiveResult(
            self._headers, self._resent_count, bool(self._odd & ~_CHANGE), bool(self._odd & _CHANGE)
        )
        self._close(segments)
        return result

    def _open(self, payloads: Payloads) -> None:
        self._payloads = payloads
        segments = payloads.size
        self._lack = np.ones(segments + self.backlog + 1, np.bool_)  # the last is never held
        seqs = np.arange(self.base, self.base + segments).astype(np.uint32)
        self._starts = (seqs.astype(np.uint64) << np.uint64(32)) | np.uint64(self._word)  # first 8 bytes of results
        self._odd = 0  # flags that results had, but for `resent`
        self._headers = np.zeros(segments, HEADER)
        self._sent_at = np.zeros(segments)
        self._resent = np.zeros(segments, np.bool_)
        self._resent_count = 0
        self._low = self._next = self._high = 0  # first lacked; first never sent; one above the highest held
        self._first_at: float | None = None  # when the first result came
        self._newest = self._clocked = -1  # the highest held that was sent once; the one whose delay was taken last
        if self._kept:
            kept, self._kept = self._kept, []
            for records in kept:
                self._take(records)
            self._advance()

    def _close(self, segments: int) -> None:
        """The collective is over: count from its end. The payloads belong to the caller again."""
        self.base = (self.base + segments) % 2**32
        self.segments += segments
        self.window.end_collective()
        self._payloads, self._starts = self._nothing, self._starts[:0]
        self._lack = self._lack[segments:]
        self._low, self._high, self._next = self._low - segments, max(0, self._high - segments), 0
        self._rest()
        if self.partial:
            self._send_receipts(np.array([self._low]), want=False)

    def _send_new(self, now: float) -> None:
        """Whatever the window allows; if that is nothing and others may go on without us, a receipt now and then."""
        first = max(self._next, self._low)
        last = min(self._low + self.window.size, self._payloads.size)
        if first >= last:
            self._acknowledge()
            return
        self._next = last
        lacked = self._lack[first:last]
        if np.count_nonzero(lacked) < last - first:
            self._send(np.flatnonzero(lacked) + first, now, 0)
            return
        for train in self.packer.contributions(
            self._payloads, first, last, base=self.base, low=self._low, format_flags=self._flags
        ):
            self.transport.send(train, self.packer.segment_bytes)
        self._sent_at[first:last] = now
        self._told = self.low

    def _acknowledge(self) -> None:
        """A receipt if the switch does not know of many results that we hold, and if somebody could wait for it."""
        if self.partial and (self.low - self._told) % 2**32 >= max(1, self.window.most // 4):
            self._send_receipts(np.array([self._low]), want=False)

    def _send(self, indices: np.ndarray, now: float, flags: int) -> None:
        for train in self.packer.scattered(
            self._payloads, indices, base=self.base, low=self._low, format_flags=self._flags | flags
        ):
            self.transport.send(train, self.packer.segment_bytes)
        self._sent_at[indices] = now
        self._told = self.low

    def _resend(self, indices: np.ndarray, now: float) -> None:
        self._resent[indices] = True
        self._resent_count += len(indices)
        self._send(indices, now, _RETRANSMISSION)

    def _overtaken(self) -> np.ndarray:
        """Return the segments that are lacked although `_GAP` later results are here, or one if that was the last one
        sent (RFC 5827)."""
        gap = _GAP if self._high < self._next else 1
        if self._high - self._low < gap + 1:
            return _NO_SEGMENTS
        held = np.flatnonzero(~self._lack[self._low : self._high])
        if len(held) < gap:
            return _NO_SEGMENTS
        end = min(self._low + int(held[-gap]), self._next)
        return np.flatnonzero(self._lack[self._low : end]) + self._low

    def _send_gaps(self, now: float) -> None:
        """Fast retransmission: send an overtaken segment again after about a round trip, and then once in a
        time-out."""
        lost = self._overtaken()
        if len(lost):
            seen_at = self._sent_at[self._newest] if self._newest >= 0 else 0.0
            before = np.where(self._resent[lost], min(now - self.timer.base_s, seen_at), now - self.timer.patience_s)
            if len(lost := lost[self._sent_at[lost] <= before]):
                self._resend(lost, now)

    def _expire(self, now: float) -> None:
        """Send again after a time-out without any result. Before the first result that is the lowest segment alone:
        most likely another worker computes. Later it is all that were overtaken, and the last ones, whose results show
        what is lost below (RFC 8985, section 7)."""
        indices = np.array([self._low])
        if self._first_at is not None:
            lacked = np.flatnonzero(self._lack[self._low : self._next]) + self._low
            indices = np.concatenate(
                [indices, self._overtaken(), lacked[-(_PROBES_LOSSY if self.timer.lossy else _PROBES) :]]
            )
            indices = np.unique(indices[self._sent_at[indices] <= now - self.timer.base_s])
        self._resend(indices, now)
        self.timer.back_off()

    @property
    def _timeout_s(self) -> float:
        """From now, after a new result or a time-out, to the next time-out."""
        return self.timer.first_timeout_s if self._first_at is None else self.timer.timeout_s

    # Receiving

    def _receive(self, timeout_s: float) -> int:
        """One train. Returns how many results in it are new; MembershipRejectedError."""
        size, segment_bytes = self.transport.receive(self._view, timeout_s)
        return self.handle_train(self._buffer, size, segment_bytes) if size else 0

    def handle_train(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> int:
        """A train of `size` bytes in `buffer`. Returns how many results in it are new. MembershipRejectedError, MismatchError."""
        count, rest = divmod(size, segment_bytes)
        try:
            fresh = self._take(np.ndarray((count, segment_bytes), np.uint8, buffer))
            if rest:
                fresh += self._take(np.ndarray((1, rest), np.uint8, buffer, size - rest))
        finally:
            self._advance()
        return fresh

    def _take(self, records: np.ndarray) -> int:
        """UDP payloads of one size, u8 (datagrams, bytes). Returns how many are results that are new."""
        count, size = records.shape
        if size < HEADER.itemsize:
            return 0
        headers = np.ndarray(count, HEADER, records, 0, (size,))
        starts = np.ndarray(count, "<u8", records, 0, (size,))
        first = (int(starts[0]) >> 32) - self.base
        if first >= self._high and starts.tobytes() == self._starts[first : first + count].tobytes():
            self._put(headers, records, slice(first, first + count), first, first + count)  # as it nearly always is
            return count

        ours = starts.astype(np.uint32) == self._word
        if not ours.all():
            self._heed(headers[~ours])
            headers, records = headers[ours], records[ours]
        indices = (headers["seq"] - np.uint32(self.base)).view(np.int32)
        new = (indices >= 0) & (indices < len(self._lack) - 1)
        new[new] = self._lack[indices[new]]
        headers, records, indices = headers[new], records[new], indices[new]
        later = indices >= self._payloads.size
        if later.any():
            self._expect_partial()
            self._kept.append(records[later])
            self._lack[indices[later]] = False
            self._high = max(self._high, int(indices.max()) + 1)
        if not later.all():
            indices = indices[~later]
            self._put(headers[~later], records[~later], indices, int(indices.min()), int(indices.max()) + 1)
        return len(later)

    def _put(self, headers: np.ndarray, records: np.ndarray, which: slice | np.ndarray, first: int, end: int) -> None:
        """New results of the present collective into place; all are from `first` to `end` - 1."""
        payloads, size = self._payloads, records.shape[1] - HEADER.itemsize - TAIL_BYTES
        whole = size == self.packer.segment_bytes - HEADER.itemsize and (not payloads.last.size or end < payloads.size)
        short = first == payloads.size - 1 and size == payloads.last.size
        flags, resent = headers["format_flags"], 0
        if flags.tobytes() != bytes((self._format,)) * len(flags):
            self._odd |= int(np.bitwise_or.reduce(flags)) & 0xF0 & ~_RESENT
            if resent := int(np.count_nonzero(flags & _RESENT)):
                self.timer.lost()
            if np.count_nonzero(flags & 15 != self._format):
                whole = short = False
            if self._odd & _PARTIAL:  # somebody was left out
                self._expect_partial()
        body = records[:, HEADER.itemsize : -TAIL_BYTES]
        if whole:
            payloads.rows[which] = body
        elif short:
            payloads.last[:] = body[0]
        else:
            raise MismatchError(
                f"a result has {size // 4} elements of {Format(int(flags[0]) & 15).name.lower()}, which does not fit this worker's array: all "
                "workers of a job must call the same collectives, on arrays of the same size and dtype, in the same order"
            )
        self._headers[which] = headers
        self._lack[which] = False
        if end > self._high:
            self._high = end
        if isinstance(which, slice) and not self._resent_count and end <= self._next:  # as it nearly always is
            self.window.count(end - first, 0, resent)
            self._newest = max(self._newest, end - 1)
            return
        held = np.arange(first, end) if isinstance(which, slice) else which
        again = self._resent[held]
        self.window.count(len(held), int(np.count_nonzero(again)), resent)
        if len(once := held[(self._sent_at[held] > 0) & ~again]):
            self._newest = max(self._newest, int(once.max()))

    def _clock(self, now: float) -> None:
        """Measure how long new results took. Time before a collective's first result is not the network's alone."""
        if self._first_at is None:
            self._first_at = now
            self.timer.sample_first(now - self._begun_at)
        elif self._newest > self._clocked:
            self.timer.sample(now - max(float(self._sent_at[self._newest]), self._first_at))
        self._clocked = self._newest
        self.timer.restart()

    def _advance(self) -> None:
        """`_low` to the first result lacked."""
        if not self._lack[self._low]:
            self._low += int(self._lack[self._low :].argmax())

    def _heed(self, headers: np.ndarray) -> None:
        """What is no result of this epoch. Raises MembershipRejectedError if the switch says that it does not know us."""
        for header in headers:
            m = self.membership
            if (header["version_type"], header["job"], header["token"]) == (_NOTICE, m.job, m.token):
                reason = int(header["count"])
                self.halted |= reason == Reason.HALTED
                if Reason.JOB <= reason <= Reason.TOKEN and (reason != Reason.EPOCH or header["epoch"] != m.epoch):
                    raise MembershipRejectedError(Reason(reason))

    # Between collectives

    def _rest(self) -> None:
        self._rest_s = _REST_PARTIAL_S if self.partial else self._cap_s
        self._rest_until = self.transport.now() + self._rest_s

    def serve(self) -> float:
        """Between collectives: takes what has come, and acknowledges it. Returns after how many seconds to call again
        at the latest.

        Receipts can be lost, the last one too, and then a job with a threshold below its world would stop. So they are
        repeated, less and less often, with the wish for what is lacked. If all must contribute, the next
        contribution says all that a receipt could.
        """
        while self._receive(0.0):
            self._rest()
        self._acknowledge()
        now = self.transport.now()
        if now >= self._rest_until:
            top = min(max(self._high, self._low + 1), self._low + self.window.most + 1)
            self._send_receipts(np.flatnonzero(self._lack[self._low : top]) + self._low, want=True)
            self._rest_s = min(2 * self._rest_s, self._longest_s())
            self._rest_until = now + self._rest_s
        return max(0.0, self._rest_until - now)

    def discard(self) -> float:
        """Throws away what has come, for a ring that is out of step, and gives a sign of life now and then: not in
        answer to what comes, which may be the switch's notice about the last one. Returns after how many seconds to
        call again at the latest."""
        while self.transport.receive(self._view, 0.0)[0]:
            pass
        now = self.transport.now()
        if now >= self._rest_until:
            self._send_receipts(np.array([self._low]), want=False)
            self._rest_until = now + self._cap_s
        return max(0.0, self._rest_until - now)

    def _send_receipts(self, indices: np.ndarray, *, want: bool) -> None:
        self.transport.send(
            self.packer.receipts(indices, base=self.base, low=self._low, want=want and self._low < self.backlog),
            HEADER.itemsize,
        )
        self._told = self.low

"""One member's end of a job's ring of slots: the window, retransmission, receipts. Section 3 of `docs/protocol.md`.

No threads and no waiting for anybody but the transport. Segments are spoken of by *index*: seq minus `base`, the seq
with which the present collective began. Results for later collectives, which come when a job's threshold is below its
world and this member lags, are kept up to `backlog` segments and are acknowledged only as far as they are kept.
"""

import time
from typing import NamedTuple

import numpy as np

from iswitch.control import Membership
from iswitch.errors import Mismatch
from iswitch.timer import RetransmissionTimer
from iswitch.trains import Packer, Payloads
from iswitch.transport import RECEIVE_BYTES, Transport
from iswitch.wire import HEADER, TAIL_BYTES, VERSION, ContributionFlag, Format, Reason, ResultFlag, Type

__all__ = ["Notice", "Ring", "Stalled", "Tally"]

_NOTICE = VERSION << 4 | Type.NOTICE
_GAP = 3
"""A segment is taken for lost when so many that were sent after it have come back."""
_PARTIAL_CAP_S = 0.05
"""With a threshold below the world a slot can be held for a laggard's receipt, so nobody waits longer to try again."""
_REST_FIRST_S, _REST_PARTIAL_S, _REST_CAP_S = 1.0, 0.02, 1.0


class Notice(Exception):
    """The switch does not know this member, or not in this epoch."""

    def __init__(self, reason: Reason):
        super().__init__(reason.name)
        self.reason = reason


class Stalled(Exception):
    """No result came for the time allowed."""

    def __init__(self, held: int, segments: int):
        super().__init__(f"{held} of {segments} segments have come back")


class Tally(NamedTuple):
    """Of one collective. headers: those of its results, (segments,) `HEADER`. resent: contributions sent again."""

    headers: np.ndarray
    resent: int


class Ring:
    """Sends and receives for one member. `reduce` runs one collective; `tend` is for the time between.

    Not safe for threads: one call at a time. After `Notice`, `Stalled`, `Mismatch` or an interrupt the ring is out of
    step with the others' until `restart`.
    """

    def __init__(self, transport: Transport, membership: Membership, *, backlog: int):
        self.transport, self.backlog = transport, backlog
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._view = memoryview(self._buffer)
        self.restart(membership)

    def restart(self, membership: Membership) -> None:
        """Forgets everything and begins at the membership's epoch and first seq."""
        self.membership = membership
        self.window = membership.window
        self.packer = Packer(membership, self.transport.train_segments(HEADER.itemsize + 4 * membership.elements))
        self.set_threshold(membership.threshold)
        self.base = membership.first_seq
        self._word = VERSION << 4 | Type.RESULT | membership.job << 8 | membership.epoch << 16
        self._kept: list[np.ndarray] = []  # trains of results for later collectives, as received
        self._payloads = Payloads(np.empty(0, np.float32), membership.elements)
        self._format = membership.format
        self._open(self._payloads)
        self._told = self.base  # the switch knows that we hold everything below this seq

    def set_threshold(self, threshold: int) -> None:
        """What the job's threshold is now. Below the world, others go on without this member."""
        self.partial = threshold < self.membership.world
        self.timer = RetransmissionTimer(cap_s=_PARTIAL_CAP_S if self.partial else 1.0)
        self._rest()

    @property
    def low(self) -> int:
        """The lowest seq whose result is lacked."""
        return (self.base + self._low) % 2**32

    # A collective

    def reduce(self, values: np.ndarray, format: Format, timeout_s: float) -> Tally:
        """Sums `values` (1-D, C-contiguous, 4-byte elements) over the job, in place. timeout_s: the longest time
        without any result. Raises Notice, Stalled, Mismatch."""
        self._format = format
        self._open(Payloads(values, self.membership.elements))
        segments = self._payloads.size
        now = time.monotonic()
        self._send_new(now)
        expiry, deadline = now + self.timer.timeout_s, now + timeout_s
        while self._low < segments:
            fresh = self._receive(min(expiry, deadline) - now)
            now = time.monotonic()
            if fresh:
                while self._next < segments and self._next - self._low > self.window * 3 // 4 and self._receive(0.0):
                    pass  # what little we could send goes with what more has come
                self._send_new(now)
                self._send_gaps(now)
                self.timer.progress()
                expiry, deadline = now + self.timer.timeout_s, now + timeout_s
                self._progressed = True
            elif now >= deadline:
                raise Stalled(segments - int(self._lack[:segments].sum()), segments)
            elif now >= expiry:
                self._expire(now)
                expiry = now + self.timer.timeout_s
        headers, resent = self._headers, self._resent_count
        self._close(segments)
        return Tally(headers, resent)

    def _open(self, payloads: Payloads) -> None:
        self._payloads = payloads
        segments = payloads.size
        self._lack = np.ones(segments + self.backlog + 1, np.bool_)  # the last is never held
        self._headers = np.zeros(segments, HEADER)
        self._sent_at = np.zeros(segments)
        self._resent = np.zeros(segments, np.bool_)
        self._resent_count = 0
        self._low = self._next = self._high = 0  # first lacked; first never sent; one above the highest held
        self._first_at: float | None = None  # when the first result came
        self._progressed = False
        if self._kept:
            kept, self._kept = self._kept, []
            for records in kept:
                self._take(records)
            self._advance()

    def _close(self, segments: int) -> None:
        """The collective is over: count from its end. The payloads belong to the caller again."""
        self.base = (self.base + segments) % 2**32
        self._payloads = Payloads(np.empty(0, np.float32), self.membership.elements)
        self._lack = self._lack[segments:]
        self._low, self._high, self._next = self._low - segments, max(0, self._high - segments), 0
        self._rest()
        if self.partial:
            self._send_receipts(np.array([self._low]), want=False)

    def _send_new(self, now: float) -> None:
        """Whatever the window allows; if that is nothing and others may go on without us, a receipt now and then."""
        first = max(self._next, self._low)
        last = min(self._low + self.window, self._payloads.size)
        if first < last:
            indices = np.arange(first, last)
            lacked = self._lack[first:last]
            self._next = last
            if not lacked.all():
                indices = indices[lacked]
            if len(indices):
                self._send(indices, now)
                return
        self._acknowledge()

    def _acknowledge(self) -> None:
        """A receipt if the switch does not know of many results that we hold, and if somebody could wait for it."""
        if self.partial and (self.low - self._told) % 2**32 >= max(1, self.window // 4):
            self._send_receipts(np.array([self._low]), want=False)

    def _send(self, indices: np.ndarray, now: float, flags: int = 0) -> None:
        trains = self.packer.contributions(self._payloads, indices, base=self.base, low=self._low,
                                           format=self._format, flags=flags)
        for train in trains:
            self.transport.send(train, self.packer.segment_bytes)
        self._sent_at[indices] = now
        self._told = self.low

    def _resend(self, indices: np.ndarray, now: float) -> None:
        self._resent[indices] = True
        self._resent_count += len(indices)
        self._send(indices, now, ContributionFlag.RETRANSMISSION)

    def _send_gaps(self, now: float) -> None:
        """Fast retransmission: what is lacked although `_GAP` later ones are here, once in about a round trip."""
        if self._high - self._low < _GAP or not self._lack[self._low]:
            return
        held = np.flatnonzero(~self._lack[self._low:self._high])
        if len(held) < _GAP:
            return
        end = min(self._low + int(held[-_GAP]), self._next)
        lost = np.flatnonzero(self._lack[self._low:end]) + self._low
        lost = lost[self._sent_at[lost] <= now - self.timer.patience_s]
        if len(lost):
            self._resend(lost, now)

    def _expire(self, now: float) -> None:
        """Nothing came for a time-out. If something came before it, the others are there and what is lacked is lost;
        if nothing, most likely somebody is not there yet: ask with one segment only."""
        indices = np.array([self._low])
        if self._progressed:
            lacked = np.flatnonzero(self._lack[self._low:self._next]) + self._low
            overdue = lacked[self._sent_at[lacked] <= now - self.timer.timeout_s]
            indices = overdue if len(overdue) else indices
        self._resend(indices, now)
        self._progressed = False
        self.timer.back_off()

    # Receiving

    def _receive(self, timeout_s: float) -> int:
        """One train. Returns how many results in it are new; Notice."""
        size, segment_bytes = self.transport.receive(self._view, timeout_s)
        return self.absorb(self._buffer, size, segment_bytes) if size else 0

    def absorb(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> int:
        """A train of `size` bytes in `buffer`. Returns how many results in it are new. Notice, Mismatch."""
        train = np.frombuffer(buffer, np.uint8, size)
        whole = size // segment_bytes * segment_bytes
        fresh = self._take(train[:whole].reshape(-1, segment_bytes))
        if whole < size:
            fresh += self._take(train[whole:].reshape(1, -1))
        if fresh:
            self._advance()
        return fresh

    def _take(self, records: np.ndarray) -> int:
        """UDP payloads of one size, u8 (datagrams, bytes). Returns how many are results that are new."""
        count, size = records.shape
        if size < HEADER.itemsize:
            return 0
        headers = np.ndarray(count, HEADER, records, 0, (size, ))
        ours = np.ndarray(count, "<u4", records, 0, (size, )) == self._word
        if not ours.all():
            self._heed(headers[~ours])
            headers, records = headers[ours], records[ours]
        indices = (headers["seq"] - np.uint32(self.base)).view(np.int32)
        new = (indices >= 0) & (indices < len(self._lack) - 1)
        if new.all():
            new = self._lack[indices]
        else:
            new[new] = self._lack[indices[new]]
        if not new.all():
            headers, records, indices = headers[new], records[new], indices[new]
        fresh = len(indices)
        if not fresh:
            return 0

        highest = int(indices.max())
        if highest >= self._payloads.size:
            later = indices >= self._payloads.size
            self._kept.append(records[later])
            self._lack[indices[later]] = False
            headers, records, indices = headers[~later], records[~later], indices[~later]
        if len(indices):
            self._put(headers, records, indices)
        self._high = max(self._high, highest + 1)
        return fresh

    def _put(self, headers: np.ndarray, records: np.ndarray, indices: np.ndarray) -> None:
        """New results of the present collective into place."""
        payloads, body = self._payloads, records[:, HEADER.itemsize:-TAIL_BYTES]
        is_last = indices == payloads.size - 1 if payloads.last.size else None
        if is_last is not None and is_last.all():
            good, target = body.shape[1] == payloads.last.size, payloads.last
            body, place = body[0], slice(None)
        else:
            good = body.shape[1] == self.packer.segment_bytes - HEADER.itemsize and (
                is_last is None or not is_last.any())
            target, place = payloads.rows, indices
        flags = headers["format_flags"]
        if not good or ((flags & 15) != self._format).any():
            raise Mismatch(
                "a result differs in size or number format from this worker's contribution: all workers of a job must "
                "perform the same collectives, on arrays of the same size, in the same order")
        if not self.partial and (flags & ResultFlag.PARTIAL << 4).any():
            self.partial, self.timer.cap_s = True, _PARTIAL_CAP_S  # somebody has lowered the threshold
        target[place] = body
        self._headers[indices] = headers
        self._lack[indices] = False
        self._clock(int(indices[0]))

    def _clock(self, index: int) -> None:
        """Delay of a segment sent once. Time before a collective's first result is others' time: it may only lower the
        estimate."""
        now = time.monotonic()
        sent = float(self._sent_at[index])
        if self._first_at is None:
            self._first_at = now
            honest = self.timer.delay_s is None or now - sent < self.timer.delay_s
        else:
            honest, sent = True, max(sent, self._first_at)
        if honest and not self._resent[index] and self._sent_at[index]:
            self.timer.sample(now - sent)

    def _advance(self) -> None:
        """`_low` to the first result lacked."""
        self._low += int(self._lack[self._low:].argmax())

    def _heed(self, headers: np.ndarray) -> None:
        """What is no result of this epoch. Raises Notice if the switch says that it does not know us."""
        for header in headers:
            m = self.membership
            if (header["version_type"], header["job"], header["token"]) == (_NOTICE, m.job, m.token):
                reason = int(header["count"])
                if Reason.JOB <= reason <= Reason.TOKEN and (reason != Reason.EPOCH or header["epoch"] != m.epoch):
                    raise Notice(Reason(reason))

    # Between collectives

    def _rest(self) -> None:
        self._rest_s = _REST_PARTIAL_S if self.partial else _REST_FIRST_S
        self._rest_until = time.monotonic() + self._rest_s

    def tend(self) -> float:
        """Between collectives: takes what has come, and acknowledges it. Returns after how many seconds to call again
        at the latest.

        Receipts can be lost, the last one too, and then a job with a threshold below its world would stop. So they are
        repeated, less and less often, with the wish for what is lacked. If all must contribute, the next
        contribution says all that a receipt could.
        """
        while fresh := self._receive(0.0):
            self._rest()
        self._acknowledge()
        now = time.monotonic()
        if now >= self._rest_until:
            top = min(max(self._high, self._low + 1), self._low + self.window + 1)
            self._send_receipts(np.flatnonzero(self._lack[self._low:top]) + self._low, want=True)
            self._rest_s = min(2 * self._rest_s, _PARTIAL_CAP_S if self.partial else _REST_CAP_S)
            self._rest_until = now + self._rest_s
        return max(0.0, self._rest_until - now)

    def discard(self) -> None:
        """Throws away what has come: for a ring that is out of step."""
        while self.transport.receive(self._view, 0.0)[0]:
            pass

    def _send_receipts(self, indices: np.ndarray, *, want: bool) -> None:
        self.transport.send(self.packer.receipts(indices, base=self.base, low=self._low,
                                                  want=want and self._low < self.backlog), HEADER.itemsize)
        self._told = self.low

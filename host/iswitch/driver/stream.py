"""One member's end of an asynchronous job: the window, retransmission, receipts. `docs/protocol.md`, "Asynchronous
jobs".

The stream has no thread and waits for nothing but the transport, which also provides the clock. Its owner calls `serve`
when a frame has come or the time that `serve` has returned is over. `claims.py` brings the program's vectors into
updates, `received_update.py` puts the results of an update together; this module sends, receives, and keeps time.

Segments are named by their *position*, counted from the seq with which this member began: update u has the positions
from u * M on, with M segments in an update. A member requests a result that it lacks by one of two messages. If the
update contains its vector, the member retransmits its contribution: if the slot is complete, the switch answers with
the result. Otherwise the member sends a receipt with the flag `want`.
"""

import math
from collections import deque

import numpy as np

from iswitch.driver.activity import ActivityMeter
from iswitch.driver.claims import PIPELINE_DEPTH, Claims, Vector
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, handle_notice
from iswitch.driver.packing import Packer
from iswitch.driver.received_update import ReceivedUpdate
from iswitch.driver.segment_ledger import REORDERING
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    POSITION_BITS,
    RESULT_HEADER,
    TAIL_BYTES,
    Collective,
    CollectiveKind,
    ContributionFlag,
    Format,
    ResultFlag,
    Type,
    version_type,
)

__all__ = ["PIPELINE_DEPTH", "Stream"]

_RETRANSMISSION = int(ContributionFlag.RETRANSMISSION) << FLAGS_SHIFT  # arithmetic on enumerations is slow
_RESENT = int(ResultFlag.RESENT) << FLAGS_SHIFT
_GRANT, _REFUSE = version_type(Type.GRANT), version_type(Type.REFUSE)
_EMPTY_RESULT_BYTES = HEADER.itemsize + 4 + TAIL_BYTES
"""Size of the result of a segment to which no worker has contributed."""
_LONGEST_TIMEOUT_S = 0.05
"""Other members go on without this one, and a slot can be blocked until its receipt, so time-outs stay short."""
_SIGNS_OF_LIFE = 5
"""Least number of messages in the time after which the switch evicts a silent member."""
_BURSTS = 64
"""The most bursts to receive before the stream sends something."""


class Stream:
    """Sends and receives for one member of an asynchronous job.

    One thread calls the stream at a time.

    Parameters
    ----------
    transport : Transport
        Carries frames and provides the clock.
    membership : Membership
        The granted membership.
    layout : UpdateLayout
        How an update is cut into segments.
    backlog : int
        Updates to store for a program that does not take them, above the job's staleness. The stream neither stores nor
        acknowledges further results, so that the other members wait for this one when the ring is full.

    Raises
    ------
    ValueError
        If `backlog` is not above the staleness.
    """

    def __init__(self, transport: Transport, membership: Membership, layout: UpdateLayout, *, backlog: int):
        if backlog <= membership.staleness:  # or this member might not store an update that was granted to it
            raise ValueError(f"backlog must be above the staleness, {membership.staleness}, not {backlog!r}")
        self.transport, self.membership, self.layout, self.backlog = transport, membership, layout, backlog
        self.packer = Packer(membership, transport.burst_segments(HEADER.itemsize + 4 * membership.elements))
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self._first_word = version_type(Type.RESULT) | membership.job << 8 | membership.epoch << 16  # of our results
        self._formats = int(membership.format), int(Format.INT32)

        self.low = 0
        """The lowest position whose result is lacked."""
        self._high = 0  # one above the highest position that is held
        self._acknowledged = 0  # the switch has recorded that this member holds every result below this position
        # The next three are indexed by a position modulo their length. The switch has results of two windows.
        self._reach = 2 * membership.window
        self._lacked = np.ones(2 * self._reach, np.bool_)
        self._requested_at = np.full(2 * self._reach, -math.inf)  # sent, or requested by a receipt, or found lacking
        self._requests = np.zeros(2 * self._reach, np.int64)  # number of contributions and receipts for it
        self._newest_request_at = -math.inf  # the latest request that has its result

        self._updates: dict[int, ReceivedUpdate] = {}
        self.complete_updates: deque[ReceivedUpdate] = deque()
        """Complete updates that the program has not taken, in order."""
        self.updates_taken = 0
        """Updates that the program has taken."""
        self._overflowed = False  # a result was not stored, because the backlog is full

        self.retransmissions = 0
        """Contributions that this member retransmitted."""
        self.progress = 0
        """Bursts and answers with something new in them."""
        self._handled_progress = 0
        self.bursts_received = 0
        """Bursts of any content."""
        self.forged = 0
        """Results and GRANTs that were ignored because they do not carry the job's token."""
        self.halted = False
        """The switch has reported that the job is halted, since the program last cleared this."""
        self.activity = ActivityMeter(transport.now())

        sign_of_life_s = membership.evict_us / 1e6 / _SIGNS_OF_LIFE
        longest_s = min(_LONGEST_TIMEOUT_S, sign_of_life_s) if sign_of_life_s else _LONGEST_TIMEOUT_S
        self.timer = RetransmissionTimer(cap_s=longest_s)
        self._expiry = transport.now() + self.timer.timeout_s
        self.claims = Claims(
            transport, membership, self.timer, segments=layout.segments, longest_wait_s=longest_s, seq_of=self.seq_of
        )

    @property
    def segments(self) -> int:
        """Segments of an update."""
        return self.layout.segments

    @property
    def updates_complete(self) -> int:
        """Updates that are complete here. The weights of a vector cannot contain more."""
        return self.low // self.segments

    @property
    def low_seq(self) -> int:
        """The lowest seq whose result is lacked."""
        return self._seq(self.low)

    @property
    def _limit(self) -> int:
        """The lowest position that the backlog has no room for."""
        return (self.updates_taken + self.backlog) * self.segments

    def _seq(self, position: int) -> int:
        return (self.membership.first_seq + position) % 2**32

    def _position(self, seq: int) -> int:
        return self.low + (seq - self._seq(self.low) + 2**31) % 2**32 - 2**31

    def seq_of(self, update: int) -> int:
        """Return the seq with which an update begins."""
        return self._seq(update * self.segments)

    def update_of(self, seq: int) -> int:
        """Return the update that begins with a seq."""
        return self._position(seq) // self.segments

    # The program's side

    def submit(self, vector: Vector) -> None:
        """Claim an update for a vector when the vector is first in the queue.

        Raises
        ------
        ValueError
            If the pipeline is full, or if updates in the vector's weights are not complete here.
        """
        if vector.version > self.updates_complete:
            raise ValueError(
                f"a vector's version must be at most {self.updates_complete}, the updates that are complete, not "
                f"{vector.version!r}"
            )
        self.claims.submit(vector)

    def take_update(self) -> ReceivedUpdate | None:
        """Return the next update if it is complete, otherwise None."""
        if not self.complete_updates:
            return None
        self.updates_taken += 1
        if self._overflowed:  # the backlog has room again, so request the dropped results at once
            self._overflowed, self._expiry = False, self.transport.now()
        return self.complete_updates.popleft()

    # The network's side

    def serve(self, wait_s: float = 0.0) -> float:
        """Receive what has come, and send what is due.

        Parameters
        ----------
        wait_s : float
            Seconds to wait for a frame.

        Returns
        -------
        float
            Seconds to the next call, at the latest.

        Raises
        ------
        MembershipRejectedError
            If the switch has no record of this member, or the job is in another epoch.
        MismatchError
            If the members' vectors differ in size or number format.
        """
        self.activity.mark(self.transport.now())
        for _ in range(_BURSTS):
            size, segment_bytes = self.transport.receive(self._view, wait_s)
            if not size:
                break
            wait_s = 0.0
            self.handle_burst(self._buffer, size, segment_bytes)
        now = self.transport.now()
        if self.progress > self._handled_progress:
            self._handled_progress = self.progress
            self.timer.end_backoff()
            self._send_new(now)
            self._request_lost(now)
            self._acknowledge()
            self._expiry = now + self._timeout_s
        elif now >= self._expiry:
            self._handle_timeout(now)
            self._expiry = now + self._timeout_s
        self.claims.send(now)
        return max(0.0, min(self._expiry, self.claims.due_at) - now)

    def handle_burst(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> None:
        """Handle a burst of received datagrams, `size` bytes end to end in a buffer, `segment_bytes` each.

        Raises
        ------
        MembershipRejectedError, MismatchError
            As `serve`.
        """
        self.bursts_received += 1
        count, rest = divmod(size, segment_bytes)
        self._handle_datagrams(np.ndarray((count, segment_bytes), np.uint8, buffer))
        if rest:
            self._handle_datagrams(np.ndarray((1, rest), np.uint8, buffer, size - rest))

    def _handle_datagrams(self, records: np.ndarray) -> None:
        """Handle datagrams of one size, uint8, shape (datagrams, bytes)."""
        count, size = records.shape
        if size < HEADER.itemsize:
            return
        headers = np.ndarray(count, RESULT_HEADER, records, 0, (size,))
        ours = np.ndarray(count, "<u4", records, 0, (size,)) == self._first_word
        if not ours.all():
            for header in np.ndarray(count, HEADER, records, 0, (size,))[~ours]:
                self._handle_other(header)
        genuine = headers["token"] == self.membership.job_token
        self.forged += int(np.count_nonzero(ours & ~genuine))
        ours &= genuine
        headers, records = headers[ours], records[ours]
        ahead = (headers["seq"] - np.uint32(self._seq(self.low))).view(np.int32).astype(np.int64)
        new = (ahead >= 0) & (ahead < self._reach)
        new[new] = self._lacked[(ahead[new] + self.low) % len(self._lacked)]
        positions = ahead + self.low
        self._overflowed |= bool((positions[new] >= self._limit).any())
        new &= positions < self._limit
        if not new.any():
            return
        headers, records, positions = headers[new], records[new], positions[new]
        updates = positions // self.segments
        for update in np.unique(updates).tolist():
            which = updates == update
            if update not in self._updates:
                self._updates[update] = ReceivedUpdate(self.layout, self.membership.format)
            self._updates[update].store(
                positions[which] - update * self.segments, headers[which], records[which, HEADER.itemsize : -TAIL_BYTES]
            )
        self.progress += 1
        self._record_results(headers, positions)
        self._advance(unfinished=size == _EMPTY_RESULT_BYTES and not headers["members"].all())

    def _record_results(self, headers: np.ndarray, positions: np.ndarray) -> None:
        """Record new results, and measure their delay."""
        at = positions % len(self._lacked)
        self._lacked[at] = False
        resent = headers["format_flags"] & _RESENT > 0
        if resent.any():
            self.timer.record_loss()
        answered = at[resent & (self._requests[at] == 1)]
        highest = int(positions.max())
        if highest >= self._high:
            self._high = highest + 1
            self._measure_delay(self.transport.now())
        elif len(answered):  # a stored result that was requested once
            requested_at = float(self._requested_at[answered[-1]])
            self._newest_request_at = max(self._newest_request_at, requested_at)
            self.timer.add_delay(self.transport.now() - requested_at)

    def _advance(self, *, unfinished: bool) -> None:
        """Move `low` to the lowest position that is lacked now, and hand complete updates to the program.

        Parameters
        ----------
        unfinished : bool
            A result came that no worker has contributed to: its worker has left. Such an update ends only because
            other members request its results, so request the next one at once.
        """
        span = np.arange(self.low, self._high + 1) % len(self._lacked)
        held = int(self._lacked[span].argmax())
        self._lacked[span[:held]], self._requests[span[:held]], self._requested_at[span[:held]] = True, 0, -math.inf
        self.low += held
        for update in range(self.updates_taken + len(self.complete_updates), self.updates_complete):
            self.complete_updates.append(self._updates.pop(update))
            if vector := self.claims.granted_to(update):
                self.activity.forget(before=vector.first_sent_at)
            self.claims.complete(update)
        if held and unfinished and self.low < self._limit:
            self._request(np.array([self.low]), self.transport.now())

    def _measure_delay(self, now: float) -> None:
        """Measure the delay of the highest position that is held, if it was sent once. The time to an update's first
        result is not the network's alone."""
        newest = self._high - 1
        vector, at = self.claims.granted_to(newest // self.segments), newest % len(self._lacked)
        if vector is None:
            return
        if vector.first_result_at is None:
            vector.first_result_at = now
            self.timer.add_first_delay(now - vector.first_sent_at)
        elif self._requests[at] == 1:
            sent_at = float(self._requested_at[at])
            self._newest_request_at = max(self._newest_request_at, sent_at)
            self.timer.add_delay(now - max(sent_at, vector.first_result_at))

    def _handle_other(self, header: np.void) -> None:
        """Handle a frame that is not a result of this epoch."""
        m, kind = self.membership, int(header["version_type"])
        try:
            self.halted |= handle_notice(header, m)
        except CollectiveConflictError as conflict:
            raise MismatchError(
                f"the workers of job {m.job} contribute to different updates: {conflict.theirs.segments} segments "
                f"(modulo 16) at another worker, {self.segments} at this one. Start all workers with the same `size`"
            ) from None
        if (header["job"], header["epoch"]) != (m.job, m.epoch):
            return
        if kind == _GRANT and header["token"] != m.job_token:
            self.forged += 1
        elif kind == _GRANT and int(header["members"]) >> m.member & 1:
            self.progress += self.claims.handle_grant(self._position(int(header["seq"])))
        elif kind == _REFUSE and header["token"] == m.token:
            self.progress += self.claims.handle_refusal(int(header["seq"]))

    # Sending

    def _send_new(self, now: float) -> None:
        """Send all that the window allows of the granted vectors, in the order of their updates."""
        for vector in self.claims.granted:
            first = max(vector.next, self.low)
            end = min((vector.update + 1) * self.segments, self.low + self.membership.window)
            if first < end:
                vector.first_sent_at = vector.first_sent_at or now
                vector.next = end
                positions = np.arange(first, end)
                self._contribute(vector, positions[self._lacked[positions % len(self._lacked)]], now, 0)

    def _contribute(self, vector: Vector, positions: np.ndarray, now: float, flags: int) -> None:
        """Send a vector's contributions to positions of its update, i8, ascending."""
        base = vector.update * self.segments
        segments, in_vector = positions - base, self.layout.vector_segments
        update = Collective(self._seq(base) % (1 << POSITION_BITS), CollectiveKind.UPDATE, self.segments % 16)
        self.packer.begin_collective(update, digest=0)
        split = int(np.searchsorted(segments, in_vector))
        for payloads, format, first, chosen in zip(
            vector.parts, self._formats, (0, in_vector), (segments[:split], segments[split:])
        ):
            for burst in self.packer.scattered(
                payloads,
                chosen - first,
                base=self._seq(base + first),
                low=self.low - base - first,
                format_flags=format | flags,
            ):
                self.transport.send(burst, self.packer.segment_bytes)
        self._requests[positions % len(self._lacked)] += 1
        self._requested_at[positions % len(self._lacked)] = now
        if len(positions):
            self._acknowledged = self.low

    def _request(self, positions: np.ndarray, now: float) -> None:
        """Request results that are lacked: i8, ascending."""
        updates = positions // self.segments
        for update in np.unique(updates).tolist():
            chosen = positions[updates == update]
            if vector := self.claims.granted_to(update):
                chosen = chosen[chosen < vector.next]
                self.retransmissions += len(chosen)
                self._contribute(vector, chosen, now, _RETRANSMISSION)
            elif len(chosen := chosen[chosen <= self.low + self.membership.window]):
                self._requests[chosen % len(self._lacked)] += 1
                self._requested_at[chosen % len(self._lacked)] = now
                self._send_receipts(chosen, want=self.low < self._limit)

    @property
    def _timeout_s(self) -> float:
        """Seconds from now, after progress or a time-out, to the next time-out."""
        vector = self.claims.granted_to(self.low // self.segments)
        return self.timer.first_timeout_s if vector and vector.first_result_at is None else self.timer.timeout_s

    def _overtaken(self) -> np.ndarray:
        """Return the positions that are lacked although `REORDERING` later results are here. One later result is enough
        if it is an update's last (RFC 5827)."""
        gap = 1 if self._high % self.segments == 0 else REORDERING
        span = np.arange(self.low, self._high)
        lacked = self._lacked[span % len(self._lacked)]
        held = np.flatnonzero(~lacked)
        return span[: held[-gap]][lacked[: held[-gap]]] if len(held) >= gap else span[:0]

    def _request_lost(self, now: float) -> None:
        """Request overtaken results: each after about a round trip, then once in a time-out."""
        overtaken = self._overtaken()
        at = overtaken % len(self._lacked)
        self._requested_at[at[self._requested_at[at] < 0]] = now  # of an update of others: perhaps not lost, only late
        due = np.where(
            self._requests[at] > 1, min(now - self.timer.base_s, self._newest_request_at), now - self.timer.reordering_s
        )
        if len(lost := overtaken[self._requested_at[at] <= due]):
            self._request(lost, now)

    def _handle_timeout(self, now: float) -> None:
        """Request results after a time-out without progress.

        Request the lowest position that is lacked, which is also the sign of life; all that were overtaken; and the
        highest position, whose result shows what is lost below it (RFC 8985, section 7).
        """
        top = max([self._high, self.low + 1, *(vector.next for vector in self.claims.granted)])
        span = np.arange(self.low, min(top, self.low + self.membership.window + 1))
        wanted = np.concatenate([self._overtaken(), span[self._lacked[span % len(self._lacked)]][-1:]])
        overdue = wanted[self._requested_at[wanted % len(self._lacked)] <= now - self.timer.base_s]
        self._request(np.unique([self.low, *overdue.tolist()]), now)
        self.timer.back_off()

    def _acknowledge(self) -> None:
        """Send a receipt when an update is complete, or when many results are held since the last one."""
        acknowledged, quarter = self._acknowledged, max(1, self.membership.window // 4)
        if self.low - acknowledged >= quarter or self.low // self.segments > acknowledged // self.segments:
            self._send_receipts(np.array([self.low]), want=False)

    def _send_receipts(self, positions: np.ndarray, *, want: bool) -> None:
        self.transport.send(
            self.packer.receipts(positions, base=self._seq(0), low=self.low, want=want), HEADER.itemsize
        )
        self._acknowledged = self.low

"""The ordered requests of a session: numbers, the window, retransmission, waiting. Section 3 of `docs/replay.md`.

A channel has no thread, no socket and no clock. Its owner passes replies to `handle_reply`. It calls `due` and sends
what `due` returns after each reply, after each `put`, and at the time that `wake_at` returns. The switch executes
requests in the order of `put`.

The channel detects a lost request by three signs: a later request is answered AHEAD; a later request is answered, so
that only the answer of this one can be lost; or its time-out expires. Of several lost requests, the oldest is
retransmitted first. After a time-out nothing behind the request is sent before the request is answered.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from iswitch.driver.timer import RetransmissionTimer
from iswitch.replay.compiled import compiled_library
from iswitch.replay.messages import Reply, Status, encode
from iswitch.replay.request import Request
from iswitch.replay.request_ring import RequestRing
from iswitch.serial import serial_distance
from iswitch.wire.replay import ALL_FRAGMENTS, WAITS, Kind, ReplayOutcome

__all__ = ["Channel"]

_BACKOFF_CAP_S = 0.25
_RING_SLOTS = 128
"""Requests that the ring holds beside those in flight."""
_LONGEST_WAIT_S = 0.02
"""The longest pause between two transmissions of a request that has to wait. The first pause doubles up to this."""

_DONE = ReplayOutcome.DONE
EXECUTED = (ReplayOutcome.DONE, ReplayOutcome.RANGE, ReplayOutcome.MEMORY, ReplayOutcome.CORRUPT)
"""Outcomes of a request that has used its number."""


class Channel:
    """The ordered requests of one session.

    Parameters
    ----------
    session : int
        Index of the session.
    token : int
        Token of the session.
    first : int
        Number of the first request, from the answer to OPEN.
    window : int
        The most requests in flight: as many as the switch keeps answers.

    Attributes
    ----------
    oldest : int
        Number of the oldest request that is not settled.
    timer : RetransmissionTimer
        Measures delays and sets time-outs.
    retransmissions : int
        Requests that were retransmitted because they, or their answers, were presumed lost.
    """

    def __init__(self, *, session: int, token: int, first: int, window: int):
        self.session, self.token, self.window = session, token, window
        self.oldest = first
        self.timer = RetransmissionTimer(cap_s=_BACKOFF_CAP_S)
        self.retransmissions = 0
        self._queue: deque[Request] = deque()
        self._in_flight: deque[Request] = deque()
        self._ring: RequestRing | None = None  # whose usual case is in C; made when it is first needed
        self._order = 0  # transmissions so far
        self._was_ahead = False  # a request in flight may have been answered AHEAD

    @property
    def pending(self) -> int:
        """Number of requests that are not settled."""
        return len(self._queue) + len(self._in_flight) + (self._ring.pending if self._ring else 0)

    @property
    def _active_ring(self) -> "RequestRing | None":
        """The ring, if it has requests. Then nothing else is pending."""
        return self._ring if self._ring and self._ring.pending else None

    @property
    def busy(self) -> bool:
        """True if a request that cannot yield is not settled."""
        return self._active_ring is not None or any(not request.can_yield for request in self.requests())

    @property
    def only_samples(self) -> bool:
        """True if no request but SAMPLEs is pending."""
        return self._active_ring is None and all(request.kind == Kind.SAMPLE for request in self.requests())

    @property
    def queued(self) -> int:
        """Number of requests that were never sent."""
        return len(self._queue) + (self._ring.queued if self._ring else 0)

    def requests(self) -> Iterator[Request]:
        """Yield the requests that are not settled, the oldest first."""
        self._leave_ring()
        yield from (request for request in self._in_flight if not request.settled)
        yield from self._queue

    def put(self, request: Request) -> None:
        """Append a request to the queue."""
        if ring := self._active_ring:
            if ring.accepts(request):
                ring.put(request)
                return
            self._leave_ring()
        self._queue.append(request)

    def put_writes(self, bodies: np.ndarray, units: int, *, table: int, deadline: float) -> bool:
        """Append WRITEs to the queue, if their usual case can be in C.

        Parameters
        ----------
        bodies : uint8 array of shape (n, bytes)
            Rows of each WRITE.
        units : int
            Units of each.
        table, deadline
            As of `Request`.

        Returns
        -------
        bool
            False if Python must put them one by one.
        """
        ring = self._active_ring
        if ring is None:
            if self.pending or compiled_library() is None:
                return False
            ring = self._ring = self._ring or RequestRing(
                session=self.session, token=self.token, slots=self.window + _RING_SLOTS
            )
            ring.begin(first_seq=self.oldest, orders=self._order, table=table)
        if ring.pending + len(bodies) > ring.slots:
            return False
        ring.put_writes(bodies, units, deadline)
        return True

    def _leave_ring(self) -> None:
        """Go on with the requests of the ring in Python."""
        if ring := self._active_ring:
            flying, queued = ring.take_back()
            self._in_flight.extend(flying)
            self._queue.extendleft(reversed(queued))

    # Receiving

    def take(
        self, burst: memoryview, size: int, segment_bytes: int, offset: int, now: float
    ) -> tuple[int, Status | None]:
        """Take usual answers from a burst, from an offset on.

        Returns
        -------
        end : int
            The offset of the first datagram that `handle_reply` must handle.
        status : Status or None
            The status of the last answer that was taken.
        """
        ring = self._active_ring
        if ring is None or not ring.flying:
            return offset, None
        end = ring.take(burst, size, segment_bytes, offset, now)
        if end == offset:
            return offset, None
        self.timer.add_delay(*ring.delays)
        self.oldest = (ring.state.first_seq + ring.state.low) % 2**32
        return end, ring.status(ring.state.low - 1)

    def handle_reply(self, reply: Reply, now: float) -> ReplayOutcome | None:
        """Handle an ANSWER with this session's token.

        Parameters
        ----------
        reply : Reply
            The answer.
        now : float
            Time in seconds.

        Returns
        -------
        ReplayOutcome or None
            The reason in the answer; None if the answer belongs to no request in flight. Reasons for which the session
            or the request is not possible (SESSION, OLD, KIND, TABLE, LENGTH, FULL) leave the request as it is.
        """
        header, status = reply.header, reply.status
        self._leave_ring()
        index = (header.seq - self.oldest) % 2**32
        if status is None or index >= len(self._in_flight):
            return None
        request = self._in_flight[index]
        outcome = _DONE if status.outcome == _DONE else ReplayOutcome(status.outcome)
        if request.settled or header.kind != request.kind and not (header.kind == Kind.SKIP and request.cancelling):
            return None
        if outcome is _DONE:
            self._handle_executed(request, outcome, reply, status, now)
        elif outcome == ReplayOutcome.AHEAD:
            self._handle_ahead(request, status.next, now)
        elif outcome in WAITS:
            self._handle_wait(request, outcome, status, now)
        elif outcome in EXECUTED:
            self._handle_executed(request, outcome, reply, status, now)
        return outcome

    def _handle_executed(
        self, request: Request, outcome: ReplayOutcome, reply: Reply, status: Status, now: float
    ) -> None:
        if request.transmissions == 1 and not request.fragments:
            self.timer.add_delay(now - request.sent_at)
        request.status, first_order, blocking = status, request.first_order, request.blocking
        skipped = reply.header.kind == Kind.SKIP and request.kind != Kind.SKIP
        if request.kind == Kind.SAMPLE and outcome == ReplayOutcome.DONE and not skipped:
            request.fragments[reply.header.fragments] = reply.rows
            request.missing_fragments &= ~(1 << reply.header.fragments)
            if request.missing_fragments:
                self._request_missing_fragments(request, reply.header.fragments)
                return
        else:
            request.fragments[0] = reply.rows
        if skipped and request.yielding:
            self._requeue(request)
        else:
            request.outcome = request.wait_reason if skipped else outcome
        if blocking:
            self._retransmit(list(self._in_flight), now)
        self._presume_answers_lost(reply.header.seq, first_order, now)
        self._retransmit_after_ahead(now)
        while self._in_flight and self._in_flight[0].outcome is not None:
            self._in_flight.popleft()
            self.oldest = (self.oldest + 1) % 2**32
        self._was_ahead &= bool(self._in_flight)

    def _request_missing_fragments(self, request: Request, latest: int) -> None:
        """Request the missing fragments of an answer at once if the last one of those requested is here."""
        if request.missing_fragments < 1 << latest and not request.presumed_lost:
            request.presumed_lost, request.due_at = True, -math.inf

    def _requeue(self, request: Request) -> None:
        """Queue a request that yielded again. A stand-in settles the number that it had."""
        stand_in = Request(Kind.SKIP)
        stand_in.outcome = ReplayOutcome.DONE
        self._in_flight[self._in_flight.index(request)] = stand_in
        request.reset()
        self._queue.append(request)

    def _presume_answers_lost(self, answered: int, order: int, now: float) -> None:
        """Since number `answered` was executed, all requests before it were executed too. If such a request was sent
        only once, and before the transmission `order`, its answer was lost or is late."""
        for request in self._in_flight:
            if request.seq == answered:
                return
            if (
                not (request.settled or request.presumed_lost)
                and request.last_order < order
                and request.transmissions == 1
            ):
                request.presumed_lost, request.due_at = True, now + self._reordering_s

    def _handle_ahead(self, request: Request, number: int, now: float) -> None:
        """Handle an answer AHEAD: when the switch received this request, it lacked request `number`.

        So the transmissions of `number` until then were lost or overtaken. A late AHEAD may answer an earlier copy,
        sent before the retransmission. So AHEAD counts only if a round trip has passed since the last transmission.
        """
        request.ahead_answers += 1
        self._was_ahead = True
        index = serial_distance(number, self.oldest)
        if index >= len(self._in_flight):
            return
        if index < 0 or self._in_flight[index].settled:
            self._retransmit_after_ahead(now)
            return
        missing = self._in_flight[index]
        if missing.blocking:
            return
        if not missing.presumed_lost:
            if missing.last_order > request.first_order and now - missing.sent_at < self.timer.reordering_s:
                return
            missing.presumed_lost, missing.due_at = True, now + self._reordering_s
        if request.ahead_answers >= request.transmissions:
            request.presumed_lost, request.due_at = True, missing.due_at

    @property
    def _reordering_s(self) -> float:
        """How long to wait for a request that may only have been overtaken (RFC 8985)."""
        return (self.timer.delay_s or 0.0) / 4

    def _retransmit_after_ahead(self, now: float) -> None:
        """Retransmit the requests whose copies were all answered AHEAD: the earlier request that they waited for has
        now been executed."""
        if self._was_ahead:
            self._retransmit(
                [request for request in self._in_flight if request.ahead_answers >= request.transmissions], now
            )

    @staticmethod
    def _retransmit(requests: list[Request], now: float) -> None:
        for request in requests:
            if not request.settled and request.transmissions and not request.blocking:
                request.presumed_lost, request.due_at = True, now

    def _handle_wait(self, request: Request, outcome: ReplayOutcome, status: Status, now: float) -> None:
        if request.cancelling:
            return
        request.wait_reason, request.status, request.blocking = outcome, status, True
        ticket_passed = (
            request.ticket and outcome == ReplayOutcome.TICKET and serial_distance(status.ticket, request.ticket) > 0
        )
        if ticket_passed or now >= request.deadline:
            self._cancel(request, now)
        elif self._must_yield(request):
            request.yielding = True
            self._cancel(request, now)
        else:
            request.presumed_lost = request.awaits_answer = False
            request.due_at = now + request.wait_s
            request.wait_s = min(2 * request.wait_s, _LONGEST_WAIT_S)

    def _must_yield(self, request: Request) -> bool:
        """Return True if a request can yield, and a request behind it cannot."""
        return request.can_yield and any(not other.can_yield for other in self._behind(request))

    def _behind(self, request: Request) -> Iterator[Request]:
        yield from (
            other for other in self._in_flight if not other.settled and serial_distance(other.seq, request.seq) > 0
        )
        yield from self._queue

    @staticmethod
    def _cancel(request: Request, now: float) -> None:
        request.cancelling, request.due_at, request.presumed_lost = True, now, True

    # Sending

    def due_bursts(self, now: float, burst_segments: Callable[[int], int]) -> list[tuple[bytes, int]]:
        """Return the requests of the ring to send at time `now`: bursts, and the bytes of each request of a burst."""
        bursts: list[tuple[bytes, int]] = []
        if (ring := self._active_ring) and ring.flying and ring.earliest_due_at <= now:
            self._leave_ring()
        while (ring := self._active_ring) and ring.queued and ring.flying < self.window:
            most = min(self.window - ring.flying, burst_segments(ring.next_bytes))
            burst, size, count = ring.build(most, now, now + self.timer.timeout_s)
            self._order += count
            bursts.append((burst, size))
        return bursts

    def due(self, now: float) -> list[bytes]:
        """Return the UDP payloads to send at time `now`, in seconds."""
        while self._queue and len(self._in_flight) < self.window:
            request = self._queue.popleft()
            request.seq = (self.oldest + len(self._in_flight)) % 2**32
            self._in_flight.append(request)
        payloads = []
        for request in self._in_flight:
            if request.outcome is not None:
                continue
            if (
                request.wait_reason
                and not request.cancelling
                and (now >= request.deadline or self._must_yield(request))
            ):
                request.yielding = now < request.deadline
                self._cancel(request, now)
            if request.due_at <= now:
                if request.awaits_answer and not request.presumed_lost:
                    request.blocking = True  # its time-out has expired
                    self.timer.back_off()
                payloads.append(self._transmit(request, now))
            if request.blocking:
                break
        return payloads

    def _transmit(self, sent: Request, now: float) -> bytes:
        self._order += 1
        sent.first_order = sent.first_order or self._order
        sent.last_order, sent.sent_at, sent.due_at = self._order, now, now + self.timer.timeout_s
        sent.presumed_lost, sent.awaits_answer = False, True
        self.retransmissions += sent.transmissions > 0 and not sent.wait_reason
        sent.transmissions += 1
        if sent.cancelling:
            return encode(
                Kind.SKIP,
                session=self.session,
                token=self.token,
                table=sent.table,
                seq=sent.seq,
                fragments=ALL_FRAGMENTS,
            )
        return encode(
            sent.kind,
            session=self.session,
            token=self.token,
            table=sent.table,
            seq=sent.seq,
            count=sent.count,
            ticket=sent.ticket,
            fragments=sent.missing_fragments if sent.kind == Kind.SAMPLE else 0,
            body=sent.body,
        )

    def wake_at(self) -> float:
        """Return the time at which `due` has something to send, if no reply comes and nothing is put before."""
        if ring := self._active_ring:
            return -math.inf if ring.queued and ring.flying < self.window else ring.earliest_due_at
        if self._queue and len(self._in_flight) < self.window:
            return -math.inf
        times = [math.inf]
        for request in self._in_flight:
            if not request.settled:
                cancel_at = request.deadline if request.wait_reason and not request.cancelling else math.inf
                times.append(min(request.due_at, cancel_at))
            if request.blocking and not request.settled:
                break
        return min(times)

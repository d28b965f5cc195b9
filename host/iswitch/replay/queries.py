"""Requests that change nothing, as many in flight as the network holds: FETCH, LOAD, LIST, LOOK, SHOUT. Section 3 of
`docs/replay.md`.

Like `channel`, this has no thread, no socket and no clock. The window grows by one in a round trip and halves after a
loss, at most once for all requests that were in flight at that moment (additive increase, multiplicative decrease, as
in TCP: RFC 5681).
"""

import math
from collections import deque
from collections.abc import Callable

from iswitch.driver.timer import RetransmissionTimer
from iswitch.replay.messages import Reply, encode
from iswitch.wire.replay import Kind, ReplayOutcome

__all__ = ["Queries", "Query"]

_BACKOFF_CAP_S = 0.25
_FIRST_WINDOW, _SMALLEST_WINDOW, _LARGEST_WINDOW = 8.0, 1.0, 256.0
# A query is presumed lost when `_REORDERING` queries sent after it are answered (RFC 5681), and
# `_REORDERING_ROUND_TRIPS` round trips have passed (RFC 8985).
_REORDERING = 3
_REORDERING_ROUND_TRIPS = 1.25
_DONE = ReplayOutcome.DONE


class Query:
    """One request that changes nothing.

    Parameters
    ----------
    kind : Kind
        Kind of the request.
    table : int
        The table it is about.
    count : int
        Items, units or slots.
    body : bytes
        Rows behind the header.
    on_reply : callable or None
        Called with the reply when it comes.

    Attributes
    ----------
    reply : Reply or None
        The reply; None before it comes.
    """

    __slots__ = ("body", "count", "kind", "on_reply", "order", "reply", "sent_at", "table", "transmissions")

    def __init__(
        self,
        kind: Kind,
        *,
        table: int = 0,
        count: int = 0,
        body: bytes = b"",
        on_reply: Callable[[Reply], None] | None = None,
    ):
        self.kind, self.table, self.count, self.body, self.on_reply = kind, table, count, body, on_reply
        self.reply: Reply | None = None
        self.transmissions = 0
        self.order = 0  # place of its last transmission among all of them
        self.sent_at = -math.inf


class Queries:
    """The queries of one session.

    Parameters
    ----------
    session : int
        Index of the session.
    token : int
        Token of the session.

    Attributes
    ----------
    timer : RetransmissionTimer
        Measures delays and sets time-outs.
    window : float
        The most queries in flight.
    retransmissions : int
        Queries that were retransmitted because they, or their replies, were presumed lost.
    """

    def __init__(self, *, session: int, token: int):
        self.session, self.token = session, token
        self.timer = RetransmissionTimer(cap_s=_BACKOFF_CAP_S)
        self.window = _FIRST_WINDOW
        self.retransmissions = 0
        self._queue: deque[Query] = deque()
        self._in_flight: dict[int, Query] = {}  # by tag; the one sent last is at the end
        self._lost: deque[tuple[int, Query]] = deque()
        self._tag = 0
        self._order = 0  # transmissions so far
        self._halved_at = 0  # the order at which the window was halved last
        self._highest_answered = 0  # the highest order of an answered query

    @property
    def pending(self) -> int:
        """Number of queries without a reply."""
        return len(self._queue) + len(self._in_flight) + len(self._lost)

    def put(self, query: Query) -> None:
        """Append a query to the queue."""
        self._queue.append(query)

    def cancel(self, queries: list[Query]) -> None:
        """Drop queries whose replies are no longer needed."""
        cancelled = set(map(id, queries))
        self._queue = deque(query for query in self._queue if id(query) not in cancelled)
        self._in_flight = {tag: query for tag, query in self._in_flight.items() if id(query) not in cancelled}
        self._lost = deque(pair for pair in self._lost if id(pair[1]) not in cancelled)

    def handle_reply(self, reply: Reply, now: float) -> ReplayOutcome | None:
        """Handle an ANSWER or DATA with this session's token.

        Parameters
        ----------
        reply : Reply
            The reply.
        now : float
            Time in seconds.

        Returns
        -------
        ReplayOutcome or None
            The reason in the reply, where DATA with gaps has OVERWRITTEN; None if the reply belongs to no query.
            A refusal other than CORRUPT leaves the query where it is.
        """
        tag = reply.header.seq
        query = self._in_flight.get(tag)
        late = query is None
        if query is None:  # it may have been presumed lost although it was only late
            query = next((each for number, each in self._lost if number == tag), None)
        if query is None or reply.header.kind != query.kind:
            return None
        outcome = (
            ReplayOutcome(reply.status.outcome)
            if reply.status
            else ReplayOutcome.OVERWRITTEN
            if reply.header.ticket
            else _DONE
        )
        if outcome is not _DONE and outcome not in (ReplayOutcome.OVERWRITTEN, ReplayOutcome.CORRUPT):
            return outcome
        if late:
            self._lost.remove((tag, query))
        else:
            del self._in_flight[tag]
        if query.transmissions == 1:
            self.timer.add_delay(now - query.sent_at)
        query.reply = reply
        if query.on_reply:
            query.on_reply(reply)
        self._highest_answered = max(self._highest_answered, query.order)
        self.window = min(self.window + 1 / self.window, _LARGEST_WINDOW)
        return outcome

    def _presume_lost(self, tag: int, query: Query) -> None:
        del self._in_flight[tag]
        self._lost.append((tag, query))
        if query.order > self._halved_at:
            self.window = max(self.window / 2, _SMALLEST_WINDOW)
            self._halved_at = self._order

    def due(self, now: float) -> list[bytes]:
        """Return the UDP payloads to send at time `now`, in seconds."""
        while self._in_flight and now >= self._lost_at():
            tag, oldest = next(iter(self._in_flight.items()))
            if not self._is_overtaken(oldest):
                self.timer.back_off()
            self._presume_lost(tag, oldest)
        payloads = []
        while len(self._in_flight) < int(self.window) and (self._lost or self._queue):
            if self._lost:
                tag, query = self._lost.popleft()
                self.retransmissions += 1
            else:
                self._tag = (self._tag + 1) % 2**32
                tag, query = self._tag, self._queue.popleft()
            self._order += 1
            query.transmissions, query.order, query.sent_at = query.transmissions + 1, self._order, now
            self._in_flight[tag] = query
            payloads.append(
                encode(
                    query.kind,
                    session=self.session,
                    token=self.token,
                    table=query.table,
                    seq=tag,
                    count=query.count,
                    body=query.body,
                )
            )
        return payloads

    def wake_at(self) -> float:
        """Return the time at which `due` has something to send, if no reply comes and nothing is put before."""
        if len(self._in_flight) < int(self.window) and (self._lost or self._queue):
            return -math.inf
        return self._lost_at() if self._in_flight else math.inf

    def _lost_at(self) -> float:
        """Return the time at which the oldest query in flight is presumed lost."""
        oldest = next(iter(self._in_flight.values()))
        if self._is_overtaken(oldest):
            return oldest.sent_at + _REORDERING_ROUND_TRIPS * self.timer.reordering_s
        return oldest.sent_at + self.timer.timeout_s

    def _is_overtaken(self, query: Query) -> bool:
        """Return True if at least three queries that were sent after this one are answered."""
        return query.order <= self._highest_answered - _REORDERING

"""Requests that change nothing, as many in flight as the network holds: FETCH, LOAD, LIST, LOOK, SHOUT. Section 3 of
`docs/replay.md`.

Like `channel`, this has no thread, no socket and no clock. The window grows by one in a round trip and halves after a
loss, at most once for all requests that were in flight at that moment (additive increase, multiplicative decrease, as
in TCP: RFC 5681).
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from iswitch.driver.timer import RetransmissionTimer
from iswitch.replay.messages import Reply, encode
from iswitch.replay.query_group import QueryGroup
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
    group : QueryGroup or None
        The group to which it belongs.

    Attributes
    ----------
    reply : Reply or None
        The reply; None before it comes.
    """

    __slots__ = ("body", "count", "group", "kind", "on_reply", "order", "reply", "sent_at", "table", "transmissions")

    def __init__(
        self,
        kind: Kind,
        *,
        table: int = 0,
        count: int = 0,
        body: bytes = b"",
        on_reply: Callable[[Reply], None] | None = None,
        group: QueryGroup | None = None,
    ):
        self.kind, self.table, self.count, self.body, self.on_reply = kind, table, count, body, on_reply
        self.group = group
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
        self._group: QueryGroup | None = None  # whose usual case is in C
        self._group_order = 0  # transmissions before its first one
        self._tag = 0
        self._order = 0  # transmissions so far
        self._halved_at = 0  # the order at which the window was halved last
        self._highest_answered = 0  # the highest order of an answered query

    @property
    def pending(self) -> int:
        """Number of queries without a reply."""
        return len(self._queue) + len(self._in_flight) + len(self._lost) + self._group_pending

    @property
    def _group_pending(self) -> int:
        return len(self._group) - self._group.taken if self._group else 0

    def put(self, query: Query) -> None:
        """Append a query to the queue."""
        self._queue.append(query)

    def put_group(self, group: QueryGroup, table: int) -> None:
        """Append the queries of a group to the queue. If nothing is pending, their usual case is in C."""
        group.table = table
        if not self.pending and group.begin(
            session=self.session, token=self.token, first_tag=(self._tag + 1) % 2**32, largest_window=_LARGEST_WINDOW
        ):
            self._group, self._group_order = group, self._order
        else:
            self._queue.extend(self._query_of(group, k) for k in range(len(group)))

    def _query_of(self, group: QueryGroup, k: int) -> Query:
        return Query(
            group.kind,
            table=group.table,
            count=int(group.counts[k]),
            body=group.body(k),
            on_reply=partial(group.on_reply, k),
            group=group,
        )

    def _dissolve_group(self) -> None:
        """Go on with the queries of the group one by one, in Python."""
        group, self._group = self._group, None
        if not group or not group.state:
            return
        flying, unsent = {}, []
        for k in range(group.state.low, len(group)):
            if group.answered[k]:
                continue
            query = self._query_of(group, k)
            if k < group.state.next:
                query.transmissions, query.order, query.sent_at = 1, self._group_order + 1 + k, float(group.sent_at[k])
                flying[(group.state.first_tag + k) % 2**32] = query
            else:
                unsent.append(query)
        self._in_flight = flying | self._in_flight
        self._queue.extendleft(reversed(unsent))

    def cancel(self, queries: Sequence[Query | QueryGroup]) -> None:
        """Drop queries and groups whose replies are no longer needed."""
        cancelled = set(map(id, queries))

        def is_needed(query: Query) -> bool:
            return id(query) not in cancelled and id(query.group) not in cancelled

        if self._group and id(self._group) in cancelled:
            self._group = None
        self._queue = deque(filter(is_needed, self._queue))
        self._in_flight = {tag: query for tag, query in self._in_flight.items() if is_needed(query)}
        self._lost = deque(pair for pair in self._lost if is_needed(pair[1]))

    def take(self, burst: memoryview, size: int, segment_bytes: int, offset: int, now: float) -> int:
        """Take the usual replies to a group from a burst, from an offset on. Return the offset of the first datagram
        that `handle_reply` must handle."""
        group = self._group
        if not group or not group.state:
            return offset
        group.state.window = self.window
        end = group.take(burst, size, segment_bytes, offset, now)
        if end > offset:
            self.window = group.state.window
            self._highest_answered = max(self._highest_answered, self._group_order + group.state.reach)
            self.timer.add_delay(*group.delays[: group.state.delay_count].tolist())
            if group.taken == len(group):
                self._group = None
        return end

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
        if self._is_lacked(tag):
            self._dissolve_group()
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

    def _is_lacked(self, tag: int) -> bool:
        """Return True if a tag is that of a query of the group that was sent and has no reply."""
        group = self._group
        if not group or not group.state:
            return False
        k = (tag - group.state.first_tag) % 2**32
        return k < group.state.next and not group.answered[k]

    def _presume_lost(self, tag: int, query: Query) -> None:
        del self._in_flight[tag]
        self._lost.append((tag, query))
        if query.order > self._halved_at:
            self.window = max(self.window / 2, _SMALLEST_WINDOW)
            self._halved_at = self._order

    def due_bursts(self, now: float, burst_segments: Callable[[int], int]) -> list[tuple[bytes, int]]:
        """Return the requests of the group to send at time `now`: bursts, and the bytes of each request of a burst.
        They come before those of `due`."""
        self._presume_all_lost(now)
        bursts = []
        while (group := self._group) and group.state and group.state.next < len(group):
            allowed = int(self.window) - len(self._in_flight) - self._group_flying
            size = group.request_bytes(group.state.next)
            if allowed <= 0:
                break
            burst, count = group.build(min(allowed, burst_segments(size)), now)
            self._tag, self._order = (self._tag + count) % 2**32, self._order + count
            bursts.append((burst, size))
        return bursts

    def due(self, now: float) -> list[bytes]:
        """Return the UDP payloads to send at time `now`, in seconds."""
        self._presume_all_lost(now)
        if self._group and self._group.state and self._group.state.next < len(self._group):
            return []
        payloads: list[bytes] = []
        while len(self._in_flight) + self._group_flying < int(self.window) and (self._lost or self._queue):
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

    def _presume_all_lost(self, now: float) -> None:
        """Presume lost what must have been answered by now."""
        if self._group_flying and now >= self._lost_at():
            self._dissolve_group()
        while self._in_flight and now >= self._lost_at():
            tag, oldest = next(iter(self._in_flight.items()))
            if not self._is_overtaken(oldest.order):
                self.timer.back_off()
            self._presume_lost(tag, oldest)

    @property
    def _group_flying(self) -> int:
        """Number of queries of the group that are in flight."""
        return self._group.state.next - self._group.state.taken if self._group and self._group.state else 0

    def wake_at(self) -> float:
        """Return the time at which `due` has something to send, if no reply comes and nothing is put before."""
        flying = len(self._in_flight) + self._group_flying
        if flying < int(self.window) and self.pending > flying:
            return -math.inf
        return self._lost_at() if flying else math.inf

    def _lost_at(self) -> float:
        """Return the time at which the oldest query in flight is presumed lost."""
        if self._group and self._group.state and self._group_flying:
            low = self._group.state.low
            order, sent_at = self._group_order + 1 + low, float(self._group.sent_at[low])
        else:
            oldest = next(iter(self._in_flight.values()))
            order, sent_at = oldest.order, oldest.sent_at
        if self._is_overtaken(order):
            return sent_at + _REORDERING_ROUND_TRIPS * self.timer.reordering_s
        return sent_at + self.timer.timeout_s

    def _is_overtaken(self, order: int) -> bool:
        """Return True if at least three queries that were sent after a transmission are answered."""
        return order <= self._highest_answered - _REORDERING

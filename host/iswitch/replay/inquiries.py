"""Requests that change nothing, as many at a time as the network holds: FETCH, LOAD, LIST, LOOK, SHOUT. Section 3 of
`docs/replay.md`.

As `channel`: no threads, no sockets, no clock of its own. The window grows by one in a round trip and halves when
something was lost, at most once for all that was on its way at that moment (additive increase, multiplicative decrease,
as in TCP: RFC 5681).
"""

import math
from collections import deque
from collections.abc import Callable

from iswitch.driver.timer import RetransmissionTimer
from iswitch.replay.messages import Reply, encode
from iswitch.wire.replay import Fate, Kind

__all__ = ["Inquiries", "Inquiry"]

_CAP_S = 0.25
_FIRST_WINDOW, _LEAST_WINDOW, _MOST_WINDOW = 8.0, 1.0, 256.0
_GAP = 3
_PATIENCE = 1.25
"""One is taken for lost when so many that were sent after it are answered (RFC 5681), and so many round trips are over
(RFC 8985)."""


class Inquiry:
    """One request. reply: what was answered, None so far. then: called with it when it is."""

    __slots__ = ("body", "count", "kind", "order", "reply", "sent_at", "table", "then", "tries")

    def __init__(
        self,
        kind: Kind,
        *,
        table: int = 0,
        count: int = 0,
        body: bytes = b"",
        then: Callable[[Reply], None] | None = None,
    ):
        self.kind, self.table, self.count, self.body, self.then = kind, table, count, body, then
        self.reply: Reply | None = None
        self.tries = self.order = 0
        self.sent_at = -math.inf


class Inquiries:
    """Unordered requests of one session."""

    def __init__(self, *, session: int, token: int):
        self.session, self.token = session, token
        self.timer = RetransmissionTimer(cap_s=_CAP_S)
        self.window = _FIRST_WINDOW
        self.resent = 0
        """Requests sent again because they, or their answers, were taken for lost."""
        self._queue: deque[Inquiry] = deque()
        self._flight: dict[int, Inquiry] = {}  # by tag, the one sent last at the end
        self._lost: deque[tuple[int, Inquiry]] = deque()
        self._tag = self._order = self._halved = self._highest = 0

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._queue) + len(self._flight) + len(self._lost)

    def put(self, inquiry: Inquiry) -> None:
        self._queue.append(inquiry)

    def drop(self, inquiries: list[Inquiry]) -> None:
        """Forgets those whose answers nobody waits for any more."""
        gone = set(map(id, inquiries))
        self._queue = deque(each for each in self._queue if id(each) not in gone)
        self._flight = {tag: each for tag, each in self._flight.items() if id(each) not in gone}
        self._lost = deque(pair for pair in self._lost if id(pair[1]) not in gone)

    def take(self, reply: Reply, now: float) -> Fate | None:
        """An ANSWER or DATA with this session's token. Returns the reason (OVERWRITTEN of DATA that has gaps) if it is about a
        request on its way, else None; refusals leave the request where it is."""
        tag = reply.header.seq
        inquiry = self._flight.get(tag)
        late = inquiry is None
        if inquiry is None:  # perhaps one that was taken for lost, and is only late
            inquiry = next((each for number, each in self._lost if number == tag), None)
        if inquiry is None or reply.header.kind != inquiry.kind:
            return None
        fate = Fate(reply.status.reason) if reply.status else Fate.OVERWRITTEN if reply.header.ticket else Fate.DONE
        if fate not in (Fate.DONE, Fate.OVERWRITTEN):
            return fate
        if late:
            self._lost.remove((tag, inquiry))
        else:
            del self._flight[tag]
        if inquiry.tries == 1:
            self.timer.sample(now - inquiry.sent_at)
        inquiry.reply = reply
        if inquiry.then:
            inquiry.then(reply)
        self._highest = max(self._highest, inquiry.order)
        self.window = min(self.window + 1 / self.window, _MOST_WINDOW)
        return fate

    def _lose(self, tag: int, inquiry: Inquiry) -> None:
        del self._flight[tag]
        self._lost.append((tag, inquiry))
        if inquiry.order > self._halved:
            self.window = max(self.window / 2, _LEAST_WINDOW)
            self._halved = self._order

    def due(self, now: float) -> list[bytes]:
        """UDP payloads to send now."""
        while self._flight and now >= self._over_at():
            tag, oldest = next(iter(self._flight.items()))
            if oldest.order > self._highest - _GAP:
                self.timer.back_off()
            self._lose(tag, oldest)
        payloads = []
        while len(self._flight) < int(self.window) and (self._lost or self._queue):
            if self._lost:
                tag, inquiry = self._lost.popleft()
                self.resent += 1
            else:
                self._tag = (self._tag + 1) % 2**32
                tag, inquiry = self._tag, self._queue.popleft()
            self._order += 1
            inquiry.tries, inquiry.order, inquiry.sent_at = inquiry.tries + 1, self._order, now
            self._flight[tag] = inquiry
            payloads.append(
                encode(
                    inquiry.kind,
                    session=self.session,
                    token=self.token,
                    table=inquiry.table,
                    seq=tag,
                    count=inquiry.count,
                    body=inquiry.body,
                )
            )
        return payloads

    def wake_at(self) -> float:
        """When `due` has something to send, if nothing comes and nothing is put before."""
        if len(self._flight) < int(self.window) and (self._lost or self._queue):
            return -math.inf
        return self._over_at() if self._flight else math.inf

    def _over_at(self) -> float:
        """When the one that was sent first is taken for lost."""
        oldest = next(iter(self._flight.values()))
        passed = oldest.order <= self._highest - _GAP
        return oldest.sent_at + (_PATIENCE * self.timer.patience_s if passed else self.timer.timeout_s)

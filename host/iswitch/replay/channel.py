"""A session's ordered requests: numbers, the window of kept answers, repeats, waits. Section 3 of `docs/replay.md`.

No threads, no sockets, no clock of its own: whoever has the channel hands it replies with `take`, and sends what `due`
returns when something was put or has come, or the time that `wake_at` says is there. Requests are carried out in the
order in which they were `put`.

A request that was lost shows in three ways: a later one is answered AHEAD, a later one is answered although it is not
(then its answer was lost), or its time is over. Of several on their way the oldest is sent again first; after a
time-out nothing behind it before it is answered.
"""

import math
from collections import deque
from collections.abc import Iterator

from iswitch.driver.timer import RetransmissionTimer
from iswitch.replay.messages import Reply, Status, encode, serial
from iswitch.wire.replay import ALL_FRAGMENTS, SAMPLES_PER_FRAGMENT, WAITS, Fate, Kind

__all__ = ["Channel", "Request"]

_CAP_S = 0.25
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.0002, 0.02
"""From being told to wait until asking again, which doubles each time."""


class Request:
    """An ordered request, and what became of it. draws: of a SAMPLE, which tells how many fragments its answer has.
    deadline: when to give up waiting. yields: rather than waiting, let those pass that were put behind it.

    fate: None until it is settled; then DONE, RANGE or MEMORY, or the reason for which it was given up. status: of its
    last answer. parts: rows of the answer, by fragment. told: whoever put it knows that it was given up.
    """

    __slots__ = (
        "blocking",
        "body",
        "count",
        "deadline",
        "due_at",
        "expected",
        "fate",
        "first_order",
        "kind",
        "last_order",
        "lost",
        "parts",
        "refused",
        "sent_at",
        "seq",
        "skipping",
        "status",
        "table",
        "ticket",
        "told",
        "tries",
        "wait_s",
        "waiting",
        "wanted",
        "yielding",
        "yields",
    )

    def __init__(
        self,
        kind: Kind,
        *,
        table: int = 0,
        count: int = 0,
        body: bytes = b"",
        ticket: int = 0,
        deadline: float = math.inf,
        yields: bool = False,
    ):
        self.kind, self.table, self.count, self.body, self.ticket = kind, table, count, body, ticket
        self.deadline, self.yields = deadline, yields
        self.fate: Fate | None = None
        self.status: Status | None = None
        self.told = False
        self.reset()

    def reset(self) -> None:
        """As if it had never been sent."""
        fragments = -(-self.count // SAMPLES_PER_FRAGMENT) if self.kind == Kind.SAMPLE else 1
        self.wanted = (1 << fragments) - 1  # fragments that lack
        self.parts: dict[int, bytes] = {}
        self.seq = -1
        self.tries = self.first_order = self.last_order = 0  # orders count all transmissions of the channel
        self.sent_at, self.due_at = -math.inf, -math.inf
        self.refused = 0  # times that it was answered AHEAD
        self.lost = False  # is to be sent again though its time is not over
        self.expected = False  # an answer
        self.blocking = False  # nothing behind it is sent
        self.waiting: Fate | None = None
        self.wait_s = _FIRST_WAIT_S
        self.skipping = self.yielding = False  # SKIP is asked for in its place; and it is put anew

    @property
    def settled(self) -> bool:
        return self.fate is not None

    @property
    def rows(self) -> bytes:
        """Rows of the whole answer."""
        return b"".join(part for _, part in sorted(self.parts.items()))


class Channel:
    """Ordered requests of one session. first: the number of the first, from OPEN. kept: how many may be on their
    way."""

    def __init__(self, *, session: int, token: int, first: int, kept: int):
        self.session, self.token, self.kept = session, token, kept
        self.low = first
        """Number of the oldest that is not settled."""
        self.timer = RetransmissionTimer(cap_s=_CAP_S)
        self.resent = 0
        """Requests sent again because they, or their answers, were taken for lost."""
        self._queue: deque[Request] = deque()
        self._flight: deque[Request] = deque()
        self._order = 0

    @property
    def pending(self) -> int:
        """Requests that are not settled."""
        return len(self._queue) + len(self._flight)

    @property
    def busy(self) -> bool:
        """Something is on its way that others must wait for."""
        return any(not request.yields for request in self.requests())

    @property
    def queued(self) -> int:
        """Requests that were never sent."""
        return len(self._queue)

    def requests(self) -> Iterator[Request]:
        """Those that are not settled, the oldest first."""
        yield from (request for request in self._flight if not request.settled)
        yield from self._queue

    def put(self, request: Request) -> None:
        self._queue.append(request)

    # Receiving

    def take(self, reply: Reply, now: float) -> Fate | None:
        """An ANSWER with this session's token. Returns its reason if it is about a request on its way, else None. What
        is not DONE, a wait, AHEAD or without effect says that the session (SESSION, OLD), or the request, is not
        possible: the request stays where it is."""
        header, status = reply.header, reply.status
        index = (header.seq - self.low) % 2**32
        if status is None or index >= len(self._flight):
            return None
        request = self._flight[index]
        fate = Fate(status.reason)
        if request.settled or header.kind != request.kind and not (header.kind == Kind.SKIP and request.skipping):
            return None
        if fate == Fate.AHEAD:
            self._ahead(request, status.next, now)
        elif fate in WAITS:
            self._wait(request, fate, status, now)
        elif fate in (Fate.DONE, Fate.RANGE, Fate.MEMORY):
            self._answered(request, fate, reply, status, now)
        return fate

    def _answered(self, request: Request, fate: Fate, reply: Reply, status: Status, now: float) -> None:
        if request.tries == 1 and not request.parts:
            self.timer.sample(now - request.sent_at)
        request.status, first_order, blocking = status, request.first_order, request.blocking
        skipped = reply.header.kind == Kind.SKIP and request.kind != Kind.SKIP
        if request.kind == Kind.SAMPLE and fate == Fate.DONE and not skipped:
            request.parts[reply.header.fragments] = reply.rows
            request.wanted &= ~(1 << reply.header.fragments)
            if request.wanted:
                self._lack(request, reply.header.fragments)
                return
        else:
            request.parts[0] = reply.rows
        if skipped and request.yielding:
            self._renumber(request)
        else:
            request.fate = request.waiting if skipped else fate
        if blocking:
            self._go_back(list(self._flight), now)
        self._hurry(reply.header.seq, first_order, now)
        self._go_back_refused(now)
        while self._flight and self._flight[0].settled:
            self._flight.popleft()
            self.low = (self.low + 1) % 2**32

    def _lack(self, request: Request, latest: int) -> None:
        """Of an answer in fragments some lack; when the last of those asked for is here, ask for the others at once."""
        if request.wanted < 1 << latest and not request.lost:
            request.lost, request.due_at = True, -math.inf

    def _renumber(self, request: Request) -> None:
        """The number of a request that gave way is settled by a stand-in; the request itself is put anew."""
        stand_in = Request(Kind.SKIP)
        stand_in.fate = Fate.DONE
        self._flight[self._flight.index(request)] = stand_in
        request.reset()
        self._queue.append(request)

    def _hurry(self, answered: int, order: int, now: float) -> None:
        """Those before a number that is answered were carried out: if they were sent before it, in transmission
        `order`, their answers were lost, or overtaken."""
        for request in self._flight:
            if request.seq == answered:
                return
            if not (request.settled or request.lost) and request.last_order < order and request.tries == 1:
                request.lost, request.due_at = True, now + self._grace_s

    def _ahead(self, request: Request, number: int, now: float) -> None:
        """The switch lacked `number` when it saw this request: what was sent from there on is lost. An old answer would
        say the same of what was sent again meanwhile, so one that may be old counts only if a round trip has passed."""
        request.refused += 1
        index = serial(number, self.low)
        if index >= len(self._flight):
            return
        if index < 0 or self._flight[index].settled:
            self._go_back_refused(now)
            return
        missing = self._flight[index]
        if missing.blocking:
            return
        if not missing.lost:
            if missing.last_order > request.first_order and now - missing.sent_at < self.timer.patience_s:
                return
            missing.lost, missing.due_at = True, now + self._grace_s
        if request.refused >= request.tries:
            request.lost, request.due_at = True, missing.due_at

    @property
    def _grace_s(self) -> float:
        """What seems to be lost may only be overtaken: so much longer it is waited for (RFC 8985)."""
        return (self.timer.delay_s or 0.0) / 4

    def _go_back_refused(self, now: float) -> None:
        """To those of which every copy was answered AHEAD, when what they were ahead of is there."""
        self._go_back([request for request in self._flight if request.refused >= request.tries], now)

    @staticmethod
    def _go_back(requests: list[Request], now: float) -> None:
        for request in requests:
            if not request.settled and request.tries and not request.blocking:
                request.lost, request.due_at = True, now

    def _wait(self, request: Request, fate: Fate, status: Status, now: float) -> None:
        if request.skipping:
            return
        request.waiting, request.status, request.blocking = fate, status, True
        over = (
            request.ticket and fate == Fate.TICKET and serial(status.ticket, request.ticket) > 0
        )  # it will never be that turn again
        if over or now >= request.deadline:
            self._skip(request, now)
        elif request.yields and any(not other.yields for other in self._behind(request)):
            request.yielding = True
            self._skip(request, now)
        else:
            request.lost = request.expected = False
            request.due_at = now + request.wait_s
            request.wait_s = min(2 * request.wait_s, _LONGEST_WAIT_S)

    def _behind(self, request: Request) -> Iterator[Request]:
        yield from (other for other in self._flight if not other.settled and serial(other.seq, request.seq) > 0)
        yield from self._queue

    @staticmethod
    def _skip(request: Request, now: float) -> None:
        request.skipping, request.due_at, request.lost = True, now, True

    # Sending

    def due(self, now: float) -> list[bytes]:
        """UDP payloads to send now."""
        while self._queue and len(self._flight) < self.kept:
            request = self._queue.popleft()
            request.seq = (self.low + len(self._flight)) % 2**32
            self._flight.append(request)
        payloads = []
        for request in self._flight:
            if request.settled:
                continue
            if (
                request.waiting
                and not request.skipping
                and (
                    now >= request.deadline
                    or request.yields
                    and any(not other.yields for other in self._behind(request))
                )
            ):
                request.yielding = now < request.deadline
                self._skip(request, now)
            if request.due_at <= now:
                if request.expected and not request.lost:
                    request.blocking = True  # its time is over
                    self.timer.back_off()
                payloads.append(self._transmit(request, now))
            if request.blocking:
                break
        return payloads

    def _transmit(self, sent: Request, now: float) -> bytes:
        self._order += 1
        sent.first_order = sent.first_order or self._order
        sent.last_order, sent.sent_at, sent.due_at, sent.lost = self._order, now, now + self.timer.timeout_s, False
        sent.expected = True
        self.resent += sent.tries > 0 and not sent.waiting
        sent.tries += 1
        if sent.skipping:
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
            fragments=sent.wanted if sent.kind == Kind.SAMPLE else 0,
            body=sent.body,
        )

    def wake_at(self) -> float:
        """When `due` has something to send, if nothing comes and nothing is put before."""
        if self._queue and len(self._flight) < self.kept:
            return -math.inf
        times = [math.inf]
        for request in self._flight:
            if not request.settled:
                times.append(
                    min(request.due_at, request.deadline if request.waiting and not request.skipping else math.inf)
                )
            if request.blocking and not request.settled:
                break
        return min(times)

"""A client's place at the service: opened, driven over a transport, closed. No threads: everything goes on whenever it
is called."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from iswitch.config import Replay
from iswitch.control.client import Control
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.errors import IswitchError, SwitchUnreachableError
from iswitch.replay.channel import Channel, Request
from iswitch.replay.errors import NoFreeSessionError, NoReplayServiceError, NotServedError, SessionLostError
from iswitch.replay.inquiries import Inquiries, Inquiry
from iswitch.replay.messages import Reply, Status, encode, parse, serial
from iswitch.wire import Type
from iswitch.wire.replay import PAYLOAD_BYTES, SESSION_SILENT_US, Fate, Kind

__all__ = ["Session", "Shouted"]

_FIRST_OPEN_S, _LONGEST_OPEN_S = 0.02, 0.25
_QUEUE = 64
"""So many ordered requests may wait to be sent before whoever puts more is made to wait."""
_TRAINS = 64
"""At most so many are taken before something is sent."""
_CLOSED = "closed"
_SILENT_S = SESSION_SILENT_US / 1e6 / 4
_DATA = int(Type.DATA)

_WAITED = {
    Fate.TICKET: (
        "it was not its turn: the table is at ticket {ticket}, the request's is {own}",
        "let whoever has the tickets before do its requests, or use ticket=0",
    ),
    Fate.ITEMS: (
        "there are not enough items: {filled} are there, of {adds} ever added",
        "add more, or lower `items`, or `size` of the limit",
    ),
    Fate.RATE: ("the limit's ratio of draws to items forbade it", "add or draw more, or set another `limit`"),
    Fate.EMPTY: ("all priorities are 0", "add items, or give some a priority above 0 (with `times` items run out)"),
}


class Shouted(NamedTuple):
    """Units of somebody's log that came without being asked for. session: whose."""

    table: int
    session: int
    start: int
    data: bytes


class Session:
    """One session, of one table's traffic.

    timeout_s: how long the switch may be silent before that is an error. wait_s: how long a request may wait for ticket,
    items, rate or priorities. Raises NoReplayServiceError, NoFreeSessionError, SwitchUnreachableError; ValueError for a
    table that is not there.
    """

    def __init__(self, transport: Transport, *, address: str, table: int, timeout_s: float, wait_s: float):
        self.transport, self.address, self.table, self.timeout_s, self.wait_s = (
            transport,
            address,
            table,
            timeout_s,
            wait_s,
        )
        self._view = memoryview(bytearray(RECEIVE_BYTES))
        self.control = Control(transport, address=address, timeout_s=timeout_s, strangers=self._absorb)
        self.token = -1  # none yet
        self.channel = Channel(session=0, token=0, first=0, kept=1)
        self.shouts: deque[Shouted] = deque()
        """The last of them, as many as a log holds."""
        self.lost = ""
        """Why the session is of no use any more."""
        self.config = self._read_config()
        if not 0 <= table < self.config.tables:
            raise ValueError(
                f"table must be 0 to {self.config.tables - 1}, for the switch at {address} has {self.config.tables}, not {table!r}"
            )
        self.shouts = deque(maxlen=self.config.log_bytes // PAYLOAD_BYTES + 2)
        self.open()

    def _read_config(self) -> Replay:
        built = self.control.config().replay
        if built is None:
            raise NoReplayServiceError(
                f"the switch at {self.address} has no replay service: build it, or start the emulator, with a `replay`"
            )
        return built

    # Opening and closing

    def open(self) -> None:
        """Takes a place, with a new nonce. NoFreeSessionError, SwitchUnreachableError."""
        nonce = self.transport.randbits(64) | 1
        token, tag = nonce % 2**32, self.transport.randbits(32)
        opening = encode(Kind.OPEN, token=token, table=self.table, seq=tag, body=nonce.to_bytes(8, "little"))
        now = self.transport.now()
        deadline, pause_s, full = now + self.timeout_s, _FIRST_OPEN_S, False
        while now < deadline:
            self.transport.send(opening, len(opening))
            until = min(now + pause_s, deadline)
            while (now := self.transport.now()) < until:
                for reply in self._receive(until - now):
                    if reply.status is None or (reply.header.kind, reply.header.seq, reply.header.token) != (
                        Kind.OPEN,
                        tag,
                        token,
                    ):
                        continue
                    full = reply.status.reason == Fate.FULL
                    if reply.status.reason == Fate.DONE and reply.status.nonce == nonce:
                        self._opened(reply, token)
                        return
            pause_s = min(2 * pause_s, _LONGEST_OPEN_S)
        if full:
            raise NoFreeSessionError(
                f"all {self.config.sessions} sessions of the replay service at {self.address} are in use: close a client, wait until one "
                "that died has been silent for 10 s, or build the switch with more `sessions`"
            )
        raise SwitchUnreachableError(
            f"the replay service at {self.address} does not answer an OPEN: check the path with `iswitch doctor`"
        )

    def _opened(self, reply: Reply, token: int) -> None:
        status = reply.status
        assert status is not None
        for request in list(self.channel.requests()):
            request.fate = Fate.SESSION
        self.index, self.token = reply.header.session, token
        self.channel = Channel(session=self.index, token=token, first=status.next, kept=self.config.kept)
        self.inquiries = Inquiries(session=self.index, token=token)
        self.opened = self.status = status
        self.adds = status.adds
        """Items ever added to the table, as far as is known: unlike the switch's, this count does not wrap."""
        self.heard_at = self._sent_at = self.transport.now()
        self.lost = ""
        self.shouts.clear()  # after a restart of the switch, units with the same numbers are others

    def close(self, *, timeout_s: float = 1.0) -> bool:
        """Gives the place up: CLOSE, when all else is answered, or taken back if it has to wait. Returns whether the
        switch confirmed that in time; if not, others can have the place 10 s later. The transport stays open."""
        if self.lost:
            return False
        closing, now = Request(Kind.CLOSE, table=self.table), self.transport.now()
        end = now + timeout_s
        for request in self.channel.requests():
            request.deadline = min(request.deadline, now)
        try:
            while not closing.settled and now < end:
                if not self.channel.pending:
                    self.channel.put(closing)
                self.pump(min(self.rest_s(), end - now))
                now = self.transport.now()
        except SessionLostError:
            return closing.tries > 0  # the place was closed before, and that answer was lost
        except (IswitchError, OSError):
            return False
        finally:
            self.lost = _CLOSED
        return closing.settled

    # Traffic

    def put(self, request: Request, *, patient: bool = False) -> Request:
        """An ordered request on its way; waits while too many are queued. patient: it may wait as long as its own
        deadline says."""
        self._demand_open()
        if self.channel.queued >= _QUEUE:
            self.wait(lambda: self.channel.queued < _QUEUE)
        request.table = self.table
        if not patient:
            request.deadline = self.transport.now() + self.wait_s
        self.channel.put(request)
        return request

    def ask(
        self, kind: Kind, *, count: int = 0, body: bytes = b"", then: Callable[[Reply], None] | None = None
    ) -> Inquiry:
        """An unordered request on its way. then: what to do with the answer when it comes."""
        self._demand_open()
        inquiry = Inquiry(kind, table=self.table, count=count, body=body, then=then)
        self.inquiries.put(inquiry)
        return inquiry

    def look(self) -> Status:
        """How table and session are now."""
        inquiry = self.ask(Kind.LOOK)
        self.wait(lambda: inquiry.reply is not None)
        assert inquiry.reply and inquiry.reply.status
        return inquiry.reply.status

    def live(self) -> None:
        """If nothing was sent for long, asks something, for a session that is silent may have to give way."""
        if self.transport.now() - self._sent_at > _SILENT_S and not self.lost:
            self.ask(Kind.LOOK)

    def pump(self, wait_s: float = 0.0) -> None:
        """Sends what is due, takes what has come (waiting for something at most so long), and sends what that made due.
        SessionLostError."""
        self._send()
        for _ in range(_TRAINS):
            size, segment_bytes = self.transport.receive(self._view, wait_s)
            if not size:
                break
            wait_s = 0.0
            self._absorb(self._view, size, segment_bytes)
        self._send()
        self._demand_open()

    def wait(self, until: Callable[[], bool], *, timeout_s: float | None = None) -> None:
        """Goes on until something holds. SwitchUnreachableError if the switch is silent for `timeout_s` meanwhile;
        SessionLostError."""
        self.pump()
        if until():
            return
        silence_s, began = self.timeout_s if timeout_s is None else timeout_s, self.transport.now()
        while not until():
            now = self.transport.now()
            end = max(began, self.heard_at) + silence_s
            if now >= end:
                raise SwitchUnreachableError(
                    f"the replay service at {self.address} has not answered for {silence_s:g} s: is the switch on, and the path "
                    "whole? (`iswitch doctor`) What was not acknowledged may or may not have been carried out"
                )
            self.pump(max(0.0, min(self.wake_at(), end) - now))

    def wake_at(self) -> float:
        """When something is to be sent again, if nothing comes."""
        return min(self.channel.wake_at(), self.inquiries.wake_at())

    def served(self, requests: Iterable[Request]) -> None:
        """Waits until all are settled. NotServedError with the reason of the first that was given up."""
        requests = list(requests)
        self.wait(lambda: all(request.settled for request in requests))
        for request in requests:
            if request.fate in _WAITED or request.fate == Fate.SESSION:
                raise self.given_up(request)

    def given_up(self, request: Request) -> NotServedError | SessionLostError:
        """The error for a request that was taken back, or that was on its way when the session was lost."""
        request.told = True
        if request.fate is None or request.fate not in _WAITED or request.status is None:
            return SessionLostError(
                f"{request.kind.name} to table {self.table} at {self.address} was on its way when the session was lost: it may or may "
                "not have been carried out"
            )
        why, remedy = _WAITED[request.fate]
        status = request.status
        over = request.fate == Fate.TICKET and serial(status.ticket, request.ticket) > 0
        why = why.format(ticket=status.ticket, own=request.ticket, filled=status.filled, adds=status.adds)
        after = "and that turn is over" if over else f"for {self.wait_s:g} s"
        return NotServedError(
            f"{request.kind.name} to table {self.table} at {self.address} was not carried out, for {why}, {after}. It was taken back: "
            f"{remedy}",
            request.fate,
        )

    def _send(self) -> None:
        now = self.transport.now()
        payloads = self.channel.due(now) + self.inquiries.due(now)
        if payloads:
            self._sent_at = now
        at = 0
        while at < len(payloads):  # those of one size make a train
            size, end = len(payloads[at]), at + 1
            most = at + self.transport.train_segments(size)
            while end < min(most, len(payloads)) and len(payloads[end]) == size:
                end += 1
            self.transport.send(b"".join(payloads[at:end]), size)
            at = end

    def _receive(self, timeout_s: float) -> list[Reply]:
        size, segment_bytes = self.transport.receive(self._view, timeout_s)
        return self._replies(self._view, size, segment_bytes) if size else []

    @staticmethod
    def _replies(view: memoryview, size: int, segment_bytes: int) -> list[Reply]:
        replies = (parse(view[at : min(at + segment_bytes, size)]) for at in range(0, size, segment_bytes))
        return [reply for reply in replies if reply]

    def _absorb(self, view: memoryview, size: int, segment_bytes: int) -> None:
        now = self.transport.now()
        for reply in self._replies(view, size, segment_bytes):
            if reply.header.token == self.token:
                self._take(reply, now)

    def _take(self, reply: Reply, now: float) -> None:
        header = reply.header
        if header.kind == Kind.SHOUT and header.version_type & 15 == _DATA and self._shouted(reply):
            return
        fate = self.channel.take(reply, now)
        if fate is None:
            fate = self.inquiries.take(reply, now)
        if fate is None:
            return
        self.heard_at = now
        if fate == Fate.SESSION:
            self.lost = self.lost or (
                "the switch does not know it any more: it was silent for more than 10 s and its place was needed, or the "
                "switch restarted"
            )
        elif fate == Fate.OLD:  # numbers that this client never used were given to somebody else
            self.lost = self.lost or "another client had its place meanwhile, for it was silent for more than 10 s"
        elif fate in (Fate.KIND, Fate.TABLE, Fate.LENGTH, Fate.FULL):
            self.lost = (
                f"the switch refused a {Kind(header.kind).name} as {fate.name}: use a driver of the switch's version"
            )
        elif header.kind == Kind.WRITE and fate in (
            Fate.RANGE,
            Fate.MEMORY,
        ):  # what comes behind it would refer to what is not there
            self.lost = f"the switch refused a WRITE ({fate.name}), so the log is not as this client left it: somebody else has used the session"
        elif reply.status:
            self.learn(reply.status)

    def _shouted(self, reply: Reply) -> bool:
        """Whether it is a shout of somebody else, and not the answer to an own one."""
        if not reply.rows or reply.header.session != self.index:
            return False
        self.shouts.append(Shouted(reply.header.table, reply.header.fragments, reply.header.seq, reply.rows))
        return True

    def learn(self, status: Status) -> None:
        """What an answer says of the table, unless it is an older one."""
        if (ahead := serial(status.adds, self.adds % 2**32)) > 0:
            self.adds += ahead
        if serial(status.ticket, self.status.ticket) >= 0:
            self.status = status

    def _demand_open(self) -> None:
        if self.lost == _CLOSED:
            raise SessionLostError(f"session {self.index} at {self.address} is closed: make a new client")
        if self.lost:
            raise SessionLostError(
                f"session {self.index} at {self.address} is lost: {self.lost}. What was not acknowledged may or may not have been "
                "carried out. To go on: `reopen`, or make a new client"
            )

    def rest_s(self) -> float:
        """Seconds until something is to be sent again; infinite if nothing is on its way."""
        wake = self.wake_at()
        return math.inf if wake == math.inf else max(0.0, wake - self.transport.now())

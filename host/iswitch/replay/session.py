"""A client's session with the replay service: opened, driven over a transport, closed.

A session has no thread. It sends and receives whenever one of its methods is called.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from iswitch.config import Replay
from iswitch.control.client import Control
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.whole_section import WholeSection
from iswitch.errors import ClosedError, IswitchError, SwitchUnreachableError
from iswitch.replay.channel import Channel
from iswitch.replay.errors import NoFreeSessionError, NoReplayServiceError, SessionLostError
from iswitch.replay.messages import Reply, Status, encode, parse
from iswitch.replay.queries import Queries, Query
from iswitch.replay.query_group import QueryGroup
from iswitch.replay.request import Request
from iswitch.replay.unserved import unserved_error
from iswitch.serial import serial_distance
from iswitch.wire import Type, version_type
from iswitch.wire.replay import PAYLOAD_BYTES, SESSION_SILENT_US, WAITS, Kind, ReplayOutcome

__all__ = ["Broadcast", "Session", "closed_message"]

logger = logging.getLogger("iswitch")

_FIRST_OPEN_S, _LONGEST_OPEN_S = 0.02, 0.25
"""Pauses between two transmissions of an OPEN."""
_QUEUE_LENGTH = 64
"""The most ordered requests that wait to be sent; `submit` waits until there is room."""
_BURSTS = 64
"""The most bursts that `poll` receives before it sends."""
_KEEPALIVE_S = SESSION_SILENT_US / 1e6 / 4
_DATA = version_type(Type.DATA)
_CLOSED = "closed"


def closed_message(address: str) -> str:
    """Return the message of ClosedError for a session with the switch at an address."""
    return (
        f"this process has closed its session of the replay service at {address}, by `close` or by the end of a `with` "
        "block: make a new ReplayClient, and let all threads end their calls before you close it"
    )


class Broadcast(NamedTuple):
    """Units of another session's log, received without a request.

    Attributes
    ----------
    table : int
        The table that the sender uses.
    session : int
        Index of the sender's session.
    start : int
        The first unit, modulo 2^32.
    data : bytes
        The units.
    """

    table: int
    session: int
    start: int
    data: bytes


class Session:
    """One session of the replay service.

    Parameters
    ----------
    transport : Transport
        Carries the messages.
    address : str
        Address of the switch, for messages.
    table : int
        The table that all requests are about.
    timeout_s : float
        Seconds without an answer until SwitchUnreachableError.
    wait_s : float
        Seconds that a request may wait for its ticket, for items, for the rate limit or for priorities above 0.

    Attributes
    ----------
    config : Replay
        What the replay service was built with.
    index : int
        Index of the session at the switch.
    opening_status, status : Status
        Status of the table and the session in the answer to OPEN, and the latest one.
    adds : int
        Items ever added to the table, as far as is known. Unlike the switch's count, it does not wrap.
    channel : Channel
        The ordered requests.
    queries : Queries
        The requests that change nothing.
    broadcasts : deque of Broadcast
        The latest broadcasts, as many as a log holds.
    section : WholeSection
        Surrounds what an exception of a signal handler would leave half done. It is not nested and waits for
        nothing.
    lost : str
        Why the session cannot be used any more, as the end of a sentence; "" if it can.

    Raises
    ------
    NoReplayServiceError
        If the switch has no replay service.
    NoFreeSessionError
        If all sessions are in use.
    SwitchUnreachableError
        If the switch does not answer.
    ValueError
        If the switch does not have the table.
    """

    def __init__(self, transport: Transport, *, address: str, table: int, timeout_s: float, wait_s: float):
        self.transport, self.address, self.table = transport, address, table
        self.timeout_s, self.wait_s = timeout_s, wait_s
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.control = Control(transport, address=address, timeout_s=timeout_s, on_other_burst=self._receive_burst)
        self.token = -1  # none yet
        self.channel = Channel(session=0, token=0, first=0, window=1)
        self.queries = Queries(session=0, token=0)
        self.broadcasts: deque[Broadcast] = deque()
        self.section = self._new_section()
        self.lost = ""
        self.config = self._read_config()
        if not 0 <= table < self.config.tables:
            raise ValueError(
                f"table must be 0 to {self.config.tables - 1}, because the switch at {address} has "
                f"{self.config.tables} replay tables, not {table!r}"
            )
        self.broadcasts = deque(maxlen=self.config.log_bytes // PAYLOAD_BYTES + 2)
        self.open()

    def _read_config(self) -> Replay:
        replay = self.control.switch_info().replay
        if replay is None:
            raise NoReplayServiceError(
                f"the switch at {self.address} has no replay service: start it by `iswitch switch --replay default` or "
                "`make emulator REPLAY=default`, or build the switch with a `replay`"
            )
        return replay

    # Opening and closing

    def open(self) -> None:
        """Open a session with a new nonce. Raises NoFreeSessionError, SwitchUnreachableError."""
        nonce = self.transport.randbits(64) | 1
        token, tag, challenge = nonce % 2**32, self.transport.randbits(32), 0
        now = self.transport.now()
        deadline, pause_s, full = now + self.timeout_s, _FIRST_OPEN_S, False
        while now < deadline:
            body = nonce.to_bytes(8, "little")
            request = encode(Kind.OPEN, token=token, table=self.table, seq=tag, ticket=challenge, body=body)
            self.transport.send(request, len(request))
            until, is_challenged = min(now + pause_s, deadline), False
            while (now := self.transport.now()) < until and not is_challenged:
                size, segment_bytes = self.transport.receive(self._buffer, until - now)
                for at in range(0, size, segment_bytes or 1):
                    reply = parse(self._buffer[at : min(at + segment_bytes, size)])
                    if reply is None:
                        continue
                    header, status = reply.header, reply.status
                    if status is None or (header.kind, header.seq, header.token) != (Kind.OPEN, tag, token):
                        continue
                    full = status.outcome == ReplayOutcome.FULL
                    if status.outcome == ReplayOutcome.CHALLENGE and header.ticket != challenge:
                        challenge, is_challenged = header.ticket, True
                    if status.outcome == ReplayOutcome.DONE and status.nonce == nonce:
                        self._begin(header.session, token, status)
                        return
            if not is_challenged:
                pause_s = min(2 * pause_s, _LONGEST_OPEN_S)
        if full:
            raise NoFreeSessionError(
                f"all {self.config.sessions} sessions of the replay service at {self.address} are in use: close a "
                "client, wait until a "
                "client that died has been silent for 10 s, or build the switch with more `sessions`"
            )
        raise SwitchUnreachableError(
            f"the replay service at {self.address} has not answered for {self.timeout_s:g} s (`timeout_s`): check that "
            "the switch is on, and the path to it (`iswitch doctor`)"
        )

    def _begin(self, index: int, token: int, status: Status) -> None:
        for request in list(self.channel.requests()):
            request.outcome = ReplayOutcome.SESSION
        self.section = self._new_section()
        self.index, self.token = index, token
        self.channel = Channel(session=index, token=token, first=status.next, window=self.config.cached_answers)
        self.queries = Queries(session=index, token=token)
        self.opening_status = self.status = status
        self.adds = status.adds
        self._heard_at = self._sent_at = self.transport.now()
        self.lost = ""
        self.broadcasts.clear()  # after a restart of the switch, the same unit numbers mean other units
        logger.info("opened session %d for table %d at %s", index, self.table, self.address)

    def close(self, *, timeout_s: float = 1.0) -> bool:
        """Close the session when all requests are settled. Requests that have to wait are cancelled. The transport
        stays open.

        Parameters
        ----------
        timeout_s : float
            Seconds to wait for the switch.

        Returns
        -------
        bool
            True if the switch confirmed it. If not, other clients can have the session 10 s later.
        """
        if self.lost:
            return False
        self.section = self._new_section()  # what is half done no longer matters
        closing, now = Request(Kind.CLOSE, table=self.table), self.transport.now()
        end = now + timeout_s
        for request in self.channel.requests():
            request.deadline = min(request.deadline, now)
        try:
            while not closing.settled and now < end:
                if not self.channel.pending:
                    self.channel.put(closing)
                self.poll(max(0.0, min(self._wake_at(), end) - now))
                now = self.transport.now()
        except SessionLostError:
            return closing.transmissions > 0  # the switch had closed it, and that answer was lost
        except (IswitchError, OSError):
            return False
        finally:
            self.lost = _CLOSED
        return closing.settled

    # Requests

    def submit(self, request: Request, *, keep_deadline: bool = False) -> Request:
        """Submit an ordered request, and wait while too many are queued.

        Parameters
        ----------
        request : Request
            The request.
        keep_deadline : bool
            Leave the deadline of the request as it is. Otherwise the request may wait for `wait_s`.

        Returns
        -------
        Request
            The same request.
        """
        self.make_room()
        self.put(request, keep_deadline=keep_deadline)
        return request

    def make_room(self) -> None:
        """Wait while too many requests are queued."""
        self._require_whole()
        self._require_open()
        if self.channel.queued >= _QUEUE_LENGTH:
            self.wait_until(lambda: self.channel.queued < _QUEUE_LENGTH)

    @property
    def room(self) -> int:
        """Number of requests that can be queued without waiting."""
        return max(0, _QUEUE_LENGTH - self.channel.queued)

    def put(self, request: Request, *, keep_deadline: bool = False) -> None:
        """Queue an ordered request without waiting, as part of a section. Call `make_room` before it. The parameters
        are those of `submit`."""
        request.table = self.table
        if not keep_deadline:
            request.deadline = self.transport.now() + self.wait_s
        self.channel.put(request)

    def put_writes(self, bodies: np.ndarray, units: int) -> int:
        """Queue WRITEs as part of a section, if their usual case can be in C. There must be `room` for them.

        Parameters
        ----------
        bodies : uint8 array of shape (n, bytes)
            Rows of each WRITE.
        units : int
            Units of each.

        Returns
        -------
        int
            How many were queued; 0 if Python must put them one by one.
        """
        deadline = self.transport.now() + self.wait_s
        return len(bodies) if self.channel.put_writes(bodies, units, table=self.table, deadline=deadline) else 0

    def query(
        self, kind: Kind, *, count: int = 0, body: bytes = b"", on_reply: Callable[[Reply], None] | None = None
    ) -> Query:
        """Submit a request that changes nothing. When its reply comes, `on_reply` is called with it."""
        self._require_open()
        query = Query(kind, table=self.table, count=count, body=body, on_reply=on_reply)
        self.queries.put(query)
        return query

    def query_group(self, group: QueryGroup) -> None:
        """Submit many requests that change nothing."""
        self._require_open()
        with self.section:
            self.queries.put_group(group, self.table)

    def read_status(self) -> Status:
        """Ask the switch for the status of table and session, and wait for it."""
        query = self.query(Kind.LOOK)
        self.wait_until(lambda: query.reply is not None)
        assert query.reply and query.reply.status
        return query.reply.status

    def keep_alive(self) -> None:
        """Submit a query if nothing was sent for some seconds, because a silent session may lose its place."""
        if self.transport.now() - self._sent_at > _KEEPALIVE_S and not self.lost:
            self.query(Kind.LOOK)

    def idle_s(self) -> float:
        """Return the seconds until something must be sent if nothing comes: a retransmission or a keep-alive."""
        return max(0.0, min(self._wake_at(), self._sent_at + _KEEPALIVE_S) - self.transport.now())

    def wait_served(self, requests: Iterable[Request]) -> None:
        """Wait until all requests are settled. Raises NotServedError or SessionLostError for the first that the switch
        did not execute."""
        requests = list(requests)
        self.wait_until(lambda: all(request.settled for request in requests))
        for request in requests:
            if request.outcome in WAITS or request.outcome == ReplayOutcome.SESSION:
                raise self.unserved_error(request)

    def unserved_error(self, request: Request) -> IswitchError:
        """Return the error for a request that had no effect, or was in flight when the session was lost."""
        return unserved_error(request, address=self.address, wait_s=self.wait_s)

    # Traffic

    def poll(self, wait_s: float = 0.0) -> None:
        """Send what is due, handle what has come, and send what that made due.

        Parameters
        ----------
        wait_s : float
            The longest time to wait for something to come, in seconds.

        Raises
        ------
        SessionLostError
            If the session is lost.
        ClosedError
            If the session is closed.
        """
        self.send_due()
        for _ in range(_BURSTS):
            size, segment_bytes = self.transport.receive(self._buffer, wait_s)
            if not size:
                break
            wait_s = 0.0
            self._receive_burst(self._buffer, size, segment_bytes)
        self.send_due()
        self._require_open()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Send and receive until a condition holds. Raises SwitchUnreachableError if no answer comes for `timeout_s`,
        and SessionLostError."""
        self.poll()
        if condition():
            return
        began = self.transport.now()
        while not condition():
            now = self.transport.now()
            end = max(began, self._heard_at) + self.timeout_s
            if now >= end:
                raise SwitchUnreachableError(
                    f"the replay service at {self.address} has not answered for {self.timeout_s:g} s: check that the "
                    "switch is on, "
                    "and the path to it (`iswitch doctor`). The switch may or may not have executed requests that it "
                    "has not "
                    "acknowledged"
                )
            self.poll(max(0.0, min(self._wake_at(), end) - now))

    def _wake_at(self) -> float:
        """Return the time of the next transmission if nothing comes."""
        return min(self.channel.wake_at(), self.queries.wake_at())

    def send_due(self) -> None:
        """Send all payloads that are due. Neighbours of the same size form a burst."""
        self._require_whole()
        if not (self.channel.pending or self.queries.pending):
            return
        now = self.transport.now()
        with self.section:
            bursts = self.channel.due_bursts(now, self.transport.burst_segments)
            payloads = self.channel.due(now)
            if reads := self.queries.due_bursts(now, self.transport.burst_segments):
                bursts += [*self._bursts_of(payloads), *reads]
                payloads = []
            payloads += self.queries.due(now)
            bursts += self._bursts_of(payloads)
        if bursts:
            self._sent_at = now
        for burst, size in bursts:
            self.transport.send(burst, size)

    def _bursts_of(self, payloads: list[bytes]) -> list[tuple[bytes, int]]:
        """Return bursts, and the bytes of each datagram of a burst."""
        bursts = []
        for size, alike in groupby(payloads, len):
            limit = self.transport.burst_segments(size)
            while burst := b"".join(islice(alike, limit)):
                bursts.append((burst, size))
        return bursts

    def _receive_burst(self, burst: memoryview, size: int, segment_bytes: int) -> None:
        now, at = self.transport.now(), 0
        with self.section:
            while (begun := at) < size:
                at, status = self.channel.take(burst, size, segment_bytes, begun, now)
                if status:
                    self._update_status(status)
                at = self.queries.take(burst, size, segment_bytes, at, now)
                if at > begun:
                    self._heard_at = now
                if at < size:
                    reply = parse(burst[at : min(at + segment_bytes, size)])
                    if reply and reply.header.token == self.token:
                        self._handle_reply(reply, now)
                    at += segment_bytes or 1

    def _handle_reply(self, reply: Reply, now: float) -> None:
        header = reply.header
        if header.kind == Kind.SHOUT and header.version_type == _DATA and self._keep_broadcast(reply):
            return
        outcome = self.channel.handle_reply(reply, now)
        if outcome is None:
            outcome = self.queries.handle_reply(reply, now)
        if outcome is None:
            return
        self._heard_at = now
        if outcome == ReplayOutcome.SESSION:
            self._lose(
                "the switch has no record of it any more. The client was silent for more than 10 s and another client "
                "needed the session, or the switch restarted, or it found a bit error in its memory (CORRUPT_REPLAY)"
            )
        elif outcome == ReplayOutcome.OLD:  # another client has used the number, or the answer is lost
            self._lose(
                "the client was silent for more than 10 s and another client had the session since, or the switch "
                "found a bit error in an answer that it kept (CORRUPT_REPLAY)"
            )
        elif outcome in (ReplayOutcome.KIND, ReplayOutcome.TABLE, ReplayOutcome.LENGTH, ReplayOutcome.FULL):
            kind = Kind(header.kind).name
            self._lose(f"the switch refused a {kind} as {outcome.name}: use a driver of the switch's version")
        elif header.kind == Kind.WRITE and outcome in (
            ReplayOutcome.RANGE,
            ReplayOutcome.MEMORY,
        ):  # requests behind it refer to its data
            self._lose(
                f"the switch refused a WRITE ({outcome.name}), so the log is not as this client left it: another "
                "client has used the session"
            )
        elif reply.status:
            self._update_status(reply.status)

    def _lose(self, reason: str) -> None:
        """Record why the session cannot be used any more. The first reason counts."""
        if not self.lost:
            self.lost = reason
            logger.warning("session %d at %s is lost: %s", self.index, self.address, reason)

    def _keep_broadcast(self, reply: Reply) -> bool:
        """Keep a broadcast of another client. Return False if the reply answers a request of this client."""
        if not reply.rows or reply.header.session != self.index:
            return False
        self.broadcasts.append(Broadcast(reply.header.table, reply.header.fragments, reply.header.seq, reply.rows))
        return True

    def _update_status(self, status: Status) -> None:
        """Record the table state of an answer, unless a later answer came before."""
        if (ahead := serial_distance(status.adds, self.adds % 2**32)) > 0:
            self.adds += ahead
        if serial_distance(status.ticket, self.status.ticket) >= 0:
            self.status = status

    @staticmethod
    def _new_section() -> WholeSection:
        return WholeSection((IswitchError, OSError, ValueError))

    def _require_whole(self) -> None:
        """Raise SessionLostError if an exception has torn the section. This must not be called in it."""
        if self.section.is_torn:
            self._lose(
                "an exception, such as KeyboardInterrupt of Ctrl-C, stopped this client in the middle of a message, so "
                "it no longer knows which answers are those of its requests"
            )
            self._require_open()

    def _require_open(self) -> None:
        if self.lost == _CLOSED:
            raise ClosedError(closed_message(self.address))
        if self.lost:
            raise SessionLostError(
                f"session {self.index} at {self.address} is lost: {self.lost}. The switch may or may not have "
                "executed requests "
                "that it has not acknowledged. To go on, call `reopen` or make a new client"
            )

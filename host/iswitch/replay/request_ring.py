"""Ordered requests in arrays: WRITEs and ADDs of a push, whose usual case is in C (`native/replay.c`).

Usually each request is sent once, and executed when it comes. Then C writes the requests, and takes the answers in
their order. `iswitch.replay.channel` takes the requests back at whatever is unusual, and goes on in Python.
"""

from collections import deque

import numpy as np

from iswitch.native.records import RequestRing as State
from iswitch.replay.compiled import compiled_library
from iswitch.replay.messages import Status, encode, parse_status
from iswitch.replay.request import Request
from iswitch.wire import Type, version_type
from iswitch.wire.replay import BODY_BYTES, REPLAY_HEADER, STATUS, Kind, ReplayOutcome

__all__ = ["RequestRing"]

_KINDS = (Kind.WRITE, Kind.ADD)
"""Requests that a ring takes. Their answers have no rows."""


class RequestRing:
    """Requests of one session, numbered from 0 here.

    Parameters
    ----------
    session : int
        Index of the session.
    token : int
        Token of the session.
    slots : int
        The most requests.

    Attributes
    ----------
    state : iswitch.native.records.RequestRing
        What C shares.
    orders : int
        Transmissions of the channel before the first one of the ring.
    """

    def __init__(self, *, session: int, token: int, slots: int):
        self._session, self._token, self.slots = session, token, slots
        self._bodies = np.zeros((slots, BODY_BYTES), np.uint8)
        self._body_bytes, self._counts, self._tickets = np.zeros((3, slots), "<u4")
        self._kinds = np.zeros(slots, np.uint8)
        self._sent_at, self._due_at, self._delays, self._deadlines = np.zeros((4, slots))
        self._statuses = np.zeros((slots, STATUS.itemsize), np.uint8)
        self._out = np.zeros((slots, REPLAY_HEADER.itemsize + BODY_BYTES), np.uint8)
        self._header = np.zeros(REPLAY_HEADER.itemsize, np.uint8)
        self._requests: deque[tuple[int, Request]] = deque()  # those that somebody waits for, with their numbers
        self.orders = self._table = 0
        self.state = State(token=token, answer_type=version_type(Type.ANSWER), slots=slots, body_stride=BODY_BYTES)
        for name, array in (
            ("header", self._header),
            ("kinds", self._kinds),
            ("counts", self._counts),
            ("tickets", self._tickets),
            ("bodies", self._bodies),
            ("body_bytes", self._body_bytes),
            ("sent_at", self._sent_at),
            ("due_at", self._due_at),
            ("delays", self._delays),
            ("statuses", self._statuses),
        ):
            setattr(self.state, name, array.ctypes.data)

    @property
    def pending(self) -> int:
        """Number of requests without an answer."""
        return self.state.end - self.state.low

    @property
    def queued(self) -> int:
        """Number of requests that were never sent."""
        return self.state.end - self.state.next

    @property
    def flying(self) -> int:
        """Number of requests in flight."""
        return self.state.next - self.state.low

    def begin(self, *, first_seq: int, orders: int, table: int) -> None:
        """Begin anew, with no requests."""
        self.orders, self._table = orders, table
        self._header[:] = np.frombuffer(
            encode(Kind.WRITE, session=self._session, token=self._token, table=table), np.uint8
        )
        self._requests.clear()
        self.state.first_seq, self.state.low, self.state.next, self.state.end = first_seq, 0, 0, 0

    def accepts(self, request: Request) -> bool:
        """Return True if the ring can take a request."""
        return (
            request.kind in _KINDS
            and not request.can_yield
            and request.table == self._table
            and len(request.body) <= BODY_BYTES
            and self.pending < self.slots
        )

    def put(self, request: Request) -> None:
        """Append a request."""
        slot = self.state.end % self.slots
        self._kinds[slot], self._counts[slot], self._tickets[slot] = request.kind, request.count, request.ticket
        self._bodies[slot, : len(request.body)] = np.frombuffer(request.body, np.uint8)
        self._body_bytes[slot], self._deadlines[slot] = len(request.body), request.deadline
        self._requests.append((self.state.end, request))
        self.state.end += 1

    def put_writes(self, bodies: np.ndarray, units: int, deadline: float) -> None:
        """Append WRITEs of so many units each, whose bodies are the rows of an array."""
        slots = np.arange(self.state.end, self.state.end + len(bodies)) % self.slots
        self._kinds[slots], self._counts[slots], self._tickets[slots] = Kind.WRITE, units, 0
        self._bodies[slots, : bodies.shape[1]] = bodies
        self._body_bytes[slots], self._deadlines[slots] = bodies.shape[1], deadline
        self.state.end += len(bodies)

    def build(self, most: int, now: float, due_at: float) -> tuple[bytes, int, int]:
        """Return the next requests end to end, the bytes of each, and their number: at most `most`, and all as long as
        the first."""
        size = REPLAY_HEADER.itemsize + int(self._body_bytes[self.state.next % self.slots])
        built = compiled_library().replay_send(self.state, most, now, due_at, self._out.ctypes.data)
        return self._out.reshape(-1)[: built * size].tobytes(), size, built

    @property
    def next_bytes(self) -> int:
        """Bytes of the next request."""
        return REPLAY_HEADER.itemsize + int(self._body_bytes[self.state.next % self.slots])

    def take(self, burst: memoryview, size: int, segment_bytes: int, offset: int, now: float) -> int:
        """Take usual answers from a burst, from an offset on, and settle their requests. Return the offset of the first
        datagram for Python."""
        address = np.frombuffer(burst, np.uint8).ctypes.data
        end = compiled_library().replay_settle(self.state, address, size, segment_bytes, offset, now)
        while self._requests and self._requests[0][0] < self.state.low:
            number, request = self._requests.popleft()
            request.status, request.outcome = self.status(number), ReplayOutcome.DONE
        return int(end)

    @property
    def delays(self) -> list[float]:
        """The delays of the answers that the last `take` took."""
        return self._delays[: self.state.delay_count].tolist()

    def status(self, number: int) -> Status:
        """Return the status in the answer to a request."""
        return parse_status(self._statuses[number % self.slots].tobytes())

    @property
    def earliest_due_at(self) -> float:
        """The time of the first time-out."""
        return min(self._due_at[np.arange(self.state.low, self.state.next) % self.slots].tolist())

    def take_back(self) -> tuple[list[Request], list[Request]]:
        """Return the requests in flight and those that were never sent, and leave none."""
        held, state = dict(self._requests), self.state
        flying, queued = [], []
        for number in range(state.low, state.end):
            slot = number % self.slots
            request = held.get(number) or Request(
                Kind(self._kinds[slot]),
                table=self._table,
                count=int(self._counts[slot]),
                body=self._bodies[slot, : self._body_bytes[slot]].tobytes(),
                ticket=int(self._tickets[slot]),
                deadline=float(self._deadlines[slot]),
            )
            if number < state.next:
                request.seq, request.transmissions, request.awaits_answer = (state.first_seq + number) % 2**32, 1, True
                request.first_order = request.last_order = self.orders + 1 + number
                request.sent_at, request.due_at = float(self._sent_at[slot]), float(self._due_at[slot])
                flying.append(request)
            else:
                queued.append(request)
        self._requests.clear()
        state.low = state.next = state.end
        return flying, queued

"""The dispatcher in front of the replay service: it checks a request, finds its session and its place in the order.

`Dispatcher` knows sessions and nothing else. What requests do is for a subclass to say: the service itself
(`service.py`), or a toy whose every state is explored (`sim/explore/replay_switch.py`). What `docs/replay.md` leaves
open is decided here:

- Faults (KIND, TABLE, LENGTH, FULL, SESSION; of an OPEN also RANGE and CHALLENGE) share one timer for each port, apart
from those of notices. A session is
  heard when a request passes all of these.
- Every kind names a table that exists, and every kind without items, samples or units has count 0. Reserved fields
  mean nothing.
- A CLOSE is answered once: its retransmission finds no session.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from iswitch.config import Replay
from iswitch.golden.interface.message import Source
from iswitch.golden.replay import frames
from iswitch.golden.replay.frames import CachedAnswer, Request
from iswitch.golden.replay.session import RULES, SERIAL, Rules, Session
from iswitch.golden.replay.table import Row
from iswitch.wire import NOTICE_INTERVAL_US
from iswitch.wire.replay import (
    ADD_ROW,
    BODY_BYTES,
    FETCH_ROW,
    LIMITS,
    LIST,
    LOAD,
    OPEN,
    ORDERED,
    PAYLOAD_BYTES,
    PUBLISH,
    REBUILD,
    REBUILD_SLOTS,
    SAMPLE,
    SAMPLES_PER_FRAGMENT,
    UNIT_BYTES,
    UPDATE_ROW,
    WRITE,
    Kind,
    ReplayOutcome,
)

__all__ = ["Dispatcher", "Effect", "Sent"]

Sent = list[tuple[Source, bytes]]


class Effect(NamedTuple):
    """The effect of a request. `rows`: the sampled items, `done` and `stale`: how many rows took effect or not."""

    outcome: ReplayOutcome = ReplayOutcome.DONE
    done: int = 0
    stale: int = 0
    rows: tuple[Row, ...] = ()


class Dispatcher(ABC):
    """A replay service that handles sessions only.

    `outcomes`: how many requests had each ReplayOutcome. `challenge`: None before the first OPEN. Tests may read and
    set `sessions` and `challenge`.
    """

    rules: Rules = RULES

    def __init__(self, config: Replay) -> None:
        self.config = config
        # The first client of a session continues `cached_answers` further, and so begins with 0.
        self.sessions = [Session(next=-config.cached_answers % SERIAL)] * config.sessions
        self.outcomes = [0] * len(ReplayOutcome)
        self.challenge: int | None = None
        self.last_fault_us: dict[int, int] = {}  # by port

    # To be implemented by a subclass

    @abstractmethod
    def wait_reason(self, request: Request) -> ReplayOutcome | None:
        """Return why an ordered request, the next of its session, cannot be executed now, or None."""

    @abstractmethod
    def execute(self, request: Request) -> Effect:
        """Execute an ordered request, apart from what concerns sessions."""

    @abstractmethod
    def query(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Execute a request of a kind that is not ordered: return its outcome and its answers."""

    @abstractmethod
    def status(self, request: Request, session: Session, effect: Effect) -> bytes:
        """Return the STATUS of a request after its effect, with its session as it is then."""

    @abstractmethod
    def after_answer(self, request: Request, effect: Effect) -> None:
        """Do what must be done after the answer was made."""

    # Requests of a session

    def receive(self, source: Source, payload: bytes, now_us: int) -> Sent:
        """Handle one REQUEST, given its UDP payload. Return receivers and payloads, in order."""
        request = frames.parse_request(payload)
        outcome, sent = self.handle(request, source, now_us)
        self.outcomes[outcome] += 1
        return sent

    def handle(self, request: Request, source: Source, now_us: int) -> tuple[ReplayOutcome, Sent]:
        """Return the outcome of a request, and its answers."""
        malformed = self.format_fault(request)
        if malformed is not None:
            return malformed, self.answer_fault(request, malformed, source, now_us)
        if request.kind == Kind.OPEN:
            return self.open_session(request, source, now_us)
        session = self.rules.find_session(self.sessions, request.session, request.token)
        if session is None:
            return ReplayOutcome.SESSION, self.answer_fault(request, ReplayOutcome.SESSION, source, now_us)
        session = self.sessions[request.session] = session._replace(heard_us=now_us)
        if request.kind not in ORDERED:
            return self.query(request, source)
        misplaced = self.rules.check_order(session, request.seq)
        if misplaced == ReplayOutcome.REPEATED:
            cached = session.cached[-((session.next - request.seq) % SERIAL)]
            return misplaced, [(source, payload) for payload in frames.answers(request, cached)]
        if misplaced is not None:
            return misplaced, [self.plain_answer(request, source, misplaced)]
        waits = self.wait_reason(request)
        if waits is not None:
            return waits, [self.plain_answer(request, source, waits)]
        return self.execute_next(request, source)

    def execute_next(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Execute the next request of its session, which need not wait, and keep its answer."""
        effect = self.execute(request)
        session = self.rules.advance(self.sessions[request.session])
        cached = CachedAnswer(request.kind, request.table, self.status(request, session, effect), effect.rows)
        session = self.rules.keep_answer(session, cached, self.config.cached_answers)
        self.sessions[request.session] = self.rules.close_session(session) if request.kind == Kind.CLOSE else session
        self.after_answer(request, effect)
        return effect.outcome, [(source, payload) for payload in frames.answers(request, cached)]

    def plain_answer(
        self, request: Request, source: Source, outcome: ReplayOutcome = ReplayOutcome.DONE
    ) -> tuple[Source, bytes]:
        """Return the answer to a request that changed nothing."""
        return source, frames.answer(request, self.status(request, self.sessions[request.session], Effect(outcome)))

    # Faults, and OPEN

    def format_fault(self, request: Request) -> ReplayOutcome | None:
        """Return the fault of the first rule of form that a request breaks, or None."""
        if request.kind not in tuple(Kind):
            return ReplayOutcome.KIND
        if request.table >= self.config.tables:
            return ReplayOutcome.TABLE
        head, each, most = self.body_shape(Kind(request.kind))
        counted = request.amount == 0 if most == 0 else 1 <= request.amount <= most
        return None if counted and len(request.body) == head + request.amount * each else ReplayOutcome.LENGTH

    def body_shape(self, kind: Kind) -> tuple[int, int, int]:
        """Return the bytes of a body's head, the bytes of each row that `count` counts, and the most rows.

        There are at most as many rows as fit into a request, or into its answer.
        """
        record, units = ADD_ROW.itemsize + self.config.record_bytes, PAYLOAD_BYTES // UNIT_BYTES
        return {
            Kind.OPEN: (OPEN.itemsize, 0, 0),
            Kind.CLOSE: (0, 0, 0),
            Kind.WRITE: (WRITE.itemsize, UNIT_BYTES, units),
            Kind.ADD: (0, record, BODY_BYTES // record),
            Kind.SAMPLE: (SAMPLE.itemsize, 0, self.config.samples_per_request),
            Kind.UPDATE: (0, UPDATE_ROW.itemsize, BODY_BYTES // UPDATE_ROW.itemsize),
            Kind.PUBLISH: (PUBLISH.itemsize, 0, 0),
            Kind.LIMIT: (LIMITS.itemsize, 0, 0),
            Kind.SKIP: (0, 0, 0),
            Kind.FETCH: (0, FETCH_ROW.itemsize, self.config.records),
            Kind.LOAD: (LOAD.itemsize, 0, units),
            Kind.LOOK: (0, 0, 0),
            Kind.LIST: (LIST.itemsize, 0, SAMPLES_PER_FRAGMENT),
            Kind.SHOUT: (LOAD.itemsize, 0, units),
            Kind.REBUILD: (REBUILD.itemsize, 0, REBUILD_SLOTS),
        }[kind]

    def answer_fault(self, request: Request, outcome: ReplayOutcome, source: Source, now_us: int) -> Sent:
        """Answer a fault, at most once in an interval at each port.

        So an unknown host cannot make the switch flood a network, and takes no answer from clients at other ports.
        """
        last_us = self.last_fault_us.get(source.port)
        if last_us is not None and (now_us - last_us) % SERIAL < NOTICE_INTERVAL_US:
            return []
        self.last_fault_us[source.port] = now_us
        challenge = self.challenge if outcome == ReplayOutcome.CHALLENGE else 0
        return [(source, frames.fault(request, outcome, challenge=challenge or 0))]

    def open_session(self, request: Request, source: Source, now_us: int) -> tuple[ReplayOutcome, Sent]:
        """Give a nonce a session: its own if it has one, which moves to `source` and is heard by the OPEN, too."""
        nonce = int(request.first(OPEN)["nonce"])
        if not nonce % SERIAL:
            return ReplayOutcome.RANGE, self.answer_fault(request, ReplayOutcome.RANGE, source, now_us)
        challenge = nonce // SERIAL if self.challenge is None else self.challenge
        self.challenge = challenge
        index = self.rules.find_nonce(self.sessions, nonce)
        if index is None or self.rules.is_moved(self.sessions[index], source):
            if not self.rules.accepts(request.ticket, challenge):
                return ReplayOutcome.CHALLENGE, self.answer_fault(request, ReplayOutcome.CHALLENGE, source, now_us)
            given = self.rules.choose_index(self.sessions, now_us) if index is None else index
            if given is None:
                return ReplayOutcome.FULL, self.answer_fault(request, ReplayOutcome.FULL, source, now_us)
            if index is None:
                self.sessions[given] = self.rules.open_session(
                    self.sessions[given], nonce, source, now_us, self.config.cached_answers
                )
            self.challenge, index = self.rules.next_challenge(challenge), given
        self.sessions[index] = self.sessions[index]._replace(heard_us=now_us, source=source)
        return ReplayOutcome.DONE, [self.plain_answer(request._replace(session=index), source)]

"""The switch of `replay.py`: the dispatcher itself in front of toy requests, as a state that requests change.

Checked at each step: requests are executed in their own client's session, each once, in the client's order, without
gaps. No client that was not silent loses its session.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from iswitch.config import Replay
from iswitch.golden.interface.message import Source
from iswitch.golden.interface.tuples import replace_at
from iswitch.golden.replay import frames
from iswitch.golden.replay.dispatcher import Dispatcher, Effect, Sent
from iswitch.golden.replay.frames import Request
from iswitch.golden.replay.session import RULES, SERIAL, Rules, Session
from iswitch.wire.replay import REPLAY_HEADER, SESSION_SILENT_US, STATUS, Kind, ReplayOutcome
from sim.explore.search import Violation
from sim.explore.switch import ExploredSwitch

__all__ = [
    "EXECUTED",
    "SKIPPED",
    "AnswerFlips",
    "RowFlips",
    "UNKNOWN",
    "RequestArrives",
    "ReplayAnswer",
    "SessionsCore",
    "SessionsSwitch",
    "ToyDispatcher",
    "execution_mark",
]

UNKNOWN, EXECUTED, SKIPPED = range(3)
"""What a client knows of a request, and in what form the switch executed it."""

NOW_US = 0
SILENT_SINCE_US = NOW_US - SESSION_SILENT_US

WRONG_MARK = (1 << 16) - 1
"""What an answer with a bit error says."""

Executed = tuple[tuple[tuple[int, int], ...], ...]
"""For each client, number and form of what was executed, in order."""


class RequestArrives(NamedTuple):
    """A request reaches the switch. `number` counts from 0 in its client's plan. An OPEN has a `challenge`."""

    client: int
    kind: Kind
    number: int = 0
    form: int = EXECUTED
    session: int = 0
    seq: int = 0
    challenge: int = 0


class RowFlips(NamedTuple):
    """A bit error in the row of a session, which may change the number of its next request."""

    session: int
    next: int


class AnswerFlips(NamedTuple):
    """A bit error in the answer that a session has cached `back` requests before its next one."""

    session: int
    back: int


class ReplayAnswer(NamedTuple):
    """An answer reaches a client. `mark` names the execution. The answer to an OPEN may have a `challenge`."""

    client: int
    kind: int
    session: int
    seq: int
    outcome: int
    next: int
    mark: int
    challenge: int = 0


class SessionsCore(NamedTuple):
    """The switch, and what its promises refer to.

    `opens`: the clients that sessions were given to, in order. `resets`: how often the switch has forgotten everything.
    `flips`: bit errors so far. `erased`: the clients of which an answer had one.
    """

    sessions: tuple[Session, ...]
    executed: Executed
    challenge: int = 0
    gate: bool = False
    opens: tuple[int, ...] = ()
    resets: int = 0
    flips: int = 0
    erased: frozenset[int] = frozenset()

    def holds(self, client: int) -> bool:
        """Return whether a client's nonce has a session."""
        return any(session.is_held and session.nonce == client + 1 for session in self.sessions)

    def silenced(self, *sessions: int) -> "SessionsCore":
        """Return the switch after these sessions were silent for so long that they may be given away."""
        return self._replace(
            sessions=tuple(
                session._replace(heard_us=SILENT_SINCE_US) if k in sessions else session
                for k, session in enumerate(self.sessions)
            )
        )

    def active(self) -> list[int]:
        """Return the open sessions that have not been silent."""
        return [k for k, session in enumerate(self.sessions) if session.is_held and session.heard_us == NOW_US]

    def flippable(self) -> Iterator[RowFlips | AnswerFlips]:
        """Yield the bit errors that may happen in a state. A number that changes by more than a few is never used."""
        for k, session in enumerate(self.sessions):
            if session.is_held:
                yield from (RowFlips(k, session.next ^ change) for change in (1, 2))
                yield from (AnswerFlips(k, 1 + back) for back in range(len(session.cached)))

    def flipped(self, event: RowFlips | AnswerFlips) -> "SessionsCore":
        """Return the switch after a bit error."""
        session, erased = self.sessions[event.session], self.erased
        if isinstance(event, RowFlips):
            session = session._replace(corrupt=True, next=event.next)
        else:
            at = len(session.cached) - event.back
            wrong = session.cached[at]._replace(corrupt=True, status=frames.status(done=WRONG_MARK))
            session = session._replace(cached=replace_at(session.cached, at, wrong))
            erased |= {session.nonce - 1}
        sessions = replace_at(self.sessions, event.session, session)
        return self._replace(sessions=sessions, flips=self.flips + 1, erased=erased)


def execution_mark(client: int, number: int, form: int) -> int:
    """Return a number, neither 0 nor WRONG_MARK, that identifies an execution."""
    return client << 8 | number << 2 | form


class ToyDispatcher(Dispatcher):
    """The dispatcher with requests that only leave a mark.

    WRITE is refused (RANGE) and takes its number. SAMPLE waits while the gate is shut. The body of an ordered request
    says which client's it is, and which request. Faults are always answered.
    """

    def __init__(self, cached_answers: int, rules: Rules = RULES) -> None:
        super().__init__(Replay(cached_answers=cached_answers))
        self.rules = rules
        self.executed: Executed = ()
        self.gate = False

    def format_fault(self, request: Request) -> ReplayOutcome | None:
        return None

    def answer_fault(self, request: Request, outcome: ReplayOutcome, source: Source, now_us: int) -> Sent:
        challenge = self.challenge if outcome == ReplayOutcome.CHALLENGE else 0
        return [(source, frames.fault(request, outcome, challenge=challenge or 0))]

    def wait_reason(self, request: Request) -> ReplayOutcome | None:
        return ReplayOutcome.ITEMS if request.kind == Kind.SAMPLE and not self.gate else None

    def execute(self, request: Request) -> Effect:
        client, number, form = request.body
        if self.sessions[request.session].nonce != client + 1:
            raise Violation("a request is executed in another client's session")
        executed = self.executed[client]
        if number != len(executed):
            raise Violation("a request is executed " + ("twice" if number < len(executed) else "out of order"))
        self.executed = replace_at(self.executed, client, (*executed, (number, form)))
        outcome = ReplayOutcome.RANGE if request.kind == Kind.WRITE else ReplayOutcome.DONE
        return Effect(outcome, done=execution_mark(client, number, form))

    def query(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        return ReplayOutcome.DONE, [self.plain_answer(request, source)]

    def status(self, request: Request, session: Session, effect: Effect) -> bytes:
        return frames.status(outcome=effect.outcome, next=session.next, done=effect.done)

    def after_answer(self, request: Request, effect: Effect) -> None:
        """Do nothing: a toy has no state besides what was executed."""


class SessionsSwitch(ExploredSwitch[SessionsCore, tuple[ReplayAnswer, ...]]):
    """A replay service that knows sessions only."""

    def __init__(self, dispatcher: ToyDispatcher) -> None:
        super().__init__()
        self.dispatcher = dispatcher

    def start(self, *, sessions: int, clients: int, first: int) -> int:
        """Return the number of the first state: no session is open."""
        unused = Session(next=(first - self.dispatcher.config.cached_answers) % SERIAL)
        return self.number(SessionsCore((unused,) * sessions, ((),) * clients))

    def reset(self, number: int) -> int:
        """Return the number of the state after a reset of the switch. What was executed remains executed."""
        core = self.states[number]
        sessions, challenge = self.states[0].sessions, core.challenge + 1  # which no client has seen
        return self.number(core._replace(sessions=sessions, challenge=challenge, resets=core.resets + 1))

    def transition(self, state: SessionsCore, event: RequestArrives) -> tuple[SessionsCore, tuple[ReplayAnswer, ...]]:
        dispatcher, client, nonce = self.dispatcher, event.client, event.client + 1
        dispatcher.sessions, dispatcher.executed, dispatcher.gate = list(state.sessions), state.executed, state.gate
        dispatcher.challenge = state.challenge
        is_open = event.kind == Kind.OPEN
        body = nonce.to_bytes(8, "little") if is_open else bytes([client, event.number, event.form])
        request = Request(event.kind, event.session, 0, event.seq, 0, 0, event.challenge, nonce, body)
        outcome, sent = dispatcher.handle(request, Source(0, b"", client, 0), NOW_US)
        is_given = is_open and outcome == ReplayOutcome.DONE
        opens = (*state.opens, client) if is_given and not state.holds(client) else state.opens
        after = state._replace(
            sessions=tuple(dispatcher.sessions),
            executed=dispatcher.executed,
            challenge=dispatcher.challenge,
            opens=opens,
        )
        if is_given and not after.holds(client):
            raise Violation("a client is given another client's session")
        if any(after.sessions[k].nonce != state.sessions[k].nonce for k in state.active()):
            raise Violation("a client that was not silent loses its session")
        return after, tuple(answer_of(source.ip, payload) for source, payload in sent)


def answer_of(client: int, payload: bytes) -> ReplayAnswer:
    """Return the answer in a UDP payload."""
    header = np.frombuffer(payload, REPLAY_HEADER, 1)[0]
    status = np.frombuffer(payload, STATUS, 1, REPLAY_HEADER.itemsize)[0]
    kind, session, seq, challenge = (int(header[name]) for name in ("kind", "session", "seq", "ticket"))
    outcome, next, mark = (int(status[name]) for name in ("outcome", "next", "done"))
    return ReplayAnswer(client, kind, session, seq, outcome, next, mark, challenge)

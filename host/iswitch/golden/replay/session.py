"""Sessions of the replay service: which client a request belongs to, and in what order requests are executed.

Sections 1 and 3 of `docs/replay.md`. Everything here is a value and a function of values, so `sim/explore/replay.py`
explores these very rules, and plausible wrong ones.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from iswitch.golden.interface.message import Source
from iswitch.golden.interface.serial import SERIAL
from iswitch.wire.replay import CORRUPT_ROW_GAP, SESSION_SILENT_US, ReplayOutcome

__all__ = ["RULES", "SERIAL", "Rules", "Session", "choose_index", "find_nonce"]


class Session(NamedTuple):
    """One of the service's sessions; if not `open`, it is free.

    `next`: the number of the next ordered request. `cached`: the cached answers to the last requests that the present
    client had executed, oldest first, so `cached[-1]` is that of `next` - 1. `oldest` and `written`: first and end of
    the log, in units. `source`: where the client was when it opened the session. `corrupt`: the row has a bit error. A
    model has none: a test sets `corrupt`, and changes any field.
    """

    open: bool = False
    nonce: int = 0
    heard_us: int = 0
    next: int = 0
    cached: tuple[Any, ...] = ()
    oldest: int = 0
    written: int = 0
    source: Source | None = None
    corrupt: bool = False

    @property
    def token(self) -> int:
        return self.nonce % SERIAL

    @property
    def is_held(self) -> bool:
        """Whether the session is a client's. A session whose row has a bit error is lost, and counts as free."""
        return self.open and not self.corrupt


def find_nonce(sessions: Sequence[Session], nonce: int) -> int | None:
    """A nonce that has a session keeps it, so that a repeated OPEN opens no second one. Return the session's index."""
    return next((k for k, session in enumerate(sessions) if session.is_held and session.nonce == nonce), None)


def choose_index(sessions: Sequence[Session], now_us: int) -> int | None:
    """A new client gets the lowest free session, else the lowest that has been silent, whose client may be dead.

    The switch knows times modulo 2^32. So once in 71 minutes a silent session counts as just heard again, for 10 s.
    """
    free = [k for k, session in enumerate(sessions) if not session.is_held]
    silent = [k for k, session in enumerate(sessions) if (now_us - session.heard_us) % SERIAL >= SESSION_SILENT_US]
    return next(iter(free + silent), None)


def is_moved(session: Session, source: Source | None) -> bool:
    """Return whether an OPEN came from elsewhere than its session's client."""
    return session.source != source


def accepts(challenge: int, current: int) -> bool:
    """An OPEN that gives or moves a session must carry the current challenge."""
    return challenge == current


def next_challenge(challenge: int) -> int:
    """The challenge changes with each session that is given or moved, so an OPEN changes something at most once."""
    return (challenge + 1) % SERIAL


def open_session(session: Session, nonce: int, source: Source | None, now_us: int, cached_answers: int) -> Session:
    """A session that changes its client continues numbers and log, `cached_answers` numbers further, and drops cached
    answers.

    The new client may have had the session before its former one. What it sent then, and still waits for, is at most
    `cached_answers` behind what it knew to be next, so none of that is mistaken for a new request.

    If the row has a bit error, it is not known where numbers and log were. Then the log is empty, and both go on far
    away, where no earlier number and no earlier position is used again.
    """
    if session.corrupt:
        end = (session.written + CORRUPT_ROW_GAP) % SERIAL
        session = session._replace(
            corrupt=False, next=(session.next + CORRUPT_ROW_GAP) % SERIAL, oldest=end, written=end
        )
    return session._replace(
        open=True, nonce=nonce, heard_us=now_us, next=(session.next + cached_answers) % SERIAL, cached=(), source=source
    )


def find_session(sessions: Sequence[Session], index: int, token: int) -> Session | None:
    """A request belongs to the open session that it names if it has its token. Return that session, or None."""
    session = sessions[index] if index < len(sessions) else Session()
    return session if session.is_held and session.token == token else None


def check_order(session: Session, seq: int) -> ReplayOutcome | None:
    """Ordered requests are executed by number, each once. Return why a number is not the next, or None if it is.

    A number half the circle away counts as OLD, and so does a request whose cached answer has a bit error.
    """
    back = (session.next - seq) % SERIAL
    if 1 <= back <= len(session.cached) and not session.cached[-back].corrupt:
        return ReplayOutcome.REPEATED
    if 1 <= back <= SERIAL // 2:
        return ReplayOutcome.OLD
    return ReplayOutcome.AHEAD if back else None


def advance(session: Session) -> Session:
    """Return the session after its next request was executed, as the answer to that request shows it."""
    return session._replace(next=(session.next + 1) % SERIAL)


def keep_answer(session: Session, answer: Any, most: int) -> Session:
    """Return the session, after `advance`, with the answer and the `most` - 1 before it: repeats are answered so."""
    return session._replace(cached=(*session.cached, answer)[-most:])


def close_session(session: Session) -> Session:
    """Return the session after CLOSE: free."""
    return session._replace(open=False)


class Rules(NamedTuple):
    """The rules of sessions, which the explorer replaces by plausible wrong ones."""

    find_nonce: Callable[[Sequence[Session], int], int | None] = find_nonce
    choose_index: Callable[[Sequence[Session], int], int | None] = choose_index
    is_moved: Callable[[Session, Source | None], bool] = is_moved
    accepts: Callable[[int, int], bool] = accepts
    next_challenge: Callable[[int], int] = next_challenge
    open_session: Callable[[Session, int, Source | None, int, int], Session] = open_session
    find_session: Callable[[Sequence[Session], int, int], Session | None] = find_session
    check_order: Callable[[Session, int], ReplayOutcome | None] = check_order
    advance: Callable[[Session], Session] = advance
    keep_answer: Callable[[Session, Any, int], Session] = keep_answer
    close_session: Callable[[Session], Session] = close_session


RULES = Rules()

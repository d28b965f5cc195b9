"""Golden model of sessions: whose a request is, and whether it is its turn. Sections 1 and 3 of `docs/replay.md`.

Everything here is a value and a function of values, so that `explorer.py` explores these very rules, and plausible
wrong ones.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from iswitch.wire.replay import SESSION_SILENT_US, Fate
from sim.model.interface.message import Source

__all__ = ["RULES", "SERIAL", "Place", "Rules"]

SERIAL = 1 << 32
"""Times, numbers of requests, of items and of units are counted modulo this."""


class Place(NamedTuple):
    """A session, or the place for one. `next`: the number of the next ordered request. `kept`: answers to the last of
    those that the present client had carried out, oldest first, so `kept[-1]` is of `next` - 1. The log's `oldest` and
    `written` count units. `source`: where the client was when it opened."""

    open: bool = False
    nonce: int = 0
    heard_us: int = 0
    next: int = 0
    kept: tuple[Any, ...] = ()
    oldest: int = 0
    written: int = 0
    source: Source | None = None

    @property
    def token(self) -> int:
        return self.nonce % SERIAL


def holder(places: Sequence[Place], nonce: int) -> int | None:
    """Whose session this is already."""
    return next((k for k, place in enumerate(places) if place.open and place.nonce == nonce), None)


def offer(places: Sequence[Place], now_us: int) -> int | None:
    """The place that a newcomer gets: the lowest that is free, else the lowest that has been silent. The switch knows
    times modulo 2^32, so once in 71 minutes a silent session counts as just heard again, for 10 s."""
    free = [k for k, place in enumerate(places) if not place.open]
    silent = [k for k, place in enumerate(places) if (now_us - place.heard_us) % SERIAL >= SESSION_SILENT_US]
    return next(iter(free + silent), None)


def opened(place: Place, nonce: int, source: Source | None, now_us: int, kept: int) -> Place:
    """Numbers and log go on, answers to somebody else are not for this one. Numbers go on `kept` further: this client
    may have had the place before somebody else did, and what it sent then, and still waits for, is at most so far
    behind what it knew to be next."""
    return place._replace(
        open=True, nonce=nonce, heard_us=now_us, next=(place.next + kept) % SERIAL, kept=(), source=source
    )


def find(places: Sequence[Place], session: int, token: int) -> Place | None:
    """The open session that a request belongs to."""
    place = places[session] if session < len(places) else Place()
    return place if place.open and place.token == token else None


def order(place: Place, seq: int) -> Fate | None:
    """What the number of an ordered request says; None: it is next. What is half the circle away counts as OLD."""
    back = (place.next - seq) % SERIAL
    if 1 <= back <= len(place.kept):
        return Fate.REPEATED
    if 1 <= back <= SERIAL // 2:
        return Fate.OLD
    return Fate.AHEAD if back else None


def advanced(place: Place) -> Place:
    """After its next request was carried out: what that one's answer shows."""
    return place._replace(next=(place.next + 1) % SERIAL)


def keeping(place: Place, answer: Any, most: int) -> Place:
    """After `advanced`: with the answer, and the `most` - 1 before it."""
    return place._replace(kept=(*place.kept, answer)[-most:])


def closed(place: Place) -> Place:
    return place._replace(open=False)


class Rules(NamedTuple):
    """The rules above."""

    holder: Callable[[Sequence[Place], int], int | None] = holder
    offer: Callable[[Sequence[Place], int], int | None] = offer
    opened: Callable[[Place, int, Source | None, int, int], Place] = opened
    find: Callable[[Sequence[Place], int, int], Place | None] = find
    order: Callable[[Place, int], Fate | None] = order
    advanced: Callable[[Place], Place] = advanced
    keeping: Callable[[Place, Any, int], Place] = keeping
    closed: Callable[[Place], Place] = closed


RULES = Rules()

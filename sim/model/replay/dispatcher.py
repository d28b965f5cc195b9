"""Golden model of what stands before the replay service: which requests are whose, well formed, next, and to be
answered from what was kept.

`Dispatcher` knows sessions and nothing else: what requests do is for a subclass to say, the service itself
(`service.py`), or a toy whose every state is explored (`explorer.py`). What `docs/replay.md` leaves open is decided so:

- Faults (KIND, TABLE, LENGTH, FULL, SESSION) have one timer, apart from that of notices. A session is heard when a
request passes all of these.
- Every kind names a table that exists, and every kind without items, draws or units has count 0. Reserved fields mean
nothing.
- A CLOSE is answered once: its repeat finds no session.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from iswitch.config import Replay
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
    SAMPLE,
    SAMPLES_PER_FRAGMENT,
    UNIT_BYTES,
    UPDATE_ROW,
    WRITE,
    Fate,
    Kind,
)
from sim.model.interface.message import Source
from sim.model.replay import frames
from sim.model.replay.frames import Kept, Request
from sim.model.replay.session import RULES, SERIAL, Place, Rules
from sim.model.replay.table import Row

__all__ = ["Dispatcher", "Effect", "Sent"]

Sent = list[tuple[Source, bytes]]


class Effect(NamedTuple):
    """What became of a request. `rows`: what was drawn."""

    fate: Fate = Fate.DONE
    done: int = 0
    stale: int = 0
    rows: tuple[Row, ...] = ()


class Dispatcher(ABC):
    """`fates`: how many requests each Fate had. `places` are open to tests."""

    rules: Rules = RULES

    def __init__(self, config: Replay) -> None:
        self.config = config
        self.places = [
            Place(next=-config.kept % SERIAL)
        ] * config.sessions  # so that the first client of all begins with 0
        self.fates = [0] * len(Fate)
        self.complained_us: int | None = None

    # What a subclass says

    @abstractmethod
    def waits(self, asked: Request) -> Fate | None:
        """Why an ordered request, the next of its session, cannot be carried out now."""

    @abstractmethod
    def effect(self, asked: Request) -> Effect:
        """Carries out an ordered request, but for what concerns sessions."""

    @abstractmethod
    def show(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        """Carries out a request of a kind that is not ordered."""

    @abstractmethod
    def status(self, asked: Request, place: Place, effect: Effect) -> bytes:
        """STATUS of a request that came to `effect`, with its session as it is after that."""

    @abstractmethod
    def settle(self, asked: Request, effect: Effect) -> None:
        """What is to be done after the answer was made."""

    # What becomes of a request

    def receive(self, source: Source, payload: bytes, now_us: int) -> Sent:
        """One REQUEST, whose UDP payload is `payload`. Returns to whom which payloads go, in order."""
        asked = frames.request(payload)
        fate, sent = self.handle(asked, source, now_us)
        self.fates[fate] += 1
        return sent

    def handle(self, asked: Request, source: Source, now_us: int) -> tuple[Fate, Sent]:
        malformed = self.malformed(asked)
        if malformed is not None:
            return malformed, self.complain(asked, malformed, source, now_us)
        if asked.kind == Kind.OPEN:
            return self.open(asked, source, now_us)
        place = self.rules.find(self.places, asked.session, asked.token)
        if place is None:
            return Fate.SESSION, self.complain(asked, Fate.SESSION, source, now_us)
        place = self.places[asked.session] = place._replace(heard_us=now_us)
        if asked.kind not in ORDERED:
            return self.show(asked, source)
        misplaced = self.rules.order(place, asked.seq)
        if misplaced == Fate.REPEATED:
            kept = place.kept[-((place.next - asked.seq) % SERIAL)]
            return misplaced, [(source, payload) for payload in frames.answers(asked, kept)]
        if misplaced is not None:
            return misplaced, [self.told(asked, source, misplaced)]
        waits = self.waits(asked)
        if waits is not None:
            return waits, [self.told(asked, source, waits)]
        return self.carry(asked, source)

    def carry(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        """The next request of its session, which need not wait."""
        effect = self.effect(asked)
        place = self.rules.advanced(self.places[asked.session])
        kept = Kept(asked.kind, asked.table, self.status(asked, place, effect), effect.rows)
        place = self.rules.keeping(place, kept, self.config.kept)
        self.places[asked.session] = self.rules.closed(place) if asked.kind == Kind.CLOSE else place
        self.settle(asked, effect)
        return effect.fate, [(source, payload) for payload in frames.answers(asked, kept)]

    def told(self, asked: Request, source: Source, fate: Fate = Fate.DONE) -> tuple[Source, bytes]:
        """The answer to a request that changed nothing."""
        return source, frames.answer(asked, self.status(asked, self.places[asked.session], Effect(fate)))

    # What is no request of a session

    def malformed(self, asked: Request) -> Fate | None:
        """The first rule of form that it breaks."""
        if asked.kind not in tuple(Kind):
            return Fate.KIND
        if asked.table >= self.config.tables:
            return Fate.TABLE
        head, each, most = self.form(Kind(asked.kind))
        counted = asked.amount == 0 if most == 0 else 1 <= asked.amount <= most
        return None if counted and len(asked.body) == head + asked.amount * each else Fate.LENGTH

    def form(self, kind: Kind) -> tuple[int, int, int]:
        """Bytes of a body, and more bytes for each of what `count` counts, and the most that it can be: as many as fit,
        or as the answer holds."""
        record, units = ADD_ROW.itemsize + self.config.record_bytes, PAYLOAD_BYTES // UNIT_BYTES
        return {
            Kind.OPEN: (OPEN.itemsize, 0, 0),
            Kind.CLOSE: (0, 0, 0),
            Kind.WRITE: (WRITE.itemsize, UNIT_BYTES, units),
            Kind.ADD: (0, record, BODY_BYTES // record),
            Kind.SAMPLE: (SAMPLE.itemsize, 0, self.config.draws),
            Kind.UPDATE: (0, UPDATE_ROW.itemsize, BODY_BYTES // UPDATE_ROW.itemsize),
            Kind.PUBLISH: (PUBLISH.itemsize, 0, 0),
            Kind.LIMIT: (LIMITS.itemsize, 0, 0),
            Kind.SKIP: (0, 0, 0),
            Kind.FETCH: (0, FETCH_ROW.itemsize, self.config.records),
            Kind.LOAD: (LOAD.itemsize, 0, units),
            Kind.LOOK: (0, 0, 0),
            Kind.LIST: (LIST.itemsize, 0, SAMPLES_PER_FRAGMENT),
            Kind.SHOUT: (LOAD.itemsize, 0, units),
        }[kind]

    def complain(self, asked: Request, fate: Fate, source: Source, now_us: int) -> Sent:
        """At most one in an interval, or a stranger could make the switch a source of traffic."""
        if self.complained_us is not None and (now_us - self.complained_us) % SERIAL < NOTICE_INTERVAL_US:
            return []
        self.complained_us = now_us
        return [(source, frames.fault(asked, fate))]

    def open(self, asked: Request, source: Source, now_us: int) -> tuple[Fate, Sent]:
        """A session for a nonce: its own if it has one, where it was when it opened that; it is heard by this too."""
        nonce = int(asked.first(OPEN)["nonce"])
        index = self.rules.holder(self.places, nonce)
        if index is not None:
            self.places[index] = self.places[index]._replace(heard_us=now_us)
        else:
            index = self.rules.offer(self.places, now_us)
            if index is None:
                return Fate.FULL, self.complain(asked, Fate.FULL, source, now_us)
            self.places[index] = self.rules.opened(self.places[index], nonce, source, now_us, self.config.kept)
        return Fate.DONE, [self.told(asked._replace(session=index), source)]

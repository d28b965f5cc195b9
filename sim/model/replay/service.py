"""Golden model of the replay service: a REQUEST goes in, ANSWER and DATA come out. `docs/replay.md`.

Each request is carried out whole before the next begins, and has exactly one Fate. What the page leaves open is decided so:

- Faults (KIND, TABLE, LENGTH, FULL, SESSION) have one timer, apart from that of notices. A session is heard when a request passes all of these.
- Every kind names a table that exists, and every kind without items, draws or units has count 0. Reserved fields mean nothing.
- The index of a log in LOAD may be that of a place that nobody has; one beyond the places is GONE, and so is a SHOUT of another's log.
- A STATUS tells all as of right behind the request, but before `times` does its work: what a SAMPLE tells of priorities is what it drew from.
- SATURATED counts priorities in requests that are carried out, of items that turn out to be gone too.
- A CLOSE is answered once: its repeat finds no session.
"""

from collections.abc import Callable
from typing import NamedTuple

from iswitch.config import Replay
from iswitch.replay_wire import (
    ADD_ROW, BODY_BYTES, DRAWS_PER_FRAGMENT, FETCH_ROW, LIMITS, LIST, LOAD, OPEN, ORDERED, PAYLOAD_BYTES, PUBLISH, ROW_BYTES, SAMPLE, UNIT_BYTES,
    UPDATE_ROW, WRITE, Fate, Kind, ReplayRegister,
)
from iswitch.wire import NOTICE_INTERVAL_US
from sim.model.control.membership import Source
from sim.model.replay import frames, session
from sim.model.replay.frames import Kept, Request
from sim.model.replay.log import Memory, there, wrong_write
from sim.model.replay.session import SERIAL, Place
from sim.model.replay.table import Limits, Published, Row, Table

__all__ = ["Service"]

Sent = list[tuple[Source, bytes]]


class Effect(NamedTuple):
    """What became of an ordered request. `rows`: what was drawn."""

    fate: Fate = Fate.DONE
    done: int = 0
    stale: int = 0
    rows: tuple[Row, ...] = ()


class Service:
    """`fates`: how many requests each Fate had. `saturated`: priorities that were too large. `memory`, `tables`, `places` are open to tests."""

    def __init__(self, config: Replay) -> None:
        self.config = config
        self.memory = Memory(config)
        self.tables = [Table(config) for _ in range(config.tables)]
        self.places = [Place()] * config.sessions
        self.fates, self.saturated = [0] * len(Fate), 0
        self.complained_us: int | None = None
        self.carries: dict[int, Callable[[Request], Effect]] = {
            Kind.CLOSE: self.close, Kind.WRITE: self.write, Kind.ADD: self.add, Kind.SAMPLE: self.sample, Kind.UPDATE: self.update,
            Kind.PUBLISH: self.publish, Kind.LIMIT: self.limit, Kind.SKIP: lambda asked: Effect()}
        self.shows: dict[int, Callable[[Request, Source], tuple[Fate, Sent]]] = {
            Kind.FETCH: self.fetch, Kind.LOAD: self.load, Kind.LOOK: self.look, Kind.LIST: self.list, Kind.SHOUT: self.shout}

    def receive(self, source: Source, payload: bytes, now_us: int) -> Sent:
        """One REQUEST, whose UDP payload is `payload`. Returns to whom which payloads go, in order."""
        asked = frames.request(payload)
        fate, sent = self.handle(asked, source, now_us)
        self.fates[fate] += 1
        return sent

    def registers(self) -> list[int]:
        """What it was built with, as ReplayRegister numbers them."""
        return [getattr(self.config, register.name.lower()) for register in ReplayRegister]

    def handle(self, asked: Request, source: Source, now_us: int) -> tuple[Fate, Sent]:
        malformed = self.malformed(asked)
        if malformed is not None:
            return malformed, self.complain(asked, malformed, source, now_us)
        if asked.kind == Kind.OPEN:
            return self.open(asked, source, now_us)
        place = session.find(self.places, asked.session, asked.token)
        if place is None:
            return Fate.SESSION, self.complain(asked, Fate.SESSION, source, now_us)
        place = self.places[asked.session] = session.heard(place, now_us)
        if asked.kind not in ORDERED:
            return self.shows[asked.kind](asked, source)
        misplaced = session.order(place, asked.seq)
        if misplaced == Fate.REPEATED:
            kept = place.kept[-((place.next - asked.seq) % SERIAL)]
            return misplaced, [(source, payload) for payload in frames.answers(asked, kept)]
        if misplaced is not None:
            return misplaced, [self.told(asked, source, misplaced)] if misplaced == Fate.AHEAD else []
        return self.carry(asked, source)

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
        """Bytes of a body, and more bytes for each of what `count` counts, and the most that it can be: as many as fit, or as the answer holds."""
        record, units = ROW_BYTES + self.config.record_bytes, PAYLOAD_BYTES // UNIT_BYTES
        return {
            Kind.OPEN: (OPEN.itemsize, 0, 0), Kind.CLOSE: (0, 0, 0), Kind.WRITE: (WRITE.itemsize, UNIT_BYTES, units),
            Kind.ADD: (0, record, BODY_BYTES // record), Kind.SAMPLE: (SAMPLE.itemsize, 0, self.config.draws),
            Kind.UPDATE: (0, UPDATE_ROW.itemsize, BODY_BYTES // UPDATE_ROW.itemsize), Kind.PUBLISH: (PUBLISH.itemsize, 0, 0),
            Kind.LIMIT: (LIMITS.itemsize, 0, 0), Kind.SKIP: (0, 0, 0), Kind.FETCH: (0, FETCH_ROW.itemsize, self.config.records),
            Kind.LOAD: (LOAD.itemsize, 0, units), Kind.LOOK: (0, 0, 0), Kind.LIST: (LIST.itemsize, 0, DRAWS_PER_FRAGMENT),
            Kind.SHOUT: (LOAD.itemsize, 0, units)}[kind]

    def complain(self, asked: Request, fate: Fate, source: Source, now_us: int) -> Sent:
        """At most one in an interval, or a stranger could make the switch a source of traffic."""
        if self.complained_us is not None and (now_us - self.complained_us) % SERIAL < NOTICE_INTERVAL_US:
            return []
        self.complained_us = now_us
        return [(source, frames.fault(asked, fate))]

    def open(self, asked: Request, source: Source, now_us: int) -> tuple[Fate, Sent]:
        """A session for a nonce: its own if it has one, where it was when it opened that; it is heard by this too."""
        nonce = int(asked.first(OPEN)["nonce"])
        index = session.holder(self.places, nonce)
        if index is not None:
            self.places[index] = session.heard(self.places[index], now_us)
        else:
            index = session.offer(self.places, now_us)
            if index is None:
                return Fate.FULL, self.complain(asked, Fate.FULL, source, now_us)
            self.places[index] = session.opened(self.places[index], nonce, source, now_us)
        return Fate.DONE, [self.told(asked._replace(session=index), source)]

    # Ordered kinds

    def carry(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        """The next request of its session, if it need not wait."""
        table = self.tables[asked.table]
        waits = self.waits(asked, table)
        if waits is not None:
            return waits, [self.told(asked, source, waits)]
        effect = self.carries[asked.kind](asked)
        if effect.fate == Fate.DONE and asked.kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT):
            table.done()
        place = session.advanced(self.places[asked.session])
        kept = Kept(asked.kind, asked.table, self.status(asked, place, effect), effect.rows)
        self.places[asked.session] = session.keeping(place, kept, self.config.kept)
        table.use(effect.rows)
        return effect.fate, [(source, payload) for payload in frames.answers(asked, kept)]

    def waits(self, asked: Request, table: Table) -> Fate | None:
        if asked.kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT) and asked.turn not in (0, table.turn):
            return Fate.TURN
        if asked.kind == Kind.SAMPLE:
            return table.sample_waits(asked.amount, int(asked.first(SAMPLE)["items"]))
        return table.add_waits(asked.amount) if asked.kind == Kind.ADD else None

    def close(self, asked: Request) -> Effect:
        self.places[asked.session] = session.closed(self.places[asked.session])
        return Effect()

    def write(self, asked: Request) -> Effect:
        place, where = self.places[asked.session], asked.first(WRITE)
        start, oldest = int(where["start"]), int(where["oldest"])
        wrong = wrong_write(place, start, oldest, asked.amount, self.config.log_units)
        if wrong is not None:
            return Effect(wrong)
        self.memory.write(asked.session, start, asked.body[WRITE.itemsize:])
        self.places[asked.session] = place._replace(oldest=oldest, written=(start + asked.amount) % SERIAL)
        return Effect()

    def add(self, asked: Request) -> Effect:
        size = ADD_ROW.itemsize + self.config.record_bytes
        items = [asked.body[at:at + size] for at in range(0, len(asked.body), size)]
        priorities = [int.from_bytes(item[:4], "little") for item in items]
        for slot, item in zip(self.tables[asked.table].add(priorities), items):
            self.memory.bytes[self.memory.record(asked.table, slot)] = item[ADD_ROW.itemsize:]
        self.saturate(priorities)
        return Effect(done=len(items))

    def sample(self, asked: Request) -> Effect:
        body = asked.first(SAMPLE)
        seed = int(body["seed"][0]) | int(body["seed"][1]) << 64
        rows = self.tables[asked.table].sample(seed, asked.amount, int(body["stride"]))
        return Effect(done=len(rows), rows=tuple(rows))

    def update(self, asked: Request) -> Effect:
        """Row by row: of two for one item the last counts."""
        rows = [(int(row["item"]), int(row["priority"])) for row in asked.rows(UPDATE_ROW)]
        done = sum(self.tables[asked.table].update(item, priority) for item, priority in rows)
        self.saturate([priority for _, priority in rows])
        return Effect(done=done, stale=len(rows) - done)

    def saturate(self, priorities: list[int]) -> None:
        self.saturated += sum(priority >> self.config.priority_bits > 0 for priority in priorities)

    def publish(self, asked: Request) -> Effect:
        """Any version, even 0; no units at all may be published too."""
        body = asked.first(PUBLISH)
        start, units, version = (int(body[name]) for name in ("start", "units", "version"))
        if not there(self.places[asked.session], start, units):
            return Effect(Fate.RANGE)
        self.tables[asked.table].published = Published(asked.session, start, units, version)
        return Effect()

    def limit(self, asked: Request) -> Effect:
        body = asked.first(LIMITS)
        return Effect(self.tables[asked.table].limit(Limits(*(int(body[name]) for name in Limits._fields))))

    # Kinds that change nothing

    def fetch(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        slots = [self.tables[asked.table].slot(int(row["item"])) for row in asked.rows(FETCH_ROW)]
        blank = bytes(self.config.record_bytes)
        records = (blank if slot is None else self.memory.bytes[self.memory.record(asked.table, slot)] for slot in slots)
        gone = sum(1 << k for k, slot in enumerate(slots) if slot is None)
        return Fate.GONE if gone else Fate.DONE, [(source, frames.data(asked, b"".join(records), gone=gone))]

    def units(self, asked: Request) -> bytes | None:
        """What a LOAD or SHOUT is about, if it is all there."""
        body = asked.first(LOAD)
        start, whose = int(body["start"]), int(body["session"])
        if whose >= len(self.places) or not there(self.places[whose], start, asked.amount):
            return None
        return self.memory.read(whose, start, asked.amount)

    def load(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        units = self.units(asked)
        if units is None:
            return Fate.GONE, [(source, frames.data(asked, b"", gone=1))]
        return Fate.DONE, [(source, frames.data(asked, units))]

    def look(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        return Fate.DONE, [self.told(asked, source)]

    def list(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        """More slots than there are come round again."""
        first = int(asked.first(LIST)["slot"])
        rows = [self.tables[asked.table].row(first + k) for k in range(asked.amount)]
        return Fate.DONE, [(source, frames.answer(asked, self.status(asked, self.places[asked.session], Effect(done=len(rows))), rows))]

    def shout(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        body = asked.first(LOAD)
        units = self.units(asked) if int(body["session"]) == asked.session else None
        if units is None:
            return Fate.GONE, [(source, frames.data(asked, b"", gone=1))]
        told = [(place.source, frames.data(asked, units, session=k, token=place.token, seq=int(body["start"])))
                for k, place in enumerate(self.places) if place.open and place.source and k != asked.session]
        return Fate.DONE, [*told, self.told(asked, source)]

    # Answers

    def told(self, asked: Request, source: Source, fate: Fate = Fate.DONE) -> tuple[Source, bytes]:
        """The answer to a request that changed nothing."""
        return source, frames.answer(asked, self.status(asked, self.places[asked.session], Effect(fate)))

    def status(self, asked: Request, place: Place, effect: Effect) -> bytes:
        table = self.tables[asked.table]
        lowest, highest = table.extremes()
        published = table.published
        return frames.status(
            reason=effect.fate, lowest=lowest, highest=highest, publisher=published.session, next=place.next, adds=table.adds % SERIAL,
            turn=table.turn, total=table.total, draws=table.draws % SERIAL, done=effect.done, stale=effect.stale, written=place.written,
            oldest=place.oldest, version=published.version, start=published.start, units=published.units, filled=table.slots.filled,
            nonce=place.nonce)

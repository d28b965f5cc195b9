"""Golden model of the replay service: what each kind of request does. `docs/replay.md`, sections 1 and 4; who may ask
is in `dispatcher.py`.

What the page leaves open is decided so:

- The index of a log in LOAD may be that of a place that nobody has; one beyond the places is OVERWRITTEN, and so is a SHOUT of
another's log.
- A STATUS tells all as of right behind the request, but before `times` does its work: what a SAMPLE tells of priorities
is what it drew from.
- A LIMIT finds no draws under way: each request is over when the next begins. LOAD and SHOUT of no units are LENGTH;
PUBLISH of none is not.
- SATURATED counts priorities in requests that are carried out, of items that turn out to be gone too.
"""

from collections.abc import Callable

from iswitch.config import Replay
from iswitch.wire.replay import (
    ADD_ROW,
    FETCH_ROW,
    LIMITS,
    LIST,
    LOAD,
    PUBLISH,
    SAMPLE,
    UPDATE_ROW,
    WRITE,
    Fate,
    Kind,
    ReplayRegister,
)
from sim.model.interface.message import Source
from sim.model.replay import frames
from sim.model.replay.dispatcher import Dispatcher, Effect, Sent
from sim.model.replay.frames import Request
from sim.model.replay.log import Memory, there, wrong_write
from sim.model.replay.session import SERIAL, Place
from sim.model.replay.table import Limits, Published, Table

__all__ = ["Service"]

TICKETED = (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)
"""May name a table's ticket, and pass it on when done."""


class Service(Dispatcher):
    """`saturated`: priorities that were too large. `memory` and `tables` are open to tests."""

    def __init__(self, config: Replay) -> None:
        super().__init__(config)
        self.memory = Memory(config)
        self.tables = [Table(config) for _ in range(config.tables)]
        self.saturated = 0
        self.carries: dict[int, Callable[[Request], Effect]] = {
            Kind.CLOSE: lambda asked: Effect(),
            Kind.WRITE: self.write,
            Kind.ADD: self.add,
            Kind.SAMPLE: self.sample,
            Kind.UPDATE: self.update,
            Kind.PUBLISH: self.publish,
            Kind.LIMIT: self.limit,
            Kind.SKIP: lambda asked: Effect(),
        }
        self.shows: dict[int, Callable[[Request, Source], tuple[Fate, Sent]]] = {
            Kind.FETCH: self.fetch,
            Kind.LOAD: self.load,
            Kind.LOOK: self.look,
            Kind.LIST: self.list,
            Kind.SHOUT: self.shout,
        }

    def registers(self) -> list[int]:
        """What it was built with, as ReplayRegister numbers them."""
        return [getattr(self.config, register.name.lower()) for register in ReplayRegister]

    # Ordered kinds

    def waits(self, asked: Request) -> Fate | None:
        table = self.tables[asked.table]
        if asked.kind in TICKETED and asked.ticket not in (0, table.ticket):
            return Fate.TICKET
        if asked.kind == Kind.SAMPLE:
            return table.sample_waits(asked.amount, int(asked.first(SAMPLE)["items"]))
        return table.add_waits(asked.amount) if asked.kind == Kind.ADD else None

    def effect(self, asked: Request) -> Effect:
        effect = self.carries[asked.kind](asked)
        if effect.fate == Fate.DONE and asked.kind in TICKETED:
            self.tables[asked.table].done()
        return effect

    def settle(self, asked: Request, effect: Effect) -> None:
        self.tables[asked.table].use(effect.rows)

    def write(self, asked: Request) -> Effect:
        place, where = self.places[asked.session], asked.first(WRITE)
        start, oldest = int(where["start"]), int(where["oldest"])
        wrong = wrong_write(place, start, oldest, asked.amount, self.config.log_units)
        if wrong is not None:
            return Effect(wrong)
        self.memory.write(asked.session, start, asked.body[WRITE.itemsize :])
        self.places[asked.session] = place._replace(oldest=oldest, written=(start + asked.amount) % SERIAL)
        return Effect()

    def add(self, asked: Request) -> Effect:
        size = ADD_ROW.itemsize + self.config.record_bytes
        items = [asked.body[at : at + size] for at in range(0, len(asked.body), size)]
        priorities = [int.from_bytes(item[:4], "little") for item in items]
        for slot, item in zip(self.tables[asked.table].add(priorities), items):
            self.memory.bytes[self.memory.record(asked.table, slot)] = item[ADD_ROW.itemsize :]
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
        """Something, with a version that says so."""
        body = asked.first(PUBLISH)
        start, units, version = (int(body[name]) for name in ("start", "units", "version"))
        if not (version and units and there(self.places[asked.session], start, units)):
            return Effect(Fate.RANGE)
        self.tables[asked.table].published = Published(asked.session, start, units, version)
        return Effect()

    def limit(self, asked: Request) -> Effect:
        body = asked.first(LIMITS)
        return Effect(self.tables[asked.table].limit(Limits(*(int(body[name]) for name in Limits._fields))))

    # Kinds that change nothing

    def show(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        return self.shows[asked.kind](asked, source)

    def fetch(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        slots = [self.tables[asked.table].slot(int(row["item"])) for row in asked.rows(FETCH_ROW)]
        blank = bytes(self.config.record_bytes)
        records = (
            blank if slot is None else self.memory.bytes[self.memory.record(asked.table, slot)] for slot in slots
        )
        gone = sum(1 << k for k, slot in enumerate(slots) if slot is None)
        return Fate.OVERWRITTEN if gone else Fate.DONE, [(source, frames.data(asked, b"".join(records), gone=gone))]

    def units(self, asked: Request) -> bytes | None:
        """What a LOAD or SHOUT is about, if it is all there."""
        body = asked.first(LOAD)
        start, whose = int(body["start"]), int(body["session"])
        if whose >= len(self.places) or not there(self.places[whose], start, asked.amount):
            return None
        return self.memory.read(whose, start, asked.amount)

    def load(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        units, whose = self.units(asked), int(asked.first(LOAD)["session"])
        if units is None:
            return Fate.OVERWRITTEN, [(source, frames.data(asked, b"", gone=1, fragments=whose))]
        return Fate.DONE, [(source, frames.data(asked, units, fragments=whose))]

    def look(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        return Fate.DONE, [self.told(asked, source)]

    def list(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        """More slots than there are come round again."""
        first = int(asked.first(LIST)["slot"])
        rows = [self.tables[asked.table].row(first + k) for k in range(asked.amount)]
        return Fate.DONE, [
            (source, frames.answer(asked, self.status(asked, self.places[asked.session], Effect(done=len(rows))), rows))
        ]

    def shout(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        body = asked.first(LOAD)
        whose = int(body["session"])
        units = self.units(asked) if whose == asked.session else None
        if units is None:
            return Fate.OVERWRITTEN, [(source, frames.data(asked, b"", gone=1, fragments=whose))]
        told = [
            (
                place.source,
                frames.data(asked, units, session=k, token=place.token, seq=int(body["start"]), fragments=whose),
            )
            for k, place in enumerate(self.places)
            if place.open and place.source and k != asked.session
        ]
        return Fate.DONE, [*told, self.told(asked, source)]

    # Answers

    def status(self, asked: Request, place: Place, effect: Effect) -> bytes:
        table = self.tables[asked.table]
        lowest, highest = table.extremes()
        published = table.published
        return frames.status(
            reason=effect.fate,
            lowest=lowest,
            highest=highest,
            publisher=published.session,
            next=place.next,
            adds=table.adds % SERIAL,
            ticket=table.ticket,
            total=table.total,
            draws=table.draws % SERIAL,
            done=effect.done,
            stale=effect.stale,
            written=place.written,
            oldest=place.oldest,
            version=published.version,
            start=published.start,
            units=published.units,
            filled=table.slots.filled,
            nonce=place.nonce,
        )

"""Golden model of the replay service: what each kind of request does. Sections 1 and 4 of `docs/replay.md`.

`dispatcher.py` says which requests are executed. What the page leaves open is decided here:

- LOAD may name the log of a free session. An index beyond the sessions is OVERWRITTEN, and so is a SHOUT of another
  session's log.
- A STATUS shows everything as it is right after the request, but before `times` takes effect: the priorities that a
  SAMPLE shows are those that it sampled from.
- A LIMIT finds no samples in flight, because each request is over when the next one starts. LOAD and SHOUT of no units
  are LENGTH; PUBLISH of none is not.
- SATURATED counts the priorities in executed requests, including those of stale items.
"""

from collections.abc import Callable

from iswitch.config import Replay
from iswitch.golden.interface.message import Source
from iswitch.golden.replay import frames
from iswitch.golden.replay.dispatcher import Dispatcher, Effect, Sent
from iswitch.golden.replay.frames import Request
from iswitch.golden.replay.log import Memory, holds_units, write_fault
from iswitch.golden.replay.session import SERIAL, Session
from iswitch.golden.replay.table import Limits, Published, Table
from iswitch.wire.replay import (
    ADD_ROW,
    FETCH_ROW,
    LIMITS,
    LIST,
    LOAD,
    PUBLISH,
    REBUILD,
    SAMPLE,
    UPDATE_ROW,
    WRITE,
    Kind,
    ReplayOutcome,
    ReplayRegister,
)

__all__ = ["Service"]

TICKETED = (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)
"""Kinds that may name a table's ticket, and advance it when done."""


class Service(Dispatcher):
    """The replay service.

    `saturated`: how many priorities were too large. Tests may read and set `memory` and `tables`.
    """

    def __init__(self, config: Replay) -> None:
        super().__init__(config)
        self.memory = Memory(config)
        self.tables = [Table(config) for _ in range(config.tables)]
        self.saturated = 0
        self.executors: dict[int, Callable[[Request], Effect]] = {
            Kind.CLOSE: lambda request: Effect(),
            Kind.WRITE: self.write,
            Kind.ADD: self.add,
            Kind.SAMPLE: self.sample,
            Kind.UPDATE: self.update,
            Kind.PUBLISH: self.publish,
            Kind.LIMIT: self.limit,
            Kind.SKIP: lambda request: Effect(),
            Kind.REBUILD: self.rebuild,
        }
        self.queries: dict[int, Callable[[Request, Source], tuple[ReplayOutcome, Sent]]] = {
            Kind.FETCH: self.fetch,
            Kind.LOAD: self.load,
            Kind.LOOK: self.look,
            Kind.LIST: self.list,
            Kind.SHOUT: self.shout,
        }

    def registers(self) -> list[int]:
        """Return the parameters that the service was built with, as `ReplayRegister` numbers them."""
        return [getattr(self.config, register.name.lower()) for register in ReplayRegister]

    # Ordered kinds

    def wait_reason(self, request: Request) -> ReplayOutcome | None:
        """Return why a request must wait: for its ticket, for items, or for credit."""
        table = self.tables[request.table]
        if request.kind in TICKETED and request.ticket not in (0, table.ticket):
            return ReplayOutcome.TICKET
        if request.kind == Kind.SAMPLE:
            return table.sample_wait_reason(request.amount, int(request.first(SAMPLE)["items"]))
        return table.add_wait_reason(request.amount) if request.kind == Kind.ADD else None

    def execute(self, request: Request) -> Effect:
        """Execute an ordered request. One that took effect advances its table's ticket."""
        effect = self.executors[request.kind](request)
        if effect.outcome == ReplayOutcome.DONE and request.kind in TICKETED:
            self.tables[request.table].advance_ticket()
        return effect

    def after_answer(self, request: Request, effect: Effect) -> None:
        """Count the samples of a request, which may set priorities to 0."""
        self.tables[request.table].count_samples(effect.rows)

    def write(self, request: Request) -> Effect:
        """Append units to the session's log."""
        session, where = self.sessions[request.session], request.first(WRITE)
        start, oldest = int(where["start"]), int(where["oldest"])
        wrong = write_fault(session, start, oldest, request.amount, self.config.log_units)
        if wrong is not None:
            return Effect(wrong)
        self.memory.write(request.session, start, request.body[WRITE.itemsize :])
        self.sessions[request.session] = session._replace(oldest=oldest, written=(start + request.amount) % SERIAL)
        return Effect()

    def add(self, request: Request) -> Effect:
        """Add items with their records and priorities."""
        size = ADD_ROW.itemsize + self.config.record_bytes
        items = [request.body[at : at + size] for at in range(0, len(request.body), size)]
        priorities = [int.from_bytes(item[:4], "little") for item in items]
        for slot, item in zip(self.tables[request.table].add(priorities), items):
            self.memory.bytes[self.memory.record(request.table, slot)] = item[ADD_ROW.itemsize :]
        self.count_saturated(priorities)
        return Effect(done=len(items))

    def sample(self, request: Request) -> Effect:
        """Sample a batch of items."""
        if not self.tables[request.table].is_intact:
            return Effect(ReplayOutcome.CORRUPT)
        body = request.first(SAMPLE)
        seed = int(body["seed"][0]) | int(body["seed"][1]) << 64
        rows = self.tables[request.table].sample(seed, request.amount, int(body["stride"]))
        return Effect(done=len(rows), rows=tuple(rows))

    def update(self, request: Request) -> Effect:
        """Set priorities row by row: of two for one item the last counts."""
        rows = [(int(row["item"]), int(row["priority"])) for row in request.rows(UPDATE_ROW)]
        done = sum(self.tables[request.table].update(item, priority) for item, priority in rows)
        self.count_saturated([priority for _, priority in rows])
        return Effect(done=done, stale=len(rows) - done)

    def count_saturated(self, priorities: list[int]) -> None:
        """Count the priorities that are too large for the table."""
        self.saturated += sum(priority >> self.config.priority_bits > 0 for priority in priorities)

    def publish(self, request: Request) -> Effect:
        """Publish units of the session's log, with a version above 0."""
        body = request.first(PUBLISH)
        start, units, version = (int(body[name]) for name in ("start", "units", "version"))
        if not (version and units and holds_units(self.sessions[request.session], start, units)):
            return Effect(ReplayOutcome.RANGE)
        self.tables[request.table].published = Published(request.session, start, units, version)
        return Effect()

    def limit(self, request: Request) -> Effect:
        """Set a table's limits."""
        body = request.first(LIMITS)
        return Effect(self.tables[request.table].limit(Limits(*(int(body[name]) for name in Limits._fields))))

    def rebuild(self, request: Request) -> Effect:
        """Return slots to the sum tree."""
        outcome, lost = self.tables[request.table].rebuild(int(request.first(REBUILD)["slot"]), request.amount)
        return Effect(outcome, done=0 if outcome == ReplayOutcome.RANGE else request.amount - lost, stale=lost)

    # Kinds that change nothing

    def query(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Execute a request that changes nothing."""
        return self.queries[request.kind](request, source)

    def fetch(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Return records of items. Overwritten ones are blank."""
        slots = [self.tables[request.table].slot(int(row["item"])) for row in request.rows(FETCH_ROW)]
        blank = bytes(self.config.record_bytes)
        records = (
            blank if slot is None else self.memory.bytes[self.memory.record(request.table, slot)] for slot in slots
        )
        overwritten = sum(1 << k for k, slot in enumerate(slots) if slot is None)
        return ReplayOutcome.OVERWRITTEN if overwritten else ReplayOutcome.DONE, [
            (source, frames.data(request, b"".join(records), overwritten=overwritten))
        ]

    def units(self, request: Request) -> bytes | None:
        """Return the units of a log that a LOAD or SHOUT names, or None if one of them is not in the log."""
        body = request.first(LOAD)
        start, owner = int(body["start"]), int(body["session"])
        if owner >= len(self.sessions) or not holds_units(self.sessions[owner], start, request.amount):
            return None
        return self.memory.read(owner, start, request.amount)

    def load(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Return units of a log."""
        units, owner = self.units(request), int(request.first(LOAD)["session"])
        if units is None:
            return ReplayOutcome.OVERWRITTEN, [(source, frames.data(request, b"", overwritten=1, fragments=owner))]
        return ReplayOutcome.DONE, [(source, frames.data(request, units, fragments=owner))]

    def look(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Return the STATUS."""
        return ReplayOutcome.DONE, [self.plain_answer(request, source)]

    def list(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Return the items in consecutive slots. Slot numbers wrap at the capacity."""
        if not self.tables[request.table].is_intact:
            return ReplayOutcome.CORRUPT, [self.plain_answer(request, source, ReplayOutcome.CORRUPT)]
        first = int(request.first(LIST)["slot"])
        rows = [self.tables[request.table].row(first + k) for k in range(request.amount)]
        status = self.status(request, self.sessions[request.session], Effect(done=len(rows)))
        return ReplayOutcome.DONE, [(source, frames.answer(request, status, rows))]

    def shout(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        """Send units of the session's own log to the clients of all other sessions."""
        body = request.first(LOAD)
        owner = int(body["session"])
        units = self.units(request) if owner == request.session else None
        if units is None:
            return ReplayOutcome.OVERWRITTEN, [(source, frames.data(request, b"", overwritten=1, fragments=owner))]
        copies = [
            (
                session.source,
                frames.data(request, units, session=k, token=session.token, seq=int(body["start"]), fragments=owner),
            )
            for k, session in enumerate(self.sessions)
            if session.is_held and session.source and k != request.session
        ]
        return ReplayOutcome.DONE, [*copies, self.plain_answer(request, source)]

    # Answers

    def status(self, request: Request, session: Session, effect: Effect) -> bytes:
        """Return the STATUS of a table, its session and an effect."""
        table = self.tables[request.table]
        lowest, highest = table.extreme_buckets()
        published = table.published
        return frames.status(
            outcome=effect.outcome,
            lowest=lowest,
            highest=highest,
            publisher=published.session,
            next=session.next,
            adds=table.adds % SERIAL,
            ticket=table.ticket,
            total=table.total,
            sampled=table.samples % SERIAL,
            done=effect.done,
            stale=effect.stale,
            written=session.written,
            oldest=session.oldest,
            version=published.version,
            start=published.start,
            units=published.units,
            filled=table.slots.filled,
            nonce=session.nonce,
        )

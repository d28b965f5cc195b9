"""A second model of the replay service, written from `docs/replay.md` independently of the golden model: all items
ever added in a list, all units ever written in another, samples by a search in numpy's cumulative sums, credit in
fractions. It takes each request once, in the order of execution.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from iswitch.config import Replay
from iswitch.golden.replay.fractions import fractions
from iswitch.wire.replay import UNIT_BYTES, Kind, ReplayOutcome

__all__ = ["Item", "Op", "Oracle", "OracleTable"]


@dataclass(frozen=True)
class Op:
    """An ordered request. `about` holds the contents of its body, by the names of `ReplayClient`'s builders."""

    kind: Kind
    table: int = 0
    ticket: int = 0
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class Item:
    priority: int
    record: bytes
    times: int = 0
    retired: bool = False


def bucket(priority: int) -> int:
    if priority < 16:
        return priority
    e = int(np.frexp(float(priority))[1]) - 1 - 3
    return 8 * e + priority // 2**e


class OracleTable:
    """A table. `items` are all items ever added; the first has the number `capacity`."""

    def __init__(self, config: Replay) -> None:
        self.config = config
        self.items: list[Item] = []
        self.samples, self.ticket, self.credit = 0, 1, Fraction(0)
        self.size = self.behind = self.ahead = self.times = 0
        self.ratio = Fraction(0)
        self.published = (0, 0, 0, 0)

    @property
    def there(self) -> int:
        return min(len(self.items), self.config.capacity)

    def slots(self) -> list[tuple[int, Item] | None]:
        """Return number and item of each slot."""
        found: list[tuple[int, Item] | None] = [None] * self.config.capacity
        for n in range(len(self.items) - self.there, len(self.items)):
            found[n % self.config.capacity] = self.config.capacity + n, self.items[n]
        return found

    def find(self, number: int) -> Item | None:
        n = number - self.config.capacity
        return self.items[n] if len(self.items) - self.there <= n < len(self.items) else None

    def priorities(self) -> np.ndarray:
        return np.array([found[1].priority if found else 0 for found in self.slots()], np.int64)

    def cut(self, priority: int) -> int:
        return min(priority, 2**self.config.priority_bits - 1)

    def waits(self, op: Op) -> ReplayOutcome | None:
        if op.ticket not in (0, self.ticket):
            return ReplayOutcome.TICKET
        if op.kind == Kind.ADD:
            allowed = (
                not self.ratio
                or self.there < self.size
                or self.credit + len(op.about["items"]) * self.ratio <= self.ahead
            )
            return None if allowed else ReplayOutcome.RATE
        if op.kind != Kind.SAMPLE:
            return None
        if len(self.items) < op.about["items"] or self.there < self.size:
            return ReplayOutcome.ITEMS
        if not self.priorities().any():
            return ReplayOutcome.EMPTY
        return ReplayOutcome.RATE if self.ratio and op.about["count"] > self.credit + self.behind else None

    def sample(self, count: int, seed: int, stride: int) -> list[tuple[int, int]]:
        ends, slots = np.cumsum(self.priorities()), self.slots()
        positions = [f * int(ends[-1]) // 2**64 for f in fractions(seed, count, stride)]
        found = [slots[leaf] for leaf in np.searchsorted(ends, positions, side="right").tolist()]
        self.samples += count
        self.credit -= count if self.ratio else 0
        return [(number, item.priority) for number, item in filter(None, found)]


class Oracle:
    def __init__(self, config: Replay) -> None:
        self.config = config
        self.tables = [OracleTable(config) for _ in range(config.tables)]
        self.units: list[list[bytes]] = [[] for _ in range(config.sessions)]
        self.oldest = [0] * config.sessions
        self.clients = [0] * config.sessions
        self.first = [0] * config.sessions
        self.next = [0] * config.sessions

    def opened(self, session: int) -> int:
        """Give the session to a new client, and return the number of its first request. No request before `first` has a
        cached answer."""
        self.next[session] += self.config.cached_answers if self.clients[session] else 0
        self.clients[session] += 1
        self.first[session] = self.next[session]
        return self.first[session]

    def waits(self, op: Op) -> ReplayOutcome | None:
        return self.tables[op.table].waits(op)

    def carry_out(self, session: int, op: Op) -> tuple[dict[str, int], list[tuple[int, int]]]:
        """Execute a request, and return its STATUS by name, and its rows."""
        table, fields = self.tables[op.table], {"outcome": int(ReplayOutcome.DONE), "done": 0, "stale": 0}
        rows: list[tuple[int, int]] = []
        if op.kind == Kind.WRITE:
            fields["outcome"] = self.write(session, **op.about)
        elif op.kind == Kind.ADD:
            if table.there >= table.size:
                table.credit += len(op.about["items"]) * table.ratio
            table.items += [Item(table.cut(priority), record) for priority, record in op.about["items"]]
            fields["done"] = len(op.about["items"])
        elif op.kind == Kind.SAMPLE:
            rows = table.sample(op.about["count"], op.about["seed"], op.about["stride"])
            fields["done"] = len(rows)
        elif op.kind == Kind.UPDATE:
            for number, priority in op.about["rows"]:
                item = table.find(number)
                fields["done" if item else "stale"] += 1
                if item:
                    spent = item.retired or table.times and item.times >= table.times
                    item.priority = 0 if spent else table.cut(priority)
        elif op.kind == Kind.PUBLISH:
            start, units, version = (op.about[name] for name in ("start", "units", "version"))
            if version and units and self.oldest[session] <= start and start + units <= len(self.units[session]):
                table.published = session, version, start, units
            else:
                fields["outcome"] = ReplayOutcome.RANGE
        elif op.kind == Kind.LIMIT:
            fields["outcome"] = self.limit(table, **op.about)
        if fields["outcome"] == ReplayOutcome.DONE and op.kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT):
            table.ticket += 1
        self.next[session] += 1
        status = fields | self.status(session, table)
        for number, _ in rows if table.times else ():
            item = table.find(number)
            assert item
            item.times = min(item.times + 1, 2**self.config.sample_count_bits - 1)
            item.retired |= item.times >= table.times
            item.priority = 0 if item.retired else item.priority
        return status, rows

    def write(self, session: int, start: int, units: bytes, oldest: int) -> int:
        log, count = self.units[session], len(units) // UNIT_BYTES
        if start != len(log) or not self.oldest[session] <= oldest <= len(log):
            return ReplayOutcome.RANGE
        if len(log) + count - oldest > self.config.log_bytes // UNIT_BYTES:
            return ReplayOutcome.MEMORY
        log += [units[k * UNIT_BYTES : (k + 1) * UNIT_BYTES] for k in range(count)]
        self.oldest[session] = oldest
        return ReplayOutcome.DONE

    def limit(self, table: OracleTable, size: int, ratio: int, behind: int, ahead: int, times: int) -> int:
        if times >= 2**self.config.sample_count_bits:
            return ReplayOutcome.RANGE
        table.size, table.behind, table.ahead, table.times = size, behind, ahead, times
        table.ratio, table.credit = Fraction(ratio, 1 << 16), Fraction(0)
        return ReplayOutcome.DONE

    def status(self, session: int, table: OracleTable) -> dict[str, int]:
        """Return the fields of STATUS that do not depend on the request."""
        alive = [bucket(p) for p in table.priorities().tolist() if p]
        publisher, version, start, units = table.published
        return {
            "lowest": min(alive, default=0),
            "highest": max(alive, default=0),
            "publisher": publisher,
            "next": self.next[session],
            "adds": len(table.items),
            "ticket": table.ticket,
            "total": int(table.priorities().sum()),
            "sampled": table.samples,
            "written": len(self.units[session]),
            "oldest": self.oldest[session],
            "version": version,
            "start": start,
            "units": units,
            "filled": table.there,
        }

    def memory(self) -> bytes:
        """Return all bytes of the memory."""
        records = [
            found[1].record if found else bytes(self.config.record_bytes)
            for table in self.tables
            for found in table.slots()
        ]
        logs = bytearray()
        for units in self.units:
            log = [bytes(UNIT_BYTES)] * (self.config.log_bytes // UNIT_BYTES)
            for k, unit in enumerate(units):
                log[k % len(log)] = unit
            logs += b"".join(log)
        return b"".join(records) + bytes(logs)

    def load(self, session: int, start: int, count: int) -> bytes | None:
        """Units of a log; None if some are gone."""
        inside = self.oldest[session] <= start and start + count <= len(self.units[session])
        return b"".join(self.units[session][start : start + count]) if inside else None

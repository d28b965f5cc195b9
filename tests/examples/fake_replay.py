"""Stands in for `iswitch.replay.ReplayClient` and its switch: the same methods within one process. numpy samples in
exact proportion to the priorities.

Requests wait for their tickets and for limits. Each client has a thread, and one thread runs at a time.
"""

import threading
from collections import deque
from types import SimpleNamespace

import numpy as np

PER_ADD = 19


class Table:
    """The state that the clients share. `order`: (kind, client, ticket) of every request."""

    def __init__(self, capacity=4096):
        self.capacity = capacity
        self.priorities, self.rows = np.zeros(capacity), {}
        self.adds = self.draws = self.version = 0
        self.ticket, self.parameters, self.order = 1, b"", []
        self.size = self.ratio = self.behind = self.ahead = self.credit = 0
        self.lock = threading.Condition()

    @property
    def filled(self):
        return min(self.adds, self.capacity)


class FakeReplay:
    def __init__(self, table, name="", seed=0):
        self.table, self.name, self.bytes_pushed = table, name, 0
        self.random = np.random.default_rng(seed)

    def _wait(self, condition):
        """Wait until the condition holds."""
        assert self.table.lock.wait_for(condition, timeout=30), f"{self.name} waits for ever"

    def _begin(self, kind, ticket, allowed=lambda: True, tickets=1):
        self._wait(lambda: (not ticket or self.table.ticket == ticket) and allowed())
        self.table.order.append((kind, self.name, ticket))
        self.table.ticket = (self.table.ticket + tickets - 1) % (2**32 - 1) + 1

    def tickets(self, transitions):
        return -(-transitions // PER_ADD)

    def extend(self, columns, priorities, *, ticket=0):
        table, count = self.table, len(priorities)
        with table.lock:
            self._begin(
                "add",
                ticket,
                lambda: (
                    not table.ratio or table.filled < table.size or table.credit + count * table.ratio <= table.ahead
                ),
                self.tickets(count),
            )
            if table.ratio and table.filled >= table.size:
                table.credit += count * table.ratio
            for k in range(count):
                table.priorities[table.adds % table.capacity] = priorities[k]
                table.rows[table.adds % table.capacity] = {name: column[k] for name, column in columns.items()}
                table.adds += 1
            self.bytes_pushed += sum(column.nbytes for column in columns.values())
            table.lock.notify_all()

    def flush(self):
        pass

    def sample(self, count, *, beta=0.4, stratified=True, seed=None, ticket=0, min_adds=0):
        table = self.table
        with table.lock:
            self._begin(
                "sample",
                ticket,
                lambda: (
                    table.filled >= max(1, table.size) and (not table.ratio or count <= table.credit + table.behind)
                ),
            )
            table.credit -= count if table.ratio else 0
            random = self.random if seed is None else np.random.default_rng(seed)
            upto = np.cumsum(table.priorities)
            slots = np.searchsorted(
                upto, (np.arange(count) + random.random(count)) / count * upto[-1], side="right"
            ).clip(0, table.filled - 1)
            newest = (table.adds - 1 - slots) // table.capacity * table.capacity + slots
            weights = (upto[-1] / table.filled / table.priorities[slots]) ** beta
            table.draws += count
            data = {name: np.stack([table.rows[slot][name] for slot in slots]) for name in table.rows[0]}
            table.lock.notify_all()
        return SimpleNamespace(
            data=data,
            items=(newest + table.capacity).astype(np.uint32),
            weights=(weights / weights.max()).astype(np.float32),
            priorities=table.priorities[slots].astype(np.float32),
            table_priority=upto[-1],
            table_size=table.filled,
            overwritten=np.zeros(count, bool),
        )

    def prefetch(self, count, *, depth=2, beta=0.4):
        waiting = deque()
        while True:
            while len(waiting) < depth:
                waiting.append(self.sample(count, beta=beta))
            yield waiting.popleft()

    def update_priority(self, items, priorities, *, ticket=0):
        table = self.table
        with table.lock:
            self._begin("update", ticket)
            there = items.astype(np.int64) - table.capacity >= table.adds - table.capacity
            table.priorities[items[there] % table.capacity] = priorities[there]
            table.lock.notify_all()
        return int(there.sum()), int((~there).sum())

    def set_limits(
        self,
        *,
        min_size_to_sample=1,
        samples_per_insert=0.0,
        max_insert_lag=None,
        max_insert_lead=None,
        max_times_sampled=0,
    ):
        table = self.table
        with table.lock:
            self._begin("limit", 0)
            table.size, table.ratio, table.credit = min_size_to_sample, samples_per_insert, 0
            table.behind, table.ahead = max_insert_lag, max_insert_lead
            table.lock.notify_all()

    def set_parameters(self, version, parameters, *, broadcast=True):
        with self.table.lock:
            self.table.version, self.table.parameters = version, bytes(parameters)
            self.table.lock.notify_all()

    def get_parameters(self, newer_than=0, timeout_s=0.0):
        table = self.table
        with table.lock:
            if timeout_s:
                self._wait(lambda: table.version > newer_than)
            return (table.version, table.parameters) if table.version > newer_than else None

    def statistics(self):
        table = self.table
        return SimpleNamespace(
            size=table.filled,
            adds=table.adds,
            samples=table.draws,
            priority_sum=table.priorities.sum(),
            ticket=table.ticket,
            version=table.version,
            bytes_sent=self.bytes_pushed,
            retransmissions=0,
        )

    def close(self):
        pass

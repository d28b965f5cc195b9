"""Random traffic of clients that come and go, with frames lost, duplicated, delayed and reordered: its outcome is that
of a sequential execution."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iswitch.config import Config, Replay
from iswitch.golden.replay import service as service_of
from iswitch.golden.replay import table as table_of
from iswitch.golden.replay.fractions import stride
from iswitch.golden.replay.log import write_fault
from iswitch.golden.replay.table import Table
from iswitch.wire.replay import UNIT_BYTES, WAITS, Kind, ReplayOutcome
from sim.bench.replay_bench import ReplayBench, fields
from sim.bench.replay_client import ParsedFrame, ReplayClient
from sim.bench.replay_oracle import Op, Oracle

REPLAY = Replay(
    tables=2,
    capacity=16,
    priority_bits=20,
    sample_count_bits=3,
    sessions=3,
    cached_answers=4,
    samples_per_request=512,
    record_bytes=128,
    log_bytes=4096,
)
LIMITLESS = {"size": 0, "ratio": 0, "behind": 0, "ahead": 0, "times": 0}


class Actor:
    """A client that keeps the rules: at most `cached_answers` under way, what is not answered again, SKIP for what
    waits too long."""

    def __init__(
        self, bench: ReplayBench, oracle: Oracle, rng: random.Random, nonces: Iterator[int], index: int
    ) -> None:
        self.bench, self.oracle, self.rng, self.nonces = bench, oracle, rng, nonces
        self.index = index
        self.waiting: dict[int, Op] = {}
        self.waited: dict[int, int] = {}
        self.sent: list[tuple[int, Op]] = []
        self.old: list[tuple[int, Op]] = []
        self.open()

    def open(self) -> None:
        """Anew; of the client before, frames are still on their way."""
        self.client = ReplayClient(self.index, nonce=self.rng.getrandbits(32) << 32 | next(self.nonces))
        self.client.opened(answer := self.bench.one(self.client, self.bench.open(self.client)))
        self.seq, self.waited = self.oracle.opened(self.client.session), {}
        assert fields(answer, "next", "written", "oldest") == (
            self.seq,
            len(self.oracle.units[self.client.session]),
            self.oracle.oldest[self.client.session],
        )

    def begin(self) -> None:
        """Another request, if there may be one more."""
        if (
            len(self.waiting) < REPLAY.cached_answers
            and self.seq < min(self.waiting, default=self.seq) + REPLAY.cached_answers
        ):
            self.waiting[self.seq] = self.op(
                self.rng.choice(
                    [Kind.ADD] * 3
                    + [Kind.SAMPLE] * 4
                    + [Kind.UPDATE] * 3
                    + [Kind.WRITE, Kind.WRITE, Kind.WRITE, Kind.PUBLISH, Kind.LIMIT, Kind.LIMIT, Kind.SKIP]
                )
            )
            self.send(self.seq)
            self.seq += 1

    def send(self, seq: int) -> None:
        self.sent += [(seq, self.waiting[seq])] * 2

    def op(self, kind: Kind) -> Op:
        rng, table = self.rng, self.rng.randrange(REPLAY.tables)
        truth, session = self.oracle.tables[table], self.client.session
        priority = lambda: rng.choice([0, 1, rng.randrange(2**20), rng.randrange(2**20), 2**20 + 5])
        recent = lambda: max(REPLAY.capacity + len(truth.items) - rng.randrange(24), 0)
        ends = len(self.oracle.units[session])
        about = {
            Kind.ADD: lambda: {"items": [(priority(), rng.randbytes(128)) for _ in range(rng.randint(1, 10))]},
            Kind.SAMPLE: lambda: {
                "count": (count := rng.choice([1, 2, 40, 160, 161, 512])),
                "seed": rng.getrandbits(128),
                "items": rng.choice([0, len(truth.items) + 3]),
                "stride": rng.choice([0, stride(max(count, 2))]),
            },
            Kind.UPDATE: lambda: {"rows": [(recent(), priority()) for _ in range(rng.choice([1, 5, 30]))]},
            Kind.WRITE: lambda: {
                "start": ends + rng.choice([0, 0, 0, 1]),
                "units": rng.randbytes(UNIT_BYTES * rng.choice([1, 2, 20, 22])),
                "oldest": max(ends - rng.choice([20, 50, 80]), self.oracle.oldest[session]),
            },
            Kind.PUBLISH: lambda: {
                "start": max(ends - rng.randint(0, 70), 0),
                "units": rng.randint(0, 20),
                "version": rng.getrandbits(32),
            },
            Kind.LIMIT: lambda: (
                LIMITLESS
                | rng.choice(
                    [
                        {},
                        {"times": rng.choice([1, 1, 3, 7, 8])},
                        {
                            "size": rng.randint(0, 18),
                            "ratio": rng.randint(0, 3 << 17),
                            "behind": rng.randint(0, 600),
                            "ahead": rng.randint(0, 30),
                        },
                    ]
                )
            ),
        }.get(kind, dict)()
        waits = kind in (Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT) and rng.random() < 0.1
        return Op(kind, table, truth.ticket + 2 if waits else 0, about)

    def frame(self, seq: int, op: Op) -> bytes:
        header = {"table": op.table, "ticket": op.ticket}
        if op.kind == Kind.LIMIT:
            return self.client.limit(seq, header=header, **op.about)
        build = {
            Kind.ADD: self.client.add,
            Kind.SAMPLE: self.client.sample,
            Kind.UPDATE: self.client.update,
            Kind.WRITE: self.client.write,
            Kind.PUBLISH: self.client.publish,
            Kind.SKIP: self.client.skip,
            Kind.CLOSE: self.client.close,
        }[op.kind]
        return build(seq, **op.about, **header)

    def answered(self, seq: int, answer: ParsedFrame) -> None:
        if answer.outcome in WAITS:
            self.waited[seq] = self.waited.get(seq, 0) + 1
            if seq in self.waiting and self.waited[seq] > 2:
                self.waiting[seq] = Op(Kind.SKIP)
        elif answer.outcome != ReplayOutcome.AHEAD:
            self.waiting.pop(seq, None)


class Run:
    """The network, and what the switch does compared with the oracle at each step."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.bench, self.oracle = (
            ReplayBench(Config(elements=16, window=2, members=4, jobs=2, replay=REPLAY)),
            Oracle(REPLAY),
        )
        nonces = itertools.count(1)  # never the same one twice, as the protocol demands
        self.actors = [Actor(self.bench, self.oracle, self.rng, nonces, k) for k in range(3)]
        self.cached: dict[tuple[int, int], list[ParsedFrame]] = {}

    def step(self) -> None:
        rng, actor = self.rng, self.rng.choice(self.actors)
        if rng.random() < 0.3:
            actor.begin()
        elif actor.sent:
            seq, op = actor.sent.pop(rng.randrange(len(actor.sent)))
            actor.old = [*actor.old[-20:], (seq, op)]
            if rng.random() < 0.8:
                self.deliver(actor, seq, op)
        elif actor.waiting:
            actor.send(min(actor.waiting))
        elif rng.random() < 0.2:
            self.deliver(actor, actor.seq, Op(Kind.CLOSE))
            actor.open()
        if actor.old and rng.random() < 0.1:
            self.deliver(actor, *rng.choice(actor.old))
        if rng.random() < 0.3:
            self.question(actor.client)

    def deliver(self, actor: Actor, seq: int, op: Op) -> None:
        before = list(self.bench.switch.service.outcomes)
        session, answers = actor.client.session, self.bench.ask(actor.client, actor.frame(seq, op))
        (outcome,) = [
            ReplayOutcome(k) for k, count in enumerate(self.bench.switch.service.outcomes) if count != before[k]
        ]
        due = self.oracle.next[session]
        if seq < due:
            assert outcome == (
                ReplayOutcome.REPEATED
                if seq >= max(due - REPLAY.cached_answers, self.oracle.first[session])
                else ReplayOutcome.OLD
            )
            if outcome == ReplayOutcome.REPEATED:
                assert texts(answers) == texts(self.cached[session, seq])
            else:
                assert [fields(answer, "outcome", "next", "done") for answer in answers] == [
                    (ReplayOutcome.OLD, due, 0)
                ]
        elif seq > due:
            assert outcome == ReplayOutcome.AHEAD and len(answers) == 1
        elif waits := self.oracle.waits(op):
            assert outcome == waits == answers[0].outcome and len(answers) == 1
        else:
            expected, rows = self.oracle.carry_out(session, op)
            assert outcome == expected["outcome"]
            for answer in answers:
                assert {name: int(answer.status[name]) for name in expected} == expected
            assert (
                len(answers) == max(1, -(-len(rows) // 160))
                and [row for answer in answers for row in answer.rows] == rows
            )
            self.cached[session, seq] = answers
        for answer in answers if self.rng.random() < 0.8 else []:
            actor.answered(seq, answer)

    def question(self, client: ReplayClient) -> None:
        """Something that changes nothing, often of what is just gone."""
        rng, table = self.rng, self.rng.randrange(REPLAY.tables)
        truth, log = self.oracle.tables[table], rng.randrange(3)
        if rng.random() < 0.5:
            numbers = [REPLAY.capacity + len(truth.items) - rng.randint(-1, 18) for _ in range(rng.randint(1, 11))]
            found = [truth.find(number) for number in numbers]
            data = self.bench.one(client, client.fetch([number % 2**32 for number in numbers], table=table))
            assert data.payload == b"".join(item.record if item else bytes(128) for item in found)
            assert int(data.header["ticket"]) == sum(1 << k for k, item in enumerate(found) if not item)
        else:
            start, count = max(self.oracle.oldest[log] + rng.randint(-1, 30), 0), rng.randint(1, 22)
            expected, data = (
                self.oracle.load(log, start, count),
                self.bench.one(client, client.load(start, count, log=log)),
            )
            assert (data.payload, int(data.header["ticket"])) == (expected or b"", expected is None)

    def finish(self) -> None:
        while any(actor.waiting for actor in self.actors):
            for actor in self.actors:
                for seq, op in sorted(actor.waiting.items()):
                    self.deliver(actor, seq, op)
        assert bytes(self.bench.switch.service.memory.bytes) == self.oracle.memory()
        for table, truth in zip(self.bench.switch.service.tables, self.oracle.tables):
            assert np.array_equal(table.slots.tree.priorities, truth.priorities())
            items = [found[1] if found else None for found in truth.slots()]
            assert table.times == [item and (table.retired if item.retired else item.times) or 0 for item in items]


def texts(answers: list[ParsedFrame]) -> list[bytes]:
    return [answer.header.tobytes()[42:] + answer.status.tobytes() + repr(answer.rows).encode() for answer in answers]


@pytest.mark.parametrize("seed", range(3))
def test_the_outcome_is_that_of_a_sequential_execution(seed):
    run = Run(random.Random(seed))
    for _ in range(12000):
        run.step()
    run.finish()
    assert set(run.bench.outcomes()) >= {outcome.name for outcome in ReplayOutcome} - {
        "SESSION",
        "FULL",
        "KIND",
        "TABLE",
        "LENGTH",
        "CHALLENGE",
        "CORRUPT",
    }
    assert run.bench.outcomes()["DONE"] > 2000


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(1, 100))
def test_the_outcome_of_a_short_conversation_is_that_of_a_sequential_execution(rng, steps):
    """As above; a failure shrinks to few requests."""
    run = Run(rng)
    for _ in range(steps):
        run.step()
    run.finish()


def needs_no_credit(table: Table, count: int, items: int) -> ReplayOutcome | None:
    if table.adds < items or table.slots.filled < table.limits.size:
        return ReplayOutcome.ITEMS
    return None if table.total else ReplayOutcome.EMPTY


MUTANTS = {
    "an update changes the item that overwrote its own": (Table, "slot", lambda self, item: item % self.capacity),
    "no update is stale": (
        Table,
        "update",
        lambda self, item, priority: self.set_priority(item % self.capacity, min(priority, self.top)) is None,
    ),
    "samples are not counted": (Table, "count_samples", lambda self, rows: None),
    "items need no credit": (Table, "add_wait_reason", lambda self, count: None),
    "samples need no credit": (Table, "sample_wait_reason", needs_no_credit),
    "buckets are of powers of two": (table_of, "bucket", lambda priority: priority.bit_length()),
    "a log may have any length": (service_of, "write_fault", lambda *about: write_fault(*about[:-1], 99)),
    "units need only have been written": (
        service_of,
        "holds_units",
        lambda place, start, units: start + units <= place.written,
    ),
    "the ticket stays": (Table, "advance_ticket", lambda self: None),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_service_is_noticed(name, monkeypatch):
    monkeypatch.setattr(*MUTANTS[name])
    run = Run(random.Random(0))
    with pytest.raises(AssertionError):
        for _ in range(12000):
            run.step()
        run.finish()

"""Executors together: each kind goes to its own, and ends; every plausible mutant is killed. What a request does to
memory and tables is tested in tests/hw/replay/test_engine.py."""

import random

import pytest

import hw.replay.execute.execution
from hw.replay.execute.execution import Execution
from hw.replay.sampling.slots import CommandKind
from iswitch.config import Replay
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS

REPLAY = Replay(
    tables=1, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, samples_per_request=16, sample_count_bits=3
)
BODY_ROWS = {Kind.WRITE: 16, Kind.ADD: 18, Kind.UPDATE: 2, Kind.FETCH: 2}
LATENCY = 9


def check(
    component=Execution,
    *,
    kind=Kind.ADD,
    outcome=ReplayOutcome.DONE,
    stalls=0.0,
    full=False,
    stale=False,
    corrupt=False,
):
    """A request for two units, items or handles of items that were never added; session 2 asks, sessions 0 and 2 are
    open."""
    rng, dut = random.Random(kind), component(REPLAY)
    rows = [rng.getrandbits(64) for _ in range(BODY_ROWS.get(kind, 0))]
    request = {"frame": {"kind": kind, "count": 2, "session": 2}, "session": 2, "parameters": 1 << 32}
    if kind == Kind.OPEN:
        request |= {"frame": {"kind": kind, "ticket": 1 ^ stale}, "parameters": 1 << 32 | 1}
    inputs = [
        (dut.request, request),
        (dut.outcome, outcome),
        (dut.list, 32),
        (dut.table, {"times": 1, "limited": 1}),
        (dut.full, full),
        (dut.corrupt, corrupt),
    ]
    bench = ExecutorBench(dut, rows=rows, inputs=inputs, stalls=stalls)
    sinks = {name: bench.sink(getattr(dut, name)) for name in ("commands", "writes", "write_rows", "jobs")}
    listed, outcomes, added, strobes = [], [], [], []

    async def sampler(ctx):
        """Each command has its result after a while; what was sampled is the item of the list's row."""
        pending = []
        async for _, _, valid, ready, command, write, address, row, changes, now, adds, *ends in ctx.tick().sample(
            dut.commands.valid,
            dut.commands.ready,
            dut.commands.payload,
            dut.write_row,
            dut.write_row_address,
            dut.row_next,
            dut.outcome_changes,
            dut.outcome_next,
            dut.added,
            dut.restart,
            dut.undone,
            dut.failed,
        ):
            strobes.extend(name for name, now_1 in zip(("restart", "undone", "failed"), ends) if now_1)
            pending = [(left - 1, kind) for left, kind in pending if left]
            if valid and ready:
                pending.append((LATENCY, command.kind))
            if write:
                listed.append((address, row.priority))
            if changes:
                outcomes.append(now)
            added.extend([adds] * adds)
            due = [kind for left, kind in pending if left == 0]
            ctx.set(dut.results.valid, bool(due))
            if due:
                ctx.set(dut.results.payload, {"kind": due[0], "slot": 5, "generation": 1, "priority": 77})
            ctx.set(dut.pending, bool(pending))

    async def sessions(ctx):
        left = 0
        async for _, _, search, index in ctx.tick().sample(dut.search, dut.index):
            left = 6 if search else max(left - 1, 0)
            ctx.set(dut.found, left == 1)
            ctx.set(dut.found_index, 1)
            ctx.set(dut.session_row, {"open": index in (0, 2), "port": index})

    bench.process(sampler)
    bench.process(sessions)
    bench.execute()
    return {
        "commands": [item.kind for item in sinks["commands"].items],
        "writes": len(sinks["writes"].items),
        "rows": len(sinks["write_rows"].items),
        "jobs": [(job.fetches, job.port, job.ticket, job.requested) for job in sinks["jobs"].items],
        "listed": listed,
        "outcomes": outcomes,
        "added": len(added),
        "strobes": strobes,
    }


NOTHING = {"commands": [], "writes": 0, "rows": 0, "jobs": [], "listed": [], "outcomes": [], "added": 0, "strobes": []}
ADD, UPDATE, SAMPLE, READ, RESTORE = CommandKind
LISTED = [(32, 77), (33, 77)]
CASES = [
    ({"kind": Kind.OPEN}, {}),
    ({"kind": Kind.OPEN, "full": True}, {"outcomes": [ReplayOutcome.FULL], "strobes": ["failed"]}),
    ({"kind": Kind.OPEN, "full": True, "stale": True}, {"outcomes": [ReplayOutcome.CHALLENGE], "strobes": ["failed"]}),
    ({"kind": Kind.WRITE}, {"writes": 2, "rows": 16}),
    ({"kind": Kind.ADD}, {"commands": [ADD, ADD], "writes": 2, "rows": 16, "added": 2}),
    ({"kind": Kind.UPDATE}, {"commands": [UPDATE, UPDATE]}),
    ({"kind": Kind.SAMPLE}, {"commands": [SAMPLE, SAMPLE, UPDATE, UPDATE], "listed": LISTED}),
    ({"kind": Kind.LIST}, {"commands": [READ, READ], "listed": LISTED}),
    ({"kind": Kind.REBUILD}, {"commands": [RESTORE, RESTORE], "strobes": ["restart"]}),
    (
        {"kind": Kind.SAMPLE, "corrupt": True},
        {"commands": [SAMPLE, SAMPLE], "listed": LISTED, "outcomes": [ReplayOutcome.CORRUPT], "strobes": ["undone"]},
    ),
    (
        {"kind": Kind.LIST, "corrupt": True},
        {"commands": [READ, READ], "listed": LISTED, "outcomes": [ReplayOutcome.CORRUPT], "strobes": ["undone"]},
    ),
    (
        {"kind": Kind.REBUILD, "corrupt": True},
        {"commands": [RESTORE, RESTORE], "outcomes": [ReplayOutcome.CORRUPT], "strobes": ["restart"]},
    ),
    ({"kind": Kind.UPDATE, "corrupt": True}, {"commands": [UPDATE, UPDATE]}),
    ({"kind": Kind.FETCH}, {"jobs": [(1, 0, 3, 1)]}),
    ({"kind": Kind.LOAD}, {"jobs": [(0, 0, 0, 1)]}),
    ({"kind": Kind.LOAD, "outcome": ReplayOutcome.OVERWRITTEN}, {"jobs": [(0, 0, 1, 1)]}),
    ({"kind": Kind.SHOUT}, {"jobs": [(0, 0, 0, 0)]}),
    ({"kind": Kind.SHOUT, "outcome": ReplayOutcome.OVERWRITTEN}, {"jobs": [(0, 0, 1, 1)]}),
]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(("case", "expected"), CASES, ids=str)
def test_each_kind_is_executed(case, expected, stalls):
    assert check(**case, stalls=stalls) == NOTHING | expected


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("(kind == Kind.SHOUT) & ~overwritten", "(kind == Kind.SHOUT)"),
        ("(kind == Kind.LOAD) | overwritten", "(kind == Kind.LOAD)"),
        ("| self.request_data.done & ~self.broadcast.active", "| self.request_data.done"),
        ("request_data.overwritten.eq(fetch_list.overwritten)", "request_data.overwritten.eq(0)"),
        ("| self.fetch_list.done | self.broadcast.send", "| self.fetch_list.done"),
        ("Mux(kind == Kind.WRITE, self.write_log.range, self.add_items.range)", "self.add_items.range"),
        ("Mux(self.failed, self.open_session.failure", "Mux(self.failed, ReplayOutcome.DONE"),
        ("self.sample.done & ~self.corrupt", "self.sample.done"),
        ("self.retire.done | self.undone", "self.retire.done"),
        ("self.undone | self.rebuild.done & self.corrupt", "self.undone"),
        ("(self.sample.done | self.list_items.done) & self.corrupt", "self.sample.done & self.corrupt"),
        ("(self.sample.done | self.list_items.done) & self.corrupt", "self.list_items.done & self.corrupt"),
        ("payload.eq(self.rebuild.commands.payload)", "payload.eq(self.list_items.commands.payload)"),
        ("recorder.list.eq(self.list)", "recorder.list.eq(0)"),
        ("m.d.comb += self.retire.start.eq(self.sample.done & ~self.corrupt)", "pass"),
        ("payload.eq(self.retire.commands.payload)", "payload.eq(self.sample.commands.payload)"),
        ("self.broadcast.requester.eq(self.request.session)", "self.broadcast.requester.eq(0)"),
        ("self.added.eq(self.add_items.added)", "self.added.eq(self.add_items.commands.valid)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.execution, sound, wrong).Execution
    with pytest.raises(AssertionError):
        for case, expected in CASES:
            for stalls in STALLS:
                assert check(broken, **case, stalls=stalls) == NOTHING | expected

"""Executors of FETCH, LOAD and SHOUT alone: lists of handles, data frames, recipients; every plausible mutant is
killed."""

import random

import pytest

import hw.replay.execute.send
from hw.replay.execute.data import LIST_LENGTH, LISTS
from hw.replay.execute.send import Broadcast, FetchList, RequestData
from iswitch.config import Replay
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS, Bench

REPLAY = Replay(tables=2, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, record_bytes=128)


def check_list(executor=FetchList, *, stalls=0.0, adds=100, filled=64, seed=1, memories=None):
    """Handles about the oldest and the newest item; the slot of each row is shown, and stale handles bit by bit. If the
    list of `memories` is given, a bit of every third slot flips."""
    rng, dut = random.Random(seed), executor(REPLAY)
    newest = adds + 63
    edges = [newest, newest + 1, newest - filled + 1, newest - filled, 0]
    items = [rng.choice([*edges, rng.randrange(newest + 70)]) % 2**32 for _ in range(rng.randint(1, 32))]
    bench = ExecutorBench(
        dut,
        rows=[item | 0xFFFF << 32 for item in items],
        inputs=[(dut.adds, adds), (dut.filled, filled)],
        stalls=stalls,
    )
    found = {}

    async def look(ctx):
        await ctx.tick().until(dut.done)
        found["overwritten"] = ctx.get(dut.overwritten)
        found["slots"], here = [], ctx.get(dut.list)
        ctx.set(dut.read_list, here)
        for k in range(len(items)):
            ctx.set(dut.position, k)
            if memories and k % 3 == 0:
                flip(ctx, memories[0], here * LIST_LENGTH + k, k)
            assert ctx.get(dut.slot_corrupt) == bool(memories and k % 3 == 0)
            found["slots"].append(items[k] % 64 if memories and k % 3 == 0 else ctx.get(dut.slot))
            await ctx.tick()

    bench.simulator.add_testbench(look)
    bench.execute()
    stale = sum((newest - item) % 2**32 >= filled and 1 << k for k, item in enumerate(items))
    if adds == 0:
        stale = (1 << len(items)) - 1
    assert found["overwritten"] == stale
    assert found["slots"] == [item % 64 for item in items]


def check_lists_stay(executor=FetchList):
    """A list is there until as many others as there are lists were made."""
    rng, dut = random.Random(2), executor(REPLAY)
    lists: dict[int, list[int]] = {}

    async def drive(ctx):
        ctx.set(dut.adds, 10)
        ctx.set(dut.filled, 10)
        for _ in range(3 * LISTS):
            items = [rng.randrange(128) for _ in range(rng.randint(1, 32))]
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for item in items:
                ctx.set(dut.body.payload, item)
                ctx.set(dut.body.valid, 1)
                await ctx.tick().until(dut.body.ready)
            ctx.set(dut.body.valid, 0)
            ctx.set(dut.ended, 1)
            assert ctx.get(dut.done)
            here = ctx.get(dut.list)
            assert here not in lists or next(iter(lists)) == here, "the oldest list is replaced"
            lists.pop(here, None)
            lists[here] = items
            assert ctx.get(dut.overwritten) == sum((73 - item) % 2**32 >= 10 and 1 << k for k, item in enumerate(items))
            await ctx.tick()
            ctx.set(dut.ended, 0)
            for at, kept in lists.items():
                for k, item in enumerate(kept):
                    ctx.set(dut.read_list, at)
                    ctx.set(dut.position, k)
                    assert ctx.get(dut.slot) == item % 64 and not ctx.get(dut.slot_corrupt)
        assert len(lists) == LISTS

    Bench(dut).drive(drive)


def test_a_list_stays_while_the_next_lists_are_made():
    check_lists_stay()


def data_request(kind, count, *, start=5, log=1):
    return {
        "frame": {
            "kind": kind,
            "count": count,
            "session": 2,
            "table": 9,
            "seq": 77,
            "token": 0xABCD,
            "eth_src": list(b"abcdef"),
            "ip_src": [1, 2, 3, 4],
            "udp_src": [5, 6],
        },
        "table": 1,
        "parameters": start | log << 32,
        "arrived": {"port": 3},
    }


def check_request(
    executor=RequestData, *, kind=Kind.FETCH, outcome=ReplayOutcome.DONE, count=3, recipient=False, stalls=0.0
):
    """One job, with what the request names, or for the recipient of a broadcast."""
    dut, fetches = executor(REPLAY), kind == Kind.FETCH
    inputs = [
        (dut.request, data_request(kind, count)),
        (dut.outcome, outcome),
        (dut.list, 6),
        (dut.overwritten, 5),
        (dut.to_recipient, recipient),
        (dut.recipient, {"port": 5, "nonce": 0x1_2222_3333, "address": {"udp": 4}}),
        (dut.recipient_session, 1),
    ]
    bench = ExecutorBench(dut, inputs=inputs, stalls=stalls)
    jobs = bench.sink(dut.jobs, stalls=stalls)
    cycles, _ = bench.execute()
    if not stalls:
        assert cycles == 1
    (job,) = jobs.items
    assert (job.kind, job.table, job.table_index, job.fetches, job.count) == (kind, 9, 1, fetches, count)
    assert (job.list, job.log, job.start, job.requested) == (6, 1, 5, not recipient)
    assert job.ticket == (5 if fetches else outcome == ReplayOutcome.OVERWRITTEN)
    if recipient:
        assert (job.port, job.address.udp, job.session, job.seq, job.token) == (5, 4, 1, 5, 0x2222_3333)
    else:
        assert (job.port, job.session, job.seq, job.token) == (3, 2, 77, 0xABCD)
        assert job.address.mac == int.from_bytes(b"abcdef", "little")
        assert (job.address.ip, job.address.udp) == (0x0403_0201, 0x0605)


def check_broadcast(executor=Broadcast, *, open_sessions=(0, 1, 2), requester=1, corrupt=()):
    dut = executor(REPLAY)
    bench, recipients, found = ExecutorBench(dut, inputs=[(dut.requester, requester)]), [], []

    async def surround(ctx):
        left = index = 0
        async for _, _, asked, send, active, row, corrupt_found in ctx.tick().sample(
            dut.index, dut.send, dut.active, dut.row, dut.found_corrupt
        ):
            if corrupt_found:
                found.append(index)
            assert active or not send
            assert not (send and left), "a frame must be sent before the next"
            left = 12 if send else max(left - 1, 0)
            if send:
                recipients.append((int(row.port), index))
            ctx.set(dut.sent, left == 1)
            ctx.set(dut.row, {"open": asked in open_sessions, "port": 8 + asked})
            ctx.set(dut.row_corrupt, index in corrupt)
            index = asked

    bench.process(surround)
    bench.execute()
    assert recipients == [(8 + k, k) for k in sorted({*open_sessions} - {requester, *corrupt})]
    assert found == sorted(corrupt)


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(("adds", "filled", "seed"), [(100, 64, 1), (9, 9, 2), (0, 0, 3), (2**32 - 20, 64, 4)])
def test_stale_handles_are_found(adds, filled, seed, stalls):
    check_list(adds=adds, filled=filled, seed=seed, stalls=stalls)


CASES = [
    {"kind": Kind.FETCH},
    {"kind": Kind.FETCH, "count": 22},
    {"kind": Kind.LOAD, "count": 22},
    {"kind": Kind.LOAD, "outcome": ReplayOutcome.OVERWRITTEN},
    {"kind": Kind.SHOUT, "outcome": ReplayOutcome.OVERWRITTEN},
    {"kind": Kind.SHOUT, "recipient": True},
]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_data_frame_is_requested_with_what_its_request_names(case, stalls):
    check_request(**case, stalls=stalls)


@pytest.mark.parametrize(("open_sessions", "requester"), [((0, 1, 2), 1), ((0, 2), 0), ((), 0), ((1,), 1)])
def test_all_other_open_sessions_are_recipients(open_sessions, requester):
    check_broadcast(open_sessions=open_sessions, requester=requester)


def some_rows_are_corrupt(executor=Broadcast):
    for corrupt in ((0,), (1,), (0, 2)):
        check_broadcast(executor, requester=1, corrupt=corrupt)


def test_a_session_whose_row_has_a_bit_error_is_no_recipient():
    some_rows_are_corrupt()


def all_requests(executor):
    for case in CASES:
        for stalls in STALLS:
            check_request(executor, **case, stalls=stalls)


def test_a_slot_with_a_bit_error_is_known(monkeypatch):
    check_list(memories=keep_memories(monkeypatch, hw.replay.execute.send))


def all_lists(executor):
    for seed in range(3):
        check_list(executor, seed=seed)
        check_list(executor, seed=seed, adds=9, filled=9)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "name", "sound", "wrong"),
    [
        (all_lists, "FetchList", "age >= self.filled", "age > self.filled"),
        (all_lists, "FetchList", "self.replay.capacity - 1 - item", "self.replay.capacity - item"),
        (check_lists_stay, "FetchList", "self.overwritten.eq(0), ", ""),
        (check_lists_stay, "FetchList", "place.eq(0), ", ""),
        (check_lists_stay, "FetchList", "self.list.eq(self.list + 1)", "self.list.eq(~self.list)"),
        (check_lists_stay, "FetchList", "Cat(self.position, self.read_list)", "Cat(self.position, self.list)"),
        (all_requests, "RequestData", "job.start.eq(load.start),", ""),
        (all_requests, "RequestData", "job.log.eq(load.session),", ""),
        (all_requests, "RequestData", "job.list.eq(self.list),", ""),
        (all_requests, "RequestData", "job.table_index.eq(request.table),", ""),
        (all_requests, "RequestData", "job.requested.eq(~self.to_recipient)", "job.requested.eq(1)"),
        (all_requests, "RequestData", "Mux(fetches, self.overwritten, self.outcome", "Mux(0, 0, self.outcome"),
        (all_requests, "RequestData", "self.outcome == ReplayOutcome.OVERWRITTEN", "0"),
        (all_requests, "RequestData", "job.seq.eq(load.start)", "job.seq.eq(frame.seq)"),
        (all_requests, "RequestData", "job.token.eq(recipient.nonce[:32])", "job.token.eq(frame.token)"),
        (all_requests, "RequestData", "self.jobs.valid & ~self.jobs.ready", "0"),
        (check_broadcast, "Broadcast", "& (self.index != self.requester)", ""),
        (
            check_broadcast,
            "Broadcast",
            "self.index == self.replay.sessions - 1",
            "self.index == self.replay.sessions - 2",
        ),
        (check_broadcast, "Broadcast", "with m.If(self.sent)", "with m.If(1)"),
        (some_rows_are_corrupt, "Broadcast", "& ~self.row_corrupt", ""),
        (some_rows_are_corrupt, "Broadcast", "self.found_corrupt.eq(self.row_corrupt)", "self.found_corrupt.eq(0)"),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.send, sound, wrong), name)
    with pytest.raises(AssertionError):
        check(broken)

"""Executors of FETCH, LOAD and SHOUT alone: lists of handles, data frames, recipients; every plausible mutant is
killed."""

import random

import pytest

import hw.replay.execute.send
from hw.replay.execute.send import Broadcast, FetchList, SendData
from iswitch.config import Replay
from iswitch.wire import VERSION, Type
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.bench.bit_errors import flip, keep_memories
from sim.bench.mutant import mutant
from sim.bench.replay_executor import ExecutorBench
from sim.bench.stream import STALLS

REPLAY = Replay(tables=1, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, record_bytes=128)
RECORD_ROWS = 16


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
        found["slots"] = []
        for k in range(len(items)):
            ctx.set(dut.position, k)
            if memories and k % 3 == 0:
                flip(ctx, memories[0], k, k)
            assert ctx.get(dut.slot_corrupt) == bool(memories and k % 3 == 0)
            found["slots"].append(items[k] % 64 if memories and k % 3 == 0 else ctx.get(dut.slot))
            await ctx.tick()
        ctx.set(dut.shift, 1)
        await ctx.tick()
        ctx.set(dut.shift, 0)
        found["shifted"] = ctx.get(dut.overwritten)

    bench.simulator.add_testbench(look)
    bench.execute()
    stale = sum((newest - item) % 2**32 >= filled and 1 << k for k, item in enumerate(items))
    if adds == 0:
        stale = (1 << len(items)) - 1
    assert found["overwritten"] == stale and found["shifted"] == stale >> 1
    assert found["slots"] == [item % 64 for item in items]


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
        },
        "parameters": start | log << 32,
        "arrived": {"port": 3},
    }


def check_lost(executor=SendData, *, kind, count, corrupt, corrupt_slot=None, stale=0, recipient=False, stalls=0.0):
    """Rows at `corrupt`, or the slot at `corrupt_slot`, have a bit error. `spoil` follows each, and after that frame
    another says that all was overwritten."""
    dut, fetches = executor(REPLAY), kind == Kind.FETCH
    rng, each = random.Random(count), RECORD_ROWS if fetches else 8
    rows = [rng.getrandbits(64) for _ in range(count * each)]
    sound = not corrupt and corrupt_slot is None
    twice = not sound and not recipient
    inputs = [(dut.request, data_request(kind, count)), (dut.to_recipient, recipient)]
    bench = ExecutorBench(dut, inputs=inputs, stalls=stalls)
    beat = lambda k, row: {"data": row, "parity": row.bit_count() % 2 ^ (k in corrupt)}
    beats = [beat(k, row) for k, row in enumerate(rows)] * 2

    async def read(ctx):
        """Offer beats of what was loaded."""
        due = given = 0
        async for _, _, load, span, valid, ready in ctx.tick().sample(
            dut.load, dut.range, dut.beats.valid, dut.beats.ready
        ):
            due, given = due + load * span.count * 8, given + (valid and ready)
            ctx.set(dut.beats.valid, given < due)
            if given < due:
                ctx.set(dut.beats.payload, beats[given])

    bench.process(read)
    heads, sent, spoils = bench.sink(dut.heads), bench.sink(dut.rows, stalls=stalls), []

    async def memory(ctx):
        shown, left, taken, was_taken, was_loaded = stale, 0, 0, None, None
        ctx.set(dut.overwritten, shown)
        async for _, _, load, position, shift, valid, ready, spoil in ctx.tick().sample(
            dut.load, dut.position, dut.shift, dut.rows.valid, dut.rows.ready, dut.spoil
        ):
            if spoil:
                spoils.append((was_taken, was_loaded))
            was_taken, was_loaded = taken if valid and ready else None, position if load else None
            taken += valid and ready
            left = 4 if load else max(left - 1, 0)
            shown >>= shift
            ctx.set(dut.overwritten, shown)
            ctx.set(dut.last_address, left == 1)

    async def list_slots(ctx):
        async for position in ctx.changed(dut.position):
            ctx.set(dut.slot_corrupt, position[0] == corrupt_slot)

    bench.process(memory)
    bench.process(list_slots)
    _, (lost,) = bench.execute(read=[dut.lost])
    assert lost == twice and len(heads.items) == 1 + twice
    assert {row for row, _ in spoils if row in corrupt} == {*corrupt}
    assert all(row in corrupt or loaded == corrupt_slot for row, loaded in spoils)
    assert bool(spoils) == (not sound)
    if twice:
        head = heads.items[1]
        assert head.header.ticket == ((1 << count) - 1 if fetches else 1)
        assert head.rows == (len(rows) if fetches else 0)
        assert sent.items[len(rows) :] == [0] * head.rows
    assert heads.items[0].header.ticket == (stale if fetches else 0)


LOST = [
    {"kind": Kind.FETCH, "count": 3, "corrupt": (0,)},
    {"kind": Kind.FETCH, "count": 11, "corrupt": (5, 11 * RECORD_ROWS - 1)},
    {"kind": Kind.FETCH, "count": 1, "corrupt": (RECORD_ROWS - 1,)},
    {"kind": Kind.FETCH, "count": 4, "corrupt": (), "corrupt_slot": 2},
    {"kind": Kind.FETCH, "count": 4, "corrupt": (), "corrupt_slot": 0},
    {"kind": Kind.FETCH, "count": 4, "corrupt": (), "stale": 5},
    {"kind": Kind.LOAD, "count": 2, "corrupt": (15,)},
    {"kind": Kind.LOAD, "count": 22, "corrupt": (3, 4)},
    {"kind": Kind.LOAD, "count": 22, "corrupt": ()},
    {"kind": Kind.SHOUT, "count": 2, "corrupt": (7,), "recipient": True},
]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("case", LOST, ids=str)
def test_a_frame_with_a_bit_error_is_spoiled_and_a_frame_follows_that_says_that_all_was_overwritten(case, stalls):
    check_lost(**case, stalls=stalls)


def all_lost(executor):
    for case in LOST:
        check_lost(executor, **case)


def check_send(executor=SendData, *, kind=Kind.FETCH, outcome=ReplayOutcome.DONE, count=3, recipient=False, stalls=0.0):
    """Units of a log, records of slots, or a header alone: range by range, rows as memory gives them."""
    rng, dut = random.Random(count), executor(REPLAY)
    fetches, empty = kind == Kind.FETCH, outcome == ReplayOutcome.OVERWRITTEN and kind != Kind.FETCH
    slots, stale = [rng.randrange(64) for _ in range(count)], rng.getrandbits(count) if fetches else 0
    rows = [rng.getrandbits(64) for _ in range(0 if empty else count * (RECORD_ROWS if fetches else 8))]
    inputs = [
        (dut.request, data_request(kind, count)),
        (dut.outcome, outcome),
        (dut.to_recipient, recipient),
        (dut.recipient, {"port": 5, "nonce": 0x1_2222_3333, "address": {"udp": 4}}),
        (dut.recipient_session, 1),
    ]
    bench = ExecutorBench(dut, inputs=inputs, stalls=stalls)
    # What is read for a stale handle is not sent, so its parity does not matter.
    unsent = lambda k: fetches and stale >> k // RECORD_ROWS & 1
    parity_of = lambda k, row: row.bit_count() % 2 ^ (unsent(k) and k % 3 == 0)
    bench.source(dut.beats, [{"data": row, "parity": parity_of(k, row)} for k, row in enumerate(rows)])
    heads, sent, ranges = bench.sink(dut.heads), bench.sink(dut.rows), []

    async def memory(ctx):
        """Show the slot at `position`, and let a range's last address be taken a while after it was loaded."""
        shown, left = stale, 0
        ctx.set(dut.overwritten, shown)
        async for _, _, load, span, shift in ctx.tick().sample(dut.load, dut.range, dut.shift):
            left = max(left - 1, 0)
            if load:
                assert left == 0, "a range may replace another only with its last address"
                ranges.append((span.in_record, span.index, span.start, span.count))
                left = 4
            shown >>= shift
            ctx.set(dut.overwritten, shown)
            ctx.set(dut.last_address, left == 1)

    async def list_slots(ctx):
        async for position in ctx.changed(dut.position):
            ctx.set(dut.slot, slots[position[0]] if position[0] < count else 0)

    bench.process(memory)
    bench.process(list_slots)
    bench.execute()
    (head,) = heads.items
    header = head.header
    assert head.rows == len(rows) and header.count == len(rows) // 8
    assert (header.version_type, header.kind, header.table) == (VERSION << 4 | Type.DATA, kind, 9)
    assert header.ticket == (stale if fetches else empty)
    assert header.fragments == (0 if fetches else 1)
    if recipient:
        assert (head.port, head.address.udp, header.session, header.seq, header.token) == (5, 4, 1, 5, 0x2222_3333)
    else:
        assert (head.port, header.session, header.seq, header.token) == (3, 2, 77, 0xABCD)
        assert head.address.mac == int.from_bytes(b"abcdef", "little")
    if fetches:
        assert ranges == [(1, slot, 0, 2) for slot in slots]
        assert sent.items == [0 if stale >> k // RECORD_ROWS & 1 else row for k, row in enumerate(rows)]
    else:
        assert ranges == [(0, 1, 5, 0 if empty else count)] and sent.items == rows


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
    {"kind": Kind.FETCH, "count": 1},
    {"kind": Kind.FETCH, "outcome": ReplayOutcome.OVERWRITTEN, "count": 7},
    {"kind": Kind.LOAD, "count": 22},
    {"kind": Kind.LOAD, "outcome": ReplayOutcome.OVERWRITTEN},
    {"kind": Kind.SHOUT, "outcome": ReplayOutcome.OVERWRITTEN},
    {"kind": Kind.SHOUT, "recipient": True},
]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_frame_has_its_header_and_its_rows(case, stalls):
    check_send(**case, stalls=stalls)


@pytest.mark.parametrize(("open_sessions", "requester"), [((0, 1, 2), 1), ((0, 2), 0), ((), 0), ((1,), 1)])
def test_all_other_open_sessions_are_recipients(open_sessions, requester):
    check_broadcast(open_sessions=open_sessions, requester=requester)


def some_rows_are_corrupt(executor=Broadcast):
    for corrupt in ((0,), (1,), (0, 2)):
        check_broadcast(executor, requester=1, corrupt=corrupt)


def test_a_session_whose_row_has_a_bit_error_is_no_recipient():
    some_rows_are_corrupt()


def all_sends(executor):
    for case in CASES:
        for stalls in STALLS:
            check_send(executor, **case, stalls=stalls)


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
        (all_lists, "FetchList", "self.overwritten.eq(self.overwritten >> 1)", "self.overwritten.eq(0)"),
        (all_sends, "SendData", "fetches & (self.overwritten[0] | self.lost)", "fetches & self.lost"),
        (all_lost, "SendData", "fetches & (self.overwritten[0] | self.lost)", "fetches & self.overwritten[0]"),
        (all_sends, "SendData", "taken & ~is_blank & (beat", "taken & (beat"),
        (all_lost, "SendData", "taken & ~is_blank & (beat.data.xor() != beat.parity) |", ""),
        (all_lost, "SendData", "| self.load & fetches & self.slot_corrupt", ""),
        (all_lost, "SendData", "(spoiled | self.spoil) & ~self.lost", "self.spoil & ~self.lost"),
        (all_lost, "SendData", "(spoiled | self.spoil) & ~self.lost", "spoiled & ~self.lost"),
        (all_lost, "SendData", "& ~self.to_recipient", ""),
        (all_lost, "SendData", "[position.eq(0), self.lost.eq(1)]", "[self.lost.eq(1)]"),
        (all_lost, "SendData", "Mux(self.lost, all_fetched[:LIST_LENGTH], self.overwritten)", "self.overwritten"),
        (all_lost, "SendData", "(self.outcome == ReplayOutcome.OVERWRITTEN) | self.lost", "self.outcome == 15"),
        (all_sends, "SendData", "units.eq(Mux(log_overwritten, 0, frame.count))", "units.eq(frame.count)"),
        (all_sends, "SendData", "(row == record_rows - 1)", "(row == record_rows - 2)"),
        (all_sends, "SendData", "self.load.eq(position + 1 < frame.count)", "self.load.eq(1)"),
        (all_sends, "SendData", "m.d.sync += position.eq(position + 1)", "pass"),
        (all_sends, "SendData", "header.seq.eq(load.start)", "header.seq.eq(frame.seq)"),
        (all_sends, "SendData", "header.token.eq(recipient.nonce[:32])", "header.token.eq(frame.token)"),
        (all_sends, "SendData", "overwritten, log_overwritten)", "overwritten, 0)"),
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
        (all_sends, "SendData", "Mux(kind_of(frame) == Kind.FETCH, overwritten, log_overwritten)", "0"),
        (all_sends, "SendData", "Mux(kind_of(frame) == Kind.FETCH, 0, load.session)", "0"),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.send, sound, wrong), name)
    with pytest.raises(AssertionError):
        check(broken)

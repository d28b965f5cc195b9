"""Requests out of rows: header, parameters, body, and the cycles of each; every plausible mutant is killed."""

import random

import pytest

import hw.replay.request.reader
from hw.replay.request.reader import RequestReader
from iswitch.config import Replay
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import ORDERED, REPLAY_HEADER, Kind, ReplayOutcome
from sim.bench.mutant import mutant
from sim.bench.replay_client import record
from sim.bench.replay_decisions import PARAMETER_ROWS_OF
from sim.bench.stream import STALLS, Bench

REPLAY = Replay(tables=2, capacity=64, sessions=3, cached_answers=2, log_bytes=4096)
ENABLED = 25
"""Cycle from which requests may be read."""


def rows_of(frame):
    words = [int.from_bytes(frame[at : at + 8], "little") for at in range(0, len(frame), 8)]
    return [{"data": word, "last": k == len(words) - 1} for k, word in enumerate(words)]


def requests(rng, count):
    """Frames of well-formed requests, with some whose header is wrong: kind, header's fields, frame."""
    for _ in range(count):
        kind = rng.choice([Kind.OPEN, Kind.WRITE, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT, Kind.LOOK, Kind.FETCH])
        most = {Kind.WRITE: 3, Kind.SAMPLE: 9, Kind.UPDATE: 12, Kind.FETCH: 5}.get(kind, 0)
        each = {Kind.WRITE: 8, Kind.UPDATE: 1, Kind.FETCH: 1}.get(kind, 0)
        fields = {
            "kind": kind,
            "count": rng.randint(1, most) if most else 0,
            "session": rng.choice([0, 1, 2, 3, 200]),
            "table": rng.choice([0, 1, 1, 3]),
            "seq": rng.getrandbits(32),
        }
        body = rng.randbytes(8 * (PARAMETER_ROWS_OF.get(kind, 0) + each * fields["count"]))
        yield fields, rng.randbytes(FRAME_BYTES - REPLAY_HEADER.itemsize) + record(REPLAY_HEADER, **fields) + body


def check(reader=RequestReader, *, stalls=0.0, count=60, seed=1):
    """Of each request take the body, or skip it; an OPEN is given session 2."""
    rng, dut = random.Random(seed), reader(REPLAY)
    given = list(requests(rng, count))
    rows = [row for _, frame in given for row in rows_of(frame)]
    lengths = [len(frame) for _, frame in given for _ in rows_of(frame)]
    bench = Bench(dut)
    source = bench.source(
        dut.rows,
        rows,
        stalls=stalls,
        beside=lambda k: [(dut.arrived, {"port": lengths[k] % 5, "length": lengths[k]}), (dut.now_us, k)],
    )
    latencies = []

    async def drive(ctx):
        cycle = first_row = 0

        async def tick():
            nonlocal cycle
            await ctx.tick()
            cycle += 1

        while cycle < ENABLED:
            assert not ctx.get(dut.rows.ready)
            await tick()
        ctx.set(dut.enable, 1)
        for fields, frame in given:
            kind, parameter_rows = fields["kind"], PARAMETER_ROWS_OF.get(fields["kind"], 0)
            while not ctx.get(dut.done):
                await tick()
                assert cycle < 20_000
            outcome = ReplayOutcome.TABLE if fields["table"] == 3 else ReplayOutcome.DONE
            assert ctx.get(dut.outcome) == outcome
            latencies.append((cycle - source.times[first_row // 8 + 7], 0 if outcome else parameter_rows))
            await tick()
            assert not ctx.get(dut.done) and ctx.get(dut.ordered) == (kind in ORDERED)
            request = ctx.get(dut.request)
            assert request.frame.as_value().value == int.from_bytes(frame[:FRAME_BYTES], "little")
            assert request.session == (fields["session"] if fields["session"] < 3 else 0)
            assert request.table == (fields["table"] if fields["table"] < 2 else 0)
            assert (request.arrived.length, request.arrived.port) == (len(frame), len(frame) % 5)
            assert request.now_us == first_row // 8 + 7
            if outcome == ReplayOutcome.DONE:
                parameters = frame[FRAME_BYTES : FRAME_BYTES + 8 * parameter_rows]
                assert request.parameters & ((1 << 64 * parameter_rows) - 1) == int.from_bytes(parameters, "little")
                body = frame[FRAME_BYTES + 8 * parameter_rows :]
                wanted = [int.from_bytes(body[at : at + 8], "little") for at in range(0, len(body), 8)]
                found, takes = [], rng.random() < 0.7
                assert not ctx.get(dut.body.valid)
                if takes:
                    ctx.set(dut.start_body, 1)
                    await tick()
                    ctx.set(dut.start_body, 0)
                while takes and len(found) < len(wanted):
                    ready = rng.random() >= stalls
                    ctx.set(dut.body.ready, ready)
                    if ctx.get(dut.body.valid) and ready:
                        found.append(ctx.get(dut.body.payload))
                    await tick()
                ctx.set(dut.body.ready, 0)
                assert found == wanted * takes and ctx.get(dut.ended) == (len(found) == len(wanted))
                assert not (ctx.get(dut.ended) and ctx.get(dut.body.valid))
            if kind == Kind.OPEN:
                ctx.set(dut.opened_session, 2)
                ctx.set(dut.opened, 1)
                await tick()
                ctx.set(dut.opened, 0)
                assert (ctx.get(dut.request.session), ctx.get(dut.request.frame.session)) == (2, 2)
            ctx.set(dut.release, 1)
            await tick()
            ctx.set(dut.release, 0)
            first_row += len(frame)
        for _ in range(40):
            await tick()
        assert ctx.get(dut.idle)

    bench.drive(drive)
    assert stalls or {latency - rows for latency, rows in latencies} == {2}


@pytest.mark.parametrize("stalls", STALLS)
def test_requests_are_read_in_order(stalls):
    check(stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("frame.session.eq(self.opened_session)", "frame.session.eq(0)"),
        ("[session.eq(self.opened_session), ", "["),
        ("Mux(frame.session < replay.sessions, frame.session, 0)", "frame.session"),
        ("Mux(frame.table < replay.tables, frame.table, 0)", "frame.table"),
        ("self.body.valid.eq(rows.valid & offering)", "self.body.valid.eq(rows.valid)"),
        ("offering.eq(~self.ended)", "offering.eq(1)"),
        ("[self.ended.eq(1), offering.eq(0)]", "self.ended.eq(1)"),
        ("self.ended.eq(row.last),", "self.ended.eq(0),"),
        ("check.fault | (parameters_left == 0)", "parameters_left == 0"),
        ("with m.If(self.enable)", "with m.If(1)"),
        ("m.d.sync += now_us.eq(self.now_us)", "pass"),
        (
            "rows.ready.eq(~self.ended)\n                with m.If(self.ended)",
            "rows.ready.eq(~self.ended)\n                with m.If(1)",
        ),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.request.reader, sound, wrong).RequestReader
    with pytest.raises((AssertionError, IndexError)):
        check(broken)
        check(broken, stalls=0.5)

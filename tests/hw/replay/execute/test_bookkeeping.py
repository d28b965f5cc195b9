"""What a request changes at once, against the rules of docs/replay.md; every plausible mutant is killed."""

import random

import pytest
from amaranth.hdl import Value

import hw.replay.execute.bookkeeping
from hw.replay.execute.bookkeeping import Bookkeeping
from hw.replay.request.record import TableState
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire.replay import LIMITS, PUBLISH, WRITE, Kind
from sim.bench.mutant import mutant
from sim.bench.replay_client import record
from sim.bench.stream import Bench, pack

REPLAY = Replay(tables=1, capacity=64, sessions=3, cached_answers=4, log_bytes=4096)


def expected(kind, count, values, session, table, product, enough):
    """Return the rows of session and table after the request's first step."""
    session, table = dict(session), dict(table)
    if kind == Kind.CLOSE:
        session["open"] = 0
    elif kind == Kind.WRITE:
        session |= {"oldest": values["oldest"], "written": (session["written"] + count) % 2**32}
    elif kind == Kind.ADD and table["ratio"] and enough:
        table["credit"] += product
    elif kind == Kind.SAMPLE:
        table["sampled"] = (table["sampled"] + count) % 2**32
        table["credit"] -= (count << 16) if table["ratio"] else 0
    elif kind == Kind.PUBLISH:
        table |= {"publisher": 2, **{name: values[name] for name in ("version", "start", "units")}}
    elif kind == Kind.LIMIT:
        table |= {name: values[name] for name in ("size", "ratio", "behind", "ahead", "times")} | {"credit": 0}
        table["limited"] |= values["times"] != 0
    return pack(Session, session), pack(TableState, table)


def check(component=Bookkeeping, *, steps=600):
    rng, dut = random.Random(1), component(REPLAY)
    records = {Kind.WRITE: WRITE, Kind.PUBLISH: PUBLISH, Kind.LIMIT: LIMITS}

    async def drive(ctx):
        for _ in range(steps):
            kind, count, product, enough = (
                rng.choice(list(Kind)),
                rng.randrange(512),
                rng.getrandbits(40),
                rng.getrandbits(1),
            )
            session = {"open": 1, "written": rng.getrandbits(32), "oldest": rng.getrandbits(32), "next": 7}
            table = {
                "adds": rng.getrandbits(32),
                "sampled": rng.getrandbits(32),
                "ratio": rng.choice([0, 1 << 16]),
                "credit": rng.randrange(-(1 << 40), 1 << 40),
                "publisher": 9,
                "limited": rng.getrandbits(1),
            }
            kinds = records.get(kind)
            values = {name: rng.getrandbits(8) * (rng.random() < 0.8) for name in kinds.names} if kinds else {}
            parameters = int.from_bytes(record(kinds, **values), "little") if kinds else rng.getrandbits(256)
            request = {"frame": {"kind": kind, "count": count}, "session": 2, "parameters": parameters}
            ctx.set(dut.request, request)
            ctx.set(Value.cast(dut.session), pack(Session, session))
            ctx.set(Value.cast(dut.table), pack(TableState, table))
            ctx.set(dut.product, product)
            ctx.set(dut.enough, enough)
            await ctx.tick()
            assert (ctx.get(Value.cast(dut.session_next)), ctx.get(Value.cast(dut.table_next))) == expected(
                kind, count, values, session, table, product, enough
            )

    Bench(dut).drive(drive)


def test_rows_are_as_the_rules_say():
    check()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("self.session_next.open.eq(0)", "self.session_next.open.eq(1)"),
        ("session.written + count", "session.written + 1"),
        ("(table.ratio != 0) & self.enough", "self.enough"),
        ("(table.ratio != 0) & self.enough", "table.ratio != 0"),
        ("table.credit - (count << 16)", "table.credit - count"),
        ("self.table_next.publisher.eq(request.session),", ""),
        ("self.table_next.credit.eq(0),", ""),
        ('"ahead", "times")', '"ahead")'),
        ("table.limited | (limits.times != 0)", "limits.times != 0"),
        ("table.limited | (limits.times != 0)", "1"),
        ("self.session_next.oldest.eq(write.oldest)", "self.session_next.oldest.eq(session.oldest)"),
        ("table.credit + self.product", "table.credit"),
        ("table.sampled + count", "table.sampled + 1"),
        ("self.table_next.credit.eq(0)", "self.table_next.credit.eq(table.credit)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.bookkeeping, sound, wrong).Bookkeeping
    with pytest.raises(AssertionError):
        check(broken)

"""The end of a request alone: what is recorded, which answer is sent, in which cycle; every plausible mutant is
killed."""

import random

import numpy as np
import pytest
from amaranth.hdl import Value

import hw.replay.execute.acknowledge
from hw.replay.execute.acknowledge import Acknowledgement, Closing
from hw.replay.request.record import TableState
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire import NOTICE_INTERVAL_US
from iswitch.wire.replay import STATUS, Kind, ReplayOutcome
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, pack

REPLAY = Replay(tables=1, capacity=64, sessions=3, cached_answers=4, log_bytes=4096)
TICKETED = {Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT}
SILENT = {Kind.FETCH, Kind.LOAD}


class Acknowledged:
    """An Acknowledgement that is started once for each request."""

    def __init__(self, component=Acknowledgement, *, wait=3):
        self.dut = component(REPLAY)
        self.bench, self.wait = Bench(self.dut), wait

    async def close(self, ctx, closing, **values):
        """Return the strobes of each cycle after the start, and the answer, if one was offered."""
        dut = self.dut
        for name, value in values.items():
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.closing, closing)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        strobes, answer, offered, done = [], None, 0, False
        while not done:
            ctx.set(dut.answers.ready, offered >= self.wait)
            done = ctx.get(dut.done)
            strobes.append(
                "".join(
                    letter
                    for letter, strobe in (
                        ("s", dut.settle),
                        ("r", dut.record),
                        ("w", dut.write_session),
                        ("f", dut.concluded),
                        ("a", dut.write_answer),
                    )
                    if ctx.get(strobe)
                )
            )
            if "s" in strobes[-1]:
                self.rows = ctx.get(Value.cast(dut.session_next)), ctx.get(Value.cast(dut.table_next))
            if "a" in strobes[-1]:
                self.recorded = ctx.get(Value.cast(dut.answer))
            if ctx.get(dut.answers.valid):
                offered, answer = offered + 1, ctx.get(dut.answers.payload)
            assert len(strobes) < 50
            await ctx.tick()
        return strobes, answer


def status_of(answer):
    return np.frombuffer(int(answer.status.as_value().value).to_bytes(STATUS.itemsize, "little"), STATUS)[0]


def request(kind, *, now_us=0, port=4):
    return {
        "frame": {"kind": kind, "session": 7, "table": 5, "seq": 88, "token": 99, "fragments": 6, "udp_src": [1, 2]},
        "arrived": {"port": port},
        "now_us": now_us,
    }


def check_records(component=Acknowledgement):
    """Random requests of every kind and outcome that is recorded."""
    test, rng = Acknowledged(component), random.Random(1)

    async def drive(ctx):
        for _ in range(250):
            kind = rng.choice([kind for kind in Kind if kind != Kind.OPEN])
            outcome = rng.choice(
                [ReplayOutcome.DONE, ReplayOutcome.DONE, ReplayOutcome.RATE, ReplayOutcome.OVERWRITTEN]
            )
            counts = rng.getrandbits(1)
            session = {"open": 1, "next": rng.choice([5, (1 << 32) - 1]), "cached": rng.randrange(5), "nonce": 1 << 40}
            table = {"ticket": rng.choice([1, 5, (1 << 32) - 1]), "sampled": 12, "adds": 9, "version": 3}
            strobes, answer = await test.close(
                ctx,
                Closing.RECORD,
                request=request(kind),
                outcome=outcome,
                counts=counts,
                session=session,
                table=table,
                sampled_from={"total": 1 << 33, "lowest": 2, "highest": 3},
                priorities={"total": 1 << 34, "lowest": 4, "highest": 5},
                filled=33,
                results_done=21,
                results_stale=22,
                list=17,
            )
            after = session | (
                {"next": (session["next"] + 1) % 2**32, "cached": min(session["cached"] + 1, 4)} if counts else {}
            )
            moves = counts and kind in TICKETED and outcome == ReplayOutcome.DONE
            ticket = {"ticket": table["ticket"] % (2**32 - 1) + 1} if moves else {}
            assert test.rows == (pack(Session, after), pack(TableState, table | ticket))
            silent = kind in SILENT or outcome == ReplayOutcome.OVERWRITTEN
            writes = "a" * counts
            assert strobes == ["s", "rw" if silent else "rwf", *([] if silent else [writes, *[""] * test.wait])]
            if silent:
                assert answer is None
                continue
            status, sampled = status_of(answer.answer), kind == Kind.SAMPLE and outcome == ReplayOutcome.DONE
            assert not counts or test.recorded == answer.answer.as_value().value
            assert (status["outcome"], status["next"], status["ticket"]) == (outcome, session["next"], table["ticket"])
            assert (status["total"], status["lowest"], status["highest"]) == (
                (1 << 33, 2, 3) if sampled else (1 << 34, 4, 5)
            )
            assert (status["done"], status["stale"], status["filled"], status["sampled"]) == (21, 22, 33, 12)
            listed = outcome == ReplayOutcome.DONE and kind in (Kind.SAMPLE, Kind.LIST)
            assert (answer.answer.kind, answer.answer.table, answer.answer.rows) == (kind, 5, 21 * listed)
            assert (answer.port, answer.address.udp, answer.session, answer.seq) == (4, 0x0201, 7, 88)
            assert (answer.token, answer.fragments, answer.list) == (99, 6, 17)

    test.bench.drive(drive)


def check_repeats(component=Acknowledgement):
    test = Acknowledged(component)

    async def drive(ctx):
        cached = {"status": {"adds": 0x1234_5678}, "kind": Kind.SAMPLE, "table": 1, "rows": 44}
        strobes, answer = await test.close(ctx, Closing.REPEAT, request=request(Kind.SAMPLE), cached=cached)
        assert strobes == ["wf", *[""] * (test.wait + 1)]
        assert (answer.answer.rows, status_of(answer.answer)["adds"], answer.seq) == (44, 0x1234_5678, 88)

    test.bench.drive(drive)


def check_faults(component=Acknowledgement):
    """One notice in an interval, however many faults there are; the clock may wrap."""
    test, begin = Acknowledged(component), (1 << 32) - 5

    async def drive(ctx):
        times = [0, 1, NOTICE_INTERVAL_US - 1, NOTICE_INTERVAL_US, 2 * NOTICE_INTERVAL_US - 1, 2 * NOTICE_INTERVAL_US]
        sent = []
        await test.close(ctx, Closing.RECORD, request=request(Kind.LIST), results_done=3, session={"next": 9})
        for later in times:
            now_us = (begin + later) % 2**32
            strobes, answer = await test.close(
                ctx, Closing.FAULT, request=request(0x93, now_us=now_us), outcome=ReplayOutcome.KIND
            )
            assert strobes[0] == "f" and not any(strobes[1:])
            sent.append(answer is not None)
            if answer is not None:
                status = status_of(answer.answer)
                assert (status["outcome"], answer.answer.kind, answer.answer.table) == (ReplayOutcome.KIND, 0x93, 5)
                assert answer.answer.rows == 0 and status["next"] == 0
        assert sent == [True, False, False, True, False, True]

    test.bench.drive(drive)


def check_faults_at_ports(component=Acknowledgement):
    """A flood of faults at one port takes no answer from a client at another."""
    test = Acknowledged(component)

    async def drive(ctx):
        for port, is_answered in ((4, True), (4, False), (5, True), (5, False), (15, True), (0, True), (4, False)):
            asked = request(0x93, now_us=3, port=port)
            _, answer = await test.close(ctx, Closing.FAULT, request=asked, outcome=ReplayOutcome.KIND)
            assert (answer is not None) == is_answered

    test.bench.drive(drive)


@pytest.mark.parametrize("check", [check_records, check_repeats, check_faults, check_faults_at_ports])
def test_a_request_ends(check):
    check()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("session.cached != self.replay.cached_answers", "1"),
        ("with m.If(self.counts)", "with m.If(1)"),
        ("& (self.outcome == ReplayOutcome.DONE)", ""),
        ("table.ticket == LAST_TICKET, 1", "table.ticket == LAST_TICKET, 0"),
        ("kind.matches(Kind.FETCH, Kind.LOAD) |", ""),
        ("| (self.outcome == ReplayOutcome.OVERWRITTEN)", ""),
        ("offered.eq(self.cached)", "offered.eq(composed)"),
        ("self.record & self.counts", "self.record"),
        ("self.record & self.counts", "self.settle & self.counts"),
        ("offered.kind.eq(request.frame.kind)", "offered.kind.eq(kind)"),
        (">= NOTICE_INTERVAL_US", "> NOTICE_INTERVAL_US"),
        ("notice.data.eq(now_us)", "notice.data.eq(0)"),
        ("noticed.bit_select(port, 1).eq(1)", "noticed.eq(-1)"),
        ("notice.addr.eq(port)", "notice.addr.eq(0)"),
        ("offered.eq(0),", ""),
        ("Mux(sampled, self.sampled_from.total, self.priorities.total)", "self.priorities.total"),
        ("Mux(sampled, self.sampled_from.highest, self.priorities.highest)", "self.priorities.highest"),
        ("done & kind.matches(Kind.SAMPLE, Kind.LIST)", "kind.matches(Kind.SAMPLE, Kind.LIST)"),
        ("[self.write_session.eq(1), self.concluded.eq(1)]", "self.concluded.eq(1)"),
        ("outgoing.list.eq(self.list)", "outgoing.list.eq(0)"),
        ("Mux(sampled, self.sampled_from.lowest, self.priorities.lowest)", "self.priorities.lowest"),
        ("table.ticket == LAST_TICKET, 1", "table.ticket == 5, 1"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.acknowledge, sound, wrong).Acknowledgement
    with pytest.raises(AssertionError):
        check_records(broken)
        check_repeats(broken)
        check_faults(broken)
        check_faults_at_ports(broken)

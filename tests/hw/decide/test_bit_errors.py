"""Bit errors in the tables: no frame is decided on a row with one, and its job ends."""

import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

import hw.decide.checks
import hw.decide.core
import hw.decide.membership.job_erasure
import hw.decide.membership.membership
import hw.decide.membership.slot_completion
import hw.decide.tables.tables
from hw.decide.core import Core
from hw.interface.address import Parent
from hw.interface.headers import Headers
from hw.interface.rows import SEQ_BITS, TICK_BITS
from iswitch.config import Config
from iswitch.wire import NOTICE_INTERVAL_US, SILENCE_TICK_US, Outcome, Reason, Register, Stat, job_view_register
from sim.bench.core import CoreBench
from sim.bench.stream import pack
from sim.frames.client import Client, parse

CONFIG = Config(
    ports=3,
    bus_bits=64,
    members=3,
    jobs=4,
    window=2,
    elements=16,
    queue_bytes=4096,
    mac_entries=64,
    staleness=1,
    uplinks=False,
)
TABLES = (
    "settings",
    "status",
    "ring",
    "roster",
    "sender",
    "entry",
    "slot",
    "slot_content",
    "claims",
    "acknowledged",
    "heard",
)
"""The memories in the order in which `Tables` adds them."""
GRANULE_BITS = {"acknowledged": SEQ_BITS + 1, "heard": TICK_BITS + 1}


class Answer(NamedTuple):
    """What came of a frame: its outcome, the number of operations for the aggregator, and the frames in reply."""

    outcome: Outcome
    works: int
    replies: list[bytes]


class Live:
    """A core to which frames are sent one by one, and whose memories can be reached. In a table with several rows for
    each job, `number` is the index of a member, or a slot."""

    def __init__(self, monkeypatch, *, config=CONFIG, core=Core, parent=None):
        memories = self.memories = []
        scope = hw.decide.tables.tables.CheckedMemory.elaborate.__globals__
        make = scope["Memory"]
        monkeypatch.setitem(scope, "Memory", lambda **options: memories.append(make(**options)) or memories[-1])
        self.config, self.parser, self.now_us, self.parent = config, CoreBench(config), 0, parent
        self.dut, self.stats = core(config), [0] * len(Stat)

    def run(self, play):
        """Run `play(ctx)` after the tables are erased."""

        async def testbench(ctx):
            dut = self.dut
            for port, value in (
                (dut.own_mac, int.from_bytes(self.parser.model.own.mac, "little")),
                (dut.own_ip, int.from_bytes(self.parser.model.own.ip, "little")),
                (dut.seed, 1),
                (dut.verdicts.ready, 1),
                (dut.replies.ready, 1),
            ):
                ctx.set(port, value)
            if self.parent:
                ctx.set(Value.cast(dut.parents[0]), pack(Parent, self.parent | {"valid": 1}))
            await play(ctx)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(testbench)
        simulator.run()

    async def tick(self, ctx):
        dut = self.dut
        stats = [ctx.get(stat) for stat in dut.stats]
        self.stats = [count + happened for count, happened in zip(self.stats, stats, strict=True)]
        if ctx.get(dut.decided):
            self.decided.append(Outcome(int(ctx.get(dut.trace).outcome)))
        if ctx.get(dut.verdicts.valid):
            self.works += ctx.get(dut.verdicts.payload.works)
        if ctx.get(dut.replies.valid):
            self.replies.append(self.parser.addressed(ctx.get(dut.replies.payload))[1])
        await ctx.tick()

    async def send(self, ctx, client, frame, *, us=0):
        """Send a frame `us` after the one before."""
        dut, self.decided, self.works, self.replies = self.dut, [], 0, []
        self.now_us += us
        ctx.set(dut.now_us, self.now_us)
        ctx.set(Value.cast(dut.headers.payload), pack(Headers, self.parser.seen(client.port, frame)))
        ctx.set(dut.headers.valid, 1)
        while not ctx.get(dut.headers.ready):
            await self.tick(ctx)
        await self.tick(ctx)
        ctx.set(dut.headers.valid, 0)
        for _ in range(1000):
            if self.decided and not ctx.get(dut.busy):
                break
            await self.tick(ctx)
        await self.tick(ctx)
        [outcome] = self.decided
        return Answer(outcome, self.works, self.replies)

    async def form(self, ctx, *, workers=2, job=0, nonce=0, **settings):
        """Return the clients of a job that runs."""
        clients = [Client.numbered(k, job=job) for k in range(workers)]
        for client in clients:
            client.forget(client.nonce + nonce)
        for _ in range(3):
            for client in clients:
                frame = client.join(**{"world": workers, "elements": 16} | settings)
                client.take((await self.send(ctx, client, frame)).replies[0])
        return clients

    def row(self, table, job=0, number=0):
        index = {"sender": job * self.config.members, "entry": job * self.config.members} | dict.fromkeys(
            ("slot", "slot_content"), job * self.config.slots
        )
        at = index[table] + number if table in index else job
        return Value.cast(self.memories[TABLES.index(table)].data[at])

    def flip(self, ctx, table, *, bit, **place):
        row = self.row(table, **place)
        ctx.set(row, ctx.get(row) ^ 1 << bit % len(row))

    def wrong_rows(self, ctx, job=0):
        """Return the tables in which a row of the job has the wrong parity, without the content of slots."""
        found = set()
        for table in TABLES:
            if table == "slot_content":
                continue
            count = {"sender": self.config.members, "entry": self.config.members, "slot": self.config.slots}
            for number in range(count.get(table, 1)):
                bits, width = ctx.get(self.row(table, job, number)), GRANULE_BITS.get(table, 1 << 12)
                while bits:
                    if (bits & (1 << width) - 1).bit_count() % 2:
                        found.add(table)
                    bits >>= width
        return found

    def slot(self, seq):
        return seq % self.config.slots


def ones(client, seq, **options):
    return client.contribution(seq, np.ones(4, np.float32), **options)


CORRUPT = Answer(Outcome.CORRUPT, 0, [])


async def lost(live, ctx, client):
    """The client's job has ended: it is told so, and no row of the job has an error."""
    assert live.wrong_rows(ctx, client.job) == set()
    answer = await live.send(ctx, client, ones(client, client.first_seq), us=NOTICE_INTERVAL_US)
    assert (answer.outcome, answer.works) == (Outcome.JOB, 0)
    assert [parse(reply).reason for reply in answer.replies] == [Reason.JOB]


def data_frames(monkeypatch, *, core=Core, times=3):
    """Flip bits of each table between the two contributions of a sum."""
    live, rng = Live(monkeypatch, core=core), random.Random(1)

    async def play(ctx):
        ended = 0
        other = (await live.form(ctx, job=1))[0]
        for table in TABLES:
            for _ in range(times):
                one, two = await live.form(ctx, nonce=ended)
                seq = one.first_seq
                assert (await live.send(ctx, one, ones(one, seq)))[:2] == (Outcome.ADDED, 1)
                number = {"sender": two.member, "entry": two.member}.get(table, live.slot(seq))
                live.flip(ctx, table, bit=rng.randrange(1 << 16), number=number)
                assert (await live.send(ctx, other, other.receipt(other.first_seq))).outcome == Outcome.RECEIPT
                assert live.stats[Stat.CORRUPT_JOBS] == ended
                assert await live.send(ctx, two, ones(two, seq)) == CORRUPT
                ended += 1
                assert live.stats[Stat.CORRUPT_JOBS] == ended
                await lost(live, ctx, one)
        one, two = await live.form(ctx, nonce=ended)
        for k in range(live.config.slots):
            seq = one.first_seq + k
            assert (await live.send(ctx, one, ones(one, seq, behind=min(k, 1))))[:2] == (Outcome.ADDED, 1)
            assert (await live.send(ctx, two, ones(two, seq, behind=min(k, 1))))[:2] == (Outcome.ADDED, 1)
        assert live.stats[Stat.CORRUPT_JOBS] == ended and live.stats[Stat.RESULTS] == live.config.slots

    live.run(play)
    assert len(live.memories) == len(TABLES)


def test_a_bit_error_in_any_row_ends_the_job_and_no_frame_is_decided_on_it(monkeypatch):
    data_frames(monkeypatch)


def control_frames(monkeypatch, *, core=Core):
    """Rows that only a control message reads: other members' entries, and slots that complete without a frame."""
    live = Live(monkeypatch, core=core)

    async def play(ctx):
        ended = 0

        async def job_ends(client, frame):
            nonlocal ended
            assert await live.send(ctx, client, frame) == CORRUPT
            ended += 1
            assert live.stats[Stat.CORRUPT_JOBS] == ended
            await lost(live, ctx, client)

        # A Join looks at all entries.
        for table in ("entry", "sender"):
            one, two = await live.form(ctx, nonce=ended)
            live.flip(ctx, table, bit=20, number=1 - one.member)
            third = Client.numbered(2)
            third.challenge = one.challenge
            third.settings = dict(one.settings)
            assert (await live.send(ctx, third, third.join())) == CORRUPT
            ended += 1
            assert live.stats[Stat.CORRUPT_JOBS] == ended
            await lost(live, ctx, one)
        # A Leave completes the slots that waited for the member alone, an FBCAST the one that it names.
        for table in ("slot", "slot_content"):
            for bit in (2, 5):
                for leaves in (True, False):
                    one, two = await live.form(ctx, nonce=ended)
                    live.flip(ctx, "slot_content", bit=bit, number=live.slot(one.first_seq + 2))  # it is empty
                    assert (await live.send(ctx, one, ones(one, one.first_seq + 1)))[:2] == (Outcome.ADDED, 1)
                    live.flip(ctx, table, bit=bit, number=live.slot(one.first_seq + 1))
                    frame = two.leave(seq=4) if leaves else two.fbcast(one.first_seq + 1, seq=4)
                    await job_ends(two, frame)

    live.run(play)


def test_a_control_message_that_reads_a_row_with_a_bit_error_has_no_answer_no_result_and_ends_the_job(monkeypatch):
    control_frames(monkeypatch)


def eviction(monkeypatch, *, core=Core):
    """An eviction reads slots that no frame points at. The frame that causes it has been decided already."""
    live = Live(monkeypatch, core=core)

    async def play(ctx):
        one, two = await live.form(ctx, evict_us=4 * SILENCE_TICK_US)
        first = one.first_seq
        for seq in (first, first + 1):
            assert (await live.send(ctx, one, ones(one, seq)))[:2] == (Outcome.ADDED, 1)
        live.flip(ctx, "slot_content", bit=70, number=live.slot(first + 1))
        answer = await live.send(ctx, one, ones(one, first), us=9 * SILENCE_TICK_US)
        assert answer == (Outcome.DUPLICATE, 0, [])  # the sweep reads a slot ahead, so the first does not leave either
        assert live.stats[Stat.EVICTED] == 1 and live.stats[Stat.CORRUPT_JOBS] == 1
        await lost(live, ctx, one)

    live.run(play)


def test_an_eviction_that_reads_a_slot_with_a_bit_error_completes_it_not_and_ends_the_job(monkeypatch):
    eviction(monkeypatch)


def leaf(monkeypatch, *, core=Core):
    """A Join at a leaf has an answer, and one from the leaf to its parent follows."""
    live = Live(monkeypatch, config=replace(CONFIG, uplinks=True), core=core, parent={"port": 2, "ranks": 0b11})

    async def play(ctx):
        workers = [Client.numbered(k) for k in range(2)]
        for _ in range(2):
            for client in workers:
                answer = await live.send(ctx, client, client.join(world=3, elements=8))
                client.take(answer.replies[0])
        assert len(answer.replies) == 2  # all ranks below the leaf are there
        one, two = workers
        live.flip(ctx, "entry", bit=40, number=1 - two.member)
        assert await live.send(ctx, two, two.join()) == CORRUPT
        assert live.stats[Stat.CORRUPT_JOBS] == 1
        await lost(live, ctx, one)

    live.run(play)


def test_a_leaf_requests_nothing_from_its_parent_because_of_a_row_with_a_bit_error(monkeypatch):
    leaf(monkeypatch)


def silences(monkeypatch, *, core=Core):
    """The sweep that pins the longest silence keeps a row with a bit error as it is."""
    live = Live(monkeypatch, core=core)

    async def play(ctx):
        one, _ = await live.form(ctx)
        live.flip(ctx, "heard", bit=TICK_BITS - 1)  # the member seems to be silent for 2^15 ticks
        unknown_host = Client.numbered(2, job=3)
        for _ in range(2 * live.config.jobs):
            await live.send(ctx, unknown_host, unknown_host.receipt(0), us=SILENCE_TICK_US)
            for _ in range(5):
                await live.tick(ctx)
        assert live.wrong_rows(ctx) == {"heard"}
        assert await live.send(ctx, one, ones(one, one.first_seq)) == CORRUPT
        await lost(live, ctx, one)

    live.run(play)


def test_the_sweep_of_silences_does_not_hide_a_bit_error(monkeypatch):
    silences(monkeypatch)


def harmless(monkeypatch, *, core=Core):
    """Errors that no row of the frame's job has, and a Read."""
    live = Live(monkeypatch, core=core)

    async def play(ctx):
        one, two = await live.form(ctx)
        other = Client.numbered(2, job=2)
        # The content of an empty slot, which the next contribution replaces.
        live.flip(ctx, "slot_content", bit=3, number=live.slot(one.first_seq))
        assert (await live.send(ctx, one, ones(one, one.first_seq)))[:2] == (Outcome.ADDED, 1)
        # Entries of the next job stand behind the last entry of this one.
        live.flip(ctx, "entry", bit=7, job=1)
        live.flip(ctx, "settings", bit=7, job=1)
        third = Client.numbered(2)
        third.challenge, third.settings = one.challenge, dict(one.settings)
        assert (await live.send(ctx, third, third.join())).outcome == Outcome.REFUSED
        assert (await live.send(ctx, two, ones(two, two.first_seq, member=3))).outcome == Outcome.MEMBER
        # A number that the switch has no job of is not about job 1, to whose row it would point.
        assert (await live.send(ctx, other, ones(other, 0, job=5))).outcome == Outcome.JOB
        assert (await live.send(ctx, other, other.control(1, job=5))).outcome == Outcome.REFUSED
        # A Read shows the rows of any job.
        for address in (job_view_register(1), Register.MEMBERS_VIEW + 256, 0):
            answer = await live.send(ctx, other, other.read(address))
            assert answer.outcome == Outcome.CONTROL and len(answer.replies) == 1
        assert live.stats[Stat.CORRUPT_JOBS] == 0
        assert (await live.send(ctx, two, ones(two, two.first_seq)))[:2] == (Outcome.ADDED, 1)
        # The first Join of job 1 finds the errors and is lost; the next one creates the job.
        member = Client.numbered(2, job=1)
        assert await live.send(ctx, member, member.join(world=1, elements=16)) == CORRUPT
        [one] = await live.form(ctx, workers=1, job=1)
        assert (await live.send(ctx, one, ones(one, one.first_seq)))[:2] == (Outcome.ADDED, 1)
        assert live.stats[Stat.CORRUPT_JOBS] == 1

    live.run(play)


def test_a_bit_error_in_no_row_of_the_frames_job_changes_nothing(monkeypatch):
    harmless(monkeypatch)


def test_after_a_reset_the_rows_of_all_jobs_are_sound_whatever_the_memories_held(monkeypatch):
    live, rng = Live(monkeypatch), random.Random(3)

    async def play(ctx):
        for memory in live.memories:
            for row in memory.data:
                ctx.set(Value.cast(row), rng.getrandbits(len(Value.cast(row))))
        for job in range(live.config.jobs):
            for client in await live.form(ctx, job=job):
                assert (await live.send(ctx, client, ones(client, client.first_seq)))[:2] == (Outcome.ADDED, 1)
            assert live.wrong_rows(ctx, job) == set()
        assert live.stats[Stat.CORRUPT_JOBS] == 0

    live.run(play)


CHECKS, TABLE, CORE = hw.decide.checks, hw.decide.tables.tables, hw.decide.core
MEMBERSHIP, ERASURE = hw.decide.membership.membership, hw.decide.membership.job_erasure


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "module", "sound", "wrong"),
    [
        (data_frames, TABLE, "found.eq(rows.wrong & matters)", "found.eq(0)"),
        (data_frames, TABLE, 'check("slot", parts["slot"])', "None"),
        (data_frames, TABLE, 'check("acknowledged", rows)', "None"),
        (data_frames, TABLE, "check(record, rows, is_entry", "check(record, rows, 0"),
        (data_frames, CHECKS, "corrupt = self.corrupt & about_job", "corrupt = 0"),
        (
            data_frames,
            CHECKS,
            "self.fault.eq(frame_fault | corrupt | row_fault)",
            "self.fault.eq(frame_fault | row_fault)",
        ),
        (data_frames, CORE, "with m.If(fault & (outcome == Outcome.CORRUPT)):", "with m.If(0):"),
        (data_frames, CORE, "membership.wipes.eq(1)", "membership.wipes.eq(0)"),
        (data_frames, CORE, "self.stats[Stat.CORRUPT_JOBS].eq(1)", "self.stats[Stat.CORRUPT_JOBS].eq(0)"),
        (data_frames, ERASURE, "wipes.eq(all_jobs | self.wipes)", "wipes.eq(all_jobs)"),
        *(
            (data_frames, ERASURE, f"tables.{record}_write.eq({value})", f"tables.{record}_write.eq(0)")
            for record, value in (
                ("settings", "wipes"),
                ("sender", "wipes & is_entry"),
                ("claims", "wipes"),
                ("acknowledged", "Mux(wipes, ~0, 0)"),
                ("heard", "Mux(wipes, ~0, 0)"),
                ("ring", "wipes"),
                ("slot", "wipes & (index < config.slots)"),
            )
        ),
        (control_frames, MEMBERSHIP, "with m.If(self.row_corrupt & points_at_job):", "with m.If(0):"),
        (control_frames, MEMBERSHIP, "points_at_job.eq(request.job_in_range)", "points_at_job.eq(0)"),
        (control_frames, CORE, "answers = membership.answers & ~membership.corrupt", "answers = membership.answers"),
        (
            control_frames,
            CORE,
            "membership.completed.valid & ~membership.corrupt | (membership.done",
            "membership.completed.valid | (membership.done",
        ),
        (control_frames, hw.decide.membership.slot_completion, '"CHECK_SLOT", cycles=2', '"CHECK_SLOT", cycles=1'),
        (
            eviction,
            CORE,
            "self.verdicts.valid.eq(membership.completed.valid & ~membership.corrupt)",
            "self.verdicts.valid.eq(membership.completed.valid)",
        ),
        (
            leaf,
            CORE,
            'with m.If(membership.corrupt): m.next = "END_JOB" with m.Elif(membership.requests_parent):',
            'with m.If(membership.corrupt & ~membership.requests_parent): m.next = "END_JOB"\n'
            "                    with m.Elif(membership.requests_parent):",
        ),
        (silences, CORE, "& ~tables.heard_corrupt", ""),
        (harmless, TABLE, "is_entry.eq(member < config.members)", "is_entry.eq(1)"),
        (harmless, TABLE, "row.state != SlotState.EMPTY)", "1)"),
        (harmless, CHECKS, "about_job.eq(job_in_range & ~kind.replay_request)", "about_job.eq(1)"),
        (harmless, MEMBERSHIP, "points_at_job.eq(request.job_in_range)", "points_at_job.eq(1)"),
        (harmless, MEMBERSHIP, "m.d.sync += points_at_job.eq(0)", "pass"),
    ],
)
def test_a_mutant_of_the_handling_of_bit_errors_is_noticed(check, module, sound, wrong, mutated_core, monkeypatch):
    core = mutated_core(module, sound, wrong)
    with pytest.raises(AssertionError):
        check(monkeypatch, core=core)

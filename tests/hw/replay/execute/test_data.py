# amaranth: UnusedElaboratable=no
"""DATA frames beside the execution of requests: what is read for them, how they are sent, and in which order; every
plausible mutant is killed."""

import random
from itertools import pairwise

import pytest
from amaranth.hdl import Value

import hw.replay.execute.data
from hw.replay.execute.data import LISTS, DataJob, DataSender, ReadUnits, SendData
from iswitch.config import Replay
from iswitch.wire import VERSION, Type
from iswitch.wire.replay import UNIT_BYTES, Kind, ReplayOutcome
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

REPLAY = Replay(tables=2, capacity=64, sessions=3, cached_answers=2, log_bytes=4096, record_bytes=128)
LOGS = REPLAY.tables * REPLAY.capacity * REPLAY.record_bytes
LOG_UNITS = REPLAY.log_bytes // UNIT_BYTES
RECORD_UNITS = REPLAY.record_bytes // UNIT_BYTES
WIDTHS = [64, 256, 512]


def slot_of(list, position):
    """Slots of the lists of these tests."""
    return (list * 37 + position * 11) % REPLAY.capacity


def fetch(count, *, ticket=0, list=0, table=0, seed=1):
    return job(Kind.FETCH, count, ticket=ticket, list=list, table_index=table, seed=seed) | {"fetches": 1}


def load(count, *, kind=Kind.LOAD, ticket=0, start=0, log=0, requested=1, seed=1):
    return job(kind, count, ticket=ticket, start=start, log=log, seed=seed) | {"requested": requested}


def job(kind, count, *, seed, **fields):
    rng = random.Random(seed)
    return {
        "port": rng.randrange(16),
        "address": {"mac": rng.getrandbits(48), "ip": rng.getrandbits(32), "udp": rng.getrandbits(16)},
        "kind": kind,
        "session": rng.getrandbits(8),
        "table": rng.getrandbits(8),
        "seq": rng.getrandbits(32),
        "token": rng.getrandbits(32),
        "fetches": 0,
        "requested": 1,
        "count": count,
        "table_index": 0,
        "list": 0,
        "log": 0,
        "start": 0,
    } | fields


def addresses(job):
    """Return the addresses of the units that a job reads."""
    if not job["fetches"]:
        if job["ticket"] & 1:
            return []
        at = LOGS + job["log"] * REPLAY.log_bytes
        return [at + (job["start"] + k) % LOG_UNITS * UNIT_BYTES for k in range(job["count"])]
    table = job["table_index"] * REPLAY.capacity * REPLAY.record_bytes
    return [
        table + slot_of(job["list"], position) * REPLAY.record_bytes + unit * UNIT_BYTES
        for position in range(job["count"])
        for unit in range(RECORD_UNITS)
    ]


def random_jobs(count, seed):
    rng = random.Random(seed)
    for k in range(count):
        if rng.random() < 0.5:
            items = rng.choice([1, 2, rng.randint(1, 11)])
            ticket = rng.choice([0, rng.getrandbits(items)])
            yield fetch(items, ticket=ticket, list=k % LISTS, table=rng.randrange(2), seed=rng.random())
        else:
            yield load(
                rng.choice([1, 22, rng.randint(1, 22)]),
                ticket=rng.random() < 0.3,
                start=rng.randrange(LOG_UNITS),
                log=rng.randrange(3),
                requested=rng.getrandbits(1),
                seed=rng.random(),
            )


def overwritten_jobs():
    """Jobs of which all or some was overwritten."""
    return [fetch(3, ticket=5), load(2, ticket=1), fetch(4, ticket=6, list=3), fetch(1, ticket=1), load(3, log=1)]


def check_reads(reader=ReadUnits, *, stalls=0.0, corrupt=(), jobs=None):
    """The addresses of each job's units, in order. `corrupt`: positions, each with its list, of slots with a bit
    error."""
    jobs = [*random_jobs(12, 5), *overwritten_jobs()] if jobs is None else jobs
    dut = reader(REPLAY)
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.jobs, jobs, stalls=stalls), bench.sink(dut.units, stalls=stalls)
    found: list[tuple[int, int]] = []
    damaged: set[int] = set()

    async def look_up(ctx):
        async for at in ctx.changed(dut.list, dut.position):
            ctx.set(dut.slot, slot_of(*at))
            ctx.set(dut.slot_corrupt, at in corrupt)

    async def follow(ctx):
        """A list is damaged from the cycle after its error until it is released, 3 cycles after its job."""
        done: list[int] = []
        freed = -1
        async for _, _, wrong, at, position, valid, ready, names in ctx.tick().sample(
            dut.found_corrupt, dut.list, dut.position, dut.jobs.valid, dut.jobs.ready, dut.damaged
        ):
            assert names == sum(1 << k for k in damaged)
            damaged.discard(freed)
            if wrong:
                found.append((at, position))
                damaged.add(at)
            done.append(at if valid and ready else -1)
            freed = done[-3] if len(done) > 2 else -1
            ctx.set(dut.release, freed >= 0)
            ctx.set(dut.release_list, max(freed, 0))

    bench.process(look_up)
    bench.process(follow)
    bench.run(quiet=30)
    assert sink.items == [address for job in jobs for address in addresses(job)]
    assert found == [
        (job["list"], k) for job in jobs if job["fetches"] for k in range(job["count"]) if (job["list"], k) in corrupt
    ]
    assert not damaged
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
def test_the_units_of_each_job_are_read_in_order(stalls):
    check_reads(stalls=stalls)


SOME_CORRUPT = ((0, 0), (1, 2), (5, 0), (5, 1), (7, 3))


def some_slots_are_corrupt(reader=ReadUnits, *, stalls=0.0):
    jobs = [fetch(4, list=k % LISTS) for k in range(12)]
    check_reads(reader, corrupt=SOME_CORRUPT, jobs=jobs, stalls=stalls)


@pytest.mark.parametrize("stalls", STALLS)
def test_a_list_with_a_bit_error_is_damaged_until_it_is_released(stalls):
    some_slots_are_corrupt(stalls=stalls)


def test_an_address_a_cycle_and_1_cycle_between_jobs():
    _, sink = check_reads(jobs=[fetch(11), fetch(1, list=1), load(22)])
    assert sink.times == [sink.times[0] + k + (k >= 22) + (k >= 24) for k in range(46)]


def row_words(rows, bus_bits):
    """Return rows as words of a bus."""
    each = bus_bits // 64
    return [sum(row << 64 * k for k, row in enumerate(rows[at : at + each])) for at in range(0, len(rows), each)]


class Frames:
    """The heads, words and outcomes of jobs of which some `words` have a wrong parity, and whose lists may be
    `damaged`."""

    def __init__(self, *, bus_bits, damaged=()):
        self.bus_bits, self.damaged = bus_bits, damaged
        self.beats: list[dict[str, int]] = []
        self.heads: list[tuple[int, ...]] = []
        self.words: list[int] = []
        self.spoiled: list[bool] = []
        self.outcomes: list[ReplayOutcome] = []
        self.wrong = 0

    def add(self, job, units, corrupt=()):
        """Append the frames of a job with these units as its data, of whose words some are `corrupt`."""
        each = UNIT_BYTES * 8 // self.bus_bits
        rows = [int.from_bytes(unit[at : at + 8], "little") for unit in units for at in range(0, UNIT_BYTES, 8)]
        words, lost = row_words(rows, self.bus_bits), False
        for k, word in enumerate(words):
            self.beats.append({"data": word, "parity": word.bit_count() % 2 ^ (k in corrupt)})
            if job["fetches"] and job["ticket"] >> k // (RECORD_UNITS * each) & 1:
                words[k] = 0
            elif k in corrupt:
                lost = True
                self.wrong += 1
        lost |= bool(job["fetches"] and job["list"] in self.damaged)
        self._frame(job, words, job["ticket"], lost)
        if lost and job["requested"]:
            blank = [0] * len(words) if job["fetches"] else []
            self._frame(job, blank, (1 << job["count"]) - 1 if job["fetches"] else 1, False)
        if job["requested"]:
            overwritten = job["ticket"] or lost
            self.outcomes.append(ReplayOutcome.OVERWRITTEN if overwritten else ReplayOutcome.DONE)

    def _frame(self, job, words, ticket, spoiled):
        rows = len(words) * self.bus_bits // 64
        address = job["address"]
        self.heads.append(
            (
                job["port"],
                address["mac"],
                address["ip"],
                address["udp"],
                VERSION << 4 | Type.DATA,
                *(job[name] for name in ("kind", "session", "table", "seq")),
                rows // 8,
                0 if job["fetches"] else job["log"],
                ticket,
                job["token"],
                rows,
            )
        )
        self.words += words
        self.spoiled += [spoiled] if words else []

    @staticmethod
    def of(head):
        h, a = head.header, head.address
        return (head.port, a.mac, a.ip, a.udp, h.version_type, h.kind, h.session, h.table, h.seq) + (
            h.count,
            h.fragments,
            h.ticket,
            h.token,
            head.rows,
        )


def sent_frames(heads, words, bus_bits):
    """Return whether each frame with a body has a spoiled word."""
    at, spoiled = 0, []
    for head in heads.items:
        count = head.rows * 64 // bus_bits
        if count:
            spoiled.append(any(word.spoil for word in words.items[at : at + count]))
        at += count
    return spoiled


def check_sends(sender=SendData, *, bus_bits=256, stalls=0.0, jobs=None, corrupt=None, damaged=(), hold=0.5):
    """`corrupt`: for some jobs, by their place, words with a wrong parity. `hold`: how often the engine's own outcome
    has precedence."""
    rng = random.Random(4)
    jobs, corrupt = [*random_jobs(12, 2), *overwritten_jobs()] if jobs is None else jobs, corrupt or {}
    expected = Frames(bus_bits=bus_bits, damaged=damaged)
    for k, job in enumerate(jobs):
        expected.add(job, [rng.randbytes(UNIT_BYTES) for _ in addresses(job)], corrupt.get(k, ()))
    dut = sender(REPLAY, bus_bits=bus_bits)
    bench = Bench(dut, stalls=stalls)
    source = bench.source(dut.jobs, jobs)
    beats = bench.source(dut.beats, expected.beats, stalls=stalls)
    heads, words = bench.sink(dut.heads, stalls=stalls), bench.sink(dut.words, stalls=stalls)
    outcomes, wrong = [], 0

    async def follow(ctx):
        nonlocal wrong
        async for _, _, concluded, outcome, held, spoil in ctx.tick().sample(
            dut.concluded, dut.outcome, dut.hold, dut.spoil
        ):
            assert not (concluded and held)
            if concluded:
                outcomes.append(outcome)
            wrong += spoil
            ctx.set(dut.hold, rng.random() < hold)

    async def show_damage(ctx):
        async for shown in ctx.changed(Value.cast(dut.jobs.payload)):
            ctx.set(dut.damaged, DataJob(REPLAY).from_bits(shown[0]).list in damaged)

    bench.process(follow)
    bench.process(show_damage)
    bench.run(quiet=60)
    assert source.done and beats.done
    assert [Frames.of(head) for head in heads.items] == expected.heads
    assert [word.data for word in words.items] == expected.words
    assert sent_frames(heads, words, bus_bits) == expected.spoiled
    assert outcomes == expected.outcomes and wrong == expected.wrong
    return heads, words


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("stalls", STALLS)
def test_each_job_is_one_frame_and_one_outcome(bus_bits, stalls):
    check_sends(bus_bits=bus_bits, stalls=stalls)


def lost_jobs():
    """Jobs with words that have a wrong parity: the first, the last, of a record that was overwritten."""
    jobs = [
        fetch(3),
        fetch(3, list=1),
        load(2),
        fetch(2, ticket=2),
        load(1, requested=0),
        fetch(4, list=2, ticket=1),
        load(22, log=2, start=60),
        load(5, ticket=1),
        fetch(1, ticket=1),
        fetch(2),
    ]
    return jobs, {0: (0,), 2: (3,), 3: (6,), 4: (1,), 6: (2, 43), 8: (1, 2), 9: (7,)}


def some_are_lost(sender=SendData, *, bus_bits=256, stalls=0.0):
    jobs, corrupt = lost_jobs()
    check_sends(sender, bus_bits=bus_bits, stalls=stalls, jobs=jobs, corrupt=corrupt, damaged=(1, 2))


@pytest.mark.parametrize("bus_bits", [256, 64])
@pytest.mark.parametrize("stalls", STALLS)
def test_a_frame_with_a_bit_error_is_spoiled_and_a_frame_follows_that_says_that_all_was_overwritten(bus_bits, stalls):
    some_are_lost(bus_bits=bus_bits, stalls=stalls)


def test_a_word_a_cycle_and_2_cycles_between_frames():
    heads, words = check_sends(jobs=[fetch(11), load(22)], hold=0)
    count = 22 * 2
    assert words.times[:count] == list(range(words.times[0], words.times[0] + count))
    assert words.times[0] == heads.times[0] + 1 and heads.times[1] == words.times[count - 1] + 2


def check_all(sender=DataSender, *, stalls=0.0, latency=7, bus_bits=256, corrupt=(), jobs=None):
    """Jobs whose units come from memory in order, some from slots with a bit error. `busy` says that something is still
    to be read or sent, and nothing is read otherwise."""
    rng, jobs = random.Random(6), list(random_jobs(24, 8)) if jobs is None else jobs
    units: dict[int, bytes] = {}
    expected = Frames(bus_bits=bus_bits, damaged=())
    for job in jobs:
        named = {(job["list"], k) for k in range(job["count"])} if job["fetches"] else set()
        expected.damaged = (job["list"],) if named & {*corrupt} else ()
        expected.add(job, [units.setdefault(address, rng.randbytes(UNIT_BYTES)) for address in addresses(job)])
    dut = sender(REPLAY, bus_bits=bus_bits)
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.jobs, jobs, stalls=stalls)
    heads, words = bench.sink(dut.heads, stalls=stalls), bench.sink(dut.words, stalls=stalls)
    outcomes, found, ahead = [], 0, []

    async def look_up(ctx):
        async for at in ctx.changed(dut.list, dut.position):
            ctx.set(dut.slot, slot_of(*at))
            ctx.set(dut.slot_corrupt, at in corrupt)

    async def memory(ctx):
        """Answer each address after `latency` cycles, in order."""
        due, cycle, offered = [], 0, None
        ctx.set(dut.units.ready, 1)
        async for _, _, valid, ready, address, taken in ctx.tick().sample(
            dut.units.valid, dut.units.ready, dut.units.payload, dut.beats.ready
        ):
            cycle += 1
            if valid and ready:
                for word in row_words(
                    [int.from_bytes(units[address][at : at + 8], "little") for at in range(0, UNIT_BYTES, 8)], bus_bits
                ):
                    due.append((cycle + latency, word))
            if offered and taken:
                due.pop(0)
                offered = None
            if offered is None and due and due[0][0] <= cycle:
                offered = due[0]
            ctx.set(dut.beats.valid, offered is not None)
            if offered is not None:
                ctx.set(dut.beats.payload, {"data": offered[1], "parity": offered[1].bit_count() % 2})
            ctx.set(dut.units.ready, rng.random() >= stalls)

    async def follow(ctx):
        nonlocal found
        taken = begun = 0
        async for _, _, comes, goes, busy, reads, concluded, outcome, wrong, offers, accepts in ctx.tick().sample(
            dut.jobs.valid,
            dut.jobs.ready,
            dut.busy,
            dut.units.valid,
            dut.concluded,
            dut.outcome,
            dut.found_corrupt,
            dut.heads.valid,
            dut.heads.ready,
        ):
            assert busy or begun >= taken  # a job that is lost has two heads
            assert busy or not reads, "what is read must belong to a job"
            taken += comes and goes
            begun += offers and accepts
            found += wrong
            ahead.append(taken - begun)
            if concluded:
                outcomes.append(outcome)

    bench.process(look_up)
    bench.process(memory)
    bench.process(follow)
    assert bench.run(read=[dut.busy], limit=20_000, quiet=80) == [0]
    assert [Frames.of(head) for head in heads.items] == expected.heads
    assert [word.data for word in words.items] == expected.words
    assert sent_frames(heads, words, bus_bits) == expected.spoiled
    assert outcomes == expected.outcomes
    assert found == sum((job["list"], k) in corrupt for job in jobs if job["fetches"] for k in range(job["count"]))
    if not corrupt:
        assert DataSender.JOBS - 1 <= max(ahead) <= DataSender.JOBS
    return words


@pytest.mark.parametrize("bus_bits", WIDTHS)
@pytest.mark.parametrize("stalls", STALLS)
def test_jobs_are_done_in_order_and_up_to_4_wait(bus_bits, stalls):
    check_all(bus_bits=bus_bits, stalls=stalls)


def some_lists_are_corrupt(sender=DataSender, *, stalls=0.0):
    """Each list comes again, some of them without the slot that has an error."""
    jobs = [load(2) if k % 5 == 4 else fetch(1 + k % 3, list=k % LISTS) for k in range(32)]
    check_all(sender, jobs=jobs, corrupt=((0, 0), (2, 2), (3, 1), (6, 0), (7, 1)), stalls=stalls)


@pytest.mark.parametrize("stalls", STALLS)
def test_a_job_whose_list_has_a_bit_error_is_lost_and_no_other_job(stalls):
    some_lists_are_corrupt(stalls=stalls)


def test_memory_is_read_for_the_next_jobs_while_a_frame_is_sent():
    """Memory's latency is waited for once."""
    words = check_all(latency=40, jobs=[fetch(11, list=k) for k in range(6)])
    assert max(after - before for before, after in pairwise(words.times)) == 3


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("check", "name", "sound", "wrong"),
    [
        (check_reads, "ReadUnits", "self.list.eq(job.list),\n            self.position", "self.position"),
        (check_reads, "ReadUnits", "sequencer.table.eq(job.table_index)", "sequencer.table.eq(0)"),
        (check_reads, "ReadUnits", "Mux(job.fetches, self.slot, job.log)", "self.slot"),
        (check_reads, "ReadUnits", "Mux(job.fetches, 0, job.start)", "job.start[:1]"),
        (check_reads, "ReadUnits", "self.replay.record_bytes // UNIT_BYTES, job.count", "1, job.count"),
        (check_reads, "ReadUnits", "(position != job.count)", "(position + 1 != job.count)"),
        (check_reads, "ReadUnits", "with m.If(~job.fetches & job.ticket[0]):", "with m.If(0):"),
        (check_reads, "ReadUnits", "with m.If(~job.fetches & job.ticket[0]):", "with m.If(job.ticket[0]):"),
        (some_slots_are_corrupt, "ReadUnits", "& self.slot_corrupt", "& self.slot_corrupt & (position != 0)"),
        (some_slots_are_corrupt, "ReadUnits", "damaged.bit_select(self.list, 1).eq(1)", "damaged.eq(1)"),
        (some_slots_are_corrupt, "ReadUnits", "bit_select(self.release_list, 1).eq(0)", "eq(0)"),
        (some_slots_are_corrupt, "ReadUnits", "bit_select(self.release_list, 1).eq(0)", "bit_select(0, 1).eq(0)"),
        (check_sends, "SendData", "Mux(job.ticket[0] | lost, 0, job.count", "Mux(lost, 0, job.count"),
        (some_are_lost, "SendData", "Mux(job.ticket[0] | lost, 0, job.count", "Mux(job.ticket[0], 0, job.count"),
        (check_sends, "SendData", "lost | job.fetches & overwritten[0]", "lost"),
        (some_are_lost, "SendData", "~is_blank & (beat.data", "(beat.data"),
        (some_are_lost, "SendData", "~lost & (is_wrong | self.damaged)", "~lost & is_wrong"),
        (some_are_lost, "SendData", "~lost & (is_wrong | self.damaged)", "~lost & self.damaged"),
        (some_are_lost, "SendData", "~lost & (is_wrong | self.damaged)", "is_wrong | self.damaged"),
        (some_are_lost, "SendData", "self.spoil.eq(taken & is_wrong)", "self.spoil.eq(is_wrong & self.words.valid)"),
        (some_are_lost, "SendData", "lost | (job.ticket != 0)", "job.ticket != 0"),
        (some_are_lost, "SendData", "spoiled.eq(spoiled | word.spoil)", "spoiled.eq(word.spoil)"),
        (some_are_lost, "SendData", "self.beats.valid | lost", "self.beats.valid"),
        (some_are_lost, "SendData", "self.words.ready & ~lost", "self.words.ready"),
        (some_are_lost, "SendData", "with m.If(spoiled & job.requested):", "with m.If(spoiled):"),
        (some_are_lost, "SendData", "[spoiled.eq(0), lost.eq(0)]", "[spoiled.eq(0)]"),
        (some_are_lost, "SendData", "Mux(lost, all_of_it, job.ticket)", "job.ticket"),
        (some_are_lost, "SendData", "(1 << job.count) - 1, 1)", "1, 1)"),
        (check_sends, "SendData", "with m.Elif(~(job.requested & self.hold)):", "with m.Else():"),
        (check_sends, "SendData", "self.concluded.eq(job.requested)", "self.concluded.eq(1)"),
        (check_sends, "SendData", "with m.If(place == record_words - 1):", "with m.If(place == 0):"),
        (check_sends, "SendData", "with m.If(head.rows == 0):", "with m.If(0):"),
        (check_sends, "SendData", "Mux(job.fetches, 0, job.log)", "job.log | job.fetches"),
        (check_sends, "SendData", "header.seq.eq(job.seq),", ""),
        (check_sends, "SendData", "header.token.eq(job.token),", ""),
        (
            check_sends,
            "SendData",
            "head.rows >> exact_log2(UNIT_ROWS)),\n            header.token",
            "0),\n            header.token",
        ),
        (check_all, "DataSender", "self.busy.eq(Cat(waiting).any())", "self.busy.eq(waiting[-1])"),
        (check_all, "DataSender", "self.busy.eq(Cat(waiting).any())", "self.busy.eq(self.heads.valid)"),
        (check_all, "DataSender", "for entry in entries).all()", "for entry in entries).any()"),
        (check_all, "DataSender", "self.outcome.eq(sends.outcome),", ""),
        (check_all, "DataSender", "self.position.eq(reads.position),", ""),
    ],
)
def test_a_mutant_is_noticed(check, name, sound, wrong):
    broken = getattr(mutant(hw.replay.execute.data, sound, wrong), name)
    with pytest.raises((AssertionError, TimeoutError, KeyError)):
        for stalls in (0.0, 0.5):
            check(broken, stalls=stalls)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("sends.damaged.eq(sent.fetches & reads.damaged.bit_select(sent.list, 1)),", ""),
        ("sent.fetches & reads.damaged.bit_select(sent.list, 1)", "reads.damaged.any()"),
        ("reads.release.eq(sends.jobs.valid & sends.jobs.ready & sent.fetches)", "reads.release.eq(0)"),
        ("self.found_corrupt.eq(reads.found_corrupt | sends.spoil)", "self.found_corrupt.eq(sends.spoil)"),
        ("reads.slot_corrupt.eq(self.slot_corrupt),", ""),
    ],
)
def test_a_mutant_of_the_lists_parity_is_noticed(sound, wrong):
    broken = mutant(hw.replay.execute.data, sound, wrong).DataSender
    with pytest.raises((AssertionError, TimeoutError)):
        for stalls in (0.0, 0.5):
            some_lists_are_corrupt(broken, stalls=stalls)

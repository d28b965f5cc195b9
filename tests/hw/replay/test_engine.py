# amaranth: UnusedElaboratable=no
"""The replay engine alone, frame in and frame out, against the golden service; every plausible mutant is killed."""

from dataclasses import replace
from functools import partial
from itertools import count, pairwise

import pytest

import hw.replay.engine
import hw.replay.execute.acknowledge
import hw.replay.execute.execution
import hw.replay.request.reader
from hw.replay.engine import Engine
from hw.replay.sampling.sampler import Sampler
from iswitch.config import Config
from iswitch.wire import ADDRESSES, FRAME_BYTES
from iswitch.wire.replay import END, STATUS, ReplayOutcome
from sim.bench import cocotb_engine
from sim.bench.engine import Scenario, source_of
from sim.bench.engine_bench import EngineBench
from sim.bench.mutant import mutant
from sim.bench.replay_client import ReplayClient
from sim.bench.replay_traffic import SMALL
from sim.bench.run_cocotb import BUILD, simulate
from sim.bench.stream import STALLS
from sim.bench.units import verilog

CONFIG = Config(
    ports=2,
    bus_bits=64,
    members=2,
    jobs=2,
    window=2,
    elements=16,
    queue_bytes=8192,
    mac_entries=64,
    staleness=0,
    uplinks=False,
    replay=SMALL,
)


def check(bursts_of, config=CONFIG, **options):
    """`bursts_of`: which bursts of a scenario."""
    alone, scenario = EngineBench(config, **options), Scenario(config)

    async def run(ctx):
        await alone.quiet(ctx)
        for burst in bursts_of(scenario):
            alone.written = bytes(scenario.service.memory.bytes) if len(burst.requests) == 1 else None
            assert await alone.exchange(ctx, burst.now_us, burst.requests) == burst.answers

    alone.bench.drive(run)
    assert alone.contents == scenario.service.memory.bytes
    assert (
        alone.outcomes == scenario.outcomes
        and alone.saturated == scenario.service.saturated
        and not alone.bench.strobes["stat_drop"]
    )
    return set(alone.outcomes)


ONE = replace(
    SMALL,
    tables=1,
    capacity=16,
    sessions=2,
    cached_answers=1,
    samples_per_request=16,
    sample_count_bits=0,
    record_bytes=256,
    priority_bits=32,
    single_copy=True,
)


@pytest.mark.parametrize(
    ("config", "stalls", "latency"),
    [(CONFIG, 0, 1), (replace(CONFIG, bus_bits=512, replay=ONE), 0.5, 20)],
    ids=["64", "512-stalled"],
)
def test_requests_in_bursts_are_answered_as_by_the_model(config, stalls, latency):
    check(lambda scenario: scenario.random(50, most=3), config, stalls=stalls, latency=latency)


@pytest.mark.parametrize("stalls", STALLS)
def test_each_kind_and_each_outcome_is_answered_as_by_the_model(stalls):
    assert check(Scenario.scripted, stalls=stalls, latency=5) == set(ReplayOutcome)


def test_the_engine_agrees_with_the_model_and_another_memory():
    """Hundreds of requests; records and logs are in the AXI4 memory of cocotbext-axi, which stalls on all channels."""
    text = verilog(Engine(cocotb_engine.CONFIG), "engine")
    assert len(simulate("engine", text, cocotb_engine.__name__, only="test_engine_", folder=BUILD / "engine")) == 2


class Clocked(EngineBench):
    """Beside it: the cycles in which requests were decided, words came and left."""

    def __init__(self, config):
        super().__init__(config)
        self.concluded, self.came, self.left = [], [], []
        self.bench.process(self.clock)

    async def clock(self, ctx):
        dut, cycle = self.dut, 0
        async for _, _, concluded, comes, leaves, ready in ctx.tick().sample(
            dut.concluded, dut.words.valid, dut.o.valid, dut.o.ready
        ):
            cycle += 1
            for times, now in ((self.concluded, concluded), (self.came, comes), (self.left, leaves and ready)):
                times.extend([cycle] * now)

    async def cycles(self, ctx, *frames):
        """From each request to the next."""
        self.concluded, self.came, self.left = [], [], []
        await self.exchange(ctx, 0, [(1, frame) for frame in frames])
        assert self.concluded[0] - self.came[0] >= REQUEST - 1
        return [after - before for before, after in pairwise(self.concluded)]


def check_beside(engine=Engine, *, latency=40):
    """DATA frames are made while the next requests are executed. Yet all frames leave in the order of their requests,
    and what an ADD or a WRITE overwrites is read before."""
    alone, scenario = EngineBench(CONFIG, engine=engine, latency=latency), Scenario(CONFIG)
    client, service, chance = ReplayClient(0, port=0, nonce=1 << 32 | 1), scenario.service, scenario.chance
    client.session, client.token = 0, 1
    alone.quiet = partial(alone.quiet, limit=3000)

    async def run(ctx):
        await alone.quiet(ctx)
        seq = lambda more=0: service.sessions[0].next + more
        records = lambda count: [(5, chance.randbytes(SMALL.record_bytes)) for _ in range(count)]

        async def answered(*frames):
            scenario.now_us += 1000
            burst = scenario.burst((0, frame) for frame in frames)
            assert await alone.exchange(ctx, burst.now_us, burst.requests) == burst.answers

        await answered(client.open())
        for _ in range(4):
            await answered(client.add(seq(), records(19)))
        for start, units in ((0, 22), (22, 22), (44, 20)):
            await answered(client.write(seq(), start, chance.randbytes(units * 64)))
        # The last of four frames names what the request behind it overwrites.
        oldest = service.tables[0].adds
        fetches = [client.fetch([oldest + 40 + k for k in range(19)])] * 3
        await answered(*fetches, client.fetch([oldest + k for k in range(19)]), client.add(seq(), records(1)))
        loads = [client.load(20, 22, log=0)] * 3
        await answered(*loads, client.load(0, 22, log=0), client.write(seq(), 64, bytes(64), 1))
        for most in (1, 3):
            items = [service.tables[0].adds + 63 - k for k in range(most)]
            fetch = client.fetch(items)
            await answered(fetch, client.look(), client.load(30, most, log=0), fetch, client.skip(seq()))
            await answered(fetch, fetch, client.update(seq(), [(items[0], 9)]), client.look(token=3))
            await answered(fetch, client.sample(seq(), 3, most), fetch, client.fetch([0]), client.list(0, most))

    alone.bench.drive(run)
    assert alone.contents == service.memory.bytes and alone.outcomes == scenario.outcomes


@pytest.mark.parametrize("latency", [1, 40])
def test_frames_leave_in_the_order_of_their_requests_and_nothing_is_overwritten_before_it_was_read(latency):
    check_beside(latency=latency)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        # an ADD, a WRITE or an answer does not wait
        ("~(kind.matches(*WRITES_MEMORY) & self.data_sender.busy)", "1"),
        ("WRITES_MEMORY = (Kind.WRITE, Kind.ADD)", "WRITES_MEMORY = (Kind.WRITE,)"),
        ("WRITES_MEMORY = (Kind.WRITE, Kind.ADD)", "WRITES_MEMORY = (Kind.ADD,)"),
        ("waits = acknowledgement.answers, self.data_sender.busy", "waits = acknowledgement.answers, 0"),
        # an outcome is counted twice, or not, or another one
        ("self.acknowledgement.concluded | self.data_sender.concluded", "self.acknowledgement.concluded"),
        ("Mux(self.acknowledgement.concluded, outcome, self.data_sender.outcome)", "outcome"),
    ],
)
def test_a_mutant_of_the_order_is_noticed(sound, wrong):
    broken = mutant(hw.replay.engine, sound, wrong).Engine
    with pytest.raises(AssertionError):
        check_beside(broken)
        check_beside(broken, latency=1)


REQUEST = 18
"""Cycles of a request without a body."""


@pytest.mark.parametrize("bus_bits", [64, 512])
def test_cycles_of_a_request(bus_bits):
    """What the engine promises, of requests that wait behind one another; at 64 bits answers of 17 words keep them back
    after the third."""
    alone, client = Clocked(replace(CONFIG, bus_bits=bus_bits)), ReplayClient(1, port=1)
    sampler, seq = Sampler(capacity=SMALL.capacity).latency, count(0)

    def period(cycles, frame, *, waits=0):
        """A frame is checked before its rows are read, beside the end of the request before. A body waits for the
        decision."""
        rows = len(frame) // 8
        return max(cycles, rows - 1 + waits + -(-len(frame) // (bus_bits // 8)) + 4)

    async def ask(ctx):
        await alone.quiet(ctx)
        (answer,) = await alone.exchange(ctx, 0, [(1, client.open())])
        client.session, client.token = 0, client.nonce % 2**32
        assert len(answer.frame) == FRAME_BYTES + STATUS.itemsize + END.itemsize
        looks = [client.look()] * 4
        assert await alone.cycles(ctx, *looks) == [
            period(REQUEST, looks[0]),
            period(REQUEST, looks[0]),
            period(REQUEST + (bus_bits == 64), looks[0]),
        ]
        words = -(-len(answer.frame) * 8 // bus_bits)
        # It leaves whole. The status passes a skid buffer, for which a header of a single word does not leave the time.
        assert alone.left[0] - alone.concluded[0] == 4 + words + (bus_bits == 512)
        skips = [client.skip(next(seq)), client.skip(next(seq))]
        assert (await alone.cycles(ctx, *skips))[0] == period(REQUEST, skips[0])
        for items in (1, 3):
            requests = [client.add(next(seq), [(7, bytes(SMALL.record_bytes))] * items) for _ in range(3)]
            assert (
                await alone.cycles(ctx, *requests)
                == [period(REQUEST + 10 * items + 7, requests[0], waits=6 + items)] * 2
            )
        for rows in (1, 2, 50):
            requests = [client.update(next(seq), [(SMALL.capacity, 7)] * rows) for _ in range(3)]
            assert (
                await alone.cycles(ctx, *requests) == [period(REQUEST + rows + sampler + 2, requests[0], waits=6)] * 2
            )
        for draws in (1, 2, 50):
            requests = [client.sample(next(seq), draws, 1) for _ in range(3)]
            assert await alone.cycles(ctx, *requests) == [period(REQUEST + 4 + draws + sampler + 11, requests[0])] * 2
        await alone.cycles(ctx, client.write(next(seq), 0, bytes(64)), client.look())
        for items in (5, 16):  # DATA frames leave beside the next requests
            requests = [client.fetch([SMALL.capacity] * items)] * 4
            words = -(-(FRAME_BYTES + items * SMALL.record_bytes + END.itemsize) * 8 // bus_bits)
            cycles = max(period(REQUEST + items + 1, requests[0], waits=6), words)
            assert await alone.cycles(ctx, *requests) == [cycles] * 3
        loads = [client.load(0, 1, log=0)] * 4
        assert await alone.cycles(ctx, *loads) == [period(REQUEST + 1, loads[0])] * 3
        again = [client.open(), client.open(), client.open()]
        assert await alone.cycles(ctx, *again) == [REQUEST + 3 + 2 * SMALL.sessions + 1] * 2

    alone.bench.drive(ask)


@pytest.mark.parametrize("bus_bits", [64, 512])
def test_no_request_is_dropped_while_one_session_has_16_of_the_longest_in_flight(bus_bits):
    alone, client = EngineBench(replace(CONFIG, bus_bits=bus_bits)), ReplayClient(1, port=1)

    async def ask(ctx):
        await alone.quiet(ctx)
        await alone.exchange(ctx, 5, [(1, client.update(0, [(0, 0)] * 177))] * 16)
        assert alone.outcomes == {ReplayOutcome.SESSION: 16} and not alone.bench.strobes["stat_drop"]

    alone.bench.drive(ask)


def test_requests_without_room_are_dropped_and_counted_and_those_after_them_answered():
    alone, scenario = EngineBench(replace(CONFIG, bus_bits=512)), Scenario(CONFIG, 1)
    client = ReplayClient(1, port=1, nonce=1)

    async def ask(ctx):
        await alone.quiet(ctx)
        many = 30
        sent = await alone.exchange(ctx, 5, [(1, client.update(0, [(0, 0)] * 177))] * many)
        dropped = alone.bench.strobes["stat_drop"]
        assert 0 < dropped < many and alone.outcomes == {ReplayOutcome.SESSION: many - dropped} and len(sent) == 1
        opened = client.open()
        ((_, payload),) = scenario.service.receive(source_of(1, opened), opened[ADDRESSES.itemsize :], 1000)
        (answer,) = await alone.exchange(ctx, 1000, [(1, opened)])
        assert answer.frame[ADDRESSES.itemsize :] == payload

    alone.bench.drive(ask)


def test_no_replay_wrong():
    with pytest.raises(ValueError, match=r"Engine config\.replay must be a Replay, not None"):
        Engine(replace(CONFIG, replay=None))


MODULES = [hw.replay.engine, hw.replay.execute.acknowledge, hw.replay.execute.execution, hw.replay.request.reader]
MUTANTS = [
    ("frame.session.eq(self.opened_session)", "frame.session.eq(0)"),
    ("fetch_list.read_list.eq(self.read_list)", "fetch_list.read_list.eq(0)"),
    ("acknowledgement.record & (request.table == k)", "acknowledgement.record"),
]
RARE_MUTANTS = [
    ("self.sending & (self.sending_list == self.list)", "0"),
    ("request.session * cached_answers + (request.frame.seq & cached_answers - 1)", "request.session * cached_answers"),
    ("Mux(load.session < self.replay.sessions, load.session, 0)", "request.session"),
    ("session.heard.eq(request.now_us)", "session.heard.eq(0)"),
    ("Mux(self.failed, self.open_session.failure", "Mux(self.failed, ReplayOutcome.DONE"),
    ("self.record & self.counts", "self.record"),
    ("counts.clear.eq(self.add_items.added)", "counts.clear.eq(0)"),
]
"""Only the whole scenario kills them. Mutants of executors are killed in tests/hw/replay/execute."""


def names_a_place(module, sound):
    """Return whether the text stands in the module's source."""
    try:
        return bool(mutant(module, sound, sound))
    except ValueError:
        return False


def engine_of(broken, monkeypatch):
    """Return an Engine with the components of a module's mutant."""
    for importer in (hw.replay.engine, hw.replay.execute.execution):
        for name in broken.__all__:
            if hasattr(getattr(broken, name), "elaborate") and name in vars(importer):
                monkeypatch.setattr(importer, name, getattr(broken, name))
    return vars(broken).get("Engine", Engine)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"), [*MUTANTS, *(pytest.param(*mutation, marks=pytest.mark.slow) for mutation in RARE_MUTANTS)]
)
def test_a_mutant_is_noticed(sound, wrong, monkeypatch):
    (module,) = [module for module in MODULES if names_a_place(module, sound)]
    engine = engine_of(mutant(module, sound, wrong), monkeypatch)
    with pytest.raises(AssertionError):
        check(Scenario.scripted, engine=engine, latency=5)
        check(Scenario.scripted, engine=engine, latency=5, stalls=0.8)

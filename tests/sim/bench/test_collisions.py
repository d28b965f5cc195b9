# amaranth: UnusedElaboratable=no
"""What `hw.synthesis.emit.for_synthesis` takes on trust: under any traffic and any stalls no such memory is read where
it is written."""

import random
import re
from pathlib import Path

import pytest

import hw.board.ecp5.crossing
import hw.decide.counters
import hw.egress.waiting_results
import hw.ingress.packet_queue
import hw.ingress.parser
import hw.stream.cut_through_queue
from hw.stream.packet import Packet
from iswitch.config import Config
from iswitch.wire import Operation
from sim.bench.collisions import collisions_refused
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words, to_words

HW = Path(hw.__file__).parent
BUS, FRAMES = 64, 40
PATTERNS = [(0.0, 0.0), (0.0, 0.6), (0.6, 0.0), (0.1, 0.1), (0.4, 0.5)]
"""Of cycles, in which the entry and the exit pause."""


def frames(seed, sizes):
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice(sizes)) for _ in range(FRAMES)]


def queued(seed, stalls, module=hw.ingress.packet_queue):
    """Frames of the shortest memory, some of them damaged, too short or too long."""
    dut, rng = module.PacketQueue(bus_bits=BUS, depth=32, frame_bytes_max=200, scans_depth=16), random.Random(seed)
    bench, spoilt = Bench(dut, seed=seed), [rng.random() < 0.2 for _ in range(FRAMES)]
    sent = frames(seed, [1, 8, 59, 60, 61, 64, 199, 200, 201, 207, 208, 209, 400])
    bench.source(
        dut.i,
        [word for frame, error in zip(sent, spoilt, strict=True) for word in to_words(frame, BUS, error=error)],
        stalls=stalls[0],
    )
    out, _ = bench.sink(dut.o, stalls=stalls[1]), bench.sink(dut.scans, stalls=stalls[1])
    bench.run()
    assert from_words(out.items, BUS) == [
        frame for frame, error in zip(sent, spoilt, strict=True) if not error and 60 <= len(frame) <= 200
    ]


def stored(seed, stalls, module=hw.stream.cut_through_queue):
    """Frames that fit or do not, shown up to three times."""
    dut, sent = module.CutThroughQueue(bus_bits=BUS, depth=16), frames(seed, [7, 8, 9, 16, 60, 64, 65, 127, 128, 129])
    bench, rng = Bench(dut, seed=seed), random.Random(seed)
    words = [(len(frame), word) for frame in sent for word in to_words(frame, BUS, first=True)]
    bench.source(
        dut.i, [word for _, word in words], stalls=stalls[0], beside=lambda item: [(dut.length, words[item][0])]
    )
    out = bench.sink(dut.o, stalls=stalls[1])

    async def repeat(ctx):
        async for _, _, ends in ctx.tick().sample(dut.o.valid & dut.o.ready & dut.o.payload.last):
            if ends:
                ctx.set(dut.repeat, rng.random() < 0.3)

    bench.process(repeat)
    bench.run()
    left = iter(sent)
    for k, frame in enumerate(shown := from_words(out.items, BUS)):
        # As they came, each perhaps again; what is left out is what found no room.
        assert k and frame == shown[k - 1] or frame in left
    assert bench.strobes["stat_drop"] == len(sent) - len(set(shown))


def parsed(seed, stalls, module=hw.ingress.parser):
    """Frames whose words wait until somebody takes them."""
    dut, sent = module.Parser(bus_bits=BUS, depth=16), frames(seed, [60, 63, 64, 65, 72, 128, 129, 300])
    bench = Bench(dut, seed=seed)
    bench.source(dut.i, [word for frame in sent for word in to_words(frame, BUS, meta={})], stalls=stalls[0])
    out, headers = bench.sink(dut.o, stalls=stalls[1]), bench.sink(dut.headers, stalls=stalls[1] / 2)
    bench.run()
    assert from_words(out.items, BUS) == sent and len(headers.items) == len(sent)


def crossed(seed, stalls, module=hw.board.ecp5.crossing):
    """From a clock to the same one."""
    for store_and_forward in (False, True):
        dut = module.ClockCrossing(
            Packet(BUS), depth=16, i_domain="sync", o_domain="sync", store_and_forward=store_and_forward
        )
        sent, bench = frames(seed, [1, 8, 9, 64, 127, 128]), Bench(dut, seed=seed)
        bench.source(dut.i, [word for frame in sent for word in to_words(frame, BUS)], stalls=stalls[0])
        out = bench.sink(dut.o, stalls=stalls[1])
        bench.run()
        assert from_words(out.items, BUS) == sent


def counted(seed, stalls, module=hw.decide.counters):
    """Events in every cycle, and a read of a random counter."""
    dut, rng = module.EventBank([True] * 11), random.Random(seed)
    bench = Bench(dut, seed=seed)

    async def drive(ctx):
        await ctx.tick().until(dut.wiped)
        counts = [0] * 11
        for _ in range(500):
            happen, address = [rng.random() >= stalls[0] for _ in counts], rng.randrange(11)
            ctx.set(dut.events, sum(event << k for k, event in enumerate(happen)))
            ctx.set(dut.address, address)
            await ctx.tick()
            assert ctx.get(dut.value) == counts[address]
            counts = [count + event for count, event in zip(counts, happen, strict=True)]

    bench.drive(drive)


def waited(seed, stalls, module=hw.egress.waiting_results):
    """Results of two words, one after another, that ports refuse and later have room for."""
    config = Config(ports=2, bus_bits=64, members=2, jobs=2, window=1, elements=64, queue_bytes=4096, staleness=0)
    dut, rng = module.WaitingResults(config), random.Random(seed)
    bench, served = Bench(dut, seed=seed), []

    async def drive(ctx):
        under_way, seq, begun = [], 0, False
        ctx.set(dut.operations.ready, 1)
        for port in range(2):
            ctx.set(dut.local[port][0], 1 << port)
        await ctx.tick().until(dut.erased)
        for _ in range(1500):
            begins = bool(under_way) and not begun and rng.random() >= stalls[1]
            ctx.set(dut.ends, begun)
            ctx.set(dut.begins, begins)
            for port in range(2):
                room = rng.random() < 0.5
                ctx.set(dut.has_room[port], room)
                ctx.set(dut.refused[port], 0)
                if begins:
                    ctx.set(dut.header, under_way[0])
                    held_back = ctx.get(dut.held_back[port]) and not ctx.get(dut.repeated)
                    refused = under_way[0]["recipients"] & 1 << port if not room or held_back else 0
                    ctx.set(dut.refused[port], refused)
                    served.append(under_way[0]["recipients"] & 1 << port & ~refused)
            if begins:
                under_way.pop(0)
            begun = begins
            offers = rng.random() >= stalls[0] and rng.random() < 0.3
            ctx.set(dut.works.valid, offers)
            header = {"seq": seq, "recipients": 3, "length": 8}
            ctx.set(
                dut.works.payload,
                {
                    "operation": Operation.CONTRIBUTE,
                    "slot": seq % config.slots,
                    "emit": 1,
                    "write": 1,
                    "result": header,
                },
            )
            operation = dut.operations.payload
            if ctx.get(dut.operations.valid) and ctx.get(operation.emit):
                under_way.append({name: ctx.get(operation.result[name]) for name in header})
            if offers and ctx.get(dut.works.ready):
                seq += 1
            await ctx.tick()

    bench.drive(drive)
    assert any(served)


BENCHES = {
    "decide/counters.py": counted,
    "egress/waiting_results.py": waited,
    "ingress/packet_queue.py": queued,
    "stream/cut_through_queue.py": stored,
    "ingress/parser.py": parsed,
    "board/ecp5/crossing.py": crossed,
}


def test_every_memory_with_the_promise_has_its_bench():
    claim = re.compile(r"attrs=.*NEVER_READ_WHILE_WRITTEN|attributes = .*NEVER_READ_WHILE_WRITTEN")
    assert {str(path.relative_to(HW)) for path in HW.rglob("*.py") if claim.search(path.read_text())} == BENCHES.keys()


@pytest.mark.parametrize("stalls", PATTERNS, ids=str)
@pytest.mark.parametrize("bench", BENCHES.values())
def test_no_word_is_read_while_it_is_written(bench, stalls):
    with collisions_refused() as watched:
        for seed in range(2):
            bench(seed, stalls)
    assert watched


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("bench", "module", "sound", "wrong"),
    [
        (queued, hw.ingress.packet_queue, "(level < self.depth - 1)", "(level <= self.depth)"),
        (
            stored,
            hw.stream.cut_through_queue,
            "(Cat(Const(0, shift), room) >= self.length)",
            "(Cat(Const(0, shift), room + 2) >= self.length)",
        ),
        (counted, hw.decide.counters, "get.en.eq(self.address != visited)", "get.en.eq(1)"),
        (waited, hw.egress.waiting_results, "with m.Elif(~self.begins & ~noting):", "with m.Elif(~self.begins):"),
        (parsed, hw.ingress.parser, "level < self.depth - 1", "level <= self.depth"),
        (
            crossed,
            hw.board.ecp5.crossing,
            "Mux(put.en, gray((write + 1)[:bits]), gray(write)) != read_there ^ (0b11 << bits - 2)",
            "1",
        ),
    ],
)
def test_a_word_read_while_it_is_written_is_noticed(bench, module, sound, wrong):
    """By the memory that is watched, not only by the frames that come of it: among what fails there is an assertion of
    the simulator's."""
    broken, failures = mutant(module, sound, wrong), []
    with collisions_refused():
        for stalls in PATTERNS:
            try:
                bench(1, stalls, broken)
            except AssertionError as failure:
                failures.append(str(failure))
    assert any(failure.startswith("Assertion violated") for failure in failures)

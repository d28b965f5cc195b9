# amaranth: UnusedElaboratable=no
"""What leaves the replay engine when memory is slow or gone, and what becomes of more requests than there is room
for."""

import pytest

from hw.replay.engine import Engine
from hw.stream.packet import Packet
from iswitch.config import Config, Replay
from iswitch.wire import ADDRESSES
from iswitch.wire.replay import ReplayOutcome
from sim.bench.memory import Memory
from sim.bench.replay_client import ReplayClient
from sim.bench.stream import Bench, from_words, pack, to_words

LEAST = Replay(capacity=16, sessions=2, cached_answers=1, samples_per_request=16, log_bytes=4096, sample_count_bits=2)


def switch(replay=LEAST, bus_bits=64):
    return Config(
        ports=2,
        bus_bits=bus_bits,
        members=2,
        jobs=2,
        window=4,
        mac_entries=64,
        staleness=0,
        uplinks=False,
        replay=replay,
    )


class Beside:
    """An Engine to which frames are given one by one, and what left it."""

    def __init__(self, config, engine=Engine, **memory):
        self.config, self.dut = config, engine(config)
        self.bench = Bench(self.dut)
        axi = self.dut.memory
        self.memory = Memory(bytearray(config.replay.memory_bytes), **memory).attach(
            self.bench, ar=axi.ar, r=axi.r, aw=axi.aw, w=axi.w, b=axi.b
        )
        self.sink = self.bench.sink(self.dut.o)
        self.outcomes: list[ReplayOutcome] = []

    def run(self, frames, *, patience=6000):
        """Each when the one before is done with, or that long after it came. Returns for each what it had as
        answers."""
        dut, answers = self.dut, []

        async def count(ctx):
            async for _, _, concluded, outcome in ctx.tick().sample(dut.concluded, dut.outcome):
                if concluded:
                    self.outcomes.append(ReplayOutcome(outcome))

        async def give(ctx):
            await ctx.tick().until(~dut.busy)
            for port, frame in frames:
                ctx.set(dut.arrived, {"port": port, "length": len(frame)})
                ctx.set(dut.first, 1)
                for word in to_words(frame, self.config.bus_bits):
                    ctx.set(
                        dut.words.payload,
                        Packet(self.config.bus_bits).from_bits(pack(Packet(self.config.bus_bits), word)),
                    )
                    ctx.set(dut.words.valid, 1)
                    await ctx.tick()
                    ctx.set(dut.first, 0)
                ctx.set(dut.words.valid, 0)
                await ctx.tick().repeat(4)
                for _ in range(patience):
                    if not ctx.get(dut.busy):
                        break
                    await ctx.tick()
                sent, self.sink.items[:] = from_words(self.sink.items, self.config.bus_bits), []
                answers.append([frame[ADDRESSES.itemsize :] for frame in sent])

        self.bench.process(count)
        self.bench.drive(give)
        return answers


@pytest.mark.parametrize("bus_bits", [64, 512])
def test_frames_have_no_gap_however_slow_the_memory_is(bus_bits):
    client = ReplayClient(0)
    client.token = client.nonce % 2**32
    config = switch(bus_bits=bus_bits)
    asked = [client.open(), client.write(0, 0, bytes(22 * 64)), client.load(0, 22, log=0), client.look()]
    beside = Beside(config, stalls=0.7, latency=60)
    begins: list[int] = []
    ends: list[int] = []

    async def follow(ctx):
        within, cycle, out = False, 0, beside.dut.o
        async for _, _, valid, ready, word in ctx.tick().sample(out.valid, out.ready, out.payload):
            cycle += 1
            if valid and not within:
                begins.append(cycle)
            if valid and ready:
                within = not word.last
                if word.last:
                    ends.append(cycle)

    beside.bench.process(follow)
    answers = beside.run([(0, frame) for frame in asked])
    words = [-(-(ADDRESSES.itemsize + len(answer[0])) * 8 // bus_bits) for answer in answers]
    assert [end - begin + 1 for begin, end in zip(begins, ends, strict=True)] == words


def test_nothing_of_a_frame_leaves_while_memory_does_not_answer():
    """Or all other replies of the switch would wait behind it, and all ports with them. The LOOK behind the FETCH is
    executed, and its answer waits."""
    client = ReplayClient(0)
    client.token = client.nonce % 2**32
    beside = Beside(switch(), latency=100_000)
    shown = 0

    async def follow(ctx):
        nonlocal shown
        async for _, _, valid in ctx.tick().sample(beside.dut.o.valid):
            shown += valid

    beside.bench.process(follow)
    (opened,), fetched, looked = beside.run(
        [(0, client.open()), (0, client.fetch([1])), (0, client.look())], patience=2000
    )
    assert (
        beside.outcomes == [ReplayOutcome.DONE] * 2
        and not fetched + looked
        and 8 * shown == ADDRESSES.itemsize + len(opened)
    )


def test_every_frame_is_carried_out_or_dropped():
    """A burst of the shortest: more than the inlet can name, and then more than it can hold."""
    client = ReplayClient(0)
    beside = Beside(switch())
    frame = client.look()
    words = to_words(frame, 64)

    async def burst(ctx):
        await ctx.tick().until(~beside.dut.busy)
        for _ in range(200):
            ctx.set(beside.dut.arrived, {"port": 0, "length": len(frame)})
            for k, word in enumerate(words):
                ctx.set(beside.dut.first, k == 0)
                ctx.set(beside.dut.words.payload, Packet(64).from_bits(pack(Packet(64), word)))
                ctx.set(beside.dut.words.valid, 1)
                await ctx.tick()
        ctx.set(beside.dut.words.valid, 0)
        await ctx.tick().repeat(4)
        await ctx.tick().until(~beside.dut.busy)

    async def count(ctx):
        async for _, _, concluded, outcome in ctx.tick().sample(beside.dut.concluded, beside.dut.outcome):
            if concluded:
                beside.outcomes.append(ReplayOutcome(outcome))

    beside.bench.process(count)
    beside.bench.drive(burst)
    dropped = beside.bench.strobes["stat_drop"]
    assert dropped and beside.outcomes == [ReplayOutcome.SESSION] * (200 - dropped)

# amaranth: UnusedElaboratable=no
"""The memory of the replay service stops answering in the middle of a frame: the service waits, and nothing else does.

Control replies leave by the same port of the switch as the service's frames, frame by frame, and requests come in
through the same pipeline as contributions. So a service without memory must offer no frame that it cannot finish, and
must go on taking requests.
"""

from dataclasses import replace

import pytest
from amaranth.hdl import Value

import hw.replay.engine
from hw.replay.engine import Engine
from hw.stream.packet import Packet
from iswitch.config import Config
from iswitch.wire import ADDRESSES
from sim.bench.engine import Scenario, source_of
from sim.bench.engine_bench import EngineBench
from sim.bench.mutant import mutant
from sim.bench.replay_client import ReplayClient
from sim.bench.replay_traffic import SMALL
from sim.bench.stream import pack, to_words

CONFIG = Config(
    ports=2,
    bus_bits=512,
    members=2,
    jobs=2,
    window=2,
    elements=16,
    queue_bytes=8192,
    mac_entries=64,
    staleness=0,
    uplinks=False,
    replay=replace(SMALL, request_bytes=4096),
)
ALWAYS = 2.0
"""Stalls in all cycles."""


def check(engine=Engine) -> None:
    alone, scenario = EngineBench(CONFIG, engine=engine), Scenario(CONFIG)
    client = ReplayClient(1, port=1, nonce=1)
    beats: list[int] = []

    async def die(ctx):
        async for _, _, valid, ready in ctx.tick().sample(alone.dut.memory.r.valid, alone.dut.memory.r.ready):
            if beats and valid and ready:
                beats[0] -= 1
                if not beats[0]:
                    alone.memory.stalls = ALWAYS

    async def send(ctx, frame: bytes) -> None:
        """Send a request at a word in each cycle, as the pipeline does."""
        dut = alone.dut
        ctx.set(dut.arrived, {"port": 1, "length": len(frame)})
        for k, word in enumerate(to_words(frame, CONFIG.bus_bits)):
            ctx.set(dut.first, k == 0)
            ctx.set(Value.cast(dut.words.payload), pack(Packet(CONFIG.bus_bits), word))
            ctx.set(dut.words.valid, 1)
            await alone.tick(ctx)
        ctx.set(dut.words.valid, 0)

    async def ask(ctx):
        await alone.quiet(ctx)
        opened = client.open()
        scenario.service.receive(source_of(1, opened), opened[ADDRESSES.itemsize :], 1000)
        await alone.exchange(ctx, 1000, [(1, opened)])
        client.token = client.nonce
        await alone.exchange(ctx, 1000, [(1, client.add(0, [(7, bytes(64))] * 16))])
        beats.append(5)
        await send(ctx, client.fetch([64 + k for k in range(16)]))
        for _ in range(300):
            await alone.tick(ctx)
        assert alone.memory.stalls == ALWAYS, "the memory must die in the middle of a frame"
        assert not alone.sink.items and not ctx.get(alone.dut.o.valid), "a frame was offered that cannot be finished"
        dropped = alone.bench.strobes["stat_drop"]
        many = 20
        for k in range(many):
            await send(ctx, client.update(1 + k, [(64, 1)] * 100))
            for _ in range(30):
                await alone.tick(ctx)
        assert 0 < alone.bench.strobes["stat_drop"] - dropped <= many, "requests without room are counted"
        assert not alone.sink.items or alone.sink.items[-1].last, "a frame was begun that cannot be finished"

    alone.bench.process(die)
    alone.bench.drive(ask)


def test_without_memory_no_frame_is_begun_that_cannot_end_and_requests_are_taken_and_counted():
    check()


@pytest.mark.mutant
def test_an_engine_whose_frames_leave_before_they_are_complete_is_noticed():
    broken = mutant(
        hw.replay.engine,
        "connect(m, framer.o, self.complete_frames.i)\n connect(m, self.complete_frames.o, flipped(self.o))",
        "connect(m, framer.o, flipped(self.o))",
    )
    with pytest.raises(AssertionError, match="cannot be finished"):
        check(broken.Engine)

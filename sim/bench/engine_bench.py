"""The replay engine alone, with a memory behind it: frames in, frames out."""

from collections import Counter

from amaranth.hdl import Value

from hw.replay.engine import Engine
from hw.stream.packet import Packet
from iswitch.wire.replay import ReplayOutcome
from sim.bench.engine import Sent
from sim.bench.memory import Memory
from sim.bench.stream import Bench, pack, to_words

__all__ = ["EngineBench"]


class EngineBench:
    """An engine with a memory behind it. `exchange` sends requests and returns what leaves until all is quiet."""

    def __init__(self, config, *, engine=Engine, stalls=0.0, latency=1):
        self.config, self.dut = config, engine(config)
        self.bench = Bench(self.dut)
        self.contents = bytearray(config.replay.memory_bytes)
        self.memory, bus = Memory(self.contents, stalls=stalls, latency=latency), self.dut.memory
        self.memory.attach(self.bench, ar=bus.ar, r=bus.r, aw=bus.aw, w=bus.w, b=bus.b)
        self.sink = self.bench.sink(self.dut.o, stalls=stalls)
        self.outcomes, self.saturated, self.cycle, self.written = Counter(), 0, 0, None
        self.bench.process(self.count)

    async def count(self, ctx):
        dut = self.dut
        async for _, _, concluded, outcome, saturated in ctx.tick().sample(dut.concluded, dut.outcome, dut.saturated):
            self.saturated += saturated
            if concluded:
                self.outcomes[ReplayOutcome(outcome)] += 1
                assert self.written in (None, self.contents), "what a request writes must be there when it is over"

    async def tick(self, ctx):
        await ctx.tick()
        self.cycle += 1

    async def quiet(self, ctx, limit=20_000):
        began = self.cycle
        while ctx.get(self.dut.busy):
            await self.tick(ctx)
            assert self.cycle < began + limit, "a request must come to an end"

    async def exchange(self, ctx, now_us, requests):
        dut, width = self.dut, self.config.bus_bits
        ctx.set(dut.now_us, now_us)
        for port, frame in requests:
            ctx.set(dut.arrived, {"port": port, "length": len(frame)})
            for k, word in enumerate(to_words(frame, width)):
                ctx.set(dut.first, k == 0)
                ctx.set(Value.cast(dut.words.payload), pack(Packet(width), word))
                ctx.set(dut.words.valid, 1)
                await self.tick(ctx)
            ctx.set(dut.words.valid, 0)
        await self.tick(ctx)
        await self.quiet(ctx)
        items, self.sink.items, sent, frame = self.sink.items, [], [], b""
        for item in items:
            frame += int(item.data).to_bytes(width // 8, "little")[: item.count]
            if item.last:
                assert item.meta.length == len(frame)
                sent.append(Sent(item.meta.port, item.meta.address.as_value().value, frame))
                frame = b""
        assert not frame
        return sent

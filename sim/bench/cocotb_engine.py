"""The replay engine as emitted Verilog against the golden service. Records and logs are in the AXI4 memory of
cocotbext-axi."""

import itertools
import logging
import random
from collections import Counter

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBus, AxiRam

from iswitch.config import Config
from iswitch.wire.replay import ReplayOutcome
from sim.bench.cocotb_bus import bursts, none, until
from sim.bench.cocotb_memory import held, pause, start
from sim.bench.engine import Scenario, Sent
from sim.bench.replay_traffic import SMALL

__all__ = ["CONFIG"]

CONFIG = Config(
    ports=2,
    bus_bits=256,
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
BUS_BYTES = CONFIG.bus_bits // 8
REQUESTS = 400


class Fields:
    """Packs fields into a number and unpacks them, the lowest field first."""

    def __init__(self, **widths: int):
        self.widths = widths

    def pack(self, **values: int) -> int:
        bits = 0
        for name, width in reversed(self.widths.items()):
            bits = bits << width | values.get(name, 0)
        return bits

    def unpack(self, bits: int) -> dict[str, int]:
        found = {}
        for name, width in self.widths.items():
            found[name], bits = bits % (1 << width), bits >> width
        return found


WORD = {"data": CONFIG.bus_bits, "count": BUS_BYTES.bit_length(), "last": 1, "error": 1}
"""As `hw.stream.packet.Packet`."""
IN, ARRIVED = Fields(**WORD), Fields(port=4, length=14)
OUT = Fields(**WORD, port=4, address=96, length=14)
"""As `hw.stream.packet.Packet` with `hw.interface.reply.ReplyRoute` beside it."""


class Bench:
    def __init__(self, dut, stalls):
        self.dut, self.rng, self.stalls = dut, random.Random(cocotb.RANDOM_SEED), stalls
        for name in ("words_valid", "words_payload", "first", "arrived", "now_us", "o_ready"):
            getattr(dut, name).value = 0
        self.memory = AxiRam(AxiBus.from_prefix(dut, "memory"), dut.clk, dut.rst, size=SMALL.memory_bytes)
        for half in (self.memory.write_if, self.memory.read_if):
            half.log.setLevel(logging.WARNING)
        pause(self.memory, self.rng, stalls)
        self.gaps = stalls(self.rng)
        self.sent: list[Sent] = []
        self.outcomes: Counter[ReplayOutcome] = Counter()
        self.saturated = self.dropped = 0

    async def run(self) -> None:
        await start(self.dut)
        cocotb.start_soon(held(self.dut, ("aw", "w", "ar"), "memory"))
        cocotb.start_soon(self.take(self.stalls(self.rng)))
        cocotb.start_soon(self.count())
        await until(self.dut.clk, lambda: not int(self.dut.busy.value))

    async def take(self, stalls) -> None:
        """Collect frames. The route beside their words must not change within a frame."""
        dut, frame, beside, offered = self.dut, b"", set(), None
        while True:
            await RisingEdge(dut.clk)
            valid, ready = int(dut.o_valid.value), int(dut.o_ready.value)
            bits = int(dut.o_payload.value) if valid else None
            assert offered is None or bits == offered, "what was offered must be held"
            offered = None if ready else bits
            if valid and ready:
                word = OUT.unpack(bits)
                frame += word["data"].to_bytes(BUS_BYTES, "little")[: word["count"]]
                beside.add((word["port"], word["address"], word["length"]))
                if word["last"]:
                    ((port, address, length),) = beside
                    assert length == len(frame)
                    self.sent.append(Sent(port, address, frame))
                    frame, beside = b"", set()
            dut.o_ready.value = int(not next(stalls))

    async def count(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if int(dut.concluded.value):
                self.outcomes[ReplayOutcome(int(dut.outcome.value))] += 1
            self.saturated += int(dut.saturated.value)
            self.dropped += int(dut.stat_drop.value)

    async def request(self, port: int, frame: bytes) -> None:
        dut = self.dut
        dut.arrived.value = ARRIVED.pack(port=port, length=len(frame))
        for at in range(0, len(frame), BUS_BYTES):
            part = frame[at : at + BUS_BYTES]
            dut.words_payload.value = IN.pack(
                data=int.from_bytes(part, "little"), count=len(part), last=at + BUS_BYTES >= len(frame)
            )
            dut.first.value, dut.words_valid.value = int(at == 0), 1
            await RisingEdge(dut.clk)
            dut.words_valid.value = 0
            while next(self.gaps):
                await RisingEdge(dut.clk)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_engine_answers_as_the_model_does(dut, stalls):
    """Requests in bursts have the model's answers byte for byte; at the end the memory equals the model's."""
    bench, scenario = Bench(dut, stalls), Scenario(CONFIG, cocotb.RANDOM_SEED)
    await bench.run()
    for burst in itertools.chain(scenario.scripted(), scenario.random(REQUESTS, most=3)):
        dut.now_us.value = burst.now_us
        for port, frame in burst.requests:
            await bench.request(port, frame)
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        await until(dut.clk, lambda: not int(dut.busy.value))
        for found, expected in itertools.zip_longest(bench.sent, burst.answers):
            assert found == expected
        bench.sent.clear()
    assert bench.memory.read(0, SMALL.memory_bytes) == scenario.service.memory.bytes
    assert (bench.outcomes, bench.saturated, bench.dropped) == (scenario.outcomes, scenario.service.saturated, 0)
    assert set(bench.outcomes) == set(ReplayOutcome)

"""Emitted Verilog with an AXI4 bus against the independent memory and master of cocotbext-axi.

Tops: `units` is `sim.bench.units.Units`, `ram` is `hw.replay.memory.ram.OnChipRam`.
"""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiRam, AxiResp

from iswitch.wire.replay import UNIT_BYTES
from sim.bench.cocotb_bus import bursts, none, until

__all__ = ["RAM_BYTES", "held", "pause", "start"]

RAM_BYTES = 5 << 12
"""Size of `ram`."""
BYTES = 1 << 16
"""Size of the memory behind `units`."""
CHANNELS = ("aw", "w", "b", "ar", "r")


def beat(word: bytes) -> int:
    """Return a `Beat` of `hw/replay/memory/units.py`: the word and its even parity."""
    number = int.from_bytes(word, "little")
    return number | number.bit_count() % 2 << 8 * len(word)


async def start(dut) -> None:
    dut.rst.value = 1
    Clock(dut.clk, 5, unit="ns").start()
    await ClockCycles(dut.clk, 3)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


def pause(bus, rng, stalls) -> None:
    """On all channels, each for itself."""
    for channel in (
        bus.write_if.aw_channel,
        bus.write_if.w_channel,
        bus.write_if.b_channel,
        bus.read_if.ar_channel,
        bus.read_if.r_channel,
    ):
        channel.set_pause_generator(stalls(rng))


async def held(dut, channels, bus="axi") -> None:
    """What a channel offers stays, unchanged, until it is taken."""
    wires = {
        channel: [
            getattr(dut, name)
            for name in dir(dut)
            if name.startswith(f"{bus}_{channel}") and not name.endswith(("valid", "ready"))
        ]
        for channel in channels
    }
    offered: dict[str, list[str] | None] = dict.fromkeys(channels)
    while True:
        await RisingEdge(dut.clk)
        for channel in channels:
            valid, ready = (int(getattr(dut, f"{bus}_{channel}{name}").value) for name in ("valid", "ready"))
            now = [str(wire.value) for wire in wires[channel]] if valid else None
            assert offered[channel] is None or now == offered[channel], (
                f"{channel} offered {offered[channel]} and then {now}"
            )
            offered[channel] = None if ready else now


async def feed(dut, name, items, stalls) -> None:
    valid, ready, payload = (getattr(dut, f"{name}_{part}") for part in ("valid", "ready", "payload"))
    for item in items:
        while next(stalls):
            await RisingEdge(dut.clk)
        payload.value, valid.value = item, 1
        await RisingEdge(dut.clk)
        while not int(ready.value):
            await RisingEdge(dut.clk)
        valid.value = 0


async def drain(dut, name, found, stalls) -> None:
    valid, ready, payload = (getattr(dut, f"{name}_{part}") for part in ("valid", "ready", "payload"))
    while True:
        await RisingEdge(dut.clk)
        if int(valid.value) and int(ready.value):
            found.append(int(payload.value))
        ready.value = int(not next(stalls))


class Bench:
    """`units` with the memory of cocotbext-axi behind it."""

    def __init__(self, dut, stalls):
        self.dut, self.rng, self.stalls = dut, random.Random(cocotb.RANDOM_SEED), stalls
        for name in ("reads", "writes", "put"):
            getattr(dut, f"{name}_valid").value = getattr(dut, f"{name}_payload").value = 0
        dut.found_ready.value = 0
        self.memory = AxiRam(AxiBus.from_prefix(dut, "axi"), dut.clk, dut.rst, size=BYTES)
        pause(self.memory, self.rng, stalls)

    def addresses(self, count):
        """Return addresses: the same again, the next, and any."""
        places = [0, 4096 - UNIT_BYTES, 4096, BYTES - UNIT_BYTES]
        while len(places) < count:
            places.append(
                self.rng.choice(
                    [places[-1], (places[-1] + UNIT_BYTES) % BYTES, self.rng.randrange(0, BYTES, UNIT_BYTES)]
                )
            )
        return places


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_units_are_read_in_order(dut, stalls):
    bench = Bench(dut, stalls)
    contents = bench.rng.randbytes(BYTES)
    bench.memory.write(0, contents)
    await start(dut)
    asked, found = bench.addresses(150), []
    cocotb.start_soon(held(dut, ("aw", "w", "ar")))
    cocotb.start_soon(drain(dut, "found", found, stalls(bench.rng)))
    cocotb.start_soon(feed(dut, "reads", asked, stalls(bench.rng)))
    word = len(dut.axi_rdata) // 8
    await until(dut.clk, lambda: len(found) == UNIT_BYTES // word * len(asked))
    expected = [
        beat(contents[at : at + word]) for address in asked for at in range(address, address + UNIT_BYTES, word)
    ]
    assert found == expected
    await ClockCycles(dut.clk, 50)
    assert len(found) == len(expected) and not int(dut.busy.value)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_units_are_written_when_the_writer_is_not_busy(dut, stalls):
    """Whenever the writer is not busy, memory holds all accepted units."""
    bench = Bench(dut, stalls)
    await start(dut)
    rng, expected = bench.rng, bytearray(BYTES)
    cocotb.start_soon(held(dut, ("aw", "w", "ar")))
    for count in (1, 2, 3, 20, 1, 40):
        asked, data = bench.addresses(4 + count)[4:], [rng.randbytes(UNIT_BYTES) for _ in range(count)]
        for address, unit in zip(asked, data, strict=True):
            expected[address : address + UNIT_BYTES] = unit
        tasks = [
            cocotb.start_soon(feed(dut, "writes", asked, stalls(rng))),
            cocotb.start_soon(
                feed(
                    dut,
                    "put",
                    [int.from_bytes(unit[at : at + 8], "little") for unit in data for at in range(0, UNIT_BYTES, 8)],
                    stalls(rng),
                )
            ),
        ]
        await until(dut.clk, lambda tasks=tasks: all(task.done() for task in tasks) and not int(dut.busy.value))
        assert bench.memory.read(0, BYTES) == expected


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_ram_keeps_what_a_master_writes(dut, stalls):
    """Bursts of 1 to 256 beats from any byte on, several in flight. Bytes that were not written are 0."""
    rng = random.Random(cocotb.RANDOM_SEED)
    master = AxiMaster(AxiBus.from_prefix(dut, "axi"), dut.clk, dut.rst)
    pause(master, rng, stalls)
    await start(dut)
    cocotb.start_soon(held(dut, ("b", "r")))
    expected = bytearray(RAM_BYTES)
    for length in (1, 7, 8, 9, 63, 64, 65, 640, 2047, 2048, 2049, 5000):
        places = [rng.randrange(RAM_BYTES - length) for _ in range(4)]
        data = [rng.randbytes(length) for _ in places]
        writes = [master.init_write(place, unit) for place, unit in zip(places, data, strict=True)]
        for place, unit, write in zip(places, data, writes, strict=True):
            expected[place : place + length] = unit
            await write.wait()
            assert write.data.resp == AxiResp.OKAY
        reads = [master.init_read(place, length) for place in (*places, rng.randrange(RAM_BYTES - length))]
        for read in reads:
            await read.wait()
            assert read.data.resp == AxiResp.OKAY
            assert read.data.data == expected[read.data.address : read.data.address + length]
    for address in (RAM_BYTES, RAM_BYTES + 4096):
        assert (await master.write(address, bytes(16))).resp == (await master.read(address, 16)).resp == AxiResp.DECERR
    assert (await master.read(0, RAM_BYTES)).data == expected

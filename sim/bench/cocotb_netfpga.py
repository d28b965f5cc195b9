"""The drop-in core as emitted Verilog, between cocotbext-axi's source and sink of AXI4-Stream and its manager of
AXI4-Lite.

Tops: `reflector` sends each frame of port p out of port p + 1, in place of the switch; `opennic` is the same with the
other tuser, and `core` has the switch itself.
"""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from iswitch.wire import MAGIC, VERSION
from sim.bench.cocotb_bus import bursts, none, until

__all__ = ["PLACES"]

PLACES = {"reflector": (0, 2, 4, 6), "opennic": (6, 7), "core": (0, 2, 4, 6)}
SOURCE, DESTINATION = {"reflector": 16, "opennic": 16, "core": 16}, {"reflector": 24, "opennic": 32, "core": 24}
FIELD = {"reflector": 0xFF, "opennic": 0xFFFF, "core": 0xFF}
LENGTHS = [60, 61, 63, 64, 65, 95, 96, 97, 127, 128, 129, 511, 512, 513, 1024, 1513, 1514, 1518]
LIMIT_CYCLES = 50_000


class Bench:
    """A core with its surroundings. The environment selects the top."""

    def __init__(self, dut, stalls):
        self.dut, self.rng, self.top = dut, random.Random(cocotb.RANDOM_SEED), os.environ["ISWITCH_TOP"]
        self.places = PLACES[self.top]
        clock = dut.axis_aclk
        self.source = AxiStreamSource(
            AxiStreamBus.from_prefix(dut, "s_axis"), clock, dut.axis_resetn, reset_active_level=False
        )
        self.sink = AxiStreamSink(
            AxiStreamBus.from_prefix(dut, "m_axis"), clock, dut.axis_resetn, reset_active_level=False
        )
        self.registers = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "s_axi"), clock, dut.axis_resetn, reset_active_level=False
        )
        self.source.set_pause_generator(stalls(self.rng))
        self.sink.set_pause_generator(stalls(self.rng))

    async def start(self):
        self.dut.axis_resetn.value = 0
        Clock(self.dut.axis_aclk, 5, unit="ns").start()
        await ClockCycles(self.dut.axis_aclk, 4)
        self.dut.axis_resetn.value = 1
        await RisingEdge(self.dut.axis_aclk)

    async def send(self, frame: bytes, place: int) -> None:
        await self.source.send(AxiStreamFrame(frame, tuser=len(frame) | 1 << SOURCE[self.top] + place))

    async def take(self) -> tuple[bytes, int, int]:
        """Return the bytes of a packet, the length in its tuser, and its only destination."""
        if self.sink.empty():
            await until(self.dut.axis_aclk, lambda: not self.sink.empty(), LIMIT_CYCLES)
        frame = self.sink.recv_nowait()
        users = frame.tuser if isinstance(frame.tuser, list) else [frame.tuser]
        assert len(set(users)) == 1, "tuser changed within a packet"
        destination = users[0] >> DESTINATION[self.top] & FIELD[self.top]
        assert destination and not destination & (destination - 1), f"destination {destination:#b}"
        return bytes(frame.tdata), users[0] & 0xFFFF, destination.bit_length() - 1

    async def register(self, address: int) -> int:
        answer = await self.registers.read(address, 4)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")


async def reflect(dut, stalls):
    bench = Bench(dut, stalls)
    await bench.start()
    sent: dict[int, list[bytes]] = {place: [] for place in bench.places}
    for length in LENGTHS + bench.rng.sample(range(60, 1519), 12):
        port = bench.rng.randrange(len(bench.places))
        frame = bench.rng.randbytes(length)
        sent[bench.places[(port + 1) % len(bench.places)]].append(frame)
        await bench.send(frame, bench.places[port])
        if bench.rng.random() < 0.2:
            await bench.send(
                bench.rng.randbytes(100), bench.places[0] + 1 if bench.top == "reflector" else 0
            )  # of the host
    total = sum(len(frames) for frames in sent.values())
    for _ in range(total):
        frame, length, place = await bench.take()
        assert length == len(frame) and sent[place], f"{length} bytes at place {place}"
        assert frame == sent[place].pop(0), "a frame is not the one that was sent, or not in order"
    await ClockCycles(dut.axis_aclk, 200)
    assert bench.sink.empty() and bench.sink.idle()
    unknown_sources = await bench.register(0x48)
    assert await bench.register(0x40) == total + unknown_sources and await bench.register(0x44) == total


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_reflector_frames_leave_by_their_port(dut, stalls):
    await reflect(dut, stalls)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_opennic_frames_leave_by_their_port(dut, stalls):
    await reflect(dut, stalls)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_reflector_registers_say_what_it_is(dut, stalls):
    bench = Bench(dut, stalls)
    await bench.start()
    first = [await bench.register(address) for address in range(0, 0x20, 4)]
    assert first[:4] == [MAGIC, VERSION, 4, 256]
    assert bytes.fromhex("026973770001") == (await bench.registers.read(0x20, 6)).data
    assert bytes([10, 0, 0, 100]) == (await bench.registers.read(0x28, 4)).data
    assert (await bench.registers.write(0x28, bytes([192, 168, 7, 9]))).resp == AxiResp.OKAY
    assert (await bench.registers.write(0x2A, bytes([1]))).resp == AxiResp.OKAY  # one byte alone
    assert (await bench.registers.read(0x28, 4)).data == bytes([192, 168, 1, 9])
    assert (await bench.registers.write(0x00, bytes(4))).resp == AxiResp.SLVERR and await bench.register(0) == MAGIC
    assert (
        (await bench.registers.write(0xFF0, bytes(4))).resp
        == (await bench.registers.read(0xFF0, 4)).resp
        == AxiResp.DECERR
    )
    before = await bench.register(0x30)
    await ClockCycles(dut.axis_aclk, 2000)
    assert 9 <= await bench.register(0x30) - before <= 11


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_core_is_a_switch(dut, stalls):
    """It answers ARP and ping at the written address, sends a frame to the port of a known address, and to all ports
    for an unknown one."""
    bench = Bench(dut, stalls)
    await bench.start()
    ip, mac = "192.168.7.9", "02:69:73:77:00:01"
    await bench.registers.write(0x28, bytes(int(byte) for byte in ip.split(".")))
    alice, bob = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
    asked = bytes(
        Ether(src=alice, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=alice, psrc="192.168.7.1", pdst=ip)
    ).ljust(60, b"\0")
    await bench.send(asked, bench.places[2])
    frame, _, place = await bench.take()
    answer = Ether(frame)
    assert place == bench.places[2]
    assert answer[ARP].op == 2 and answer[ARP].hwsrc == mac and answer[ARP].psrc == ip and answer.dst == alice

    ping = bytes(
        Ether(src=alice, dst=mac) / IP(src="192.168.7.1", dst=ip) / ICMP(id=7, seq=3) / Raw(bench.rng.randbytes(200))
    )
    await bench.send(ping, bench.places[2])
    frame, length, place = await bench.take()
    assert (
        place == bench.places[2]
        and length == len(frame)
        and Ether(frame)[ICMP].type == 0
        and Ether(frame)[Raw] == Ether(ping)[Raw]
    )

    known = bytes(Ether(src=bob, dst=alice, type=0x88B5) / Raw(bench.rng.randbytes(600)))
    await bench.send(known, bench.places[0])
    assert await bench.take() == (known, len(known), bench.places[2])
    unknown = bytes(Ether(src=bob, dst="02:00:00:00:00:0c", type=0x88B5) / Raw(bench.rng.randbytes(77)))
    await bench.send(unknown, bench.places[0])
    assert sorted([await bench.take() for _ in range(3)]) == [
        (unknown, len(unknown), place) for place in bench.places[1:]
    ]
    await ClockCycles(dut.axis_aclk, 300)
    assert bench.sink.empty()

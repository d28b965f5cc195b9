"""The emitted Verilog beside the golden model, at the level of frames built by scapy: workers, ports, and the order of
the trace.

Ports run at the same time, and the switch decides in which order it handles their frames. The model receives the frames
in the order of the switch's trace, and must agree with every outcome, every frame that leaves, and every register at
the end.
"""

import random
from collections import deque

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from iswitch.golden.tree_switch import TreeSwitch
from iswitch.wire import Outcome, Reason
from sim.bench.cocotb_bus import Handshake, Sink, Source, StreamBus, watch
from sim.bench.run_cocotb import CONFIG
from sim.bench.scapy_wire import Ack, Control, Header, address, checked

__all__ = ["ADDRESS", "FP32", "INT32", "MAC", "WINDOW64", "Bench", "Worker", "joined", "sort"]

MAC, ADDRESS, SEED = "02:57:49:00:00:01", "10.0.0.1", 0x1234_5678_9ABC_DEF1
IDLE_CYCLES, LIMIT_CYCLES, PAUSE_CYCLES = 40, 50_000, 12
WINDOW64, FP32, INT32 = 1, 2, 3
READ_STEP, REGISTERS = 8, 64 + 8 * CONFIG.ports


class Worker:
    """A worker's state and its frames, built by scapy."""

    def __init__(self, index: int):
        self.port, self.nonce = index, 0xA0 + index
        self.mac, self.ip, self.udp_port = f"02:00:00:00:00:{index:02x}", f"10.0.0.{100 + index}", 40000 + index
        self.member, self.token, self.epoch, self.first_seq = 255, 0xCAFE00 + index, 0, 0
        self.challenge = 0

    def packet(self, kind: int, body: bytes | Packet = b"", **fields: int) -> Packet:
        known = {"type": kind, "epoch": self.epoch, "member": self.member, "token": self.token}
        body = Raw(body) if isinstance(body, bytes) else body
        return (
            address(self.mac, self.ip, self.udp_port, switch_mac=MAC, switch_ip=ADDRESS)
            / Header(**(known | fields))
            / body
        )

    def contribution(self, seq: int, numbers: np.ndarray, *, behind: int = 0, **fields: int) -> Packet:
        kind = INT32 if numbers.dtype.kind == "i" else WINDOW64
        return self.packet(
            0, numbers.tobytes(), **({"seq": seq % 2**32, "format": kind, "behind": behind, "count": 1} | fields)
        )

    def join(self, world: int) -> Packet:
        return self.packet(
            5,
            Control(
                action=1,
                format=WINDOW64,
                fraction=44,
                world=world,
                threshold=world,
                elements=CONFIG.elements,
                key=77,
                nonce=self.nonce,
                job_token=0xBEEF,
                challenge=self.challenge,
            ),
        )

    def read(self, register: int) -> Packet:
        return self.packet(5, Control(action=5, address=register))

    def learn(self, frame: bytes) -> None:
        packet = checked(frame)
        if Ack in packet and packet[Ack].action == 1 and packet[Ack].nonce == self.nonce:
            assert packet[Ack].reason in (Reason.DONE, Reason.CHALLENGE)
            header = packet[Header]
            self.challenge = int.from_bytes(packet[Ack].registers[:4], "little")
            self.member, self.epoch = header.member, header.epoch
            self.first_seq = packet[Ack].first_seq


class Bench:
    """The switch with a source, a sink and two watchers at every port, and the model beside it."""

    def __init__(self, dut, stalls):
        rng = random.Random(cocotb.RANDOM_SEED)
        self.dut, ports = dut, range(CONFIG.ports)
        self.model = TreeSwitch(
            CONFIG, mac=bytes.fromhex(MAC.replace(":", "")), ip=bytes(map(int, ADDRESS.split("."))), seed=SEED
        )
        rx, tx = [StreamBus(dut, f"rx{p}") for p in ports], [StreamBus(dut, f"tx{p}") for p in ports]
        self.sources = [Source(bus, stalls(rng, PAUSE_CYCLES), lambda: rng.getrandbits(64)) for bus in rx]
        self.sinks = [Sink(bus, stalls(rng, PAUSE_CYCLES)) for bus in tx]
        self.watched = {bus: Handshake(bus.name, bus.bus_bytes) for bus in rx + tx}
        self.whole: list[deque[bytes]] = [deque() for _ in ports]
        self.expected: list[list[bytes]] = [[] for _ in ports]
        self.now_us = 0

    @classmethod
    async def start(cls, dut, stalls) -> "Bench":
        bench = cls(dut, stalls)
        dut.now_us.value, dut.seed.value = 0, SEED
        dut.link.value = (1 << len(dut.link)) - 1
        dut.operator_key.value, dut.parents.value = 0, 0
        dut.own_mac.value, dut.own_ip.value = (
            int.from_bytes(bench.model.own.mac, "little"),
            int.from_bytes(bench.model.own.ip, "little"),
        )
        dut.rst.value = 1
        Clock(dut.clk, 5, unit="ns").start()
        await ClockCycles(dut.clk, 3)
        dut.rst.value = 0
        await RisingEdge(dut.clk)
        for part in (*bench.sources, *bench.sinks):
            cocotb.start_soon(part.run())
        for bus, handshake in bench.watched.items():
            cocotb.start_soon(watch(bus, handshake))
        cocotb.start_soon(bench.follow())
        return bench

    def put(self, port: int, packet: Packet | bytes, *, error: bool = False) -> None:
        frame = bytes(packet)
        # The card pads to Ethernet's minimum; a runt is given as bytes.
        frame = frame if isinstance(packet, bytes) else frame.ljust(60, b"\0")
        if error or not 60 <= len(frame) <= CONFIG.frame_bytes_max:
            assert self.model.receive(port, frame, self.now_us, error) == []
        else:
            self.whole[port].append(frame)
        self.sources[port].put(frame, error)

    async def follow(self) -> None:
        """Give the model the frames in the order of the switch's decisions, and compare the outcomes."""
        trace = {name: getattr(self.dut, f"trace_{name}") for name in ("valid", "outcome", "port")}
        while True:
            await RisingEdge(self.dut.clk)
            if not int(trace["valid"].value):
                continue
            port, before = int(trace["port"].value), list(self.model.outcomes)
            for egress, frame in self.model.receive(port, self.whole[port].popleft(), self.now_us):
                self.expected[egress].append(frame)
            (outcome,) = (kind for kind in Outcome if self.model.outcomes[kind] != before[kind])
            assert Outcome(int(trace["outcome"].value)) == outcome

    async def settle(self) -> list[list[bytes]]:
        """Wait until no frame is left anywhere, compare the frames that have left since the last call, and return them
        by port."""
        quiet = 0
        for _ in range(LIMIT_CYCLES):
            await RisingEdge(self.dut.clk)
            quiet = quiet + 1 if all(source.idle for source in self.sources) and not int(self.dut.busy.value) else 0
            if quiet == IDLE_CYCLES:
                break
        assert quiet == IDLE_CYCLES, "the switch does not come to rest"
        got = [sink.frames[:] for sink in self.sinks]
        for port, frames in enumerate(got):
            for kind in ("result", "reply", "ordinary"):  # each in order; between them ports have priorities
                assert [f for f in frames if sort(f) == kind] == [f for f in self.expected[port] if sort(f) == kind], (
                    port,
                    kind,
                )
            for frame in frames:
                if sort(frame) != "ordinary":
                    checked(frame)
            self.sinks[port].frames.clear()
            self.expected[port].clear()
        assert not any(self.whole) and not any(handshake.inside for handshake in self.watched.values())
        return got

    def later(self, us: int) -> None:
        """Advance the time. Call it only between `settle` and the next frame: the cycle in which the switch reads its
        clock is not specified."""
        self.now_us += us
        self.dut.now_us.value = self.now_us

    async def read_all(self, worker: Worker) -> None:
        """Read all registers; `settle` compares them with the model's."""
        for register in range(0, REGISTERS, READ_STEP):
            self.put(worker.port, worker.read(register))
            await self.settle()


def sort(frame: bytes) -> str:
    """Return the kind of a frame from the switch, by the class of its queue."""
    packet = Ether(frame)
    if packet.src != MAC or Header not in packet:
        return "ordinary"
    return "result" if packet[Header].type == 1 else "reply"


async def joined(bench: Bench, count: int) -> list[Worker]:
    workers = [Worker(index) for index in range(count)]
    for _ in range(3):  # challenged, granted, running
        for worker in workers:
            bench.put(worker.port, worker.join(count))
            for frame in (await bench.settle())[worker.port]:
                worker.learn(frame)
    assert [worker.member for worker in workers] == list(range(count))
    return workers

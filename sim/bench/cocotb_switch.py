"""The emitted Verilog against the golden model, at the level of frames that scapy has built.

Ports run at the same time, so which frame the switch decides about first is its own affair: the model is given the frames in
the order of the switch's trace, and must agree with every outcome, every frame that leaves, and every register at the end.
"""

import itertools
import random
from collections import deque

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from iswitch.wire import Outcome, Stat
from sim.bench.cocotb_bus import Handshake, Sink, Source, StreamBus, bursts, none, watch
from sim.bench.run_cocotb import CONFIG
from sim.bench.scapy_wire import Ack, Control, Header, address, checked
from sim.model.tree_switch import TreeSwitch

__all__ = ["Bench", "Worker"]

MAC, ADDRESS, SEED = "02:57:49:00:00:01", "10.0.0.1", 0x1234_5678_9ABC_DEF1
NOTICE_US = 100
IDLE_CYCLES, LIMIT_CYCLES, PAUSE_CYCLES = 40, 50_000, 12
WINDOW64, FP32, INT32 = 1, 2, 3
READ_STEP, REGISTERS = 8, 64 + 8 * CONFIG.ports


class Worker:
    """What a worker knows and sends, in scapy's words."""

    def __init__(self, index: int):
        self.port, self.nonce = index, 0xA0 + index
        self.mac, self.ip, self.udp_port = f"02:00:00:00:00:{index:02x}", f"10.0.0.{100 + index}", 40000 + index
        self.member, self.token, self.epoch, self.first_seq = 255, 0, 0, 0

    def packet(self, kind: int, body: bytes | Packet = b"", **fields: int) -> Packet:
        known = {"type": kind, "epoch": self.epoch, "member": self.member, "token": self.token}
        body = Raw(body) if isinstance(body, bytes) else body
        return address(self.mac, self.ip, self.udp_port, switch_mac=MAC, switch_ip=ADDRESS) / Header(
            **(known | fields)) / body

    def contribution(self, seq: int, numbers: np.ndarray, *, behind: int = 0, **fields: int) -> Packet:
        kind = INT32 if numbers.dtype.kind == "i" else WINDOW64
        return self.packet(0, numbers.tobytes(), **({"seq": seq % 2**32, "format": kind, "behind": behind, "count": 1} | fields))

    def join(self, world: int) -> Packet:
        return self.packet(5, Control(action=1, format=WINDOW64, fraction=44, world=world, threshold=world,
                                      elements=CONFIG.elements, key=77, nonce=self.nonce))

    def read(self, register: int) -> Packet:
        return self.packet(5, Control(action=5, address=register))

    def learn(self, frame: bytes) -> None:
        packet = checked(frame)
        if Ack in packet and packet[Ack].action == 1 and packet[Ack].nonce == self.nonce:
            assert packet[Ack].reason == 0
            header = packet[Header]
            self.member, self.token, self.epoch = header.member, header.token, header.epoch
            self.first_seq = packet[Ack].first_seq


class Bench:
    """The switch with a source, a sink and two watchers at every port, and the model beside it."""

    def __init__(self, dut, stalls):
        rng = random.Random(cocotb.RANDOM_SEED)
        self.dut, ports = dut, range(CONFIG.ports)
        self.model = TreeSwitch(CONFIG, mac=bytes.fromhex(MAC.replace(":", "")), ip=bytes(map(int, ADDRESS.split("."))), seed=SEED)
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
        dut.own_mac.value, dut.own_ip.value = int.from_bytes(bench.model.own.mac, "little"), int.from_bytes(bench.model.own.ip, "little")
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
        """Gives the model the frames that the switch decides about, and compares the outcomes."""
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
        """Waits until nothing is left anywhere, compares what has left since the last time, and returns it by port."""
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
                assert [f for f in frames if sort(f) == kind] == [f for f in self.expected[port] if sort(f) == kind], (port, kind)
            for frame in frames:
                if sort(frame) != "ordinary":
                    checked(frame)
            self.sinks[port].frames.clear()
            self.expected[port].clear()
        assert not any(self.whole) and not any(handshake.inside for handshake in self.watched.values())
        return got

    def later(self, us: int) -> None:
        """Only between `settle` and the next frame: when exactly the switch looks at its clock is its own affair."""
        self.now_us += us
        self.dut.now_us.value = self.now_us

    async def read_all(self, worker: Worker) -> None:
        """All registers; `settle` compares them with the model's."""
        for register in range(0, REGISTERS, READ_STEP):
            self.put(worker.port, worker.read(register))
            await self.settle()


def sort(frame: bytes) -> str:
    """What a frame that left the switch is, by the class of its queue."""
    packet = Ether(frame)
    if packet.src != MAC or Header not in packet:
        return "ordinary"
    return "result" if packet[Header].type == 1 else "reply"


async def joined(bench: Bench, count: int) -> list[Worker]:
    workers = [Worker(index) for index in range(count)]
    for _ in range(3):  # asked, confirmed, running
        for worker in workers:
            bench.put(worker.port, worker.join(count))
            for frame in (await bench.settle())[worker.port]:
                worker.learn(frame)
    assert all(worker.token for worker in workers)
    return workers


def segment(rng: np.random.Generator, seq: int, length: int) -> np.ndarray:
    """Every third segment is int32, the others window64."""
    if seq % 3 == 0:
        return rng.integers(-2**31, 2**31, length).astype("<i4")
    return (rng.normal(size=length) * 10.0 ** rng.integers(-6, 3)).astype("<f4")


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_sums_equal_the_model(dut, stalls):
    """Two workers, both formats, every length around a word's and the segment's end, whole windows at a time; repeats
    while a slot collects and after it is complete."""
    bench = await Bench.start(dut, stalls)
    workers = await joined(bench, 2)
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    lengths = [1, 2, 3, 15, 16, 17, 31, CONFIG.elements - 1, CONFIG.elements, CONFIG.elements, 5, 4]
    for first in range(0, len(lengths), CONFIG.window):
        terms = {(worker.port, seq): segment(rng, seq, lengths[seq])
                 for seq in range(first, first + CONFIG.window) for worker in workers}
        frames = {(port, seq): workers[port].contribution(workers[port].first_seq + seq, numbers, behind=seq - first)
                  for (port, seq), numbers in terms.items()}
        for (port, seq), frame in frames.items():
            bench.put(port, frame)
            if seq % 4 == 1:
                bench.put(port, frame)
        got = await bench.settle()
        for worker in workers:  # not by the model alone
            results = {(h.seq - worker.first_seq) % 2**32: bytes(h.payload)[:-4]
                       for h in (Ether(frame)[Header] for frame in got[worker.port])}
            for seq in range(first, first + CONFIG.window):
                exact = np.sum([terms[0, seq].astype("f8"), terms[1, seq].astype("f8")], axis=0)
                if seq % 3 == 0:
                    assert results[seq] == (terms[0, seq] + terms[1, seq]).tobytes()
                else:
                    assert np.allclose(np.frombuffer(results[seq], "<f4"), exact, rtol=1e-6, atol=1e-12)
        bench.put(0, frames[0, first])
        assert len((await bench.settle())[0]) == 1  # the result again
    tainted = np.array([1, np.nan, 3], "<f4")
    for worker in workers:
        bench.put(worker.port, worker.contribution(worker.first_seq + len(lengths), tainted if worker.port else np.float32([1, 2, 3])))
    await bench.settle()
    await bench.read_all(workers[0])
    counts = bench.model
    assert counts.outcomes[Outcome.ADDED] == 2 * len(lengths) + 1 and counts.outcomes[Outcome.QUARANTINED] == 1
    assert counts.outcomes[Outcome.DUPLICATE] == 2 * len(lengths) // 4 + len(lengths) // CONFIG.window
    assert counts.stats[Stat.RESULTS] == len(lengths) + 1 and counts.stats[Stat.RESENT]


def spoilt(worker: Worker) -> list[Packet]:
    """A good contribution with one thing wrong each, for every outcome of a frame that is ours and refused."""
    seq, numbers = worker.first_seq, np.arange(10, dtype="<f4")
    good = lambda **fields: worker.contribution(seq, numbers, **fields)
    whole = lambda packet: packet.__class__(bytes(packet))  # with checksums filled in

    def altered(layer, **fields) -> Packet:
        packet = whole(good())
        for name, value in fields.items():
            setattr(packet[layer], name, value)
        return packet

    def refilled(layer, **fields) -> Packet:
        packet = altered(layer, **fields)
        packet[IP].chksum = packet[UDP].chksum = None
        return packet

    sums = whole(good())
    longer = Ether(bytes(good()) + bytes(4))  # bytes that no length counts
    return [
        altered(IP, chksum=sums[IP].chksum ^ 1), altered(UDP, chksum=sums[UDP].chksum ^ 0x100), altered(Header, seq=seq ^ 64),
        altered(IP, ttl=9), refilled(UDP, len=sums[UDP].len - 4), refilled(IP, len=sums[IP].len + 4), longer,
        refilled(IP, src="10.0.0.99"), refilled(UDP, sport=1), refilled(Ether, src="02:00:00:00:00:99"),
        good(version=2), good(type=2), good(type=1), good(format=FP32), good(format=0), good(behind=CONFIG.window),
        worker.contribution(seq - 1, numbers), worker.contribution(seq + 4 * CONFIG.window, numbers), worker.contribution(seq, np.empty(0, "<f4")),
        worker.contribution(seq, np.zeros(CONFIG.elements + 1, "<f4")), worker.packet(0, bytes(6), seq=seq, format=WINDOW64),
        worker.packet(3, bytes(4), seq=seq), worker.packet(5, bytes(60)),
        good(job=CONFIG.jobs), good(job=1), good(epoch=worker.epoch ^ 1), good(member=2), good(member=200), good(token=worker.token ^ 1),
    ]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_broken_frames_change_nothing(dut, stalls):
    """Frames with one thing wrong between the two contributions of a slot: each is counted, none is in the sum."""
    bench = await Bench.start(dut, stalls)
    workers = await joined(bench, 2)
    numbers = np.float32([1, -2, 0.5])
    bench.put(0, workers[0].contribution(workers[0].first_seq, numbers))
    for packet in spoilt(workers[0]):
        bench.put(0, packet)
        bench.put(0, workers[0].contribution(workers[0].first_seq, numbers), error=True)
    await bench.settle()
    for field in ({"job": 1}, {"epoch": workers[0].epoch ^ 1}, {"member": 3}, {"token": 5}):  # each with a notice, now
        bench.later(NOTICE_US)
        bench.put(0, workers[0].contribution(workers[0].first_seq, numbers, **field))
        await bench.settle()
    bench.put(1, workers[0].contribution(workers[0].first_seq, numbers))  # by the other's port
    frame = bytes(workers[1].contribution(workers[1].first_seq, numbers))
    bench.put(1, frame[:59])
    bench.put(1, frame[:8])
    bench.put(1, frame + bytes(CONFIG.frame_bytes_max + 1 - len(frame)))
    packet = Ether(frame)
    packet[UDP].chksum = 0  # none, which is allowed
    bench.put(1, packet)
    got = await bench.settle()
    assert [np.frombuffer(bytes(Ether(frames[0])[Header].payload)[:-4], "<f4").tolist() for frames in got] == [[2, -4, 1]] * 2
    await bench.read_all(workers[1])
    happened = {Outcome(kind) for kind, count in enumerate(bench.model.outcomes) if count}
    assert {Outcome.VERSION, Outcome.TYPE, Outcome.LENGTH, Outcome.IP_CHECKSUM, Outcome.UDP_CHECKSUM, Outcome.FORMAT, Outcome.WINDOW,
            Outcome.PORT, Outcome.ADDRESS, Outcome.JOB, Outcome.EPOCH, Outcome.MEMBER, Outcome.TOKEN} <= happened
    assert bench.model.stats[Stat.NOTICES] and bench.model.stats[Stat.NOTICES_SUPPRESSED]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_ordinary_frames_pass_unchanged(dut, stalls):
    """What is not ours, or only nearly, leaves by the other port byte for byte, while sums go on."""
    bench = await Bench.start(dut, stalls)
    workers = await joined(bench, 2)
    ether = lambda: Ether(src="02:00:00:00:00:77", dst="02:00:00:00:00:78")
    ours = lambda: address("02:00:00:00:00:77", "10.0.0.77", 7, switch_mac="02:00:00:00:00:78", switch_ip=ADDRESS) / Header() / Raw(bytes(64))
    fragment, options, elsewhere, other_port = (ours() for _ in range(4))
    fragment[IP].flags, options[IP].options = "MF", b"\x01\x01\x01\x01"
    elsewhere[IP].dst, other_port[UDP].dport = "10.0.0.2", 26962
    sizes = (60, 61, 63, 64, 65, 71, 72, 73, 1500, CONFIG.frame_bytes_max)
    frames = [ether() / ARP(), ether() / Dot1Q(vlan=5) / ours()[IP], fragment, options, elsewhere, other_port,
              ether() / IP(dst=ADDRESS, proto=6) / Raw(bytes(64)),
              *(ether() / Raw(bytes(k % 251 for k in range(size - 14))) for size in sizes)]
    for number, packet in enumerate(frames):
        port, frame = number % 2, bytes(packet).ljust(60, b"\0")
        bench.put(port, frame)
        for worker in workers:
            bench.put(worker.port, worker.contribution(worker.first_seq + number, np.float32([number, 1])))
        got = await bench.settle()
        assert [f for f in got[1 - port] if sort(f) == "ordinary"] == [frame]
        assert [f for f in got[port] if sort(f) == "ordinary"] == []
        assert all(sum(sort(f) == "result" for f in frames) == 1 for frames in got)
    await bench.read_all(workers[0])
    assert bench.model.outcomes[Outcome.ORDINARY] == len(frames)


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_stations_are_learnt_and_the_switch_answers(dut, stalls):
    """Two stations speak through the switch and to it, in the words of scapy, which also checks the answers."""
    bench = await Bench.start(dut, stalls)
    macs, ips = [f"02:00:00:00:01:{k:02x}" for k in range(3)], [f"10.0.1.{k}" for k in range(3)]
    ether = lambda source, to: Ether(src=macs[source], dst=to)
    port_of = [0, 1, 0]
    for source in range(3):
        bench.put(port_of[source], ether(source, "ff:ff:ff:ff:ff:ff") / Raw(bytes(46)))
        await bench.settle()
    for source, target in itertools.permutations(range(3), 2):
        bench.put(port_of[source], ether(source, macs[target]) / Raw(bytes(50 + source)))
        got = await bench.settle()
        assert [len(frames) for frames in got] == [int(port_of[target] == port != port_of[source]) for port in range(2)]
    for size in (0, 17, 18, 19, 22, 30, 500, 1472):
        ask = ether(1, MAC) / IP(src=ips[1], dst=ADDRESS, ttl=9) / ICMP(seq=size) / Raw(bytes(k % 251 for k in range(size)))
        bench.put(1, ask)
        [frame] = (await bench.settle())[1]
        reply = Ether(frame)
        wanted = Ether(src=MAC, dst=macs[1]) / IP(src=ADDRESS, dst=ips[1], ttl=9) / ICMP(type=0, seq=size) / ask[Raw]
        assert bytes(reply) == bytes(wanted).ljust(60, b"\0")
    bench.put(0, ether(0, "ff:ff:ff:ff:ff:ff") / ARP(hwsrc=macs[0], psrc=ips[0], pdst=ADDRESS))
    assert [Ether(frame)[ARP].hwsrc for frames in await bench.settle() for frame in frames] == [MAC]
    bench.put(0, ether(0, MAC) / IP(src=ips[0], dst=ADDRESS) / UDP(dport=7) / Raw(bytes(20)))
    bench.put(0, ether(0, "01:80:c2:00:00:0e") / Raw(bytes(46)))
    assert not any(await bench.settle())
    bench.later(305_000_000)
    bench.put(1, ether(1, macs[0]) / Raw(bytes(46)))
    assert [len(frames) for frames in await bench.settle()] == [1, 0]
    await bench.read_all(Worker(0))
    for outcome in (Outcome.FILTERED, Outcome.RESERVED, Outcome.ANSWERED, Outcome.UNANSWERED):
        assert bench.model.outcomes[outcome], outcome

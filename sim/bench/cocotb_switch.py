"""The emitted Verilog against the golden model (`cocotb_bench.py`), with sums, broken frames and ordinary traffic."""

import itertools

import cocotb
import numpy as np
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from iswitch.wire import VERSION, Outcome, Stat
from sim.bench.cocotb_bench import ADDRESS, FP32, MAC, WINDOW64, Bench, Worker, joined, sort
from sim.bench.cocotb_bus import bursts, none
from sim.bench.run_cocotb import CONFIG
from sim.bench.scapy_wire import Header, address

NOTICE_US = 100


def segment(rng: np.random.Generator, seq: int, length: int) -> np.ndarray:
    """Every third segment is int32, the others window64."""
    if seq % 3 == 0:
        return rng.integers(-(2**31), 2**31, length).astype("<i4")
    return (rng.normal(size=length) * 10.0 ** rng.integers(-6, 3)).astype("<f4")


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_sums_equal_the_model(dut, stalls):
    """Two workers, both formats, every length around the end of a word and of the segment, whole windows at a time;
    retransmissions while a slot collects and after it is complete."""
    bench = await Bench.start(dut, stalls)
    workers = await joined(bench, 2)
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    lengths = [1, 2, 3, 15, 16, 17, 31, CONFIG.elements - 1, CONFIG.elements, CONFIG.elements, 5, 4]
    for first in range(0, len(lengths), CONFIG.window):
        terms = {
            (worker.port, seq): segment(rng, seq, lengths[seq])
            for seq in range(first, first + CONFIG.window)
            for worker in workers
        }
        frames = {
            (port, seq): workers[port].contribution(workers[port].first_seq + seq, numbers, behind=seq - first)
            for (port, seq), numbers in terms.items()
        }
        for (port, seq), frame in frames.items():
            bench.put(port, frame)
            if seq % 4 == 1:
                bench.put(port, frame)
        got = await bench.settle()
        for worker in workers:  # not by the model alone
            results = {
                (h.seq - worker.first_seq) % 2**32: bytes(h.payload)[:-4]
                for h in (Ether(frame)[Header] for frame in got[worker.port])
            }
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
        bench.put(
            worker.port,
            worker.contribution(worker.first_seq + len(lengths), tainted if worker.port else np.float32([1, 2, 3])),
        )
    await bench.settle()
    await bench.read_all(workers[0])
    counts = bench.model
    assert counts.outcomes[Outcome.ADDED] == 2 * len(lengths) + 1 and counts.outcomes[Outcome.QUARANTINED] == 1
    assert counts.outcomes[Outcome.DUPLICATE] == 2 * len(lengths) // 4 + len(lengths) // CONFIG.window
    assert counts.stats[Stat.RESULTS] == len(lengths) + 1 and counts.stats[Stat.RESENT]


def spoilt(worker: Worker) -> list[Packet]:
    """Return good contributions with one error each, one for every outcome of a refused iswitch frame."""
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
        altered(IP, chksum=sums[IP].chksum ^ 1),
        altered(UDP, chksum=sums[UDP].chksum ^ 0x100),
        altered(Header, seq=seq ^ 64),
        altered(IP, ttl=9),
        refilled(UDP, len=sums[UDP].len - 4),
        refilled(IP, len=sums[IP].len + 4),
        longer,
        refilled(IP, src="10.0.0.99"),
        refilled(UDP, sport=1),
        refilled(Ether, src="02:00:00:00:00:99"),
        good(version=VERSION + 1),
        good(type=2),
        good(type=1),
        good(format=FP32),
        good(format=0),
        good(behind=CONFIG.window),
        worker.contribution(seq - 1, numbers),
        worker.contribution(seq + 4 * CONFIG.window, numbers),
        worker.contribution(seq, np.empty(0, "<f4")),
        worker.contribution(seq, np.zeros(CONFIG.elements + 1, "<f4")),
        worker.packet(0, bytes(6), seq=seq, format=WINDOW64),
        worker.packet(3, bytes(4), seq=seq),
        worker.packet(5, bytes(60)),
        good(job=CONFIG.jobs),
        good(job=1),
        good(epoch=worker.epoch ^ 1),
        good(member=2),
        good(member=200),
        good(token=worker.token ^ 1),
    ]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_broken_frames_change_nothing(dut, stalls):
    """Frames with one error each between the two contributions of a slot: each is counted, and none is in the sum."""
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
    results = [frames[-1] for frames in got]  # behind the notice on the frame by the other's port
    assert [np.frombuffer(bytes(Ether(frame)[Header].payload)[:-4], "<f4").tolist() for frame in results] == [
        [2, -4, 1]
    ] * 2
    await bench.read_all(workers[1])
    happened = {Outcome(kind) for kind, count in enumerate(bench.model.outcomes) if count}
    assert {
        Outcome.VERSION,
        Outcome.TYPE,
        Outcome.LENGTH,
        Outcome.IP_CHECKSUM,
        Outcome.UDP_CHECKSUM,
        Outcome.FORMAT,
        Outcome.WINDOW,
        Outcome.PORT,
        Outcome.ADDRESS,
        Outcome.JOB,
        Outcome.EPOCH,
        Outcome.MEMBER,
        Outcome.TOKEN,
    } <= happened
    assert bench.model.stats[Stat.NOTICES] and bench.model.stats[Stat.NOTICES_SUPPRESSED]


@cocotb.test()
@cocotb.parametrize(("stalls", [none, bursts]))
async def test_ordinary_frames_pass_unchanged(dut, stalls):
    """Frames that do not belong to iswitch, or nearly do, leave by the other port byte for byte, while sums go on."""
    bench = await Bench.start(dut, stalls)
    workers = await joined(bench, 2)
    ether = lambda: Ether(src="02:00:00:00:00:77", dst="02:00:00:00:00:78")
    ours = lambda: (
        address("02:00:00:00:00:77", "10.0.0.77", 7, switch_mac="02:00:00:00:00:78", switch_ip=ADDRESS)
        / Header()
        / Raw(bytes(64))
    )
    fragment, options, elsewhere, other_port = (ours() for _ in range(4))
    fragment[IP].flags, options[IP].options = "MF", b"\x01\x01\x01\x01"
    elsewhere[IP].dst, other_port[UDP].dport = "10.0.0.2", 26962
    sizes = (60, 61, 63, 64, 65, 71, 72, 73, 1500, CONFIG.frame_bytes_max)
    frames = [
        ether() / ARP(),
        ether() / Dot1Q(vlan=5) / ours()[IP],
        fragment,
        options,
        elsewhere,
        other_port,
        ether() / IP(dst=ADDRESS, proto=6) / Raw(bytes(64)),
        *(ether() / Raw(bytes(k % 251 for k in range(size - 14))) for size in sizes),
    ]
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
    """Two stations talk through the switch and to it, in scapy's frames; scapy also checks the answers."""
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
        ask = (
            ether(1, MAC)
            / IP(src=ips[1], dst=ADDRESS, ttl=9)
            / ICMP(seq=size)
            / Raw(bytes(k % 251 for k in range(size)))
        )
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

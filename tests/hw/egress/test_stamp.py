# amaranth: UnusedElaboratable=no
"""Addresses and checksums of replies, compared with the model and with scapy's."""

import random

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

import hw.egress.header_checksums
import hw.egress.stamp
from hw.egress.stamp import Stamp
from iswitch.golden.egress import compose
from iswitch.golden.interface.message import Source, SwitchAddress
from iswitch.wire import UDP_PORT, Reason, ones_complement_sum
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, from_words, to_words

PAYLOAD_AT = 42
OWN_HALVES = (10 << 8, 100)
"""Of the address 10.0.0.100."""


def number(octets):
    return int.from_bytes(octets, "little")


def hosts(seed=1, count=24):
    """Addresses whose sums carry once, twice and not, all ones and nearly none among them, and one that makes UDP's
    checksum zero."""
    rng = random.Random(seed)
    extremes = [bytes(4), b"\xff" * 4, b"\0\0\0\1", b"\xff\xff\0\0"]
    found = [
        (
            rng.randbytes(6),
            extremes[k] if k < len(extremes) else rng.randbytes(4),
            rng.choice([0, 1, 0xFFFF, rng.randrange(65536)]),
        )
        for k in range(count)
    ]
    lengths = [len(payload) + 8 for payload in payloads()]
    own, header = sum(OWN_HALVES), 0x4500 + 0x4000 + 0x4011 + lengths[4] + 20
    found[4] = (found[4][0], b"\xff\xff" + (0x1FFFF - 0xFFFF - own - header).to_bytes(2, "big"), found[4][2])
    host = int.from_bytes(found[5][1], "big")
    found[5] = (*found[5][:2], -(2 * lengths[5] + 17 + UDP_PORT + own + (host >> 16) + (host & 0xFFFF)) % 0xFFFF)
    return found


def payloads(count=24):
    for k in range(count):
        one = (
            compose.ack(job=0, epoch=7, seq=k, member=1, token=9, nonce=k)
            if k % 3
            else compose.notice(job=0, epoch=7, seq=k, member=1, token=9, reason=Reason.EPOCH)
        )
        yield one + bytes(8 * (k // 4))


def stamped(bus_bits, *, stamp=Stamp, gap=0, own=(b"\2\1\2\3\4\5", bytes([10, 0, 0, 100]))):
    """Words in, with `gap` cycles between frames; what should leave, what left, and the bench's times."""
    dut = stamp(bus_bits=bus_bits)
    bench = Bench(dut, inputs=[(dut.own_mac, number(own[0])), (dut.own_ip, number(own[1]))])
    items, expected = [], []
    for k, ((mac, ip, port), payload) in enumerate(zip(hosts(), payloads(), strict=True)):
        expected.append(
            compose.frame(SwitchAddress(own[0], own[1]), Source(k % 16, mac, int.from_bytes(ip, "big"), port), payload)
        )
        address = {"mac": number(mac), "ip": number(ip), "udp": number(port.to_bytes(2, "big"))}
        items += to_words(
            bytes(PAYLOAD_AT) + payload,
            bus_bits,
            meta={"port": k % 16, "length": len(expected[-1]), "address": address},
        )
    source = bench.source(dut.i, items, stalls=gap)
    sink = bench.sink(dut.o)
    assert bench.run(read=[dut.busy]) == [0]
    return expected, source, sink


@pytest.mark.parametrize("gap", [0.0, 0.5])
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_replies_leave_with_addresses_and_right_checksums(bus_bits, gap):
    expected, _, sink = stamped(bus_bits, gap=gap)
    frames = from_words(sink.items, bus_bits)
    assert frames == expected
    starts = [k == 0 or sink.items[k - 1].last for k in range(len(sink.items))]
    assert [bool(item.first) for item in sink.items] == starts
    for frame in frames:
        packet = Ether(frame)
        sums = packet[IP].chksum, packet[UDP].chksum
        del packet[IP].chksum, packet[UDP].chksum
        again = Ether(bytes(packet))
        assert (again[IP].chksum, again[UDP].chksum) == sums and ones_complement_sum(frame[PAYLOAD_AT:]) in (0, 0xFFFF)
    at = 0
    for k, frame in enumerate(frames):
        words = -(-len(frame) * 8 // bus_bits)
        assert {(item.meta.port, item.meta.length) for item in sink.items[at : at + words]} == {(k % 16, len(frame))}
        at += words


@pytest.mark.parametrize("own_ip", [bytes(4), b"\xff" * 4, b"\xff\xff\xff\xfe"])
def test_own_address_of_any_sum(own_ip):
    expected, _, sink = stamped(512, own=(b"\xff" * 6, own_ip))
    assert from_words(sink.items, 512) == expected


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_5_cycles_and_a_word_in_every_cycle(bus_bits):
    _, source, sink = stamped(bus_bits)
    assert source.times == list(range(source.times[0], source.times[0] + len(source.times)))
    assert sink.times == [came + 5 for came in source.times]


MUTANTS = {
    "address of the next frame": (
        "checksums.address.eq(stages[1].meta.address)",
        "checksums.address.eq(stages[0].meta.address)",
    ),
    "length of the next frame": (
        "checksums.length.eq(stages[0].meta.length)",
        "checksums.length.eq(self.i.payload.meta.length)",
    ),
    "first bytes of the next word": ("with m.If(valid[-2]):", "with m.If(valid[-3]):"),
}
CHECKSUM_MUTANTS = {
    "no carry around": ("fold_carries(m, ip_total)", "(ip_total[:16] + ip_total[16:])[:16]"),
    "a checksum of zero": ("~swapped(udp_sum) | is_zero.replicate(16)", "~swapped(udp_sum)"),
    "a later step of another frame": (
        "m.d.sync += [ip_total.eq(rest + hosts)",
        "m.d.sync += [ip_total.eq(ip_part + hosts)",
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_noticed(name):
    broken = mutant(hw.egress.stamp, *MUTANTS[name]).Stamp
    for bus_bits, gap in ((512, 0.0), (64, 0.5)):
        expected, _, sink = stamped(bus_bits, stamp=broken, gap=gap)
        if from_words(sink.items, bus_bits) != expected:
            return
    raise AssertionError("the mutant lives")


@pytest.mark.mutant
@pytest.mark.parametrize("name", CHECKSUM_MUTANTS)
def test_mutant_of_the_checksums_is_noticed(name, monkeypatch):
    broken = mutant(hw.egress.header_checksums, *CHECKSUM_MUTANTS[name]).HeaderChecksums
    monkeypatch.setattr(hw.egress.stamp, "HeaderChecksums", broken)
    expected, _, sink = stamped(512)
    assert from_words(sink.items, 512) != expected


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Stamp bus_bits must be 64, 256 or 512, not 100"):
        Stamp(bus_bits=100)

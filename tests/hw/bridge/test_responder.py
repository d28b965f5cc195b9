"""Requests become replies as they pass, and ordinary frames do not change."""

import pytest

import hw.bridge.responder
from hw.bridge.responder import Responder
from iswitch.config import Config
from iswitch.golden.bridge.responder import answer
from iswitch.golden.interface.message import SwitchAddress
from sim.bench.hosts import Host, arp_request, echo_request
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words
from sim.frames.client import SWITCH_IP, SWITCH_MAC, ordinary

OWN = SwitchAddress(SWITCH_MAC, SWITCH_IP)
HOST = Host(bytes.fromhex("020000000142"), bytes([10, 0, 2, 7]), 1)
SIZES = (60, 61, 63, 64, 65, 71, 72, 73, 95, 96, 97, 127, 128, 129, 1514)
BUSES = [64, 256, 512]


def number(octets: bytes) -> int:
    return int.from_bytes(octets, "little")


def cases() -> list[tuple[bytes, bytes, dict[str, int]]]:
    """Frame in, frame out, and the `HostReply` beside it. The other kind of reply in between, so that nothing is left
    over."""
    made = []
    for size in SIZES:
        arp, ping, other = (
            arp_request(HOST, SWITCH_IP, padding=size - 42),
            echo_request(HOST, bytes(k & 255 for k in range(size - 42))),
            ordinary(SWITCH_MAC, HOST.mac, size),
        )
        for frame in (arp, ping, other, ping, arp):
            reply = answer(frame, OWN)
            fields = {
                "valid": reply is not None,
                "is_arp": frame[12:14] == b"\x08\x06",
                "mac": number(HOST.mac),
                "ip": number(HOST.ip),
                "checksum": number((reply or frame)[36:38]),
            }
            made.append((frame, reply or frame, fields))
    return made


def check(component, bus_bits: int, stalls: float = 0):
    config = Config(ports=3, bus_bits=bus_bits, members=4, window=2, elements=32, queue_bytes=4096)
    dut = component(config)
    bench = Bench(dut, stalls=stalls, inputs=[(dut.own_mac, number(SWITCH_MAC)), (dut.own_ip, number(SWITCH_IP))])
    made = cases()
    items, beside = [], []
    for k, (frame, _, fields) in enumerate(made):
        for word in to_words(frame, bus_bits, first=True, meta={"ports": 1 + k % 7, "room": len(frame)}):
            items.append(word)
            beside.append([(dut.reply[name], int(value)) for name, value in fields.items()])
    source = bench.source(dut.i, items, beside=lambda k: beside[k])
    sink = bench.sink(dut.o)
    assert bench.run(read=[dut.busy]) == [0]
    assert from_words(sink.items, bus_bits) == [out for _, out, _ in made]
    assert [(item.meta.ports, item.meta.room) for item in sink.items if item.last] == [
        (1 + k % 7, len(frame)) for k, (frame, *_) in enumerate(made)
    ]
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_answers_are_the_models_and_everything_else_is_unchanged(bus_bits, stalls):
    check(Responder, bus_bits, stalls)


def test_latency_is_1_cycle_and_one_word_passes_each():
    source, sink = check(Responder, 256)
    assert (
        sink.times
        == [taken + 1 for taken in source.times]
        == list(range(sink.times[0], sink.times[0] + len(sink.times)))
    )


MUTANTS = [
    ("eth_src=self.own_mac, operation", "operation"),
    (", target_mac=mac", ""),
    (", target_ip=ip)", ")"),
    ("sender_ip=self.own_ip, ", ""),
    ("sender_mac=self.own_mac,", ""),
    ('operation=wire("0002"), ', ""),
    ("ip_src=self.own_ip, ", ""),
    (", ip_dst=ip", ""),
    (", type=0", ""),
    (", checksum=self.reply.checksum)", ")"),
    ("Mux(word.last, 0, ", "("),
    ("index == replaced_words, index, index + 1", "index == replaced_words, 0, index + 1"),
    ("with m.If(self.i.valid):", "if True:"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.bridge.responder, sound, wrong).Responder
    with pytest.raises(AssertionError):
        check(broken, 64, 0.5)

# amaranth: UnusedElaboratable=no
"""Which frames claim to come from the switch or from a group, bit by bit, against the golden model."""

import pytest

import hw.bridge.spoofing
from hw.bridge.spoofing import SpoofDetector
from iswitch.golden.bridge.spoofing import is_group_source, is_spoofed
from iswitch.golden.interface.message import SwitchAddress
from sim.bench.hosts import Host, spoilt, spoofed
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

OWN = SwitchAddress(SWITCH_MAC, SWITCH_IP)
HOST = Host(bytes.fromhex("020000000142"), bytes([10, 0, 2, 7]), 3)
TAGS = [(), ("8100",), ("88a8",), ("88a8", "8100"), ("8100", "8100")]
MANY = [("8100", "88a8", "8100"), ("8100",) * 5]
"""More tags than the switch looks behind."""
BEYOND = [("9100",), ("88a8", "9100")]
"""Tags of other EtherTypes."""


def spoofs() -> list[bytes]:
    """Frames from the switch's MAC address, or its IPv4 address behind tags."""
    return [ordinary(HOST.mac, SWITCH_MAC)] + [
        spoofed(HOST, tags=tags, arp=arp) for tags in TAGS + MANY for arp in (0, 1)
    ]


def sound() -> list[bytes]:
    """Frames that are no spoofs, among them those that only name the switch's addresses in other places."""
    behind = [spoofed(HOST, tags=tags, arp=arp) for tags in BEYOND for arp in (0, 1)]
    other = [spoofed(HOST, tags=tags, arp=arp, ip=HOST.ip) for tags in TAGS for arp in (0, 1)]
    return behind + other + [ordinary(SWITCH_MAC, HOST.mac), Client.numbered(1).read(0)]


def groups() -> list[bytes]:
    """Messages of which some come from a group."""
    client = Client.numbered(1)
    sources = [bytes([first, 1, 2, 3]) for first in (10, 127, 128, 191, 192, 223, 224, 239, 240, 255)]
    frame = client.read(0)
    return [frame[:26] + ip + frame[30:] for ip in sources] + [
        frame[:6] + mac + frame[12:] for mac in (b"\xff" * 6, b"\1" + bytes(5), b"\2" + b"\xff" * 5, bytes(6))
    ]


def check(component=SpoofDetector) -> None:
    dut = component()
    near = [spoilt(frame, at, bit) for frame in spoofs() for at in range(6, 46) for bit in range(8)]

    async def bench(ctx):
        ctx.set(dut.own_mac, int.from_bytes(SWITCH_MAC, "little"))
        ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
        for frame in (*spoofs(), *sound(), *groups(), *near):
            ctx.set(dut.frame.as_value(), int.from_bytes(frame[:64], "little"))
            assert ctx.get(dut.is_own) == is_spoofed(frame, OWN), frame.hex()
            assert ctx.get(dut.is_group) == is_group_source(frame), frame.hex()

    Bench(dut).drive(bench)


def test_the_model_finds_spoofs_behind_two_tags_or_with_more_of_them_and_nothing_else():
    assert all(is_spoofed(frame, OWN) for frame in spoofs())
    assert not any(is_spoofed(frame, OWN) for frame in (*sound(), *groups()))
    assert [is_group_source(frame) for frame in groups()] == [False] * 6 + [True] * 4 + [True, True, False, False]


def test_the_detector_finds_what_the_model_finds_and_nothing_a_bit_away():
    check()


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("TAG_BYTES, TAGS_MAX = 4, 2", "TAG_BYTES, TAGS_MAX = 4, 1"),
        ("TAG_BYTES, TAGS_MAX = 4, 2", "TAG_BYTES, TAGS_MAX = 4, 3"),
        ('(wire("8100"), wire("88a8"))', '(wire("8100"),)'),
        ("tagged & (type == kind) &", "(type == kind) &"),
        ("(type == kind) & ", ""),
        ("(source == self.own_mac) | ", ""),
        ('ARP.fields["sender_ip"]', 'ARP.fields["target_ip"]'),
        (" | tagged),", "),"),
        ("source[0] | ", ""),
        ("MULTICAST_IP = 0b111", "MULTICAST_IP = 0b110"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    with pytest.raises(AssertionError):
        check(mutant(hw.bridge.spoofing, sound, wrong).SpoofDetector)

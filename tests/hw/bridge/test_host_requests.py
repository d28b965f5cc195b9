# amaranth: UnusedElaboratable=no
"""Which frames the switch answers, bit by bit, against the golden model."""

import pytest

import hw.bridge.host_requests
from hw.bridge.host_requests import HostRequests
from iswitch.golden.bridge.responder import answer
from iswitch.golden.interface.message import SwitchAddress
from iswitch.wire import ones_complement_sum
from sim.bench.hosts import BROADCAST, Host, arp_request, echo_request, spoilt
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

OWN = SwitchAddress(SWITCH_MAC, SWITCH_IP)
HOST = Host(bytes.fromhex("020000000142"), bytes([10, 0, 2, 7]), 3)
OTHER_IP = bytes([10, 0, 0, 2])
CHECKSUM_AT = 36


def cases() -> list[bytes]:
    arps = [
        arp_request(HOST, SWITCH_IP),
        arp_request(HOST, SWITCH_IP, to=SWITCH_MAC),
        arp_request(HOST, SWITCH_IP, padding=1472),
    ]
    pings = [echo_request(HOST, bytes(range(size))) for size in (0, 1, 17, 18, 19, 64)] + [
        echo_request(HOST, bytes(1472)),
        echo_request(HOST, b"x" * 30, padding=7),
    ]
    others = [
        arp_request(HOST, OTHER_IP),
        arp_request(HOST, SWITCH_IP, to=HOST.mac),
        echo_request(HOST, b"", ip=OTHER_IP),
        echo_request(HOST, b"", to=BROADCAST),
        echo_request(HOST, b"", to=HOST.mac),
        ordinary(SWITCH_MAC, HOST.mac),
        Client.numbered(1).read(0),
    ]
    near = [
        spoilt(frame, at, bit, again=again)
        for frame in (arps[1], pings[3], pings[-1])
        for at in range(42)
        for bit in range(8)
        for again in (True, False)
    ]
    # IPv4 lengths around 28 and around what is there.
    short = [spoilt(frame, 17, bit) for frame in pings for bit in range(8)]
    exact = [echo_request(HOST, bytes(18))[:60], echo_request(HOST, bytes(19))[:60], echo_request(HOST, bytes(20))[:61]]
    sums = [
        frame[:CHECKSUM_AT] + value.to_bytes(2, "big") + frame[CHECKSUM_AT + 2 :]
        for frame in pings[:1]
        for value in (0, 1, 0x07FF, 0x0800, 0x0801, 0xF7FE, 0xF7FF, 0xF800, 0xF801, 0xFFFE, 0xFFFF)
    ]
    return arps + pings + others + near + short + exact + sums


def check(component=HostRequests) -> int:
    """Compares the answers to all cases; returns how many there are."""
    dut = component()
    answers = 0

    async def bench(ctx):
        nonlocal answers
        ctx.set(dut.own_mac, int.from_bytes(SWITCH_MAC, "little"))
        ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
        for frame in cases():
            ctx.set(dut.headers.frame.as_value(), int.from_bytes(frame[:64], "little"))
            ctx.set(dut.headers.arrival.scan.length, len(frame))
            ctx.set(dut.headers.arrival.scan.ip_good, ones_complement_sum(frame[14:34]) == 0xFFFF)
            reply = answer(frame, OWN)
            assert bool(ctx.get(dut.reply.valid)) == (reply is not None), frame.hex()
            if reply:
                answers += 1
                arp = reply[12:14] == b"\x08\x06"
                assert ctx.get(dut.reply.is_arp) == arp
                got = [
                    ctx.get(dut.reply[name]).to_bytes(size, "little")
                    for name, size in (("mac", 6), ("ip", 4), ("checksum", 2))
                ]
                assert got[:2] == ([reply[:6], reply[38:42]] if arp else [reply[:6], reply[30:34]])
                assert arp or got[2] == reply[CHECKSUM_AT : CHECKSUM_AT + 2]

    Bench(dut).drive(bench)
    return answers


def test_the_switch_answers_what_the_model_answers_and_nothing_a_bit_away():
    assert check() > 200


MUTANTS = [
    ("(to_us | to_all)", "1"),
    ("(to_us | to_all)", "to_us"),
    ("to_us & (from_big_endian(echo.eth_type)", "(from_big_endian(echo.eth_type)"),
    (' & (value(arp.operation) == wire("0001"))', ""),
    ("& (value(arp.target_ip) == self.own_ip) & ~value", "& ~value"),
    (" & ~value(arp.sender_mac)[0]", ""),
    (" & ~value(echo.eth_src)[0]", ""),
    ("(from_big_endian(echo.eth_type) == ETHERTYPE_IPV4) & ", ""),
    (" & (echo.ip_version_ihl == IPV4_VERSION_IHL)", ""),
    ("& IPV4_FRAGMENT_MASK", "& 0x1FFF"),
    ("& IPV4_FRAGMENT_MASK", "& 0xFFFF"),
    ("& (echo.ip_protocol == IP_PROTOCOL_ICMP) ", ""),
    ("& scan.ip_good ", ""),
    ("(length >= ECHO", "(length > ECHO"),
    (" & (length >= ECHO.itemsize - IP_AT)", ""),
    ("(length <= scan", "(length < scan"),
    (" & (length <= scan.length - IP_AT)", ""),
    ("(value(echo.ip_dst) == self.own_ip) & ", ""),
    ("(echo.type == 8) & ", ""),
    ("(echo.code == 0) & ", ""),
    ("total[:16] + total[16])", "total[:16])"),
    ("Mux(is_arp_request, value(arp.sender_mac), value(echo.eth_src))", "value(arp.eth_src)"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.bridge.host_requests, sound, wrong).HostRequests
    with pytest.raises(AssertionError):
        check(broken)

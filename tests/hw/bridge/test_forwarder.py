"""Routes against the golden switch's, for what stations say and ask, with no cycle between them and with some."""

import numpy as np
import pytest

import hw.bridge.forwarder
from hw.bridge.forwarder import Forwarder
from iswitch.config import Config
from iswitch.golden.switch import Switch
from iswitch.wire import Outcome, ones_complement_sum
from sim.bench.hosts import Hosts, arp_request, echo_request
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

CONFIG = Config(ports=3, bus_bits=64, members=4, window=2, elements=16, queue_bytes=4096, mac_entries=64)


def check(component, *, seed: int, pauses: bool, count: int = 500, frames=(), links: int = -1) -> list[Outcome]:
    """The outcomes of `frames` and `count` random frames, each with the ports it must leave by."""
    dut, model = component(CONFIG), Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    rng = np.random.default_rng(seed)
    hosts, fates = Hosts(CONFIG, rng), []
    near = [
        (0, SWITCH_MAC + SWITCH_MAC + frame[12:])
        for frame in (echo_request(hosts.hosts[0], bytes(18)), arp_request(hosts.hosts[0], SWITCH_IP))
    ]
    near += [
        (0, ordinary(bytes.fromhex(to), hosts.hosts[0].mac))
        for to in (
            "0180c2000000",
            "0180c2000001",
            "0180c200000f",
            "0180c2000010",
            "0180c20000f0",
            "0180c2000100",
            "0080c2000000",
        )
    ]

    async def bench(ctx):
        ctx.set(dut.own_mac, int.from_bytes(SWITCH_MAC, "little"))
        ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
        ctx.set(dut.link, links)
        while not ctx.get(dut.wiped):
            await ctx.tick()
        for port, frame in [*near, *frames, *(hosts.frame(200) for _ in range(count))]:
            ctx.set(dut.headers.frame.as_value(), int.from_bytes(frame[:64], "little"))
            ctx.set(dut.headers.arrival.port, port)
            ctx.set(dut.headers.arrival.scan.length, len(frame))
            ctx.set(dut.headers.arrival.scan.ip_good, ones_complement_sum(frame[14:34]) == 0xFFFF)
            ctx.set(dut.lookup, 1)
            ctx.set(dut.takes, bool(fates))  # the frame before
            await ctx.tick()
            ctx.set(dut.lookup, 0)
            ctx.set(dut.takes, 0)
            ctx.set(dut.headers.frame.as_value(), int.from_bytes(rng.bytes(64), "little"))
            ctx.set(dut.headers.arrival.port, int(rng.integers(16)))
            for linked in range(CONFIG.ports):
                model.set_link(linked, bool(links >> linked & 1))
            before = list(model.outcomes)
            ports = {egress for egress, _ in model.receive(port, frame, 0)}
            fates.append(next(kind for kind in Outcome if model.outcomes[kind] != before[kind]))
            if fates[-1] == Outcome.ANSWERED:
                ports = {port}  # the port itself discards the answer if it has no link
            for _ in range(1 + int(rng.integers(4)) * pauses):
                await ctx.tick()
            assert ctx.get(dut.route.outcome) == fates[-1]
            assert {p for p in range(CONFIG.ports) if ctx.get(dut.route.ports) >> p & 1} == ports
            assert ctx.get(dut.route.host_reply.valid) == (fates[-1] == Outcome.ANSWERED)

    Bench(dut).drive(bench)
    return fates


@pytest.mark.parametrize("pauses", [False, True])
def test_routes_are_the_models(pauses):
    fates = check(Forwarder, seed=1 + pauses, pauses=pauses)
    assert set(fates) == {
        Outcome.ORDINARY,
        Outcome.FILTERED,
        Outcome.RESERVED,
        Outcome.ANSWERED,
        Outcome.UNANSWERED,
        Outcome.SPOOFED,
    }


def test_no_frame_is_flooded_to_a_port_without_a_link():
    assert Outcome.ORDINARY in check(Forwarder, seed=3, pauses=False, links=0b101)


def storm():
    """Broadcasts beyond a full bucket, then BPDUs beyond the reserve, and other ports' broadcasts."""
    station, other = bytes([2, 0, 0, 0, 0, 9]), bytes([2, 0, 0, 0, 0, 8])
    bpdu = ordinary(bytes.fromhex("0180c2000000"), other)
    return [
        *[(1, ordinary(b"\xff" * 6, station))] * 1000,
        *[(1, bpdu)] * 40,
        (1, ordinary(other, station)),
        (2, ordinary(b"\xff" * 6, bytes([2, 0, 0, 0, 0, 7]))),
    ]


def check_storm(component):
    fates = check(component, seed=1, pauses=False, count=60, frames=storm())[-1102:]
    assert 3 <= fates[:1000].count(Outcome.FLOOD_LIMITED) <= 20
    assert fates[1000:1040] == [Outcome.ORDINARY] * 31 + [Outcome.FLOOD_LIMITED] * 9
    assert fates[1041] == Outcome.ORDINARY


def test_a_storm_is_limited_and_bpdus_pass_during_it():
    check_storm(Forwarder)


STORM_MUTANTS = [
    ("Mux(bpdu, flood_limit.admits_bpdu, flood_limit.admits)", "flood_limit.admits"),
    ("Mux(bpdu, flood_limit.admits_bpdu, flood_limit.admits)", "flood_limit.admits_bpdu"),
    ("self.takes & floods", "floods"),
    ("self.takes & floods", "self.takes"),
    ("flood_limit.port.eq(ingress)", "flood_limit.port.eq(0)"),
    ("m.Elif(may_flood)", "m.Elif(1)"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), STORM_MUTANTS)
def test_check_notices_a_mutant_in_the_limit(sound, wrong):
    broken = mutant(hw.bridge.forwarder, sound, wrong).Forwarder
    with pytest.raises(AssertionError):
        check_storm(broken)


def check_corrupt(component) -> None:
    """A frame from station A, with a bit error or without, then one to A, from B."""
    a, b = (bytes([2, 0, 0, 0, 0, number]) for number in (8, 9))
    for corrupt in (True, False):
        dut, found = component(CONFIG), []

        async def bench(ctx):
            ctx.set(dut.own_mac, int.from_bytes(SWITCH_MAC, "little"))
            ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
            while not ctx.get(dut.wiped):
                await ctx.tick()
            host = Client.numbered(7)
            for port, frame, damaged in (
                (1, ordinary(b"\xff" * 6, a), corrupt),
                (1, arp_request(host, SWITCH_IP), corrupt),
                (1, SWITCH_MAC * 2 + bytes(48), corrupt),
                (2, ordinary(a, b), False),
            ):
                ctx.set(dut.headers.frame.as_value(), int.from_bytes(frame[:64], "little"))
                ctx.set(dut.headers.arrival.port, port)
                ctx.set(dut.headers.arrival.scan.length, len(frame))
                ctx.set(dut.headers.corrupt, damaged)
                ctx.set(dut.lookup, 1)
                await ctx.tick()
                ctx.set(dut.lookup, 0)
                await ctx.tick().repeat(4)
                route = ctx.get(dut.route)
                found.append((route.outcome, route.ports, route.host_reply.valid))

        Bench(dut).drive(bench)
        if corrupt:
            assert found == [(Outcome.CORRUPT, 0, 0)] * 3 + [(Outcome.ORDINARY, 0b011, 0)]
        else:
            assert [outcome for outcome, *_ in found] == [
                Outcome.ORDINARY,
                Outcome.ANSWERED,
                Outcome.SPOOFED,
                Outcome.ORDINARY,
            ]
            assert found[3] == (Outcome.ORDINARY, 0b010, 0)


def test_a_frame_whose_headers_have_a_bit_error_is_dropped_and_its_sender_not_learnt():
    check_corrupt(Forwarder)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("table.learn.eq(~self.headers.corrupt)", "table.learn.eq(1)"),
        ("m.If(corrupt)", "m.If(0)"),
        ("corrupt.eq(self.headers.corrupt)", "corrupt.eq(1)"),
        ("Outcome.CORRUPT), route.host_reply.valid.eq(0)", "Outcome.CORRUPT)"),
    ],
)
def test_check_notices_a_mutant_of_the_bit_errors(sound, wrong):
    with pytest.raises(AssertionError):
        check_corrupt(mutant(hw.bridge.forwarder, sound, wrong).Forwarder)


MUTANTS = [
    ("destination[:40] == RESERVED", "destination[8:40] == RESERVED >> 8"),
    (" & (destination[44:] == 0)", ""),
    (" & (destination[40:44] != 0)", ""),
    ("table.up & ~(1 << ingress)", "~(1 << ingress)"),
    ("1 << ingress)]\n        with m.Elif(to_us)", "1)]\n        with m.Elif(to_us)"),
    ("m.Elif(to_us)", "m.Elif(0)"),
    ("m.Elif(reserved)", "m.Elif(0)"),
    ("table.known & (table.port == ingress)", "table.port == ingress"),
    ("table.known & (table.port == ingress)", "0"),
    ("1 << table.port)", "~0)"),
    ("table.up & ~(1 << ingress)", "table.up"),
    ("[ingress.eq(port), ", "["),
    ("m.Elif(table.known)", "m.Elif(0)"),
    ("m.Elif(self.spoofed)", "m.Elif(0)"),
    ("Outcome.SPOOFED), route.host_reply.valid.eq(0)", "Outcome.SPOOFED)"),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.bridge.forwarder, sound, wrong).Forwarder
    with pytest.raises(AssertionError):
        check(broken, seed=1, pauses=False)
        check(broken, seed=3, pauses=False, links=0b101)

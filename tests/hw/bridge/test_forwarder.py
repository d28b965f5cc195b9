"""Routes against the golden switch's, for what stations say and ask, with no cycle between them and with some."""

import numpy as np
import pytest

import hw.bridge.forwarder
from hw.bridge.forwarder import Forwarder
from iswitch.config import Config
from iswitch.wire import Outcome, ones_complement_sum
from sim.bench.hosts import Hosts, arp_request, echo_request
from sim.bench.mutant import mutant
from sim.bench.stream import Bench
from sim.frames.client import SWITCH_IP, SWITCH_MAC, ordinary
from sim.model.switch import Switch

CONFIG = Config(ports=3, bus_bits=64, members=4, window=2, elements=16, queue_bytes=4096, mac_entries=64)


def check(component, *, seed: int, pauses: bool, count: int = 500) -> list[Outcome]:
    """The outcomes of `count` random frames, each with the ports it must leave by."""
    dut, model = component(CONFIG), Switch(CONFIG, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    rng = np.random.default_rng(seed)
    hosts, fates = Hosts(CONFIG, rng), []
    near = [
        (0, SWITCH_MAC + SWITCH_MAC + frame[12:])
        for frame in (echo_request(hosts.hosts[0], bytes(18)), arp_request(hosts.hosts[0], SWITCH_IP))
    ]
    near += [
        (0, ordinary(bytes.fromhex(to), hosts.hosts[0].mac))
        for to in ("0180c2000010", "0180c20000f0", "0180c2000100", "0080c2000000")
    ]

    async def bench(ctx):
        ctx.set(dut.own_mac, int.from_bytes(SWITCH_MAC, "little"))
        ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
        while not ctx.get(dut.wiped):
            await ctx.tick()
        for port, frame in [*near, *(hosts.frame(200) for _ in range(count))]:
            ctx.set(dut.headers.frame.as_value(), int.from_bytes(frame[:64], "little"))
            ctx.set(dut.headers.arrival.port, port)
            ctx.set(dut.headers.arrival.scan.length, len(frame))
            ctx.set(dut.headers.arrival.scan.ip_good, ones_complement_sum(frame[14:34]) == 0xFFFF)
            ctx.set(dut.lookup, 1)
            await ctx.tick()
            ctx.set(dut.lookup, 0)
            ctx.set(dut.headers.frame.as_value(), int.from_bytes(rng.bytes(64), "little"))
            ctx.set(dut.headers.arrival.port, int(rng.integers(16)))
            before = list(model.outcomes)
            ports = {egress for egress, _ in model.receive(port, frame, 0)}
            fates.append(next(kind for kind in Outcome if model.outcomes[kind] != before[kind]))
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


MUTANTS = [
    ("destination[:40] == RESERVED", "destination[8:40] == RESERVED >> 8"),
    (" & (destination[44:] == 0)", ""),
    ("1 << ingress)]\n        with m.Elif(to_us)", "1)]\n        with m.Elif(to_us)"),
    ("m.Elif(to_us)", "m.Elif(0)"),
    ("m.Elif(reserved)", "m.Elif(0)"),
    ("table.known & (table.port == ingress)", "table.port == ingress"),
    ("table.known & (table.port == ingress)", "0"),
    ("1 << table.port)", "~0)"),
    ("~(1 << ingress)", "~0"),
    ("[ingress.eq(port), ", "["),
    ("m.Elif(table.known)", "m.Elif(0)"),
    ("m.If(self.spoofed)", "m.If(0)"),
    (" & ~spoofing.is_own", ""),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS)
def test_check_notices_a_mutant_in_the_logic(sound, wrong):
    broken = mutant(hw.bridge.forwarder, sound, wrong).Forwarder
    with pytest.raises(AssertionError):
        check(broken, seed=1, pauses=False)

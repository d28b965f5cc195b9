# amaranth: UnusedElaboratable=no
"""What every board puts around the switch: time against exact integers, leds, addresses."""

import numpy as np
import pytest
from amaranth.sim import Simulator

import hw.board.shell
from hw.board.shell import Microseconds, parse_operator_key, wire_order
from iswitch.config import Config
from sim.bench.mutant import mutant
from sim.bench.stream import pack, to_words
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client, ordinary

CONFIG = Config(
    ports=2,
    bus_bits=64,
    members=2,
    jobs=2,
    window=2,
    elements=32,
    queue_bytes=4096,
    mac_entries=64,
    staleness=0,
    uplinks=False,
)
LIT_US = 40


@pytest.mark.parametrize(
    "clock_hz",
    [1_000_000, 1_000_001, 1_999_999, 2_000_000, 37_500_000, 50_000_000, 66_666_667, 125_000_000, 322_265_625],
)
def test_microseconds_are_those_of_exact_integers(clock_hz):
    dut, cycles = Microseconds(clock_hz=clock_hz), 3000
    found, ticks = [], []

    async def bench(ctx):
        for _ in range(cycles):
            ticks.append(ctx.get(dut.tick))
            await ctx.tick()
            found.append(ctx.get(dut.now))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [n * 1_000_000 // clock_hz for n in range(1, cycles + 1)]
    assert sum(ticks) == found[-1]


@pytest.mark.parametrize("clock_hz", [999_999, 0, -5, 1_000_000.5])
def test_microseconds_clock_hz_wrong(clock_hz):
    with pytest.raises(ValueError, match="Microseconds clock_hz must be a whole number of at least 1,000,000, not"):
        Microseconds(clock_hz=clock_hz)


def test_wire_order_has_the_first_byte_lowest():
    assert wire_order("02:69:73:77:00:01") == 0x010077736902
    assert wire_order("10.0.0.100") == 0x6400000A
    assert wire_order("255.255.255.255") == 0xFFFFFFFF and wire_order("00:00:00:00:00:00") == 0


@pytest.mark.parametrize(
    "address", ["10.0.0", "10.0.0.256", "02:69:73:77:00", "02:69:73:77:00:100", "10.0.0.1.2", "", "name", "1.2.3.-4"]
)
def test_wire_order_address_wrong(address):
    with pytest.raises(ValueError):
        wire_order(address)


def leds(shell_module, monkeypatch):
    """Of each led and cycle, while at cycle 100 a frame comes by port 0, at 400 a damaged one by port 1, from 700 on
    a worker joins and at 1600 sends its only contribution; the clock is of 1 MHz."""
    monkeypatch.setattr(shell_module, "LIT_US", LIT_US)
    dut = shell_module.Shell(CONFIG, clock_hz=1_000_000)
    worker, found = Client.numbered(1, port=0), []

    async def bench(ctx):
        ctx.set(dut.own_mac, int.from_bytes(SWITCH_MAC, "little"))
        ctx.set(dut.own_ip, int.from_bytes(SWITCH_IP, "little"))
        ctx.set(dut.link, 0b11)
        got = []

        async def cycle():
            for port in range(2):
                ctx.set(dut.tx[port].ready, 1)
            if ctx.get(dut.tx[0].valid):
                word = ctx.get(dut.tx[0].payload)
                got.append(int(word.data).to_bytes(8, "little")[: word.count])
                if word.last:
                    worker.take(b"".join(got))
                    got.clear()
            found.append(ctx.get(dut.leds))
            await ctx.tick()

        async def send(port, frame, error=False):
            for word in to_words(frame, 64, error=error):
                ctx.set(
                    dut.rx[port].payload,
                    dut.rx[port].payload.shape().from_bits(pack(dut.rx[port].payload.shape(), word)),
                )
                ctx.set(dut.rx[port].valid, 1)
                while not ctx.get(dut.rx[port].ready):
                    await cycle()
                await cycle()
            ctx.set(dut.rx[port].valid, 0)

        async def until(count):
            while len(found) < count:
                await cycle()

        await until(100)
        await send(0, ordinary(b"\1" * 6, b"\2" * 6))
        await until(400)
        await send(1, ordinary(b"\1" * 6, b"\2" * 6), error=True)
        await until(700)
        await send(0, worker.join(world=1, elements=32))
        for begin in (1000, 1300):
            await until(begin)
            await send(0, worker.join())
        await until(1600)
        await send(0, worker.contribution(worker.first_seq, np.ones(32, np.float32)))
        await until(2000)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return [[row >> led & 1 for row in found] for led in range(4)]


def spans(led, value):
    """Where a led has the value, from and to."""
    edges = [k for k in range(1, len(led)) if led[k] != led[k - 1]]
    return [(a, b) for a, b in zip([0, *edges], [*edges, len(led)], strict=True) if led[a] == value]


def check(shell_module, monkeypatch):
    link_0, link_1, added, lost = leds(shell_module, monkeypatch)
    dark = [begin for begin, _ in spans(link_0, 0)[1:]]
    assert len(dark) == 5 and all(
        0 < begin - sent < 60 for begin, sent in zip(dark, (100, 700, 1000, 1300, 1600), strict=True)
    )
    assert [end - begin for begin, end in spans(link_0, 0)[1:]] == [LIT_US] * 5
    assert [end - begin for begin, end in spans(link_1, 0)[1:]] == [LIT_US]
    assert [end - begin for begin, end in spans(lost, 1)] == [LIT_US] and 400 < spans(lost, 1)[0][0] < 430
    assert [end - begin for begin, end in spans(added, 1)] == [LIT_US] and spans(added, 1)[0][0] > 1600


def test_leds_show_links_frames_contributions_and_losses(monkeypatch):
    check(hw.board.shell, monkeypatch)


@pytest.mark.mutant
def test_a_light_that_shows_another_thing_is_noticed(monkeypatch):
    with pytest.raises(AssertionError):
        check(mutant(hw.board.shell, "== Outcome.ADDED", "== Outcome.CONTROL"), monkeypatch)


@pytest.mark.parametrize(("text", "key"), [("0", 0), ("17", 17), ("0xFFFFffffFFFFffff", 2**64 - 1)])
def test_an_operator_key_is_read_from_decimal_or_hexadecimal_digits(text, key):
    assert parse_operator_key(text) == key


@pytest.mark.parametrize("text", ["-1", "0x1FFFFffffFFFFffff", "1e3", "deadbeef", ""])
def test_a_wrong_operator_key_is_refused_and_not_printed(text):
    with pytest.raises(ValueError, match=r"operator key must be 0 to 2\^64 - 1") as refused:
        parse_operator_key(text)
    assert not text or text not in str(refused.value)

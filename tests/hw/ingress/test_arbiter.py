# amaranth: UnusedElaboratable=no
"""Ports into the shared pipeline: complete frames, round robin, no cycle lost."""

import random
from itertools import pairwise

import pytest

from hw.ingress.arbiter import Arbiter
from sim.bench.stream import STALLS, Bench, from_words, to_words


def frame(port, number, size):
    """A frame that says where it comes from."""
    return bytes([port, number]) + bytes(size - 2)


def run(frames, *, bus_bits=256, stalls=0, starts=None):
    """`frames` by port; returns the lane's sink, the frames in their order and the ports that they are said to come
    from."""
    dut = Arbiter(ports=len(frames), bus_bits=bus_bits, cycles_max=60)
    bench = Bench(dut, stalls=stalls)
    for port, own in enumerate(frames):
        start = starts[port] if starts else 0
        bench.source(
            dut.frames[port], [word for one in own for word in to_words(one, bus_bits, parity=True)], start=start
        )
        bench.source(dut.scans[port], [{"length": len(one), "exponent": one[1]} for one in own], start=start)
    sink = bench.sink(dut.o)
    bench.run()
    arrivals = [item.meta for item in sink.items if item.last]
    out = from_words(sink.items, bus_bits)
    for item, other in pairwise(sink.items):
        assert item.last or item.meta == other.meta, "Arrival must be constant over the frame"
    assert [(one[0], one[1], len(one)) for one in out] == [
        (arrival.port, arrival.scan.exponent, arrival.scan.length) for arrival in arrivals
    ]
    return sink, out


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", [64, 256, 512])
@pytest.mark.parametrize("ports", [1, 2, 5])
def test_every_frame_comes_through_whole_and_in_its_ports_order(ports, bus_bits, stalls):
    rng = random.Random(ports)
    frames = [[frame(port, k, rng.choice((60, 63, 64, 65, 128, 130))) for k in range(4)] for port in range(ports)]
    _, out = run(frames, bus_bits=bus_bits, stalls=stalls)
    assert [[one for one in out if one[0] == port] for port in range(ports)] == frames


@pytest.mark.parametrize("stalls", STALLS)
def test_ports_take_turns_while_all_have_frames(stalls):
    frames = [[frame(port, k, 60 + 40 * port) for k in range(5)] for port in range(4)]
    dut = Arbiter(ports=4, bus_bits=256, cycles_max=60)
    bench = Bench(dut)
    for port, own in enumerate(frames):
        bench.source(dut.frames[port], [word for one in own for word in to_words(one, 256, parity=True)])
        bench.source(dut.scans[port], [{"length": len(one)} for one in own])
    sink = bench.sink(dut.o, stalls=stalls)
    bench.run()
    served = [item.meta.port for item in sink.items if item.last]
    assert served == [0, 1, 2, 3] * 5


def test_short_frames_have_turns_of_several():
    frames = [[frame(port, k, 68) for k in range(8)] for port in range(2)]
    dut = Arbiter(ports=2, bus_bits=256, cycles_max=60, turn_words=10)
    bench = Bench(dut)
    for port, own in enumerate(frames):
        bench.source(dut.frames[port], [word for one in own for word in to_words(one, 256, parity=True)])
        bench.source(dut.scans[port], [{"length": len(one)} for one in own])
    sink = bench.sink(dut.o)
    bench.run()
    assert [item.meta.port for item in sink.items if item.last] == ([0] * 4 + [1] * 4) * 2


def test_quiet_port_costs_nothing_and_waits_for_one_frame_only():
    busy, late = [frame(0, k, 128) for k in range(8)], [frame(1, 0, 60)]
    sink, out = run([busy, late], starts=[0, 10])
    assert sink.times == list(range(sink.times[0], sink.times[0] + 8 * 4 + 2))
    first = next(k for k, item in enumerate(sink.items) if item.meta.port == 1)
    assert sink.times[first] - 10 <= 5
    assert len(out) == 9


def test_offer_is_held_when_a_nearer_port_comes():
    dut = Arbiter(ports=3, bus_bits=256, cycles_max=60)
    bench = Bench(dut)
    for port, start in ((2, 2), (1, 5)):
        bench.source(dut.frames[port], to_words(frame(port, 0, 100), 256, parity=True), start=start)
        bench.source(dut.scans[port], [{"length": 100}], start=start)
    sink = bench.sink(dut.o, start=10)
    bench.run()
    assert [item.meta.port for item in sink.items if item.last] == [2, 1]


def test_no_cycle_is_lost_between_frames_and_none_on_the_way():
    sink, _ = run([[frame(port, k, 60 + 33 * k) for k in range(4)] for port in range(3)])
    assert sink.times == list(range(sink.times[0], sink.times[0] + len(sink.times)))
    assert sink.times[0] == 1  # the cycle in which the sources offer first


@pytest.mark.parametrize("ports", [0, 17])
def test_ports_wrong(ports):
    with pytest.raises(ValueError, match=f"Arbiter ports must be 1 to 16, not {ports}"):
        Arbiter(ports=ports, bus_bits=256, cycles_max=60)


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Packet bus_bits must be 64, 256 or 512, not 128"):
        Arbiter(ports=2, bus_bits=128, cycles_max=60)

# amaranth: UnusedElaboratable=no
"""Frames pass or vanish as wholes, and each is counted once."""

import random

import pytest

import hw.egress.link_gate
from hw.egress.link_gate import LinkGate
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words

BUS_BITS = 64


def frames(count: int) -> list[bytes]:
    rng = random.Random(1)
    return [bytes([k]) + rng.randbytes(rng.choice([1, 7, 8, 30, 60])) for k in range(count)]


def words(sent):
    return [word for frame in sent for word in to_words(frame, BUS_BITS)]


def aged_frames(sent, *, share: float, seed: int):
    """Return which frames are aged, and the values of `aged` beside each word: only the first word's counts."""
    rng, aged = random.Random(seed), []
    beside = []
    for frame in sent:
        aged.append(rng.random() < share)
        count = -(-len(frame) // (BUS_BITS // 8))
        beside += [aged[-1], *(rng.random() < 0.5 for _ in range(count - 1))]
    return aged, beside


@pytest.mark.parametrize("stalls", STALLS)
def test_frames_of_a_port_with_a_link_pass_unchanged_in_their_cycle(stalls):
    dut, sent = LinkGate(bus_bits=BUS_BITS), frames(40)
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.i, words(sent)), bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, BUS_BITS) == sent and sink.times == source.times
    assert bench.strobes == {"stat_frame": 40, "stat_aged": 0, "stat_link_down": 0}


@pytest.mark.parametrize("stalls", STALLS)
def test_aged_frames_are_discarded(stalls):
    dut, sent = LinkGate(bus_bits=BUS_BITS), frames(60)
    aged, beside = aged_frames(sent, share=0.4, seed=2)
    bench = Bench(dut, stalls=stalls)
    bench.source(dut.i, words(sent), beside=lambda k: [(dut.aged, beside[k])])
    sink = bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, BUS_BITS) == [frame for frame, old in zip(sent, aged, strict=True) if not old]
    assert bench.strobes == {"stat_frame": 60 - sum(aged), "stat_aged": sum(aged), "stat_link_down": 0}


def toggled(make, stalls: float) -> None:
    """The link changes at random. A frame passes if the link was up when its first word was offered."""
    dut, sent = make(bus_bits=BUS_BITS), frames(120)
    aged, beside = aged_frames(sent, share=0.2, seed=3)
    bench = Bench(dut, stalls=stalls)
    source = bench.source(dut.i, words(sent), beside=lambda k: [(dut.aged, beside[k])])
    sink = bench.sink(dut.o)
    links, rng = [], random.Random(4)

    async def toggle(ctx):
        async for _, _, link in ctx.tick().sample(dut.link):
            links.append(bool(link))
            if rng.random() < 0.1:
                ctx.set(dut.link, rng.random() < 0.6)

    bench.process(toggle)
    bench.run()
    at, passed, counts = 0, [], {"stat_frame": 0, "stat_aged": 0, "stat_link_down": 0}
    for frame, old in zip(sent, aged, strict=True):
        up = links[source.offered[at]]
        at += -(-len(frame) // (BUS_BITS // 8))
        kind = "stat_link_down" if not up else "stat_aged" if old else "stat_frame"
        counts[kind] += 1
        passed += [frame] if kind == "stat_frame" else []
    assert from_words(sink.items, BUS_BITS) == passed
    assert bench.strobes == counts and min(counts.values()) > 5


@pytest.mark.parametrize("stalls", STALLS)
def test_a_frame_passes_or_vanishes_as_a_whole_whenever_the_link_changes(stalls):
    toggled(LinkGate, stalls)


def unplugged(make) -> None:
    dut, sent = make(bus_bits=BUS_BITS), frames(10)
    bench = Bench(dut, inputs=[(dut.link, 0)])
    source, sink = bench.source(dut.i, words(sent), start=3), bench.sink(dut.o, stalls=1.0)
    bench.run()
    assert source.times == list(range(source.times[0], source.times[0] + len(source.times))) and not sink.items
    assert bench.strobes == {"stat_frame": 0, "stat_aged": 0, "stat_link_down": 10}


def test_a_port_without_a_link_does_not_stall():
    unplugged(LinkGate)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("begins = first & ~offered", "begins = first"),
        ("begins = first & ~offered", "begins = 1"),
        ("(~self.link | self.aged)", "self.aged"),
        ("(~self.link | self.aged)", "~self.link"),
        ("begins & self.link & self.aged", "begins & self.aged"),
        ("self.i.ready.eq(discards | self.o.ready)", "self.i.ready.eq(self.o.ready)"),
        ("discarding.eq(discards & ~ends)", "discarding.eq(0)"),
        ("offered.eq(~discards & ~ends)", "offered.eq(~discards)"),
    ],
)
def test_mutant_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, TimeoutError)):
        toggled(mutant(hw.egress.link_gate, sound, wrong).LinkGate, 0.5)
        unplugged(mutant(hw.egress.link_gate, sound, wrong).LinkGate)


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Packet bus_bits must be 64, 256 or 512, not 8"):
        LinkGate(bus_bits=8)

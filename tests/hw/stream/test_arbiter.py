# amaranth: UnusedElaboratable=no
"""Packet streams into one: whole packets, in the order of the chosen policy, and no cycle lost."""

import pytest

import hw.stream.arbiter
from hw.stream.arbiter import PacketArbiter
from hw.stream.packet import Packet
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words


def items(frames):
    return [word for frame in frames for word in to_words(frame, 64)]


def frames_of(inputs):
    """Frames of several lengths for each input; the first byte is the input."""
    return [[bytes([k, number]) + bytes(size) for number, size in enumerate((5, 6, 7, 20, 60))] for k in range(inputs)]


def run(frames, *, round_robin, stalls=0.0, arbiter=PacketArbiter):
    """Return the arbiter's sink, in which `besides` has the grants."""
    dut = arbiter(Packet(64), inputs=len(frames), round_robin=round_robin)
    bench = Bench(dut, stalls=stalls)
    for i, own in zip(dut.i, frames, strict=True):
        bench.source(i, items(own))
    sink = bench.sink(dut.o, beside=[dut.grant])
    bench.run()
    return sink


def check(frames, sink):
    """Each packet is whole, the packets of each input are in order, and `grant` names the input."""
    out = from_words(sink.items, 64)
    assert [[frame for frame in out if frame[0] == k] for k in range(len(frames))] == frames
    assert [grant for (grant,) in sink.besides] == [frame[0] for frame in out for _ in to_words(frame, 64)]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("inputs", [1, 2, 3, 5])
@pytest.mark.parametrize("round_robin", [False, True])
def test_packets_stay_whole_and_in_order(round_robin, inputs, stalls):
    frames = frames_of(inputs)
    check(frames, run(frames, round_robin=round_robin, stalls=stalls))


def test_round_robin_serves_each_input_after_the_others():
    frames = [[bytes([k]) * size for size in (9, 17, 3)] for k in range(3)]
    out = from_words(run(frames, round_robin=True).items, 64)
    assert [frame[0] for frame in out] == [1, 2, 0] * 3


def test_lowest_input_goes_first_but_never_interrupts():
    dut = PacketArbiter(Packet(64), inputs=2, round_robin=False)
    bench = Bench(dut)
    bench.source(dut.i[1], items([b"\1" * 30, b"\1" * 31]))
    bench.source(dut.i[0], items([b"\0" * 32, b"\0" * 33]), start=2)
    sink = bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, 64) == [b"\1" * 30, b"\0" * 32, b"\0" * 33, b"\1" * 31]
    assert sink.times == list(range(1, 1 + len(sink.times)))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("Mux(within, served, following)", "following"),
        ("self.o.ready & self.o.payload.last", "self.o.ready"),
        ("self.o.ready & (self.grant == number)", "self.o.ready"),
        ("self.o.ready & (self.grant == number)", "self.grant == number"),
        ("(number + 1) % self.inputs", "number"),
    ],
)
def test_a_mutant_of_the_arbiter_is_noticed(sound, wrong):
    frames = [[bytes([k]) * size for size in (9, 17, 3)] for k in range(3)]
    arbiter = mutant(hw.stream.arbiter, sound, wrong).PacketArbiter
    with pytest.raises((AssertionError, TimeoutError)):
        sink = run(frames, round_robin=True, stalls=0.5, arbiter=arbiter)
        check(frames, sink)
        assert [frame[0] for frame in from_words(run(frames, round_robin=True, arbiter=arbiter).items, 64)] == [
            1,
            2,
            0,
        ] * 3


def test_inputs_wrong():
    with pytest.raises(ValueError, match="PacketArbiter inputs must be at least 1, not 0"):
        PacketArbiter(Packet(64), inputs=0)

# amaranth: UnusedElaboratable=no
"""Streams into one: whole frames, the lowest input first."""

import pytest

from hw.egress.merge import Merge
from hw.stream.packet import Packet
from sim.bench.stream import STALLS, Bench, from_words, to_words


def items(frames):
    return [word for frame in frames for word in to_words(frame, 64)]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_frames_stay_whole_and_in_order(inputs, stalls):
    dut = Merge(Packet(64), inputs=inputs)
    bench = Bench(dut, stalls=stalls)
    frames = [
        [bytes([k, number]) + bytes(size) for number, size in enumerate((5, 6, 7, 20, 60))] for k in range(inputs)
    ]
    for k in range(inputs):
        bench.source(dut.i[k], items(frames[k]))
    sink = bench.sink(dut.o)
    bench.run()
    out = from_words(sink.items, 64)
    assert [[frame for frame in out if frame[0] == k] for k in range(inputs)] == frames


def test_lowest_input_goes_first_but_never_interrupts():
    dut = Merge(Packet(64), inputs=2)
    bench = Bench(dut)
    bench.source(dut.i[1], items([b"\1" * 30, b"\1" * 31]))
    bench.source(dut.i[0], items([b"\0" * 32, b"\0" * 33]), start=2)
    sink = bench.sink(dut.o)
    bench.run()
    assert from_words(sink.items, 64) == [b"\1" * 30, b"\0" * 32, b"\0" * 33, b"\1" * 31]
    assert sink.times == list(range(1, 1 + len(sink.times)))


def test_inputs_wrong():
    with pytest.raises(ValueError, match="Merge inputs must be at least 1, not 0"):
        Merge(Packet(64), inputs=0)

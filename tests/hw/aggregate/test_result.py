"""Results as frames: header, numbers, tail, and the complement that makes them sum to zero."""

import numpy as np
import pytest

from hw.aggregate.result import ResultComposer
from iswitch.config import Config
from iswitch.golden.egress import compose
from iswitch.wire import ones_complement_sum
from sim.bench.result_headers import with_parity
from sim.bench.stream import Bench, from_words, to_words

BUSES = [64, 256, 512]
ADDRESS_BYTES = 42


def config(bus_bits):
    return Config(ports=2, bus_bits=bus_bits, members=8, jobs=2, window=2, elements=48, queue_bytes=4096)


class Result:
    """One result: the composer's inputs, and the UDP payload that the model makes of it."""

    def __init__(self, seq, elements, *, fill=None):
        rng = np.random.default_rng(seq)
        self.numbers = (
            rng.integers(0, 1 << 32, elements, dtype=np.uint32) if fill is None else np.full(elements, fill, np.uint32)
        )
        self.fields = {
            "job": seq % 2,
            "epoch": 0xFFFF - seq,
            "seq": (1 << 32) - 1 - seq,
            "flags": seq % 16,
            "members": int(rng.integers(1, 256)),
            "tainted": int(rng.integers(0, 256)),
            "token": int(rng.integers(0, 1 << 32)),
        }
        self.header = self.fields | {"numeric": 1 + seq % 3, "length": 4 * elements, "recipients": 1 + seq % 255}
        self.payload = compose.result(format=1 + seq % 3, elements=self.numbers, **self.fields)

    def sums(self, bus_bits):
        """Words of numbers; behind the end stands what the sums of other elements left."""
        return [
            {"data": word["data"], "last": 7 * word["last"], "parity": word["data"].bit_count() % 2}
            for word in to_words(self.numbers.tobytes(), bus_bits)
        ]


class Grant:
    """One GRANT, which has no numbers."""

    def __init__(self, seq, members):
        self.header = {
            "job": seq % 2,
            "epoch": 0xFFFF - seq,
            "seq": (1 << 32) - 1 - seq,
            "flags": 0,
            "members": members,
            "tainted": 0,
            "token": 0xCAFEBABE - seq,
            "numeric": 0,
            "length": 0,
            "recipients": 1 + seq % 255,
        }
        self.payload = compose.grant(
            job=seq % 2, epoch=0xFFFF - seq, base=(1 << 32) - 1 - seq, members=members, token=0xCAFEBABE - seq
        )

    def sums(self, bus_bits):
        return []


def run(bus_bits, results, *, stalls=0):
    dut = ResultComposer(config(bus_bits))
    bench = Bench(dut, stalls=0)
    headers = bench.source(dut.headers, [with_parity(config(bus_bits), one.header) for one in results], stalls=stalls)
    sums = bench.source(dut.sums, [word for one in results for word in one.sums(bus_bits)], stalls=stalls)
    sink = bench.sink(dut.results)
    assert bench.run(read=[dut.busy]) == [0]
    return headers, sums, sink


def check(bus_bits, results, sink):
    frames = from_words(sink.items, bus_bits)
    assert [frame[:ADDRESS_BYTES] for frame in frames] == [bytes(ADDRESS_BYTES)] * len(results)
    assert [frame[ADDRESS_BYTES:] for frame in frames] == [one.payload for one in results]
    assert {ones_complement_sum(frame) for frame in frames} == {0xFFFF}
    at = 0
    for one in results:
        count = -(-(ADDRESS_BYTES + len(one.payload)) * 8 // bus_bits)
        items = sink.items[at : at + count]
        at += count
        assert [item.first for item in items] == [1] + [0] * (count - 1)
        assert {item.meta.room for item in items} == {count + (4 * 64 * 8 // bus_bits if one.header["length"] else 0)}
        assert {item.meta.header for item in items} == {items[0].meta.header}
        assert {name: items[0].meta.header[name] for name in one.header} == one.header


@pytest.mark.parametrize("stalls", [0, 0.5])
@pytest.mark.parametrize("bus_bits", BUSES)
def test_result_of_every_length_is_the_models_and_sums_to_zero(bus_bits, stalls):
    lanes = bus_bits // 32
    lengths = sorted({1, 2, 3, 7, 8, 9, 13, 14, 15, 16, 17, lanes - 1, lanes, lanes + 1, 47, 48} - {0})
    results = [Result(seq, elements) for seq, elements in enumerate(lengths)]
    results += [Result(50, 5, fill=0), Result(51, 5, fill=0xFFFFFFFF)]
    *_, sink = run(bus_bits, results, stalls=stalls)
    check(bus_bits, results, sink)


@pytest.mark.parametrize("stalls", [0, 0.5])
@pytest.mark.parametrize("bus_bits", BUSES)
def test_grants_keep_their_place_among_results_and_have_no_tail(bus_bits, stalls):
    results = [Grant(1, 0b101), Result(2, 9), Grant(3, 255), Grant(4, 1), Result(5, 1), Result(6, 16), Grant(7, 0)]
    headers, _, sink = run(bus_bits, results, stalls=stalls)
    check(bus_bits, results, sink)
    assert stalls or sink.times[0] == headers.offered[0] + ResultComposer.LATENCY + 3


@pytest.mark.parametrize("bus_bits", BUSES)
def test_bytes_behind_the_tail_are_zero(bus_bits):
    results = [Result(seq, elements) for seq, elements in enumerate(range(1, 18))]
    *_, sink = run(bus_bits, results)
    for item in sink.items:
        assert item.data >> 8 * item.count == 0


@pytest.mark.parametrize("bus_bits", BUSES)
def test_frame_leaves_without_gaps_and_frames_follow_each_other(bus_bits):
    results = [Result(seq, elements) for seq, elements in enumerate((48, 1, 16, 15, 48))]
    _, sums, sink = run(bus_bits, results)
    assert sink.times == list(range(sink.times[0], sink.times[0] + len(sink.times)))
    # The first header has come with the first number; it is looked at for a cycle.
    assert sink.times[0] == sums.offered[0] + 1 + ResultComposer.LATENCY
    assert sink.times[512 // bus_bits] == sums.times[0] + ResultComposer.LATENCY


@pytest.mark.parametrize("bus_bits", BUSES)
def test_header_leaves_before_numbers_that_are_coming(bus_bits):
    dut, results = ResultComposer(config(bus_bits)), [Result(1, 48), Result(2, 3)]
    bench = Bench(dut, inputs=[(dut.coming, 1)])
    headers = bench.source(dut.headers, [with_parity(config(bus_bits), one.header) for one in results])
    sums = bench.source(dut.sums, [word for one in results for word in one.sums(bus_bits)], start=40)
    sink, words = bench.sink(dut.results), 512 // bus_bits
    bench.run()
    check(bus_bits, results, sink)
    first = headers.offered[0] + 1 + ResultComposer.LATENCY
    assert sink.times[:words] == list(range(first, first + words))
    assert sink.times[words] == sums.offered[0] + ResultComposer.LATENCY
    assert sink.times[words:] == list(range(sink.times[words], sink.times[words] + len(sink.times) - words))


def test_frame_starts_when_its_first_number_is_there():
    dut, one = ResultComposer(config(256)), Result(1, 8)
    bench = Bench(dut)
    bench.source(dut.headers, [one.header])
    sums = bench.source(dut.sums, one.sums(256), start=20)
    sink = bench.sink(dut.results)
    bench.run()
    assert sums.offered[0] == 21
    first = sums.offered[0] + ResultComposer.LATENCY
    assert sink.times == list(range(first, first + 4))

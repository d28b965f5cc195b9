# amaranth: UnusedElaboratable=no
"""Payloads of two-byte elements become payloads of four-byte ones, and others pass, however their words come."""

import random

import numpy as np
import pytest

import hw.aggregate.widener
from hw.aggregate.widener import Widener
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, from_words, to_words

BUSES = [64, 256, 512]
PASSES, BF16, FP16, AS_IS = (
    {"half": 0, "binary16": 1, "as_is": 1},
    {"half": 1, "binary16": 0, "as_is": 0},
    {"half": 1, "binary16": 1, "as_is": 0},
    {"half": 1, "binary16": 1, "as_is": 1},
)


def widened(form, payload):
    """The payload that leaves, as numpy converts it."""
    if form is PASSES:
        return payload
    halves = np.frombuffer(payload, "<u2")
    if form is FP16:
        return halves.view(np.float16).astype("<f4").tobytes()
    return (halves.astype("<u4") << (16 if form is BF16 else 0)).tobytes()


def payloads_of(seed, bus_bits):
    """Payloads of every length around two words, in every form, in any order, without NaNs."""
    rng = random.Random(seed)
    forms = [PASSES, BF16, FP16, AS_IS]
    lengths = [4 * k for k in range(1, bus_bits // 16 + 3)][:: max(bus_bits // 128, 1)] + [
        bus_bits // 16,
        bus_bits // 8,
    ]
    cases = [(form, length) for form in forms for length in lengths]
    rng.shuffle(cases)
    found = []
    for form, length in cases:
        halves = np.frombuffer(rng.randbytes(length), "<u2").copy()
        if form is FP16:
            halves &= np.uint16(0x83FF) if rng.random() < 0.3 else np.uint16(0xBFFF)
        found.append((form, halves.tobytes()))
    return found


def run(payloads, bus_bits, *, stalls=0.0, errors=(), widener=Widener):
    """The words that leave. `errors`: words that enter with a bit error, by their number."""
    dut = widener(bus_bits=bus_bits)
    bench = Bench(dut, stalls=stalls)
    words = [word for form, payload in payloads for word in to_words(payload, bus_bits, meta=form)]
    for k, word in enumerate(words):
        word["error"] = k in errors
    source, sink = bench.source(dut.i, words), bench.sink(dut.o)
    assert bench.run(read=[dut.busy]) == [0]
    return source, sink


def check(payloads, bus_bits, **options):
    source, sink = run(payloads, bus_bits, **options)
    assert all(word.count for word in sink.items)
    assert from_words(sink.items, bus_bits) == [widened(form, payload) for form, payload in payloads]
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_elements_are_those_of_numpy_and_other_payloads_pass(bus_bits, stalls):
    check(payloads_of(bus_bits, bus_bits), bus_bits, stalls=stalls)


@pytest.mark.parametrize("stalls", STALLS)
def test_a_bit_error_is_that_of_each_word_made_of_the_word(stalls):
    payload = bytes(range(40))
    _, sink = run([(BF16, payload), (PASSES, payload), (FP16, payload)], 64, stalls=stalls, errors={1, 6, 14})
    # Five words become ten, five stay, five become ten.
    assert [k for k, word in enumerate(sink.items) if word.error] == [2, 3, 11, 23, 24]


@pytest.mark.parametrize("bus_bits", BUSES)
def test_other_payloads_lose_no_cycle_and_widened_ones_fill_the_wide_side(bus_bits):
    words, size = 6, bus_bits // 8
    passing, sink = check([(PASSES, bytes(words * size))] * 3, bus_bits)
    assert sink.times == passing.times
    assert sink.times == list(range(sink.times[0], sink.times[0] + 3 * words))
    entering, sink = check([(FP16, bytes(words * size))] * 3, bus_bits)
    assert sink.times == list(range(entering.times[0] + 1, entering.times[0] + 1 + 6 * words))
    _, sink = check([(PASSES, bytes(words * size)), (BF16, bytes(words * size)), (PASSES, bytes(size))], bus_bits)
    assert sink.times[-1] - sink.times[0] == 3 * words + 1


MUTANTS = {
    "a last half word has a successor": ("upper | (held.count <= half_bytes)", "upper"),
    "a word is overwritten": ("free.eq(~self.busy | (self.o.ready & ends))", "free.eq(1)"),
    "a payload overtakes": ("~self.busy & self.o.ready)", "self.o.ready)"),
    "the halves are exchanged": (
        "held.data[half_bits:], held.data[:half_bits]",
        "held.data[:half_bits], held.data[half_bits:]",
    ),
    "the first half ends the payload": ("held.last & ends", "held.last"),
    "the form of another payload": ("binary16=held.meta.binary16", "binary16=self.i.payload.meta.binary16"),
    "integers are converted": ("as_is=held.meta.as_is", "as_is=0"),
    "no count": ("Mux(upper, half_bytes, 0)) << 1", "0) << 1"),
}


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_widener_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, TimeoutError, ValueError)):
        check(payloads_of(64, 64), 64, stalls=0.5, widener=mutant(hw.aggregate.widener, sound, wrong).Widener)


def test_bus_bits_wrong():
    with pytest.raises(ValueError, match="Widener bus_bits must be 64, 256 or 512, not 32"):
        Widener(bus_bits=32)

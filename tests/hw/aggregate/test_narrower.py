"""Words of rounded sums become words of two-byte elements, and others pass, in the same cycle."""

import random

import numpy as np
import pytest

import hw.aggregate.narrower
from hw.aggregate.narrower import Narrower
from iswitch.config import Config
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench, pack

BUSES = [64, 256, 512]
PASSES, BF16, FP16, AS_IS = (
    {"half": 0, "binary16": 1, "as_is": 1},
    {"half": 1, "binary16": 0, "as_is": 0},
    {"half": 1, "binary16": 1, "as_is": 0},
    {"half": 1, "binary16": 0, "as_is": 1},
)


def elements_of(form, word, bus_bits):
    """The 16-bit patterns in a word of sums, as numpy takes them."""
    sums = np.frombuffer(word.to_bytes(bus_bits // 8, "little"), "<u4")
    if form is AS_IS:
        return sums.astype("<u2")
    if form is BF16:
        return (sums >> 16).astype("<u2")
    return (sums >> 13 & 0x7FFF | sums >> 16 & 0x8000).astype("<u2")


def results_of(seed, bus_bits):
    """Results of one to seven words in each form, some words corrupt."""
    rng, found = random.Random(seed), []
    for form in [PASSES, BF16, FP16, AS_IS] * 6:
        count = rng.randrange(1, 8)
        words = [(rng.getrandbits(bus_bits), rng.random() < 0.1) for _ in range(count)]
        found.append((form, words))
    return found


def expected(results, bus_bits):
    found = []
    for form, words in results:
        if form is not PASSES:
            halves = [elements_of(form, data, bus_bits).tobytes() for data, _ in words]
            halves += [bytes(bus_bits // 16)] * (len(halves) % 2)
            corrupt = [corrupt for _, corrupt in words] + [False]
            words = [
                (int.from_bytes(halves[k] + halves[k + 1], "little"), corrupt[k] | corrupt[k + 1])
                for k in range(0, len(words), 2)
            ]
        found += [(data, corrupt, 7 * (k == len(words) - 1)) for k, (data, corrupt) in enumerate(words)]
    return found


def check(bus_bits, *, stalls=0.0, narrower=Narrower):
    config = Config(ports=2, bus_bits=bus_bits, elements=48, queue_bytes=4096)
    dut, results = narrower(config), results_of(bus_bits, bus_bits)
    items, forms = [], []
    for form, words in results:
        for k, (data, corrupt) in enumerate(words):
            parity = (data.bit_count() + corrupt) % 2
            items.append({"data": data, "last": 7 * (k == len(words) - 1), "corrupt": corrupt, "parity": parity})
            forms.append(pack(dut.form.shape(), form))
    bench = Bench(dut)
    source = bench.source(dut.i, items, stalls=stalls, beside=lambda k: [(dut.form.as_value(), forms[k])])
    sink = bench.sink(dut.o)
    assert bench.run(read=[dut.busy]) == [0]
    assert [(word.data, word.corrupt, word.last) for word in sink.items] == expected(results, bus_bits)
    for word in sink.items:
        assert word.parity == (word.data.bit_count() + word.corrupt) % 2
    assert set(sink.times) <= set(source.times)  # no cycle later
    assert sink.times[-1] == source.times[-1]


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("bus_bits", BUSES)
def test_elements_are_packed_with_their_parity_and_bit_errors(bus_bits, stalls):
    check(bus_bits, stalls=stalls)


MUTANTS = {
    "a bit error is forgotten": ("word.corrupt | lower_corrupt", "word.corrupt"),
    "a bit error stays": ("keeps & word.corrupt", "lower_corrupt | word.corrupt"),
    "the parity of one word": ("lower_parity ^ parity ^ corrupt", "parity ^ corrupt"),
    "the parity forgets the flag": ("lower_parity ^ parity ^ corrupt", "lower_parity ^ parity"),
    "an odd word stays": ("self.busy | word.last.any()", "self.busy"),
    "elements stay for the next result": ("Mux(self.busy, Cat(lower, elements), elements)", "Cat(lower, elements)"),
    "the words are exchanged": ("Cat(lower, elements), elements)", "Cat(elements, lower), elements)"),
    "another format": ("binary16=self.form.binary16", "binary16=0"),
    "integers are numbers": ("as_is=self.form.as_is", "as_is=0"),
}


@pytest.mark.mutant
@pytest.mark.parametrize(("sound", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_narrower_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, TimeoutError)):
        check(64, stalls=0.5, narrower=mutant(hw.aggregate.narrower, sound, wrong).Narrower)

"""RandomFractions of batches against the golden model, with and without stalls; every plausible mutant is killed."""

import random

import pytest

import hw.replay.sampling.fractions
from hw.replay.sampling.fractions import RandomFractions
from iswitch.golden.replay.fractions import fractions, stride
from sim.bench.mutant import mutant
from sim.bench.stream import STALLS, Bench

COUNTS = [1, 2, 3, 7, 32, 33, 512]


def batches(seed=1):
    rng = random.Random(seed)
    for count in rng.sample(COUNTS, len(COUNTS)):
        for strata in (False, True):
            if count > 1 or not strata:
                seed = rng.choice([0, 1, rng.getrandbits(128), rng.getrandbits(128)])
                yield {"count": count, "stride": stride(count) if strata else 0, "seed": seed}


def check(draws=RandomFractions, stalls=0.0):
    dut, asked = draws(), list(batches())
    expected = []
    for batch in asked:
        found = fractions(batch["seed"], batch["count"], batch["stride"])
        expected += [(fraction, k == len(found) - 1) for k, fraction in enumerate(found)]
    bench = Bench(dut, stalls=stalls)
    source, sink = bench.source(dut.batches, asked), bench.sink(dut.fractions)
    bench.run()
    assert [(item.fraction, item.last) for item in sink.items] == expected
    return source, sink


@pytest.mark.parametrize("stalls", STALLS)
def test_fractions_are_the_models(stalls):
    check(stalls=stalls)


def test_one_fraction_a_cycle_and_no_cycle_between_batches():
    source, sink = check()
    assert sink.times[-1] - sink.times[0] == len(sink.items) - 1
    assert sink.times[0] - source.times[0] == 7


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("rotate_left(49)", "rotate_left(48)"),
        ("rotate_left(28)", "rotate_left(29)"),
        ("mixed << 21", "mixed << 20"),
        ("rotate_left(17)", "rotate_left(16)"),
        ("+ low_summed", ""),
        ("batch.seed == 0", "0"),
        ("stride.eq(batch.stride), base.eq(0)", "stride.eq(batch.stride)"),
        ("left == 1", "left == 0"),
        ("Mux(number.unstratified, number.number, 0)", "0"),
        ("batch.stride == 0", "0"),
        ("number.base | ", ""),
        ("advance.eq(~self.fractions.valid | self.fractions.ready)", "advance.eq(1)"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    broken = mutant(hw.replay.sampling.fractions, sound, wrong).RandomFractions
    with pytest.raises((AssertionError, TimeoutError)):
        check(broken)
        check(broken, stalls=0.5)

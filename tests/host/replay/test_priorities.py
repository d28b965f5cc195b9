"""Section 5 of docs/replay.md, against exact fractions and numpy's own formula."""

import math
from fractions import Fraction

import numpy as np
import pytest

from iswitch.replay import priorities as sound
from iswitch.replay.priorities import Scale, bucket, bucket_start, importance_weights
from sim.bench.mutant import mutant


def exactly(value: float, scale: float, bits: int) -> int:
    """Convert a priority by exact fractions."""
    product = Fraction(value) * Fraction(scale)
    nearest = round(product)  # halves to even
    if product > 0 and nearest == 0:
        nearest = 1
    return min(nearest, 2**bits - 1)


def samples(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    halves = rng.integers(0, 2000, 200) / 2
    edges = [0.0, -0.0, 5e-324, 1e-300, 1.0, 255.9999999, 256.0, 1e300, math.nextafter(math.inf, 0)]
    return np.concatenate(
        [edges, halves, halves / 65536, np.exp(rng.uniform(-60, 60, 500)), rng.random(200).astype(np.float32)]
    )


def check(module, bits: int, scale: float | None) -> None:
    made, above = module.Scale(bits, scale), 0
    with np.errstate(over="ignore", under="ignore"):
        integers = samples() * made.scale
    for usual in (
        (integers > 0.5) & (integers <= made.largest_integer),
        (integers >= 0.5) & (integers <= made.largest_integer),
        (integers > 0.5) & (integers <= 2 * made.largest_integer),
        integers >= 0,
    ):
        real = samples()[usual]
        fixed = made.to_integers(real)
        assert fixed.dtype == np.uint32
        assert fixed.tolist() == [exactly(value, made.scale, bits) for value in real.tolist()]
        above += sum(round(Fraction(value) * Fraction(made.scale)) > 2**bits - 1 for value in real.tolist())
        assert made.saturated == above


@pytest.mark.parametrize("bits", [4, 18, 27, 32])
@pytest.mark.parametrize("scale", [None, 1, 0.25, 65536, 2.0**-40])
def test_a_priority_becomes_the_nearest_integer_in_range(bits, scale):
    check(sound, bits, scale)


@pytest.mark.mutant
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("np.rint(real * self.scale)", "np.floor(real * self.scale + 0.5)"),
        ("np.rint(self.scale * real)", "np.floor(self.scale * real + 0.5)"),
        ("low * self.scale > 0.5", "low * self.scale >= 0.5"),
        ("high * self.scale <= self.largest_integer", "high * self.scale <= 2 * self.largest_integer"),
        ("(real > 0) & (scaled == 0), 1.0", "(real > 0) & (scaled == 0), 0.0"),
        ("int((scaled > self.largest_integer).sum())", "int((scaled >= self.largest_integer).sum())"),
    ],
)
def test_the_check_sees_a_mutant(right, wrong):
    with pytest.raises(AssertionError):
        for bits in (4, 18, 27):
            for scale in (None, 1, 65536):
                check(mutant(sound, right, wrong), bits, scale)


def test_integers_convert_to_priorities_and_back_exactly():
    scale = Scale(27)
    fixed = np.arange(1, 2**27, 9973, dtype=np.uint32)
    assert np.array_equal(scale.to_integers(scale.to_real(fixed)), fixed) and not scale.saturated


def test_the_default_scale_follows_from_priority_bits():
    assert Scale(27).scale == 2**19 and Scale(27).largest == (2**27 - 1) / 2**19


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-300])
def test_priority_wrong(value):
    with pytest.raises(ValueError, match="priorities must be finite and at least 0, but 1 of 3"):
        Scale(27).to_integers([1.0, value, 2.0])


@pytest.mark.parametrize("scale", [0, -2, 3, 1000.0, math.inf, math.nan])
def test_scale_wrong(scale):
    with pytest.raises(ValueError, match="scale must be a power of two"):
        Scale(27, scale)


def test_buckets_are_those_of_the_protocol():
    """Priority p below 16 in bucket p; else, with e = floor(log2 p) - 3, in bucket 8 e + floor(p / 2^e)."""
    for p in [*range(4096), *(2**k + d for k in range(12, 32) for d in (-1, 0, 1))]:
        e = math.floor(math.log2(p)) - 3 if p >= 16 else 0
        assert bucket(p) == (p if p < 16 else 8 * e + p // 2**e)
    begins = [bucket_start(number) for number in range(bucket(2**32 - 1) + 1)]
    assert begins == sorted(set(begins)) and [bucket(begin) for begin in begins] == list(range(len(begins)))
    assert all(bucket(begin - 1) == number - 1 for number, begin in enumerate(begins) if number)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("normalize", ["batch", "table"])
def test_weights_follow_the_formula_of_prioritized_replay(beta, normalize):
    """(N P(i))^-beta, divided by the largest weight of the batch or of the table."""
    rng = np.random.default_rng(3)
    table = rng.integers(1, 10**6, 1000).astype(np.uint32)
    drawn = table[rng.integers(0, 1000, 64)]
    total, lowest = int(table.sum()), bucket(int(table.min()))
    weights = importance_weights(drawn, total=total, filled=1000, beta=beta, lowest=lowest, normalize=normalize)
    plain = (1000 * (drawn / total)) ** -beta
    least = bucket_start(lowest)
    greatest = plain.max() if normalize == "batch" else (1000 * least / total) ** -beta
    assert weights.dtype == np.float32 and np.allclose(weights, plain / greatest, rtol=1e-6) and weights.max() <= 1


def test_overwritten_items_have_weight_0():
    drawn, gone = np.array([5, 1, 7], np.uint32), np.array([False, True, False])
    weights = importance_weights(drawn, total=100, filled=10, beta=1.0, overwritten=gone)
    assert weights[1] == 0 and weights.max() == 1 == weights[0]
    assert not importance_weights(drawn, total=100, filled=10, beta=1.0, overwritten=np.ones(3, np.bool_)).any()

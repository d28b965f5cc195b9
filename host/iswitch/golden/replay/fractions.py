"""Golden model of a batch's random numbers: at which fractions of the total it samples.

xoroshiro128++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", ACM TOMS 47, 2021), one word of
64 bits for each sample. The seed comes with the request, so a batch can be sampled again.
"""

from collections.abc import Iterator

__all__ = ["SEED_BITS", "ZERO", "fractions", "random_numbers", "stride"]

SEED_BITS = 128
MASK = (1 << 64) - 1
ZERO = 0x9E3779B97F4A7C15
"""Seed instead of 0, which the generator never leaves."""


def rotated(word: int, by: int) -> int:
    """Return a word of 64 bits rotated left."""
    return (word << by | word >> 64 - by) & MASK


def random_numbers(seed: int) -> Iterator[int]:
    """Yield random numbers of 64 bits without end, from a seed of 128 bits."""
    seed = seed or ZERO
    low, high = seed & MASK, seed >> 64
    while True:
        yield rotated(low + high & MASK, 17) + low & MASK
        high ^= low
        low, high = rotated(low, 49) ^ high ^ high << 21 & MASK, rotated(high, 28)


def stride(count: int) -> int:
    """Return the width of a stratum, as a fraction of 2^64, of a batch of `count` samples that takes one from each.

    Raises
    ------
    ValueError
        If `count` is below 2.
    """
    if count < 2:
        raise ValueError(f"a stratified batch's count must be at least 2, not {count!r}")
    return (1 << 64) // count


def fractions(seed: int, count: int, stride: int = 0) -> list[int]:
    """Return `count` fractions of 2^64, uniform; with a stride, sample k is uniform in [k, k + 1) strides."""
    found = []
    for k, (number, _) in enumerate(zip(random_numbers(seed), range(count))):
        found.append((k * stride + (number * stride >> 64)) & MASK if stride else number)
    return found

"""Golden model of the draws of a batch: which fractions of the total are asked for.

xoroshiro128++ (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", ACM TOMS 47, 2021), a whole word
of 64 bits for each draw. The seed comes with the request, so a batch can be had again.
"""

from collections.abc import Iterator

__all__ = ["SEED_BITS", "ZERO", "fractions", "numbers", "stride"]

SEED_BITS = 128
MASK = (1 << 64) - 1
ZERO = 0x9E3779B97F4A7C15
"""Seed instead of 0, which the generator never leaves."""


def rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & MASK


def numbers(seed: int) -> Iterator[int]:
    """Of 64 bits, without end. seed: of 128 bits."""
    seed = seed or ZERO
    low, high = seed & MASK, seed >> 64
    while True:
        yield rotated(low + high & MASK, 17) + low & MASK
        high ^= low
        low, high = rotated(low, 49) ^ high ^ high << 21 & MASK, rotated(high, 28)


def stride(count: int) -> int:
    """Of a batch of `count` draws that are one to a stratum, as a fraction of 2^64: what a client asks for. ValueError
    if `count` is below 2."""
    if count < 2:
        raise ValueError(f"a stratified batch's count must be at least 2, not {count!r}")
    return (1 << 64) // count


def fractions(seed: int, count: int, stride: int = 0) -> list[int]:
    """`count` fractions of 2^64: anywhere or, with a stride, draw k uniform in [k, k + 1) strides."""
    found = []
    for k, (number, _) in enumerate(zip(numbers(seed), range(count))):
        found.append((k * stride + (number * stride >> 64)) & MASK if stride else number)
    return found

"""The generator of epochs, first sequence numbers and the first challenge: xorshift64 (Marsaglia, 2003), one step per
number.

It is not cryptographic, and nothing that it draws is secret: the members themselves choose the tokens. Each of its
three shifts is invertible, so a test can choose the seed that makes the switch draw what the test needs, for instance a
first seq just below 2^32.
"""

from typing import NamedTuple

__all__ = ["DEFAULT_SEED", "Offer", "first_challenge", "initial", "offer", "seed_before", "seed_for_first_seq", "step"]

MASK = (1 << 64) - 1
DEFAULT_SEED = 0x9E3779B97F4A7C15
"""The seed that is used instead of 0, which the generator never leaves."""


class Offer(NamedTuple):
    """The epoch and first seq of the next job."""

    epoch: int
    first_seq: int


def initial(seed: int) -> int:
    """Return the first state."""
    return seed & MASK or DEFAULT_SEED


def step(state: int) -> int:
    """Return the next state, which is also the number drawn."""
    state ^= state << 13 & MASK
    state ^= state >> 7
    return state ^ state << 17 & MASK


def seed_before(state: int) -> int:
    """Return the state before a state. x ^= x << k is undone by adding the shifts by 2k, 3k, ... as well."""

    def undo(value: int, shift: int) -> int:
        total, shifted = value, value
        while shifted:
            shifted = shifted << shift & MASK if shift > 0 else shifted >> -shift
            total ^= shifted
        return total

    return undo(undo(undo(state, 17), -7), 13)


def seed_for_first_seq(first_seq: int, epoch: int = 0) -> int:
    """Return a seed with which the first job created has this first seq (a multiple of 2W) and epoch."""
    return seed_before(first_seq % 2**32 << 32 | epoch)


def offer(state: int, slots: int) -> tuple[int, Offer]:
    """Return the state after the draw for a new job, and its epoch and first seq."""
    state = step(state)
    return state, Offer(state & 0xFFFF, state >> 32 & ~(slots - 1))


def first_challenge(seed: int) -> int:
    """Return the challenge of every job number after a start."""
    return (step(initial(seed)) ^ DEFAULT_SEED) >> 32

"""The parity bit of a word in a memory, by which the switch finds a bit error."""

from amaranth.hdl import Cat, Value

__all__ = ["with_parity"]


def with_parity(word):
    """Return the word with its parity above, so that the number of ones is even. A word of zeros has the parity 0."""
    return Cat(word, Value.cast(word).xor())

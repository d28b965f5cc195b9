"""Serial numbers modulo 2^32, compared as in RFC 1982."""

__all__ = ["SERIAL", "ahead"]

SERIAL = 1 << 32
HALF = SERIAL >> 1


def ahead(newer: int, older: int) -> int:
    """Return how far `newer` is ahead of `older`, from -2^31 to 2^31 - 1."""
    return (newer - older + HALF) % SERIAL - HALF

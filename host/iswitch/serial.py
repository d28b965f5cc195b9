"""Serial numbers modulo 2^32 (RFC 1982): numbers of segments, requests, items and log units on the wire."""

__all__ = ["serial_distance"]


def serial_distance(newer: int, older: int) -> int:
    """Return how far `newer` is ahead of `older` modulo 2^32, -2^31 to 2^31 - 1."""
    return (newer - older + 2**31) % 2**32 - 2**31

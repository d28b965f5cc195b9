"""Seeds that the switch's generator can begin with."""

import hashlib

__all__ = ["SEED_BITS", "spread"]

SEED_BITS = 128


def spread(seed: int) -> int:
    """All bits of a seed, 0 to 2^128 - 1, in all bits of another: BLAKE2b (RFC 7693) of its 16 bytes, the lowest first.

    The generator adds and shifts a few bits at a time, so the first draws of the seeds 1, 2, 3 would fall nearly at the
    same place, and those of many batches would not be distributed as priorities say."""
    return int.from_bytes(
        hashlib.blake2b(seed.to_bytes(SEED_BITS // 8, "little"), digest_size=SEED_BITS // 8).digest(), "little"
    )

"""Seeds for the switch's random number generator."""

import hashlib

__all__ = ["SEED_BITS", "hash_seed"]

SEED_BITS = 128


def hash_seed(seed: int) -> int:
    """Return a hash of a seed, in which all bits of the seed change all bits: BLAKE2b (RFC 7693) of its 16 bytes.

    The switch's generator adds and shifts by a few bits only. With the seeds 1, 2, 3 as they are, the first draws of
    each batch would fall nearly at the same place, so many small batches together would not follow the priorities.

    Parameters
    ----------
    seed : int
        0 to 2^128 - 1; hashed as 16 bytes, the lowest byte first.

    Returns
    -------
    int
        0 to 2^128 - 1.
    """
    digest = hashlib.blake2b(seed.to_bytes(SEED_BITS // 8, "little"), digest_size=SEED_BITS // 8).digest()
    return int.from_bytes(digest, "little")

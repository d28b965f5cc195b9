"""Hashed seeds."""

import hashlib

from iswitch.replay.seeds import SEED_BITS, hash_seed


def test_a_hash_is_blake2b_of_16_bytes():
    expected = hashlib.blake2b(bytes([5] + [0] * 15), digest_size=16).digest()
    assert hash_seed(5) == int.from_bytes(expected, "little")


def test_neighbouring_seeds_differ_in_about_half_of_their_bits():
    distances = [(hash_seed(seed) ^ hash_seed(seed + 1)).bit_count() for seed in range(200)]
    assert 60 < sum(distances) / len(distances) < 68 and min(distances) > 30
    assert all(0 <= hash_seed(seed) < 2**SEED_BITS for seed in (0, 2**SEED_BITS - 1))

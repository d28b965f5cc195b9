"""The generator against its published numbers, and one sample in each stratum."""

from itertools import islice

import numpy as np
import pytest

from iswitch.golden.replay.fractions import fractions, random_numbers, stride

PUBLISHED = [
    393217,
    669327710093319,
    1732421326133921491,
    11394790081659126983,
    9555452776773192676,
    3586421180005889563,
]
"""Of xoroshiro128++ with the state (1, 2)."""


def test_numbers_are_the_published_ones():
    assert list(islice(random_numbers(2 << 64 | 1), len(PUBLISHED))) == PUBLISHED


def test_the_seed_zero_is_replaced():
    assert len(set(islice(random_numbers(0), 100))) == 100


@pytest.mark.parametrize("count", [2, 3, 32, 1000, 65535])
def test_each_stratum_has_one_sample(count):
    found = np.array(fractions(5, count, stride(count)), object)
    assert (found // stride(count) == np.arange(count)).all()
    assert max(found) < 2**64


def test_the_seed_determines_the_batch():
    assert fractions(7, 100) == fractions(7, 100) != fractions(8, 100)


def test_stride_wrong():
    with pytest.raises(ValueError, match="a stratified batch's count must be at least 2, not 1"):
        stride(1)

"""Buckets of the model against numpy's search among their borders, and the ends against a sorted list."""

import random

import numpy as np
import pytest

from iswitch.golden.replay.histogram import Histogram, bucket, least

STARTS = np.array([*range(16), *(m << e for e in range(1, 29) for m in range(8, 16))], np.uint64)
"""By docs/replay.md, section 5."""


def test_buckets_begin_where_the_docs_say():
    assert [least(k) for k in range(len(STARTS))] == STARTS.tolist()
    near = {int(start) + by for start in STARTS for by in (-1, 0, 1)} - {-1}
    assert [bucket(p) for p in sorted(near)] == (np.searchsorted(STARTS, sorted(near), side="right") - 1).tolist()
    assert bucket(2**32 - 1) == 239


def test_ends_are_those_of_what_is_there():
    rng, histogram, priorities = random.Random(1), Histogram(), [0] * 8
    for _ in range(2000):
        item, priority = rng.randrange(8), rng.choice([0, rng.getrandbits(32) >> rng.randrange(32)])
        histogram.change(priorities[item], priority)
        priorities[item] = priority
        there = sorted(p for p in priorities if p) or [0]
        assert (histogram.lowest, histogram.highest) == (bucket(there[0]), bucket(there[-1]))


def test_priority_wrong():
    with pytest.raises(ValueError, match="a priority must not be below 0, not -1"):
        bucket(-1)


def test_old_wrong():
    with pytest.raises(ValueError, match="no priority in the bucket of 7 can change, there is none"):
        Histogram().change(7, 0)

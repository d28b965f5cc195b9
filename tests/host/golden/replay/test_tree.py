"""The golden sum tree against cumulative sums that are searched: exact, whatever the priorities."""

import random

import numpy as np
import pytest

from iswitch.golden.replay.tree import FRACTION_BITS, SampledLeaf, SumTree

LAST_FRACTION = (1 << FRACTION_BITS) - 1


def drawn(priorities: np.ndarray, fraction: int) -> SampledLeaf | None:
    """As in a textbook; integers of any size."""
    ends = np.cumsum(priorities)
    total = int(ends[-1])
    if not total:
        return None
    leaf = int(np.searchsorted(ends, fraction * total // 2**FRACTION_BITS, side="right"))
    return SampledLeaf(leaf, int(priorities[leaf]), total)


@pytest.mark.parametrize("priority_bits", [1, 18, 27, 36])
@pytest.mark.parametrize("capacity", [2, 4, 32, 1024, 4096])
def test_samples_are_those_of_a_search_in_the_cumulative_sums(capacity, priority_bits):
    rng = random.Random(capacity + priority_bits)
    tree, priorities = SumTree(capacity=capacity, priority_bits=priority_bits), np.zeros(capacity, np.int64)
    top = (1 << priority_bits) - 1
    for _ in range(600):
        leaf, priority = rng.randrange(capacity), rng.choice([0, 0, 1, top, rng.randint(0, top)])
        assert tree.update(leaf, priority) == priorities[leaf]
        priorities[leaf] = priority
        total = int(priorities.sum())
        assert tree.total == total and tree.priorities[leaf] == priority
        border = int(priorities[:leaf].sum())
        at = [-(-(max(border + k, 0) << FRACTION_BITS) // total) for k in (-1, 0)] if total else []
        for fraction in (
            0,
            LAST_FRACTION,
            rng.getrandbits(FRACTION_BITS),
            *(min(fraction, LAST_FRACTION) for fraction in at),
        ):
            assert tree.sample(fraction) == drawn(priorities, fraction)


def test_by_hand():
    """2 0 1 0: positions 0 and 1 are the first leaf's, 2 the third's."""
    tree = SumTree(capacity=4, priority_bits=2)
    assert tree.sample(0) is None and tree.sample(LAST_FRACTION) is None
    tree.update(0, 2)
    assert tree.update(2, 3) == 0 and tree.update(2, 1) == 3
    third = 2**FRACTION_BITS // 3
    found = [tree.sample(fraction) for fraction in (0, third, third + 1, 2 * third, 2 * third + 1, LAST_FRACTION)]
    assert found == [SampledLeaf(0, 2, 3)] * 4 + [SampledLeaf(2, 1, 3)] * 2


@pytest.mark.parametrize("capacity", [2, 64])
def test_the_last_position_of_a_full_tree_is_the_last_leafs(capacity):
    tree = SumTree(capacity=capacity, priority_bits=36)
    for leaf in range(capacity):
        tree.update(leaf, 2**36 - 1)
    assert tree.sample(LAST_FRACTION) == SampledLeaf(capacity - 1, 2**36 - 1, capacity * (2**36 - 1))


@pytest.mark.parametrize("capacity", [0, 3, -4])
def test_capacity_wrong(capacity):
    with pytest.raises(ValueError, match=f"^SumTree capacity must be a power of two, not {capacity}$"):
        SumTree(capacity=capacity, priority_bits=3)


def test_priority_wrong():
    with pytest.raises(ValueError, match=r"^SumTree priority must be 0 to 7, not 8$"):
        SumTree(capacity=4, priority_bits=3).update(0, 8)
    with pytest.raises(ValueError, match=r"^SumTree priority must be 0 to 7, not -1$"):
        SumTree(capacity=4, priority_bits=3).update(0, -1)


def test_leaf_wrong():
    tree = SumTree(capacity=4, priority_bits=3)
    for leaf in (4, -1):
        with pytest.raises(IndexError, match=f"^SumTree leaf must be 0 to 3, not {leaf}$"):
            tree.update(leaf, 1)
    assert tree.priorities == [0] * 4 and tree.total == 0

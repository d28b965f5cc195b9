"""The trees and buffers that the replay service is compared with do what they should, or their speed says nothing."""

import numpy as np
import pytest

import sim.bench.replay_buffers
import sim.bench.replay_native
from sim.bench.mutant import mutant
from sim.bench.pinned import needed
from sim.bench.replay_buffers import ALPHA, BETA, CpprbBuffer, NumpyBuffer, SumTree
from sim.bench.replay_native import NativeBuffer, NativeTree

TREES = {"numpy": SumTree, "C++": NativeTree}
BUFFERS = {"numpy": NumpyBuffer, "C++": NativeBuffer, "cpprb": CpprbBuffer}


def against_sums(tree, *, seed=1, rounds=6):
    """Leaves at random, some named again and again, of which a third have no priority; all are quarters, so that sums
    are exact."""
    rng, size = np.random.default_rng(seed), tree.capacity if isinstance(tree, NativeTree) else tree.levels[0].size
    truth = np.zeros(size)
    for _ in range(rounds):
        leaves = np.concatenate([rng.integers(0, size, 40), rng.integers(0, 4, 20)])
        priorities = rng.integers(0, 3, leaves.size) / 4
        tree.update(leaves, priorities)
        for leaf, priority in zip(leaves, priorities):
            truth[leaf] = priority
        ends = np.cumsum(truth)
        assert tree.total == ends[-1]
        edges = np.concatenate([ends, ends - 1 / 1024, rng.integers(0, int(1024 * ends[-1]), 50) / 1024])
        places = edges[(edges >= 0) & (edges < ends[-1])]
        found = tree.find(places)
        assert found.tolist() == np.searchsorted(ends, places, "right").tolist()
        assert tree.priorities(found).tolist() == truth[found].tolist() and truth[found].min() > 0


@pytest.mark.parametrize("size", [32, 64, 512, 1024, 2048, 1 << 15])
@pytest.mark.parametrize("tree", TREES)
def test_leaves_found_and_totals_are_those_of_cumulative_sums(tree, size):
    against_sums(TREES[tree](size))


@pytest.mark.parametrize("arity", [2, 4, 64])
def test_any_power_of_two_is_an_arity(arity):
    against_sums(SumTree(256, arity))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("ends <= rest[:, None]", "ends < rest[:, None]"),
        ("leaves = leaves // self.arity", "leaves = leaves % self.arity"),
        ('places, "right"', 'places, "left"'),
        ("ends[every, child - 1]", "ends[every, 0]"),
    ],
)
def test_a_mutant_is_noticed(sound, wrong):
    with pytest.raises((AssertionError, IndexError)):
        against_sums(mutant(sim.bench.replay_buffers, sound, wrong).SumTree(1 << 11, 4))


@pytest.mark.parametrize("buffer", BUFFERS)
def test_draws_are_proportional_to_the_power_of_priorities(buffer):
    """One to a stratum: each item is drawn as often as its share says, to within one on either side."""
    if buffer == "cpprb":
        needed("cpprb")
    made, rng = BUFFERS[buffer](64, 8), np.random.default_rng(2)
    for _ in range(3):
        made.add(rng.integers(0, 256, (32, 8), np.uint8), np.full(32, 9.0))
    priorities = rng.integers(1, 50, 64).astype(float)
    made.update(np.arange(64), priorities)
    share = priorities**ALPHA / (priorities**ALPHA).sum()
    drawn = np.bincount(np.asarray(made.sample(4096), np.int64), minlength=64)
    assert np.abs(drawn - 4096 * share).max() <= 2.01


@pytest.mark.parametrize("buffer", [NumpyBuffer, NativeBuffer])
def test_a_sample_has_the_records_and_weights_of_what_was_drawn(buffer):
    made, priorities = buffer(64, 8), np.arange(1.0, 49.0)
    made.add(np.repeat(np.arange(40, dtype=np.uint8), 8).reshape(40, 8), priorities[:40])
    made.add(np.repeat(np.arange(40, 48, dtype=np.uint8), 8).reshape(8, 8), priorities[40:])
    leaves = made.sample(200).astype(int)
    assert made.drawn[:, 0].tolist() == leaves.tolist() and leaves.max() < 48
    likely = priorities[leaves] ** ALPHA / (priorities**ALPHA).sum()
    weights = (48 * likely) ** -BETA
    np.testing.assert_allclose(made.weights, weights / weights.max(), rtol=1e-5)


def test_the_oldest_items_give_way():
    made = NumpyBuffer(64, 1)
    for begin in range(0, 96, 32):
        made.add(np.arange(begin, begin + 32, dtype=np.uint8)[:, None], np.ones(32))
    assert made.records[:, 0].tolist() == [*range(64, 96), *range(32, 64)]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: SumTree(64, 3), "arity must be a power of two from 2, not 3"),
        (lambda: SumTree(48), "capacity must be a power of two from 32, not 48"),
        (lambda: SumTree(16), "capacity must be a power of two from 32, not 16"),
        (lambda: NativeTree(8), "capacity must be a power of two from 16, not 8"),
        (lambda: NumpyBuffer(64, 1).sample(4), "must come after items"),
        (lambda: NativeTree(64).find(np.zeros(1)), "must come after priorities"),
    ],
)
def test_what_cannot_be_wrong(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_native_leaf_wrong():
    with pytest.raises(IndexError, match="leaf must be 0 to 63, not 64"):
        NativeTree(64).update(np.array([1, 64]), np.ones(2))

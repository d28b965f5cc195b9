"""Millions of operations of a compiled sum tree: each draw and each sum is the model's, and leaves are drawn as often
as they should be."""

import numpy as np
import pytest

import hw.replay.sampling.sum_tree
import sim.bench.sumtree
from iswitch.golden.replay.tree import SumTree as Model
from sim.bench.mutant import mutant
from sim.bench.statistics import chi_square, quantile
from sim.bench.sumtree import CompiledTree, answer, fractions, mixes, ops_per_cycle, some, step_cycles

LEAVES = 1 << 20
BITS = 18


def mixed(tree: CompiledTree, count: int, *, seed: int = 0) -> None:
    draws = empty = 0
    for operations, expected in mixes(tree.tree.capacity, tree.tree.priority_bits, count, seed=seed):
        played = tree.play(operations)
        assert len(played.found) == len(expected) and np.array_equal(played.found, expected)
        assert np.array_equal(played.came, played.taken + tree.tree.latency)
        assert tree.tree.single_copy or np.array_equal(played.taken, np.arange(len(expected)) + played.taken[0])
        found = played.found[played.found["is_sample"]]
        draws, empty = draws + len(found), empty + int(np.count_nonzero(found["empty"]))
        assert np.count_nonzero((found["priority"] == 0) & ~found["empty"]) == 0
    assert draws > 0.4 * count and empty < 100


@pytest.mark.parametrize("single_copy,count", [(False, 100_000), (True, 100_000)])
def test_draws_and_sums_are_the_models(single_copy, count):
    mixed(CompiledTree(capacity=LEAVES, priority_bits=BITS, single_copy=single_copy), count)


@pytest.mark.slow
@pytest.mark.parametrize("single_copy,count", [(False, 10_000_000), (True, 2_000_000)])
def test_draws_and_sums_are_the_models_at_length(single_copy, count):
    mixed(CompiledTree(capacity=LEAVES, priority_bits=BITS, single_copy=single_copy), count, seed=1)


@pytest.mark.mutant
@pytest.mark.parametrize(
    "sound,wrong",
    [("memory.read_port(transparent_for=[write])", "memory.read_port()"), ("last.rest >= end", "last.rest > end")],
)
def test_the_check_notices_a_mutant(sound, wrong):
    tree = CompiledTree(
        tree=mutant(hw.replay.sampling.sum_tree, sound, wrong).SumTree, capacity=512, priority_bits=4, arity=4
    )
    with pytest.raises(AssertionError):
        mixed(tree, 20_000)


def uniform(leaves):
    return np.full(leaves, 1000)


def one_hot(leaves):
    return np.where(np.arange(leaves) == 1234, 77, 0)


def power_law(leaves):
    return np.maximum(262143 / np.random.default_rng(3).permutation(np.arange(1, leaves + 1)) ** 0.7, 1).astype(
        np.int64
    )


def mostly_zero(leaves):
    rng = np.random.default_rng(4)
    return np.where(rng.random(leaves) < 0.02, rng.integers(1, 262144, leaves), 0)


def test_quantile_by_a_table():
    """Abramowitz and Stegun, table 26.8: 0.999 and 0.001 at 100 degrees of freedom."""
    assert quantile(100, 3.0902) == pytest.approx(149.449, rel=1e-3) and quantile(100, -3.0902) == pytest.approx(
        61.918, rel=1e-3
    )


def draws_of(priorities: np.ndarray, count: int) -> np.ndarray:
    tree, model = (
        CompiledTree(capacity=len(priorities), priority_bits=BITS),
        Model(capacity=len(priorities), priority_bits=BITS),
    )
    updates = some(len(priorities), False, np.arange(len(priorities)))
    updates["new"] = priorities
    assert np.array_equal(tree.play(updates).found, answer(model, updates))
    draws = some(count, True, 0)
    draws["fraction"] = fractions(count)
    found = tree.play(draws).found
    assert np.array_equal(found["priority"], priorities[found["leaf"]]) and set(found["total"].tolist()) == {
        int(priorities.sum())
    }
    return np.bincount(found["leaf"].astype(np.int64), minlength=len(priorities))


@pytest.mark.parametrize("distribution", [uniform, one_hot, power_law, mostly_zero])
def test_leaves_are_drawn_as_often_as_their_priority_says(distribution):
    """10^6 draws of 4,096 leaves. Neither too far from what is expected nor too near: 0.1 % of all seeds would fail on
    each side."""
    priorities, count = distribution(4096), 1_000_000
    counts = draws_of(priorities, count)
    assert counts.sum() == count and not counts[priorities == 0].any()
    there = priorities > 0
    if there.sum() == 1:
        assert counts[there] == count
        return
    statistic, freedom = chi_square(counts[there], priorities[there] / priorities.sum() * count)
    assert quantile(freedom, -3.0902) < statistic < quantile(freedom, 3.0902)


def test_the_distribution_test_notices_a_bias():
    """Halves of which one is drawn 3 % too often, the other as much too rarely."""
    priorities = np.repeat([1030, 970], 2048)
    counts = draws_of(priorities, 1_000_000)
    assert chi_square(counts, np.full(4096, 1_000_000 / 4096))[0] > quantile(4095, 3.0902)


@pytest.mark.parametrize("single_copy,cycles,rate", [(False, 1044, 1.0), (True, 1063, 2 / 19)])
def test_what_the_bench_measures(single_copy, cycles, rate):
    assert step_cycles(capacity=LEAVES, single_copy=single_copy) == cycles <= 1064
    assert ops_per_cycle(2_000, capacity=LEAVES, single_copy=single_copy) == pytest.approx(rate, rel=0.01)


def test_the_bench_measures_nothing_that_is_wrong(monkeypatch):
    monkeypatch.setattr(sim.bench.sumtree, "answer", lambda model, operations: answer(model, operations)[::-1])
    for measure in (lambda: ops_per_cycle(100, capacity=LEAVES), lambda: step_cycles(capacity=LEAVES)):
        with pytest.raises(RuntimeError, match="the tree does not find what the model does"):
            measure()

"""The replay memory: the latest transitions, each equally likely."""

import numpy as np
import pytest

from examples.torchrun.environments import Step
from examples.torchrun.memory import Memory


def fill(memory, first, count):
    """Add transitions in pairs, of which every third terminates. An observation is its number."""
    for number in range(first, first + count, 2):
        numbers = np.array([number, number + 1])
        step = Step(
            next_obs=np.float32(numbers[:, None] + 0.5),
            rewards=np.float32(10 * numbers),
            terminated=numbers % 3 == 0,
            truncated=numbers % 3 == 1,
        )
        memory.add(np.float32(numbers[:, None]), numbers, step)


@pytest.mark.parametrize("added", [4, 10, 16, 26])
def test_samples_are_the_latest_transitions_each_equally_likely(added):
    memory = Memory(10, 0.9)
    fill(memory, 0, added)
    assert memory.size == min(added, 10)
    batch = {name: column.numpy() for name, column in memory.sample(20_000, np.random.default_rng(1)).items()}
    numbers = batch["actions"]
    kept = np.arange(added)[-10:]
    assert sorted(set(numbers)) == kept.tolist()
    counts = np.bincount(numbers)[kept]
    assert ((counts - 20_000 / len(kept)) ** 2).sum() / (20_000 / len(kept)) < 30  # chi squared, 9 degrees of freedom
    np.testing.assert_array_equal(batch["obs"][:, 0], numbers)
    np.testing.assert_array_equal(batch["next_obs"][:, 0], numbers + 0.5)
    np.testing.assert_array_equal(batch["rewards"], 10 * numbers)
    np.testing.assert_array_equal(batch["discounts"], np.where(numbers % 3 == 0, 0, np.float32(0.9)))


def test_a_capacity_that_is_no_multiple_of_the_environments_keeps_the_latest():
    memory = Memory(5, 0.9)
    fill(memory, 0, 12)
    assert set(memory.sample(500, np.random.default_rng(1))["actions"].tolist()) == {7, 8, 9, 10, 11}

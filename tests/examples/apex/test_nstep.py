"""Transitions over several steps against sums written out from whole episodes."""

import numpy as np
import pytest

from examples.apex.nstep import NStep, columns

DISCOUNT = 0.9


def episode(length, seed, end):
    """Steps (observation, action, reward, next observation, terminated, truncated) of which the last ends as it is
    told."""
    rng = np.random.default_rng(seed)
    seen = rng.random((length + 1, 3)).astype(np.float32)
    return [
        (
            seen[t],
            int(rng.integers(4)),
            float(rng.normal()),
            seen[t + 1],
            t == length - 1 and end == "terminated",
            t == length - 1 and end == "truncated",
        )
        for t in range(length)
    ]


def made(steps, horizon):
    builder = NStep(horizon, DISCOUNT)
    return [
        each
        for observation, action, reward, after, terminated, truncated in steps
        for each in builder.step(observation, action, reward, after, terminated=terminated, truncated=truncated)
    ]


def naive(steps, horizon):
    """From each step on, as far as its episode goes; what its episode has not shown yet is not there."""
    found = []
    for t, (observation, action, *_) in enumerate(steps):
        total, factor = 0.0, 1.0
        for k in range(horizon):
            if t + k == len(steps):
                break
            _, _, reward, after, terminated, truncated = steps[t + k]
            total, factor = total + factor * reward, factor * DISCOUNT
            if terminated or truncated or k == horizon - 1:
                found.append((observation, action, total, after, 0.0 if terminated else factor))
                break
    return found


def assert_same(got, expected):
    assert len(got) == len(expected)
    for each, (observation, action, reward, after, discount) in zip(got, expected):
        assert each.observation is observation and each.next_observation is after and each.action == action
        assert each.reward == pytest.approx(reward, abs=1e-12) and each.discount == pytest.approx(discount, abs=1e-12)


@pytest.mark.parametrize("end", ["terminated", "truncated", "goes on"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("horizon", [1, 2, 3, 5])
def test_sums_are_those_of_the_whole_episode(horizon, length, end):
    steps = episode(length, seed=length, end=end)
    assert_same(made(steps, horizon), naive(steps, horizon))


@pytest.mark.parametrize("horizon", [1, 3, 5])
def test_episodes_do_not_mix(horizon):
    parts = [
        episode(length, seed=length, end=end)
        for length, end in ((4, "terminated"), (1, "truncated"), (7, "truncated"), (2, "goes on"))
    ]
    expected = [each for part in parts for each in naive(part, horizon)]
    assert_same(made([step for part in parts for step in part], horizon), expected)


def test_every_step_of_an_ended_episode_begins_one_transition():
    for length in range(1, 8):
        assert len(made(episode(length, seed=1, end="terminated"), 5)) == length


def test_nothing_counts_behind_a_termination_and_something_behind_a_truncation():
    ended, cut = (made(episode(3, seed=1, end=end), 2) for end in ("terminated", "truncated"))
    assert [each.discount for each in ended] == [DISCOUNT**2, 0.0, 0.0]
    assert [each.discount for each in cut] == pytest.approx([DISCOUNT**2, DISCOUNT**2, DISCOUNT])


def test_columns_have_a_row_for_each_transition_in_its_order():
    found = made(episode(6, seed=3, end="terminated"), 3)
    table = columns(found)
    assert {name: (column.dtype, column.shape) for name, column in table.items()} == {
        "observation": (np.float32, (6, 3)),
        "action": (np.int64, (6,)),
        "reward": (np.float32, (6,)),
        "next_observation": (np.float32, (6, 3)),
        "discount": (np.float32, (6,)),
    }
    for row, each in enumerate(found):
        assert (table["observation"][row] == each.observation).all() and table["action"][row] == each.action
        assert table["reward"][row] == np.float32(each.reward) and table["discount"][row] == np.float32(each.discount)

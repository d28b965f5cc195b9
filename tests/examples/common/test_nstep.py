"""n-step transitions against sums over whole episodes."""

import numpy as np
import pytest

from examples.common.nstep import NStep, columns

GAMMA = 0.9


def episode(length, seed, end):
    """Return steps (obs, action, reward, next_obs, terminated, truncated). The last one ends the episode as `end`
    says."""
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


def built(steps, n_step):
    builder = NStep(n_step, GAMMA)
    return [
        each
        for obs, action, reward, next_obs, terminated, truncated in steps
        for each in builder.step(obs, action, reward, next_obs, terminated=terminated, truncated=truncated)
    ]


def naive(steps, n_step):
    """Return (obs, action, reward, next_obs, discount) of each step whose n steps or episode are complete."""
    found = []
    for t, (obs, action, *_) in enumerate(steps):
        total, factor = 0.0, 1.0
        for k in range(n_step):
            if t + k == len(steps):
                break
            _, _, reward, next_obs, terminated, truncated = steps[t + k]
            total, factor = total + factor * reward, factor * GAMMA
            if terminated or truncated or k == n_step - 1:
                found.append((obs, action, total, next_obs, 0.0 if terminated else factor))
                break
    return found


def assert_same(got, expected):
    assert len(got) == len(expected)
    for each, (obs, action, reward, next_obs, discount) in zip(got, expected):
        assert each.obs is obs and each.next_obs is next_obs and each.action == action
        assert each.reward == pytest.approx(reward, abs=1e-12) and each.discount == pytest.approx(discount, abs=1e-12)


@pytest.mark.parametrize("end", ["terminated", "truncated", "continues"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("n_step", [1, 2, 3, 5])
def test_sums_are_those_of_the_whole_episode(n_step, length, end):
    steps = episode(length, seed=length, end=end)
    assert_same(built(steps, n_step), naive(steps, n_step))


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_episodes_do_not_mix(n_step):
    parts = [
        episode(length, seed=length, end=end)
        for length, end in ((4, "terminated"), (1, "truncated"), (7, "truncated"), (2, "continues"))
    ]
    expected = [each for part in parts for each in naive(part, n_step)]
    assert_same(built([step for part in parts for step in part], n_step), expected)


def test_every_step_of_an_ended_episode_starts_one_transition():
    for length in range(1, 8):
        assert len(built(episode(length, seed=1, end="terminated"), 5)) == length


def test_the_value_after_a_truncation_counts_and_after_a_termination_not():
    ended, cut = (built(episode(3, seed=1, end=end), 2) for end in ("terminated", "truncated"))
    assert [each.discount for each in ended] == [GAMMA**2, 0.0, 0.0]
    assert [each.discount for each in cut] == pytest.approx([GAMMA**2, GAMMA**2, GAMMA])


def test_columns_have_a_row_for_each_transition_in_its_order():
    found = built(episode(6, seed=3, end="terminated"), 3)
    table = columns(found)
    assert {name: (column.dtype, column.shape) for name, column in table.items()} == {
        "obs": (np.float32, (6, 3)),
        "action": (np.int64, (6,)),
        "reward": (np.float32, (6,)),
        "next_obs": (np.float32, (6, 3)),
        "discount": (np.float32, (6,)),
    }
    for row, each in enumerate(found):
        assert (table["obs"][row] == each.obs).all() and table["action"][row] == each.action
        assert table["reward"][row] == np.float32(each.reward) and table["discount"][row] == np.float32(each.discount)

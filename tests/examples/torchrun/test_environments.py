"""A worker's environments: last observations, scaled rewards, counted episodes."""

import gymnasium
import numpy as np
import pytest

from examples.torchrun.environments import Environments
from examples.torchrun.learner import Times
from examples.torchrun.options import RunOptions


class Staircase(gymnasium.Env):
    """The observation counts the steps. Step 3 ends the episode: by the rules if the last action is 1."""

    observation_space, action_space = gymnasium.spaces.Box(0, 9, (1,), np.float64), gymnasium.spaces.Discrete(2)
    seeds = []

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.seeds.append(seed)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == 3
        return np.full(1, float(self.steps)), 2.0, bool(ended and action), bool(ended and not action), {}


gymnasium.register("Staircase-v0", entry_point=Staircase)


class Counter:
    """Stands in for the learner."""

    def __init__(self, seed):
        self.seed, self.times, self.observed = seed, Times(), []

    def observe(self, steps, returns):
        self.observed.append((steps, returns))


@pytest.fixture
def options():
    return RunOptions(environment="Staircase-v0", num_envs=2, total_steps=1, learning_rate=1, reward_scale=0.25)


def test_a_step_has_the_last_observation_of_an_episode_and_the_next_one_begins(options):
    envs, learner = Environments(options), Counter([1, 0, 0])
    envs.begin(learner)
    assert envs.obs.dtype == np.float32
    steps, seen = [], []
    for _ in range(4):
        steps.append(envs.step(np.array([0, 1])))
        seen.append(envs.obs.flatten().tolist())
    assert [step.next_obs.flatten().tolist() for step in steps] == [[1, 1], [2, 2], [3, 3], [1, 1]]
    assert seen == [[1, 1], [2, 2], [0, 0], [1, 1]]
    assert steps[2].truncated.tolist() == [True, False] and steps[2].terminated.tolist() == [False, True]
    assert not (steps[1].truncated | steps[1].terminated | steps[3].truncated | steps[3].terminated).any()
    assert steps[0].rewards.tolist() == [0.5, 0.5]
    assert learner.observed == [(2, []), (2, []), (2, [6.0, 6.0]), (2, [])]  # returns are not scaled
    assert learner.times.split()["environment"] > 0


def test_seeds_differ_between_environments_workers_and_phases(options):
    Staircase.seeds.clear()
    for seed in ([1, 0, 0], [1, 1, 0], [1, 0, 1], [2, 0, 0]):
        Environments(options).begin(Counter(seed))
    assert len(set(Staircase.seeds)) == 8 and max(Staircase.seeds) < 2**31

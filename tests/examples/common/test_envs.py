"""Vectorized environments: a game of Atari by its name, and the evaluation of a policy."""

import numpy as np

from examples.common.envs import make_envs, play
from sim.bench.pinned import needed


def test_play_returns_the_first_episode_of_each_environment():
    """CartPole ends sooner if it is always pushed to one side than if it is pushed to where the pole leans."""
    make = lambda: make_envs("CartPole-v1", 3)
    leaning = play(make(), lambda obs: (obs[:, 2] + obs[:, 3] > 0).astype(int), 7)
    pushed = play(make(), lambda obs: np.zeros(len(obs), int), 7)
    assert max(pushed) < 12 and min(leaning) > 100
    assert leaning == play(make(), lambda obs: (obs[:, 2] + obs[:, 3] > 0).astype(int), 7)
    # The seeds of the environments follow each other, and what comes after an episode does not count
    alone = [play(make_envs("CartPole-v1", 1), lambda obs: np.zeros(len(obs), int), 7 + k) for k in range(3)]
    assert [[each] for each in pushed] == alone and len(set(pushed)) > 1


def test_a_game_is_a_stack_of_frames():
    needed("ale_py", "ale-py")
    envs = make_envs("ALE/Pong", 2)
    obs, _ = envs.reset(seed=1)
    assert obs.shape == (2, 4, 84, 84) and obs.dtype == np.uint8 and envs.single_action_space.n == 6


def test_a_game_with_ram_in_its_name_is_the_memory():
    needed("ale_py", "ale-py")
    obs, _ = make_envs("ALE/Pong-ram", 2).reset(seed=1)
    assert obs.shape == (2, 128) and obs.dtype == np.float32

"""Atari observations: shrunk frames against means of an enlargement, stacks against their frames, and the memory."""

import numpy as np
import pytest

from examples.common.atari import SIDE, STACK, make_atari, make_atari_ram, shrink


@pytest.mark.parametrize("height,width,side", [(8, 8, 8), (16, 24, 8), (21, 16, 8), (9, 13, 5), (7, 7, 6), (1, 1, 1)])
def test_a_pixel_is_the_mean_of_what_it_covers(height, width, side):
    frame = np.random.default_rng(height).integers(0, 256, (height, width)).astype(np.uint8)
    large = (
        frame.repeat(side, 0).repeat(side, 1).astype(np.int64)
    )  # in which every new pixel is height x width old ones
    means = large.reshape(side, height, side, width).sum((1, 3)) / (height * width)
    assert (abs(shrink(frame, side) - means) <= 0.5 + 1e-3).all() and shrink(frame, side).dtype == np.uint8


def test_grey_stays_grey():
    for shade in (0, 1, 127, 255):
        assert (shrink(np.full((210, 160), shade, np.uint8)) == shade).all()


def test_stacks_are_four_frames_of_which_each_step_adds_one():
    env = make_atari("Breakout")
    stack, _ = env.reset(seed=1)
    assert stack.shape == (STACK, SIDE, SIDE) and stack.dtype == np.uint8 and stack.any() and (stack == stack[0]).all()
    rng = np.random.default_rng(1)
    for step in range(1, 20):
        after, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        assert (after[:-1] == stack[1:]).all() and not terminated and not truncated
        assert env.get_wrapper_attr("frames") == 4 * step
        stack = after
    assert (stack[0] != stack[-1]).any()


def test_a_game_repeats_with_its_seed():
    stacks = []
    for _ in range(2):
        env = make_atari("Pong")
        env.reset(seed=3)
        stacks.append([env.step(k % int(env.action_space.n))[0] for k in range(12)])
    assert np.array_equal(*stacks)


def test_the_memory_is_scaled_to_one_and_differs_by_the_seed():
    last = []
    for seed in (1, 2, 2):
        env = make_atari_ram("Breakout")
        obs, _ = env.reset(seed=seed)
        assert obs.shape == (128,) and obs.dtype == np.float32 and obs in env.observation_space
        for step in range(40):
            obs, *_ = env.step(1 + step % 3)
            memory = env.unwrapped.ale.getRAM()
            assert np.array_equal(np.rint((obs + 1) * 127.5), memory) and abs(obs).max() <= 1
        last.append(obs)
    assert np.array_equal(last[1], last[2]) and not np.array_equal(last[0], last[1])


def test_a_game_by_its_memory_ends_after_five_minutes():
    """Breakout without a serve would never end: 60 frames a second, four for each action."""
    env = make_atari_ram("Breakout")
    env.reset(seed=1)
    for step in range(1, 5 * 60 * 60 // 4 + 1):
        _, reward, terminated, truncated, _ = env.step(0)
        assert not terminated and not reward and truncated == (step == 4500)


@pytest.mark.parametrize("make", [make_atari, make_atari_ram])
def test_game_wrong(make):
    with pytest.raises(ValueError, match="there is no Atari game 'Tulip'"):
        make("Tulip")

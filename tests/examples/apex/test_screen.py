"""Atari frames: the smaller picture against means of an exact enlargement, stacks against the frames that they are made
of."""

import numpy as np
import pytest

from examples.apex.screen import SIDE, STACKED, AtariGame, shrink


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
    game = AtariGame("Breakout")
    stack = game.reset(seed=1)
    assert (
        stack.shape == (STACKED, SIDE, SIDE) and stack.dtype == np.uint8 and stack.any() and (stack == stack[0]).all()
    )
    rng = np.random.default_rng(1)
    for step in range(1, 20):
        after, _, terminated, truncated = game.step(int(rng.integers(game.actions)))
        assert (after[:-1] == stack[1:]).all() and not terminated and not truncated and game.frames == 4 * step
        stack = after
    assert (stack[0] != stack[-1]).any()


def test_games_repeat_with_the_seed():
    stacks = []
    for _ in range(2):
        game = AtariGame("Pong")
        game.reset(seed=3)
        stacks.append([game.step(k % game.actions)[0] for k in range(12)])
    assert np.array_equal(*stacks)


def test_an_unknown_game_is_named():
    with pytest.raises(ValueError, match="there is no Atari game 'Tulip'"):
        AtariGame("Tulip")

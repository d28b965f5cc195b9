"""The presets: their gradients have the sizes of the paper, and their options exist."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from examples.torchrun.run import gradient_bytes
from sim.bench.pinned import needed

FRAMES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
PAPER = {
    # Li et al., ISCA 2019, Table 1, with the spaces of the environments as Gymnasium documents them
    ("dqn", "pong"): (6.41e6, FRAMES, spaces.Discrete(6)),
    ("a2c", "qbert"): (3.31e6, FRAMES, spaces.Discrete(6)),
    ("ppo", "hopper"): (40.02e3, spaces.Box(-np.inf, np.inf, (11,)), spaces.Box(-1, 1, (3,))),
    ("ddpg", "halfcheetah"): (157.52e3, spaces.Box(-np.inf, np.inf, (17,)), spaces.Box(-1, 1, (6,))),  # both networks
}


def options_of(name, preset):
    module = importlib.import_module(f"examples.torchrun.{name}")
    return module, module.Options(**module.PRESETS[preset])


@pytest.mark.parametrize(("name", "preset"), PAPER)
def test_a_gradient_has_the_size_of_the_papers_within_one_percent(name, preset):
    size, observations, actions = PAPER[name, preset]
    module, options = options_of(name, preset)
    envs = SimpleNamespace(observations=observations, actions=actions)
    agent = module.make_agent(envs, options)
    assert gradient_bytes(module.make_optimizer(agent, options)) == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize(("name", "preset"), PAPER)
def test_the_spaces_are_those_of_the_environment(name, preset):
    needed("mujoco")
    from examples.torchrun.environments import Environments

    module, options = options_of(name, preset)
    envs = Environments(options)
    _, observations, actions = PAPER[name, preset]
    assert envs.observations.shape == observations.shape and envs.observations.dtype.kind == observations.dtype.kind
    assert envs.actions == actions

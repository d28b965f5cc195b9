"""Every option of a training script has a help text."""

import importlib

import pytest
import typer

pytest.importorskip("torch")


@pytest.mark.parametrize(
    "name",
    [
        "ppo",
        "async_ppo",
        "apex",
        "apex_atari",
        "ray_apex",
        "torchrun.a2c",
        "torchrun.ppo",
        "torchrun.ddpg",
        "torchrun.dqn",
    ],
)
def test_every_option_has_a_help_text(name):
    command = typer.main.get_command(importlib.import_module(f"examples.{name}").app)
    assert len(command.params) >= 10 and [option.name for option in command.params if not option.help] == []

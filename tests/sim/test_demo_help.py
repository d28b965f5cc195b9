"""Every option of a demo has a help text."""

import importlib

import pytest
import typer

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["demo", "demo_apex", "demo_atari", "demo_schedule"])
def test_every_option_has_a_help_text(name):
    command = typer.main.get_command(importlib.import_module(f"sim.{name}").app)
    assert len(command.params) >= 4 and [option.name for option in command.params if not option.help] == []

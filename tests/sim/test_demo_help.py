"""Every option of a demo says what it does."""

import importlib
import re
import sys

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["demo", "demo_apex", "demo_atari", "demo_schedule"])
def test_every_option_has_a_help_text(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"sim.{name}").main()
    assert ended.value.code == 0
    options = re.findall(r"^  (--[\w-]+)(?: [A-Z]+)? *(.*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(options) >= 4 and [option for option, words in options if not words] == []

"""`make cartpole-time` in small."""

import json
from dataclasses import replace

import pytest

from sim.cluster import cartpole
from sim.cluster.cartpole import TASK

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_command_trains_prints_a_table_and_writes_the_results(tmp_path, monkeypatch, capsys):
    """Four steps of the optimizer, which solve nothing."""
    few = replace(TASK.options, num_envs=1, num_steps=16, total_steps=64, epochs=1, evaluation_episodes=1)
    monkeypatch.setattr(cartpole, "TASK", replace(TASK, options=few, results=tmp_path / "rows.json"))
    cartpole.main(seeds=1, workers=2, only="asynchronous", threshold=1)
    written = json.loads((tmp_path / "rows.json").read_text())
    assert list(written["trainers"]) == ["asynchronous"] and written["asynchronous"] == {"threshold": 1, "staleness": 3}
    assert written["costs"] == {"step_us": 50.0, "gradient_us": 2000.0, "slowdown": 5.0}
    printed = " ".join(capsys.readouterr().out.split())
    title = "virtual seconds to a mean return of 450, 2 workers, one 5 times as slow"
    assert "asynchronous, seed 1: Row(seed=1, solved=False, seconds=" in printed and title in printed
    assert "curve" not in printed and "never" in printed.partition(title)[2]


def test_only_wrong():
    with pytest.raises(Exception, match=r"only must be one of synchronous, .*, not 'tulip'"):
        cartpole.main(only="tulip")

"""The table of the demo's seeds; the demo is left out."""

import json
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sim.bench import demo_seeds
from sim.bench.demo_seeds import app, deepest_fall, parse_seeds


def test_parse_seeds_ranges_and_lists():
    assert parse_seeds("1-3,7") == [1, 2, 3, 7] and parse_seeds("20") == [20]


@pytest.mark.parametrize("text", ["", "a", "1-", "1,,2", "-3"])
def test_seeds_wrong(text):
    with pytest.raises(typer.BadParameter, match="seeds are written as 1-20 or 1,5,7"):
        parse_seeds(text)


@pytest.mark.parametrize("returns, fall", [([1, 2, 3], 0), ([440, 210, 430], 230), ([5], 0), ([10, 4, 12, 7], 6)])
def test_the_deepest_fall_is_below_the_best_return_before_it(returns, fall):
    assert deepest_fall(returns) == fall


@pytest.mark.parametrize("codes, code, last", [({}, 0, "2 of 2 seeds solved"), ({8: 1}, 1, "1 of 2 seeds solved")])
def test_each_seed_is_a_row_and_a_seed_that_is_not_solved_fails(codes, code, last, monkeypatch, tmp_path):
    def call(command, **_):
        seed, out = (command[command.index(name) + 1] for name in ("--seed", "--out"))
        assert command[-2:] == ["--workers", "2"]
        summary = {
            "seed": int(seed),
            "mean_reward_eval": 499.5,
            "rewards_eval": [499, 500],
            "environment_steps": 90_000,
            "allreduces": 400,
            "train_s": 12.3,
            "weights_sha256": ["f" * 64],
            "curve": [{"mean_return": 20}, {"mean_return": 10}],
        }
        (Path(out) / "summary.json").write_text(json.dumps(summary))
        return codes.get(int(seed), 0)

    monkeypatch.setattr(subprocess, "call", call)
    run = CliRunner().invoke(app, ["7-8", "--out", str(tmp_path), "--workers", "2"])
    assert run.exit_code == code
    lines = run.output.splitlines()
    sha = f"`{'f' * 16}...`"
    assert lines[2:4] == [f"| {seed} | 499.5 | 499 | 10.0 | 90,000 | 400 | 12 | {sha} |" for seed in (7, 8)]
    assert lines[-1] == last
    assert len(lines[0].split("|")) == len(lines[1].split("|")) == len(lines[2].split("|"))


def test_a_run_without_a_summary_names_its_log(monkeypatch, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "summary.json").write_text("{}")  # of an earlier run
    monkeypatch.setattr(demo_seeds.subprocess, "call", lambda *_, **__: 1)
    run = CliRunner().invoke(app, ["7", "--out", str(tmp_path)])
    assert run.exit_code == 1 and f"| 7 | failed: see {tmp_path}/7/demo.log |" in run.output

"""Breakout on an Atari 2600 in virtual time: the command in small, and what its picture shows."""

import json
import statistics
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from examples import ppo
from sim.bench.pinned import needed
from sim.cluster import breakout
from sim.cluster.breakout import MAKE_TRAINERS, TASK, draw, median_row, random_returns
from sim.cluster.trainers import SERVERS
from sim.cluster.training_outcome import Point, Row

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = replace(TASK.options, num_envs=1, num_steps=16, epochs=1, num_minibatches=1)


def row(seconds, solved=True, seed=1):
    curve = [Point(seconds / 2, 10, 2.0), Point(seconds, 20, 4.5 if solved else 3.0)]
    return Row(seed, solved, seconds, curve[-1].mean_return, 8, 20, 0.0, "", curve)


def test_random_actions_score_as_in_the_literature():
    """1.7 in Mnih et al. 2015, table 2, with a standard deviation of about 1.4 in one episode."""
    needed("ale_py", "ale-py")
    mean = statistics.mean(random_returns(TASK.options.environment, 8))
    assert abs(mean - 1.7) < 3 * 1.4 / 8**0.5


def test_good_is_far_above_random_actions():
    """The mean of so many episodes of random actions is below it by more than ten standard errors."""
    assert TASK.options.solved_return - 1.7 > 10 * 1.4 / TASK.options.solved_episodes**0.5


@pytest.mark.parametrize("only", MAKE_TRAINERS)
def test_the_command_trains_draws_and_ends_with_equal_weights(only, tmp_path, monkeypatch, capsys):
    """`measure` raises an exception if the weights differ."""
    needed("ale_py", "ale-py")
    monkeypatch.setattr(breakout, "TASK", replace(TASK, options=SMALL, results=tmp_path / "rows.json"))
    monkeypatch.setattr(breakout, "random_returns", lambda environment, episodes: [1.0, 2.0])
    monkeypatch.setattr(ppo, "evaluate", lambda weights, options: [0.0])  # of a policy that may never serve the ball
    breakout.main(seeds=1, workers=2, only=only, total_steps=64, out=tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (training,) = json.loads((tmp_path / "rows.json").read_text())["trainers"][only]["trainings"]
    assert training["steps"] >= 64 and training["updates"] >= 2 and len(training["weights_sha256"]) == 64
    printed = capsys.readouterr().out
    assert "random actions: mean return 1.50, standard deviation 0.71" in printed and "never" in printed


def test_the_picture_has_a_bold_line_for_each_system_that_ends_at_its_median_time(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: figures.append(figure))
    found = {name: [row(k + 1.5, solved=False), row(k + 1.0), row(k + 2.0)] for k, name in enumerate(MAKE_TRAINERS)}
    draw(found, TASK.options, 1.4, tmp_path / "picture.png")
    (axes,) = figures[0].axes
    ends = {line.get_label(): line.get_xdata()[-1] for line in axes.lines if not line.get_label().startswith("_")}
    labels = [f"{name if name in SERVERS else f'iswitch, {name}'}: 2 of 3 good" for name in MAKE_TRAINERS]
    assert [label for label in ends if label not in ("good: 4", "random actions")] == labels
    assert [ends[label] for label in labels] == [k + 2.0 for k in range(len(labels))]
    assert "virtual seconds" in axes.get_xlabel() and "return" in axes.get_ylabel()


@pytest.mark.parametrize(
    "rows, median",
    [
        ([row(3.0), row(1.0), row(2.0)], 2.0),
        ([row(3.0), row(1.0, solved=False), row(2.0)], 3.0),  # one that did not learn took longer than all others
        ([row(3.0, solved=False), row(1.0, solved=False), row(2.0)], 1.0),
    ],
)
def test_the_median_training(rows, median):
    assert median_row(rows).seconds == median


def test_only_wrong():
    with pytest.raises(Exception, match=r"only must be one of: synchronous; .* not 'tulip'"):
        breakout.main(only="tulip")

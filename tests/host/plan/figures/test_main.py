"""`python -m iswitch.plan.figures`, on networks of a few switches."""

import subprocess
import sys

import pytest

from iswitch.plan.figures.simulations import SIMULATED_FIGURES, Simulations


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "iswitch.plan.figures", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_figure_is_a_table_a_picture_and_its_progress(tmp_path):
    done = run("--small", "--only", 11, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "grid_11.png").read_bytes().startswith(b"\x89PNG") and len(list(tmp_path.iterdir())) == 1
    assert "simulation 4/4: leaf-spine (a), 8 workers" in done.stderr
    assert "GRID over ATP" in done.stdout and "iswitch, several levels" in done.stdout


def test_the_testbed_is_drawn_beside_the_paper(tmp_path):
    done = run("--only", 4, "--only", 6, "--format", "svg", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid_4.svg", "grid_6.svg"]
    assert "398.6 (398.6)" in done.stdout  # Geryon's bar of AlexNet is one of the two that are taken from the paper


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--only", 9), "--only must be one of 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, not 9"),
        (("--format", "gif"), "--format must be png or svg, not 'gif'"),
    ],
)
def test_options_wrong(arguments, sentence):
    done = run(*arguments)
    assert done.returncode == 1 and done.stderr.strip() == sentence


def test_figures_share_their_simulations_and_run_those_that_they_announce():
    ran = []
    simulations = Simulations(small=True, on_run=ran.append)
    figures = {number: simulations.make(number) for number in SIMULATED_FIGURES}
    wanted = {each for number in SIMULATED_FIGURES for each in simulations.wanted(number)}
    assert len(ran) == len(set(ran)) and set(ran) == wanted
    for number, figure in figures.items():
        for panel in figure.panels:
            assert panel.values and all(len(values) == len(panel.places) for values in panel.values.values()), number

"""Gateware and golden model agree in every state of small jobs, and each comparison finds its mutants."""

from pathlib import Path

import pytest

from sim.refine import __main__ as command
from sim.refine.catalogue import REFINEMENTS, table

PAGE = Path(__file__).parents[3] / "docs" / "verification.md"


@pytest.mark.parametrize("refinement", REFINEMENTS, ids=lambda refinement: refinement.name)
def test_the_gateware_decides_as_the_model_in_every_state(refinement):
    assert refinement.run() == refinement.counts


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("refinement", "wrong"),
    [
        pytest.param(refinement, wrong, id=f"{refinement.name}-{wrong.wrong}")
        for refinement in REFINEMENTS
        for wrong in refinement.mutants
    ],
)
def test_a_mutant_is_found(refinement, wrong):
    assert refinement.notices(wrong) is not None


def test_every_job_has_a_mutant_and_a_name_of_its_own():
    assert all(refinement.mutants for refinement in REFINEMENTS)
    assert len({refinement.name for refinement in REFINEMENTS}) == len(REFINEMENTS)


def test_the_page_shows_the_catalogue():
    assert table() in PAGE.read_text(), "write the output of `python -m sim.refine --table` into docs/verification.md"


def test_the_command_compares_one_job_and_prints_what_it_counted(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["sim.refine", "--only", "numbers of claims"])
    assert command.main() == 0
    (chosen,) = [each for each in REFINEMENTS if each.name == "numbers of claims"]
    said = capsys.readouterr().out
    assert f"{chosen.counts.states:,} states, {chosen.counts.pairs:,} pairs, {chosen.counts.inputs:,} inputs" in said
    assert "1 of 1 jobs agree" in said


def test_counts_that_are_not_those_of_the_table_are_a_failure(monkeypatch, capsys):
    (chosen,) = [each for each in REFINEMENTS if each.name == "numbers of claims"]
    other = type(chosen)(**{**vars(chosen), "counts": chosen.counts._replace(pairs=1)})
    monkeypatch.setattr(command, "REFINEMENTS", [other])
    monkeypatch.setattr("sys.argv", ["sim.refine"])
    assert command.main() == 1
    assert "the table says" in capsys.readouterr().out

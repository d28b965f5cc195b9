"""The page shows the results that are kept, and each survivor among them is explained."""

import pytest

from sim.mutation.components import COMPONENTS
from sim.mutation.copied import ROOT
from sim.mutation.operators import mutants, sample
from sim.mutation.results import Result, Survivor, changed, digest, read, table, write

PAGE = ROOT / "docs" / "verification.md"
RESULTS = read()
KEPT = pytest.mark.parametrize(("component", "result"), RESULTS.items(), ids=RESULTS)


def test_the_page_shows_the_results():
    shown = table(RESULTS, changed(RESULTS))
    assert shown in PAGE.read_text(), "write the output of `python -m sim.mutation --table` into the page"


@KEPT
def test_survivors_are_those_that_passed_and_have_reasons(component, result):
    assert component in COMPONENTS
    assert {name for name, outcome in result.outcomes.items() if outcome == "passed"} == result.survivors.keys()
    assert [one for one in result.survivors.values() if not one.reason] == []


@KEPT
def test_of_the_mutants_that_differ_at_least_95_percent_are_noticed(component, result):
    assert result.noticed >= 0.95 * (result.built - result.equivalent)


@KEPT
def test_each_explained_place_is_still_in_the_source(component, result):
    """If this fails, the source has changed there: look at the mutant again, or run `python -m sim.mutation` anew."""
    found = {mutant.name for mutant in mutants((ROOT / component).read_text())}
    assert result.survivors.keys() - found == set()


def test_the_sample_of_each_file_that_has_not_changed_is_the_one_of_its_seed():
    """The page says which files have changed: their seeds choose other mutants now."""
    for component in RESULTS.keys() - changed(RESULTS):
        result, made = RESULTS[component], mutants((ROOT / component).read_text())
        assert result.places == len(made)
        assert result.outcomes.keys() == {one.name for one in sample(made, len(result.outcomes), result.seed)}


def test_the_row_of_a_file_that_has_changed_says_so(tmp_path):
    (tmp_path / "hw").mkdir()
    (tmp_path / "hw" / "a.py").write_text("a = 1\n")
    results = example()
    assert changed(results, tmp_path) == {"hw/a.py"}
    assert "| `hw/a.py`, an earlier source | 40 | 6 |" in table(results, changed(results, tmp_path))
    results["hw/a.py"].source = digest("a = 1\n")
    assert changed(results, tmp_path) == set()


def example() -> dict[str, Result]:
    survivors = {
        "b": Survivor("f", "a | b", "a ^ b", equivalent=True, reason="never both"),
        "c": Survivor("f", "x.eq(a)", "", reason="needs a reset"),
    }
    outcomes = {"a": "failed", "b": "passed", "c": "passed", "d": "refused", "e": "timed out", "f": "raised"}
    return {"hw/a.py": Result("0", 1, 40, outcomes, survivors)}


def test_counts_and_texts_of_the_table():
    lines = table(example()).splitlines()
    assert "| `hw/a.py` | 40 | 6 | 1 | 1 | 2 | 1 | 1 | 75 % |" in lines
    assert "| `hw/a.py` | `a \\| b` | `a ^ b` | never both |" in lines
    assert "| `hw/a.py` | `x.eq(a)` | left out | Missed: needs a reset |" in lines


def test_what_is_written_is_read(tmp_path):
    write(example(), tmp_path / "kept.json")
    assert read(tmp_path / "kept.json") == example()
    assert read(tmp_path / "none.json") == {}

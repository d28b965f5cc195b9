"""docs/mistakes.md shows the real messages."""

import warnings
from pathlib import Path

import pytest

from sim.mistakes.scenario import format_message, run_scenario
from sim.mistakes.table import SECTIONS, text

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made() -> str:
    return text()


def test_the_docs_show_the_messages(made: str) -> None:
    """Else: `python -m sim.mistakes > docs/mistakes.md`, and read what has changed."""
    assert (DOCS / "mistakes.md").read_text(encoding="utf-8").splitlines() == made.splitlines()


def test_there_are_twenty_and_more_each_with_a_remedy() -> None:
    mistakes = [each for section in SECTIONS.values() for each in section]
    assert len({each.action for each in mistakes}) == len(mistakes) >= 20
    assert all(each.remedy for each in mistakes)


def test_no_message_is_raw(made: str) -> None:
    """No number of an OSError, no message of the interpreter or of another package."""
    for raw in (
        "Errno",
        "Traceback",
        "object has no attribute",
        "NoneType",
        "OverflowError",
        "AssertionError",
        "KeyError",
    ):
        assert raw not in made


def test_a_scenario_ends_with_the_first_error_or_has_a_warning_or_fails() -> None:
    def fails(process):
        process.sleep(1)
        raise ValueError("late")

    def fails_first(process):
        process.sleep(0.5)
        raise TypeError("soon")

    def warns(process):
        warnings.warn("careful", UserWarning, stacklevel=1)
        process.sleep(2)

    assert run_scenario(fails, fails_first, warns) == format_message(TypeError("soon"))
    assert run_scenario(warns) == "UserWarning: careful"
    with pytest.raises(AssertionError, match="there was no message"):
        run_scenario(lambda process: process.sleep(1))

"""docs/mistakes.md is what mistakes really say."""

import warnings
from pathlib import Path

import pytest

from sim.mistakes.stage import message_of, play
from sim.mistakes.table import SECTIONS, text

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made() -> str:
    return text()


def test_the_docs_show_what_is_said(made: str) -> None:
    """Else: `python -m sim.mistakes > docs/mistakes.md`, and read what has changed."""
    assert (DOCS / "mistakes.md").read_text(encoding="utf-8").splitlines() == made.splitlines()


def test_there_are_twenty_and_more_each_with_what_helps() -> None:
    mistakes = [each for section in SECTIONS.values() for each in section]
    assert len({each.did for each in mistakes}) == len(mistakes) >= 20
    assert all(each.helps for each in mistakes)


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


def test_a_play_ends_with_the_first_error_or_has_a_warning_or_fails() -> None:
    def fails(player):
        player.sleep(1)
        raise ValueError("late")

    def fails_first(player):
        player.sleep(0.5)
        raise TypeError("soon")

    def warns(player):
        warnings.warn("careful", UserWarning, stacklevel=1)
        player.sleep(2)

    assert play(fails, fails_first, warns) == message_of(TypeError("soon"))
    assert play(warns) == "UserWarning: careful"
    with pytest.raises(AssertionError, match="there was no message"):
        play(lambda player: player.sleep(1))

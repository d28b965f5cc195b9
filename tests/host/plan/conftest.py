"""What the tests of `iswitch plan` share."""

import pytest

from iswitch.plan import console


@pytest.fixture
def wide_terminal(monkeypatch):
    """A terminal of 140 columns. A console keeps the COLUMNS of the moment in which it was made."""
    monkeypatch.setattr(console.out, "_width", 140)

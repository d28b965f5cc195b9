"""A section notes that an exception has ended it in the middle, and does not forget it."""

import pytest

from iswitch.driver.whole_section import WholeSection


def run(section, error=None):
    with section:
        assert section.is_torn
        if error:
            raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeoutError("an alarm"), RuntimeError(), SystemExit()])
def test_an_exception_in_the_middle_is_noted_for_good(error):
    section = WholeSection((OSError, ValueError))
    with pytest.raises(type(error)):
        run(section, error)
    assert section.is_torn
    run(section)
    assert section.is_torn


@pytest.mark.parametrize("error", [None, ConnectionRefusedError(), ValueError()])
def test_the_end_of_the_block_and_its_own_errors_leave_it_whole(error):
    section = WholeSection((OSError, ValueError))
    if error:
        with pytest.raises(type(error)):
            run(section, error)
    else:
        run(section)
    assert not section.is_torn

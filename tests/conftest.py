"""What `make test` leaves to `make test-all` beside what is marked slow; and no whole differences of long lists."""

import os
import re

import pytest

MUTANTS_KEPT = 4
"""Of each check's mutants, evenly spread: enough to show that the check is awake."""

for name in ("CI", "BUILD_NUMBER"):
    # Where one of them is set, pytest writes out all that differs, whatever its verbosity is.
    os.environ.pop(name, None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mutants = {}
    for item in items:
        name = item.originalname if hasattr(item, "originalname") else item.name
        if hasattr(item, "callspec") and re.search(r"slip|mutant", name):
            mutants.setdefault((item.path, name), []).append(item)
    for found in mutants.values():
        kept = {round(k * (len(found) - 1) / (MUTANTS_KEPT - 1)) for k in range(MUTANTS_KEPT)}
        for number, item in enumerate(found):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def one_thread():
    """Sums within torch in one order, and processor time for the other tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

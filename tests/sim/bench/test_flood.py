"""A software switch keeps its memory, and its job the right sums, while other processes send random bytes."""

import io

import pytest
from rich.console import Console

from sim.bench.flood import GROWTH_KB, Flood, flood, show


@pytest.mark.parametrize(
    ("seconds", "senders", "workers"), [(2, 2, 2), pytest.param(120, 10, 4, marks=pytest.mark.slow)]
)
def test_memory_is_constant_and_sums_are_right_beside_random_bytes(seconds, senders, workers):
    found = flood(seconds=seconds, senders=senders, workers=workers, nice=10)
    assert found.sums and not found.wrong and found.growth_kb <= GROWTH_KB
    refused = ("VERSION", "TYPE", "LENGTH", "JOB")
    assert found.sent and all(found.counters[f"outcome.{name}"] for name in refused)


def test_growth_is_what_came_after_the_first_look():
    found = Flood(120.0, 10, 2, 0, 0.1, [100, 90, 400, 350], {"outcome.TYPE": 7, "stat.NOTICES": 3})
    assert found.growth_kb == 300
    show(found, Console(file=(printed := io.StringIO()), width=100))
    assert "of these TYPE" in printed.getvalue() and "NOTICES" not in printed.getvalue()

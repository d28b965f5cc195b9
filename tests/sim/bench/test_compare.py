"""Every system that is compared gives the exact sum, and a wrong one is no figure."""

import pytest

from sim.bench import compare
from sim.bench.compare import Timing, draw, measure
from sim.bench.compare_systems import OTHER_CALLS, SYSTEMS, System


@pytest.mark.parametrize("system", [*SYSTEMS, *OTHER_CALLS, "bf16"])
def test_every_system_gives_the_exact_result(system):
    timing = measure(system, 40_000, 3, repetitions=4)
    assert 0 < timing.low <= timing.ms <= timing.high and timing.cpu_ms > 0


def test_the_echo_gives_an_array_back():
    assert measure("echo", 3_300_000, 1, repetitions=3).ms > 0


def connect_to_nothing(stack, address, rank, world):
    return lambda array: None


def test_a_wrong_sum_is_an_error(monkeypatch):
    monkeypatch.setitem(compare.ALL, "nothing", System(None, connect_to_nothing))
    monkeypatch.setattr(compare, "SPAWN", compare.multiprocessing.get_context("fork"))
    with pytest.raises(RuntimeError, match=r"nothing, 2 workers, 4000 bytes: rank [01] has a wrong sum"):
        measure("nothing", 4000, 2, repetitions=1)


def test_the_picture_has_a_panel_for_each_number_of_workers(tmp_path):
    rows = [
        (name, world, system, Timing(1.0, 0.5, 2.0, 3.0))
        for name in compare.SIZES
        for world in (2, 4)
        for system in SYSTEMS
    ]
    draw(rows, tmp_path / "compare.png")
    assert (tmp_path / "compare.png").stat().st_size > 10_000

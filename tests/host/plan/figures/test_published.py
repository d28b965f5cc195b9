"""The bars of the paper, compared with the numbers in its text."""

import pytest

from iswitch.plan.figures.published import (
    ATP,
    GERYON,
    GRID,
    GRID_OVER_ATP,
    MODELS,
    SWITCHML,
    TESTBED_WORKERS,
    WORKER_COUNTS,
    bars,
)

TEXT = {
    (5, "Inception-V3", -1): (16.9, 12.0, 11.4, 8),
    (12, "fat-tree", -1): (23.5, 10, 8.9, 1),
    (4, "", 2): (267, 239, 228, 181),
    (14, "fat-tree", -1): (465, 148, 178.45),
    (16, "fat-tree", 0): (86, 95, 81.6, 100),
}
"""Numbers of the text by figure, panel and place, in the order of GRID, ATP, SwitchML and Geryon."""


@pytest.mark.parametrize("place", TEXT)
def test_bars_are_the_numbers_of_the_text(place):
    number, panel, at = place
    measured = [values[at] for values in bars(number, panel).values()]
    assert measured == pytest.approx(TEXT[place], rel=0.015)


def test_every_panel_has_a_bar_for_each_place():
    for number in range(4, 17):
        for panel in ("", "Inception-V3", "VGG16", *WORKER_COUNTS):
            places = MODELS if number == 4 else WORKER_COUNTS.get(panel, TESTBED_WORKERS)
            assert all(len(values) == len(places) for values in bars(number, panel).values())
    assert bars(17) == {}


def test_the_stated_ratio_is_that_of_the_bars():
    measured = bars(11, "fat-tree")
    assert measured[GRID][0] / measured[ATP][0] == pytest.approx(GRID_OVER_ATP, rel=0.01)


@pytest.mark.parametrize(("kind", "workers_of_a_rack"), [("fat-tree", 4), ("leaf-spine", 10)])
def test_switchml_and_geryon_are_the_rate_of_the_ps_divided_by_racks_and_by_workers(kind, workers_of_a_rack):
    measured = bars(11, kind)
    for at, workers in enumerate(WORKER_COUNTS[kind]):
        assert measured[SWITCHML][at] == pytest.approx(100 / (workers / workers_of_a_rack), rel=0.01)
        assert measured[GERYON][at] == pytest.approx(100 / workers, abs=0.011)

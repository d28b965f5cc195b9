import pytest

from iswitch.estimate.costs import Costs
from iswitch.estimate.setting import Setting
from iswitch.estimate.systems import SYSTEMS, estimate
from sim.cluster import crossover
from sim.cluster.crossover import Cluster, Point, measure, sizes_ahead


def test_a_point_is_the_best_other_system_beside_the_switch():
    found = estimate(Setting(size_bytes=40_020, workers=6, rack=3, rate_bps=25e9))
    point = measure(40_018, Cluster(6, 3), 25)  # whole elements
    others = {name: phases.total_s for name, phases in found.phases.items() if name != "iswitch"}
    assert point.best == min(others, key=others.__getitem__)
    assert point.best_s == min(others.values()) and point.ratio == pytest.approx(found.ratio(point.best))


def test_the_sizes_at_which_the_switch_is_ahead_are_ranges_of_neighbours():
    ahead, behind, equal = (Point("ring", best_s, 1.0, 1.0) for best_s in (2.0, 0.5, 1.0))
    assert sizes_ahead({1: ahead, 2: ahead, 4: behind, 8: ahead}) == [(1, 2), (8, 8)]
    assert sizes_ahead({8: ahead, 4: equal, 2: behind, 1: behind}) == [(4, 8)]
    assert sizes_ahead({1: behind}) == []


def test_a_call_that_takes_no_time_shortens_the_sum_by_that_time():
    point = measure(40_020, Cluster(4), 10)
    assert point.ours_s - point.free_call_s == pytest.approx(Costs().udp_call_us / 1e6)


def test_every_other_system_has_a_short_name():
    assert set(crossover.SHORT_NAMES) == set(SYSTEMS) - {"iswitch"}


def test_the_command_writes_a_picture(tmp_path, monkeypatch):
    for name, value in (("SIZES", [4_000, 8_000]), ("RATES_GBPS", [10]), ("CLUSTERS", [Cluster(2), Cluster(4, 2)])):
        monkeypatch.setattr(crossover, name, value)
    monkeypatch.setattr(crossover, "OUT", tmp_path / "rows.json")
    crossover.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "rows.json").read_text().count("best_s") == 4

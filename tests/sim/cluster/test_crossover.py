import pytest

from iswitch.estimate.setting import Setting
from iswitch.estimate.systems import SYSTEMS, estimate
from sim.cluster import crossover
from sim.cluster.crossover import Cluster, Point, last_ahead, measure


def test_a_point_is_the_best_other_system_beside_the_switch():
    found = estimate(Setting(size_bytes=40_020, workers=6, rack=3, rate_bps=25e9))
    point = measure(40_018, Cluster(6, 3), 25)  # whole elements
    others = {name: phases.total_s for name, phases in found.phases.items() if name != "iswitch"}
    assert point.best == min(others, key=others.__getitem__)
    assert point.best_s == min(others.values()) and point.ratio == pytest.approx(found.ratio(point.best))


def test_the_switch_is_ahead_up_to_the_last_size_before_the_first_at_which_it_is_not():
    ahead, behind = Point("ring", 2.0, 1.0), Point("ring", 1.0, 2.0)
    assert last_ahead({1: ahead, 2: ahead, 4: behind, 8: ahead}) == 2
    assert last_ahead({1: behind, 2: ahead}) is None
    assert last_ahead({1: ahead, 2: Point("ring", 1.0, 1.0)}) == 2


def test_every_other_system_has_a_short_name():
    assert set(crossover.SHORT_NAMES) == set(SYSTEMS) - {"iswitch"}


def test_the_command_writes_a_picture(tmp_path, monkeypatch):
    for name, value in (("SIZES", [4_000, 8_000]), ("RATES_GBPS", [10]), ("CLUSTERS", [Cluster(2), Cluster(4, 2)])):
        monkeypatch.setattr(crossover, name, value)
    monkeypatch.setattr(crossover, "OUT", tmp_path / "rows.json")
    crossover.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "rows.json").read_text().count("best_s") == 4

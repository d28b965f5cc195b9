"""Trees of many workers: rows of the table, and the ring that is too large to simulate."""

from dataclasses import replace

import pytest

from iswitch.estimate.collectives import ring
from iswitch.estimate.costs import Costs, describe_costs
from iswitch.estimate.setting import Setting
from iswitch.estimate.switch import mask_bytes, switch_sum
from sim.cluster import scale


@pytest.mark.parametrize(("workers", "bytes_more"), [(4, 0), (32, 0), (33, 2), (64, 8), (1024, 248)])
def test_more_than_32_workers_need_two_longer_masks(workers, bytes_more):
    assert mask_bytes(workers) == bytes_more


def test_longer_masks_take_longer():
    below, beyond = (switch_sum(157_520, fan_ins, Costs(), rate_bps=10e9).last_s for fan_ins in ((8, 4), (8, 5)))
    level = switch_sum(157_520, (8, 5), replace(Costs(), clock_hz=1e15), rate_bps=10e9).last_s
    assert below < beyond and level > switch_sum(157_520, (8, 4), replace(Costs(), clock_hz=1e15), rate_bps=10e9).last_s


def test_a_ring_that_is_not_simulated_has_the_rounds_of_a_smaller_one(monkeypatch):
    setting = Setting(size_bytes=480_000, workers=12, rate_bps=10e9)
    simulated = ring(setting).communication_s
    monkeypatch.setattr(scale, "MOST_RING_WORKERS", 6)
    assert scale.ring_s(setting) == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize(("workers", "rack"), [(2, None), (5, None), (8, 4), (9, 3)])
def test_the_least_time_of_an_allreduce_is_that_of_a_ring_whose_hosts_and_cables_only_carry_bytes(workers, rack):
    free = dict.fromkeys([name for name, *_ in describe_costs(Costs()) if name.endswith(("_us", "_ns"))], 0)
    setting = Setting(size_bytes=4_000_000, workers=workers, rack=rack, costs=Costs(**free))
    assert scale.least_s(setting) < ring(setting).communication_s < 1.05 * scale.least_s(setting)


def test_the_command_prints_a_row_for_each_tree_and_writes_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scale, "SIZES", [1_400])
    monkeypatch.setattr(scale, "TREES", [(2,), (2, 2), (2, 2, 2)])
    scale.main(tmp_path / "picture.png", 10)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert all(shape in out for shape in ("2 x 2 ", "2 x 2 x 2"))

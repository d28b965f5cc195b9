"""The model of the switch is held to the real driver at the compiled RTL."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from iswitch.estimate.costs import Costs
from iswitch.estimate.server import parameter_server
from iswitch.estimate.setting import Setting
from iswitch.estimate.switch import switch_sum
from sim.cluster import headline
from sim.cluster.headline import ALGORITHMS, setting_of, share_compute_s
from sim.cluster.rtl_sum import rtl_sum_s

FREE_CALL = Costs(udp_call_us=0)
"""Virtual time does not count the driver's Python."""


@pytest.mark.parametrize("name", ["ppo", "ddpg"])
@pytest.mark.parametrize(
    "costs", [FREE_CALL, replace(FREE_CALL, udp_burst_us=0, udp_datagram_us=0)], ids=["host", "no host"]
)
def test_the_model_of_the_switch_takes_the_time_of_the_rtl(name, costs):
    size = ALGORITHMS[name].size_bytes
    model_s = switch_sum(size, (4,), costs, rate_bps=10e9).last_s
    assert model_s == pytest.approx(rtl_sum_s(size, 4, costs, rate_bps=10e9), rel=0.1)


@pytest.mark.parametrize("workers, rack", [(4, 2), (6, 3), (8, 2)])
def test_the_model_of_a_tree_takes_the_time_of_the_rtl(workers, rack):
    model_s = switch_sum(40_020, (rack, workers // rack), FREE_CALL, rate_bps=10e9).last_s
    assert model_s == pytest.approx(rtl_sum_s(40_020, workers, FREE_CALL, rate_bps=10e9, rack=rack), rel=0.05)


def test_the_time_of_computing_gives_the_share():
    setting = Setting(size_bytes=40_020)
    found = parameter_server(replace(setting, compute_s=share_compute_s(setting, 0.5)))
    assert found.share == pytest.approx(0.5, abs=0.01)


def test_the_readme_shows_the_ratios_that_the_command_prints(tmp_path, monkeypatch, capsys):
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\*\*([A-Z0-9]+)\*\* (\d\.\d\d), (\d\.\d\d), (\d\.\d\d)", readme)
    monkeypatch.setattr(headline, "OUT", tmp_path / "headline.json")
    monkeypatch.setattr(headline, "WORLDS", (4,))
    headline.main()
    printed = capsys.readouterr().out
    kept = json.loads((tmp_path / "headline.json").read_text())
    assert all(f"{key} {value:.2f}" in printed for key, value in kept.items())
    assert rows == [
        (name.upper(), *(f"{lead:.2f}" for lead, _ in list(headline.leads(setting_of(name, Costs())).values())[:3]))
        for name in ALGORITHMS
    ]
    for _, *ratios in rows:
        assert re.search(".*".join(re.escape(f"{ratio} (") for ratio in ratios), printed)

"""Ratios with measured costs are those of the models, and the page shows them."""

import json
import re
from dataclasses import asdict, replace
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
import typer
from rich.console import Console

from iswitch.estimate.costs import Costs
from iswitch.estimate.server import parameter_server
from iswitch.estimate.setting import Setting
from iswitch.estimate.switch import switch
from iswitch.estimate.systems import ISWITCH
from sim.cluster.headline import ALGORITHMS, setting_of
from sim.cluster.measured_ratios import RATIOS, ratios, show_measured
from sim.cluster.system_costs import PARTS, Measured, costs_of, message_bytes, read

ROOT = Path(__file__).parents[3]
SIZE = 40_020
SETTING = Setting(size_bytes=SIZE, compute_s=0.25e-3)
TCP = ("tcp_call_us", "wake_us", "tcp_send_byte_ns", "tcp_receive_byte_ns")
SUMS = ("sum_byte_ns", "update_byte_ns")
DRIVER = ("udp_call_us", "udp_burst_us", "udp_datagram_us")


def turn(costs):
    values = asdict(costs)
    tcp = {str(message_bytes(system, SIZE)): {name: values[name] for name in TCP} for system in PARTS}
    return Measured(SIZE, 0.0, tcp, {name: values[name] for name in SUMS}, {name: values[name] for name in DRIVER})


def text_of(**changed):
    """Return a file of one turn, some of which is changed."""
    return json.dumps([turn(Costs())._asdict() | changed])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "[1]", "3", '[{"size": 1}]', "\u00e9", text_of(load=None), text_of(tcp={}), text_of(driver={})]
    + [text_of(driver=dict.fromkeys(DRIVER, wrong)) for wrong in ("1", -1)],
)
def test_a_file_without_all_costs_is_refused_with_the_command_that_writes_one(tmp_path, text):
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(typer.BadParameter, match=r"costs\.json has not all costs .* sim\.cluster\.system_costs --out"):
        read(tmp_path / "costs.json")


def test_what_is_missing_in_a_file_is_named(tmp_path):
    (tmp_path / "costs.json").write_text(text_of(sums={"sum_byte_ns": 1.0}))
    with pytest.raises(typer.BadParameter, match="there is no update_byte_ns"):
        read(tmp_path / "costs.json")
    (tmp_path / "costs.json").write_text(text_of())
    assert read(tmp_path / "costs.json", [SIZE]) == [turn(Costs())]
    with pytest.raises(typer.BadParameter, match="there is no 3,310,000 bytes, 6,410,000 bytes"):
        read(tmp_path / "costs.json", [SIZE, 3_310_000, 6_410_000])


def test_measured_costs_that_are_the_defaults_give_the_same_ratios():
    for call_us in (0, Costs().udp_call_us):
        costs = Costs(udp_call_us=call_us)
        for found in ratios(replace(SETTING, costs=costs), [turn(costs)]).values():
            assert found.measured == found.default == found.least == found.most
            assert found.free_call > found.default if call_us else found.free_call == found.default


def test_each_cost_is_the_median_of_the_turns_and_single_turns_are_the_range():
    turns = [turn(Costs(udp_call_us=call_us)) for call_us in (300, 0, 100)]
    assert costs_of(turns, SIZE, ISWITCH) == Costs(udp_call_us=100)
    found = ratios(SETTING, turns)["sync_over_ps"]
    server_s = parameter_server(SETTING).total_s
    expected = [
        server_s / switch(replace(SETTING, costs=Costs(udp_call_us=call_us))).total_s for call_us in (100, 300, 0)
    ]
    assert (found.measured, found.least, found.most) == pytest.approx(expected)
    assert found.free_call == pytest.approx(expected[-1])


def test_each_system_has_the_costs_of_its_own_messages():
    tcp = {str(message_bytes(system, SIZE)): {"tcp_call_us": message_bytes(system, SIZE)} for system in PARTS}
    row = Measured(SIZE, 0.0, tcp, {}, {})
    found = {system: costs_of([row], SIZE, system).tcp_call_us for system in PARTS}
    assert found["parameter server"] == SIZE and found["ring"] == found["sharded server"] == SIZE // 4


def shown():
    """Return the rows of the table in docs/cluster.md: algorithm, ratio, and the four columns."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    columns = r"([\d.]+) \| \*{0,2}([\d.]+)\*{0,2} \| ([\d.]+ to [\d.]+) \| ([\d.]+) \|"
    return re.findall(rf"\| `cluster\.(\w+)\.(\w+)` \| {columns}", page)


def test_the_page_shows_the_ratios_that_the_command_prints():
    assert sorted((algorithm, name) for algorithm, name, *_ in shown()) == sorted(product(ALGORITHMS, RATIOS))
    output = StringIO()
    settings = {name: setting_of(name, Costs()) for name in ("ppo", "ddpg")}
    show_measured(Console(width=120, file=output), settings, read())
    cells = r" +│ +([\d.]+) +│ +([\d.]+) +│ +([\d.]+ to [\d.]+) +│ +([\d.]+)"
    printed = re.findall(rf"cluster\.(\w+)\.(\w+){cells}", output.getvalue())
    assert len(printed) == 2 * len(RATIOS) and set(printed) <= set(shown())


def test_the_results_have_the_measured_ratios_of_the_page():
    measured = {(algorithm, name): ratio for algorithm, name, _, ratio, *_ in shown()}
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for name in ALGORITHMS:
        row = "; ".join(measured[name, each] for each in ("sync_over_ps", "sync_over_ring", "async_over_ps"))
        assert re.search(rf"^\| {name.upper()}: `cluster\.{name}\.\*` \| {row} \| [^|]+ \|$", results, re.MULTILINE)

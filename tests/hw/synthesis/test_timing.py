"""The report of `make timing`, on a component whose slowest path is known."""

import json
from pathlib import Path

import pytest
import typer
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

import hw.synthesis.timing
from hw.synthesis.timing import ASKED_MHZ, DEVICES, PARTS, component, place, place_of, report


class Squarer(Component):
    """A long path between two registers of its own, and a short one."""

    number: In(24)
    short: Out(1)
    fourth: Out(24)

    def elaborate(self, platform):
        m = Module()
        begin = Signal(24)
        end = Signal(24)
        short = Signal()
        # Were it plainly the input, it would be merged with a register around.
        m.d.sync += [
            begin.eq(begin ^ self.number),
            short.eq(self.number[0]),
            end.eq((begin + (begin << 3))[:24] + ((begin << 5) ^ (begin + 77))[:24]),
        ]
        m.d.comb += [self.fourth.eq(end), self.short.eq(short)]
        return m


def test_slowest_path_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(hw.synthesis.timing, "BUILD", tmp_path)
    found = place("squarer", *component(Squarer()))
    clock = found["clocks"]["core"]
    assert (
        clock["achieved_mhz"] > 20
        and clock["required_mhz"] == ASKED_MHZ
        and found["timing_met"] == (clock["achieved_mhz"] >= ASKED_MHZ)
    )
    assert found["path"]["from"].startswith("begin") and found["path"]["to"].startswith("end")
    assert found["path"]["ns"] == pytest.approx(1000 / clock["achieved_mhz"], rel=0.02)
    assert found["path"]["ns"] == pytest.approx(found["path"]["logic_ns"] + found["path"]["routing_ns"], abs=0.02)
    assert found["resources"]["FF"]["used"] >= 24 + 24 and not found["resources"]["EBR"]["used"]
    assert (Path(tmp_path) / "squarer" / "nextpnr.log").exists()


@pytest.mark.parametrize("root", ["switch", "i-switch"])
def test_places_are_those_of_the_sources(root, monkeypatch):
    monkeypatch.setattr(hw.synthesis.timing, "ROOT", Path("/") / root)
    names = {
        "part.switch.core.state": f"{hw.synthesis.timing.ROOT}/hw/decide/core.py:12.5-13.9",
        "part.x": "elsewhere.py:1",
    }
    assert place_of("part.switch.core.state_TRELLIS_FF_Q_3", names) == "core.state (hw/decide/core.py:12.5)"
    assert place_of("part.x_LUT4_Z_D_CCU2C_S0", names) == "x"
    assert place_of("nobody", names) == "nobody"


def test_report_takes_the_path_between_registers():
    step = lambda kind, ns, cell: {"type": kind, "delay": ns, "from": {"cell": cell}, "to": {"cell": cell}}
    routed = {
        "fmax": {"clk": {"achieved": 100.04, "constraint": 125.0}},
        "utilization": {name: {"used": 1, "available": 2} for name in hw.synthesis.timing.RESOURCES},
        "critical_paths": [
            {"from": "<async>", "to": "posedge clk", "path": [step("routing", 99.0, "pin")]},
            {
                "from": "posedge clk",
                "to": "posedge clk",
                "path": [
                    step("clk-to-q", 0.5, "a"),
                    step("routing", 4.0, "b"),
                    step("logic", 0.5, "b"),
                    step("routing", 5.0, "c"),
                    step("setup", 0.0, "c"),
                ],
            },
        ],
    }
    found = report(routed, {"modules": {"top": {"netnames": {}}}})
    path = found["path"]
    assert (path["from"], path["to"], path["ns"], path["levels"], path["routing_ns"]) == ("a", "c", 10.0, 1, 9.0)
    assert (
        found["clocks"]["core"] == {"required_mhz": 125.0, "achieved_mhz": 100.04, "slack_ns": -1.996}
        and not found["timing_met"]
    )


@pytest.mark.parametrize(
    ("only", "device", "part"),
    [
        ("accumulator8", "", "LFE5UM5G-85F-8BG554"),
        ("accumulator", "", "LFE5U-45F-6BG256"),
        ("accumulator8", "25f", "LFE5U-25F-6BG256"),
    ],
)
def test_each_part_is_placed_in_its_device(only, device, part, tmp_path, monkeypatch, capsys):
    placed = []

    def instead(name, module, pins, *, seed, device):
        rtlil.convert(module, ports=pins)
        placed.append((name, DEVICES[device].part, seed))
        path = {"levels": 1, "ns": 8.0, "routing_ns": 4.0, "from": "a", "to": "b"}
        return {"path": path, "timing_met": False, "clocks": {"core": {"achieved_mhz": 100.0}}, "resources": {}}

    monkeypatch.setattr(hw.synthesis.timing, "BUILD", tmp_path)
    monkeypatch.setattr(hw.synthesis.timing, "place", instead)
    monkeypatch.setitem(PARTS, only, lambda config: Squarer())
    hw.synthesis.timing.main(parts=False, only=only, device=device, seed=3)
    assert placed == [(only, part, 3)]
    assert "125 MHz is not met" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["designs"][only]["device"] == part


def test_device_that_is_not_there():
    with pytest.raises(typer.BadParameter, match="there is no '12f'; there are 25f, 45f, 85f"):
        hw.synthesis.timing.main(parts=False, only="lane", device="12f", seed=1)

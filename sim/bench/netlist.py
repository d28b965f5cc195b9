"""A switch as Yosys maps it to an ECP5, with models of that part's cells instead of what they were made from: a design for `sim.emulator`."""

import tempfile
from functools import cache
from pathlib import Path

from hw.build import rtlil, tool
from iswitch.config import Config

__all__ = ["MODELS", "mapped", "modelled", "netlist"]

MODELS = Path(__file__).with_name("dp16kd.v")
"""Of the block RAM, of which Yosys has none. There is none of multipliers: no design of ECP5 boards has one."""


def netlist(text: str, top: str, folder: Path) -> Path:
    """`netlist.v` in the folder: RTLIL by `synth_ecp5`, as for nextpnr."""
    (folder / "design.il").write_text(text)
    tool("yosys", ["-q", "-l", "yosys.log", "-p", f"read_rtlil design.il; synth_ecp5 -top {top}; write_verilog -noattr netlist.v"], folder)
    return folder / "netlist.v"


def modelled(verilog: Path, top: str, models: str = "") -> str:
    """A netlist as RTLIL again, flat, each of its cells replaced by its model: Yosys' own, but for the block RAM. `models`: another text of that.
    RuntimeError for a cell without a model."""
    folder = verilog.parent
    (folder / "models.v").write_text(models or MODELS.read_text(encoding="utf-8"))
    # Of Yosys' cells only what the netlist has is read on: a hierarchy without the others.
    tool("yosys", ["-q", "-p", f"read_verilog +/ecp5/cells_sim.v; delete DP16KD; read_verilog models.v; read_verilog {verilog.name}; "
                   f"hierarchy -check -top {top}; select -assert-none =A:blackbox; proc; flatten; opt_clean; write_rtlil modelled.il"], folder)
    return (folder / "modelled.il").read_text()


@cache
def mapped(config: Config) -> str:
    """RTLIL of the netlist of `hw.build.rtlil`, for the `design` of a board: the same ports. Minutes."""
    with tempfile.TemporaryDirectory() as name:
        return modelled(netlist(rtlil(config), "switch", Path(name)), "switch")

"""A switch as Yosys maps it to an ECP5, built of models of that part's cells: a design for `sim.emulator`."""

import tempfile
from functools import cache
from pathlib import Path

from hw.synthesis.emit import rtlil, tool
from iswitch.config import Config

__all__ = ["MODELS", "mapped", "modelled", "netlist", "through"]

MODELS = Path(__file__).with_name("ecp5.v")
"""Models of the block RAM, of which Yosys has none, and of LUT4, in one operation. Multipliers have none: no switch of
the ECP5 boards has one."""


def netlist(text: str, top: str, folder: Path) -> Path:
    """Return `netlist.v` in the folder: RTLIL by `synth_ecp5`, as for nextpnr."""
    (folder / "design.il").write_text(text)
    tool(
        "yosys",
        [
            "-q",
            "-l",
            "yosys.log",
            "-p",
            f"read_rtlil design.il; synth_ecp5 -top {top}; write_verilog -noattr netlist.v",
        ],
        folder,
    )
    return folder / "netlist.v"


def modelled(verilog: Path, top: str, models: str = "") -> str:
    """Return a netlist as flat RTLIL again, with each of its cells replaced by its model. Raises RuntimeError for a
    cell without one. `models` is another text of ours."""
    folder = verilog.parent
    (folder / "models.v").write_text(models or MODELS.read_text(encoding="utf-8"))
    left = " ".join(f"{top}/t:*{cell}*" for cell in ("LUT", "MUX", "PFU", "CCU2C", "TRELLIS", "DP16KD", "MULT"))
    # Names last: a compiler reads those of tens of thousands of cells' insides for minutes.
    tool(
        "yosys",
        [
            "-q",
            "-p",
            "read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v; delete LUT4 =DP16KD; read_verilog models.v; "
            f"read_verilog {verilog.name}; hierarchy -check -top {top}; proc; opt_expr; opt_clean; flatten -wb "
            "-noscopeinfo; "
            f"select -assert-none {left}; attrmap -remove src -remove hdlname; opt_expr; memory_collect; opt_clean "
            "-purge; "
            "rename -hide w:* c:*; rename -enumerate; write_rtlil modelled.il",
        ],
        folder,
    )
    return (folder / "modelled.il").read_text()


def through(text: str, top: str = "top", *, models: str = "") -> str:
    """Return RTLIL as RTLIL, through the netlist."""
    with tempfile.TemporaryDirectory() as name:
        return modelled(netlist(text, top, Path(name)), top, models)


@cache
def mapped(config: Config) -> str:
    """Return the netlist of `hw.synthesis.emit.rtlil`, with the same ports, as the `design` of an emulated board.
    Minutes."""
    return through(rtlil(config), "switch")

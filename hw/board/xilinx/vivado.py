"""The part of `make bitstream` for Xilinx boards: a project, and a bitstream if Vivado is installed.

The folder then has the project (`project.tcl`, `build.sh`, the constraints), the Verilog, and `report.json` with Yosys'
counts, whether or not a bitstream is made.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rich.console import Console

import hw.synthesis.timing_paths
from hw.board.boards import DEFAULT_IP, DEFAULT_MAC, Board
from hw.board.shell import Shell
from hw.board.utilisation import xilinx_report
from hw.board.xilinx.check import Project, check
from hw.board.xilinx.constraints import xdc
from hw.board.xilinx.emission import emit_port, emit_top, shell_stub, stubs
from hw.board.xilinx.project import BITSTREAM, CLOCKS, SCRIPT, TIMING, build_sh, project_tcl, write_project
from hw.board.xilinx.top import Top

__all__ = ["VivadoMissingError", "TimingNotMetError", "make", "stubbed_project"]


class VivadoMissingError(RuntimeError):
    """Vivado is not installed; all other files have been made."""


class TimingNotMetError(RuntimeError):
    """Vivado has routed the design, but timing is not met."""


def project_of(board: Board, top: Top, files: dict[str, str]) -> Project:
    return Project(
        files,
        stubs(board, top),
        board.part,
        hidden=tuple(pattern for ip in top.wiring.ips.values() for pattern, _ in ip.hidden),
    )


def stubbed_project(board: Board) -> Project:
    """Return the board's project with an empty shell, made in seconds, for checks that do not look inside the shell."""
    top, text = emit_top(board)
    sources = {"top.v": text, **emit_port(board), "shell.v": shell_stub(board)}
    ips = list(top.wiring.ips.values())
    name = f"{board.name}.xdc"
    return project_of(
        board,
        top,
        {
            **sources,
            name: xdc(board, top),
            SCRIPT: project_tcl(board.part, list(sources), name, ips),
            "build.sh": build_sh(),
            **{file: content for ip in ips for file, content in ip.files},
        },
    )


def make(
    board: Board, folder: Path, *, mac: str = DEFAULT_MAC, ip: str = DEFAULT_IP, operator_key: int = 0
) -> dict[str, Any]:
    """Make the project and return its report.

    Raises VivadoMissingError if Vivado is not on PATH, TimingNotMetError if timing is not met, and RuntimeError if the
    project breaks a rule of `hw.board.xilinx.check` or Vivado fails. `report.json` is written in all of these cases
    except a broken rule.
    """
    console = Console(stderr=True)
    with console.status(f"{board.name}: project"):
        top = write_project(board, folder, mac=mac, ip=ip, operator_key=operator_key)
    texts = {
        path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".v", ".xdc", ".tcl", ".prj", ".sh")
    }
    breaches = check(project_of(board, top, texts))
    if breaches:
        raise RuntimeError(f"the project of {board.name} is not sound: " + "; ".join(breaches))
    with console.status(f"{board.name}: synthesis by Yosys, for the report; some ten minutes"):
        requested_mhz = {domain.name: round(domain.mhz, 4) for domain in top.wiring.domains}
        report: dict[str, Any] = {
            "tool": "yosys",
            "bitstream": None,
            "requested_mhz": requested_mhz,
            **synthesis(board),
        }
    write(report, folder)
    if not shutil.which("vivado"):
        raise VivadoMissingError(
            f"there is no Vivado on PATH, so no bitstream; the project is in {folder}, and build.sh there makes it"
        )
    done = subprocess.run(["sh", "build.sh"], cwd=folder, check=False)
    report |= {"tool": "vivado", **routed(board, folder)}
    report["bitstream"] = BITSTREAM if done.returncode == 0 and (folder / BITSTREAM).exists() else None
    write(report, folder)
    if report["timing_met"] is False:
        raise TimingNotMetError(f"timing is not met; {folder / 'timing.rpt'} has the paths")
    if report["bitstream"] is None:
        raise RuntimeError(f"Vivado failed; {folder / 'vivado.log'} says why")
    return report


def write(report: dict[str, Any], folder: Path) -> None:
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")


def synthesis(board: Board) -> dict[str, Any]:
    """Return Yosys' report of the shell: resources and critical paths; minutes. Vendor IP and the ports behind
    transceivers are not in it."""
    shell = Shell(board.config, clock_hz=round(board.core_mhz * 1e6))
    netlist, cells = hw.synthesis.timing_paths.synthesise(board.name, shell, family=board.family)
    return xilinx_report(board, netlist, cells)


def routed(board: Board, folder: Path) -> dict[str, Any]:
    """Return the results of Vivado's run. Clocks without a path between their registers are left out."""
    timing, listed, used = folder / TIMING, folder / CLOCKS, folder / "utilization.rpt"
    met = None
    if timing.exists():
        setup, hold, pulse = timing.read_text().split()
        met = float(setup) >= 0 and float(hold) >= 0 and pulse == "1"
    clocks = {}
    for line in listed.read_text().splitlines() if listed.exists() else ():
        name, period, slack = line.split()
        if slack != "none":
            clocks[name] = {
                "required_mhz": round(1e3 / float(period), 4),
                "achieved_mhz": round(1e3 / (float(period) - float(slack)), 1),
                "slack_ns": float(slack),
            }
    counts = utilisation(used.read_text()) if used.exists() else {}
    return {
        "timing_met": met,
        "clocks": clocks,
        **(
            {
                "resources": {
                    name: {"used": number, "available": board.available[name]} for name, number in counts.items()
                }
            }
            if counts
            else {}
        ),
    }


def utilisation(text: str) -> dict[str, float]:
    """Parse `report_utilization`: LUTs, registers, block RAM in units of 36 Kib, DSPs."""
    rows = {"LUT": r"(?:Slice|CLB) LUTs", "FF": r"(?:Slice|CLB) Registers", "RAMB36": "Block RAM Tile", "DSP": "DSPs"}
    found = {}
    for name, title in rows.items():
        match = re.search(rf"^\|\s*{title}\*?\s*\|\s*([\d.]+)\s*\|", text, re.MULTILINE)
        if match:
            found[name] = float(match.group(1)) if "." in match.group(1) else int(match.group(1))
    return found

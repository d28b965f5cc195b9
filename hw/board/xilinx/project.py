"""The Vivado project of a board: a script that makes IP, synthesises, places, routes, and writes a bitstream only if
timing is met."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hw.board.boards import Board
from hw.board.xilinx.constraints import xdc
from hw.board.xilinx.emission import emit_port, emit_shell, emit_top
from hw.board.xilinx.ip import Ip
from hw.board.xilinx.top import Top

__all__ = ["BITSTREAM", "CLOCKS", "SCRIPT", "TIMING", "build_sh", "project_tcl", "write_project"]

SCRIPT, BITSTREAM, TIMING, CLOCKS = "project.tcl", "top.bit", "timing.txt", "clocks.txt"


def project_tcl(part: str, sources: Sequence[str], constraints: str, ips: Sequence[Ip]) -> str:
    """Return the script. It stands with its files in one folder, works in `vivado/` there, and writes reports beside
    itself."""
    return "\n".join(commands(part, sources, constraints, ips)) + "\n"


def commands(part: str, sources: Sequence[str], constraints: str, ips: Sequence[Ip]) -> Iterator[str]:
    yield "# vivado -mode batch -source project.tcl"
    yield "set here [file dirname [file normalize [info script]]]"
    yield "cd $here"
    yield f"create_project -force iswitch vivado -part {part}"
    for source in sources:
        yield f"read_verilog {source}"
    yield f"read_xdc {constraints}"
    # Clocks made by IP are known only after its netlists are linked.
    yield f"set_property used_in_synthesis false [get_files {constraints}]"
    for ip in ips:
        yield f"\n# {ip.core}: {ip.licence}"
        yield from ip.tcl()
    yield "\ngenerate_target all [get_ips]"
    yield "synth_ip [get_ips]"
    yield f"synth_design -top top -part {part} -flatten_hierarchy rebuilt"
    yield "report_utilization -file utilization_synth.rpt"
    yield "opt_design"
    yield "place_design"
    yield "phys_opt_design"
    yield "route_design"
    yield "phys_opt_design"
    for report in (
        "utilization -file utilization.rpt",
        "timing_summary -delay_type min_max -max_paths 20 -file timing.rpt",
        "cdc -details -file cdc.rpt",
        "methodology -file methodology.rpt",
        "clock_interaction -file clock_interaction.rpt",
        "drc -file drc.rpt",
        "route_status -file route_status.rpt",
    ):
        yield f"report_{report}"
    yield "write_checkpoint -force top.dcp"
    yield "\n# Each clock and its slack"
    yield f"set out [open {CLOCKS} w]"
    yield "foreach clock [get_clocks] {"
    yield "    set path [get_timing_paths -quiet -delay_type max -max_paths 1 -from $clock -to $clock]"
    slack = "[expr {[llength $path] ? [get_property SLACK $path] : {none}}]"
    yield f'    puts $out "$clock [get_property PERIOD $clock] {slack}"'
    yield "}"
    yield "close $out"
    yield "\n# No bitstream unless all paths are timed, and timing is met"
    yield "set setup [get_property SLACK [get_timing_paths -delay_type max -max_paths 1]]"
    yield "set hold [get_property SLACK [get_timing_paths -delay_type min -max_paths 1]]"
    yield "set pulse [regexp {All user specified timing constraints are met} [report_timing_summary -return_string]]"
    yield f"set out [open {TIMING} w]"
    yield 'puts $out "$setup $hold $pulse"'
    yield "close $out"
    yield "if {$setup eq {} || $hold eq {} || $setup < 0 || $hold < 0 || !$pulse} {"
    yield '    error "timing is not met: setup $setup ns, hold $hold ns; see timing.rpt"'
    yield "}"
    yield f"write_bitstream -force -bin_file {BITSTREAM}"


def build_sh() -> str:
    lines = (
        "#!/bin/sh",
        "# Needs Vivado on PATH",
        "set -e",
        'cd "$(dirname "$0")"',
        "exec vivado -mode batch -nojournal -log vivado.log -source project.tcl",
    )
    return "\n".join(lines) + "\n"


def write_project(board: Board, folder: Path, *, shell: str | None = None, **settings: Any) -> Top:
    """Write all files of the project except those that Vivado makes. `shell` is the shell's Verilog, if it is not to be
    emitted now; `settings` as in `emit_top`."""
    folder.mkdir(parents=True, exist_ok=True)
    top, text = emit_top(board, **settings)
    sources = {"top.v": text, **emit_port(board), "shell.v": emit_shell(board) if shell is None else shell}
    ips = list(top.wiring.ips.values())
    files = {
        **sources,
        f"{board.name}.xdc": xdc(board, top),
        SCRIPT: project_tcl(board.part, list(sources), f"{board.name}.xdc", ips),
        "build.sh": build_sh(),
        **{name: content for ip in ips for name, content in ip.files},
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "build.sh").chmod(0o755)
    return top

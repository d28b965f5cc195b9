"""Rules for a project's Tcl script: the part is the board's, steps are in order, and timing is checked before a
bitstream is written."""

import re
from collections.abc import Iterator, Mapping, Sequence

from hw.board.xilinx.tcl import Command, Nested, commands
from hw.board.xilinx.xdc import options

__all__ = ["script_rules"]


def script_rules(script: Sequence[Command], part: str) -> Iterator[str]:
    places: dict[str, int] = {}
    for k, command in enumerate(script):
        places.setdefault(str(command[0]), k)
        if command[0] in ("create_project", "synth_design"):
            given, _ = options(command)
            if given.get("-part") != [part]:
                yield f"{command[0]} takes part {given.get('-part', ['none'])[0]}, not {part}"
    steps = ["create_project", "synth_design", "opt_design", "place_design", "route_design", "write_bitstream"]
    missing = [step for step in steps if step not in places]
    yield from (f"project.tcl lacks {step}" for step in missing)
    if missing:
        return
    if [places[step] for step in steps] != sorted(places[step] for step in steps):
        yield f"project.tcl has its steps not in the order {', '.join(steps)}"
    for report in ("report_utilization", "report_timing_summary", "report_cdc", "report_methodology"):
        if not any(k > places["route_design"] and command[0] == report for k, command in enumerate(script)):
            yield f"project.tcl lacks {report} behind route_design"
    for kind, delay_type in (("setup", "max"), ("hold", "min")):
        if not guarded(script, places, kind, delay_type):
            yield f"project.tcl writes a bitstream without having stopped for {kind} that is not met"


def guarded(script: Sequence[Command], places: Mapping[str, int], kind: str, delay_type: str) -> bool:
    """Return True if, between routing and the bitstream, the script reads the slack and stops with an error if it is
    negative or missing."""
    window = range(places["route_design"] + 1, places["write_bitstream"])
    taken = [
        k
        for k in window
        if script[k][:2] == ("set", kind)
        and isinstance(script[k][2], Nested)
        and re.search(rf"get_property SLACK \[get_timing_paths .*-delay_type {delay_type}\b", script[k][2].text)
    ]
    return any(
        script[k][0] == "if"
        and f"${kind} < 0" in str(script[k][1])
        and f"${kind} eq {{}}" in str(script[k][1])
        and "&&" not in str(script[k][1])
        and any(inner[0] == "error" for inner in commands(str(script[k][2])))
        for begin in taken
        for k in window
        if k > begin
    )

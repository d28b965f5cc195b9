"""From a synthesised ECP5 design to a bitstream with met timing: Yosys, nextpnr with one seed after another, ecppack;
and the report."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hw.synthesis.emit import tool

__all__ = [
    "CORE",
    "RESOURCES",
    "SECONDS",
    "SEEDS",
    "Clock",
    "bitstream",
    "device_options",
    "placer_options",
    "report",
    "synthesise",
]

SEEDS = (1, 2, 3, 4)
"""Seeds of the placement, tried until timing is met."""
SECONDS = 7200
"""Seconds for which a seed is placed and routed before the next one is tried: a router may never free the last wires.
Twice the time of the fullest board under load."""
TIMING_WEIGHT = 100
"""How much nextpnr's placer `heap` weighs delays against lengths of wires; its default is 10. After placement of the
switch of `make timing` in an LFE5UM5G-85F, nextpnr estimates 81 MHz with 10, 83 with 30, 102 with 100 and 100 with
300."""
CORE = "core"
"""Name of the switch's clock."""
RESOURCES = {"TRELLIS_COMB": "LUT", "TRELLIS_FF": "FF", "DP16KD": "EBR", "MULT18X18D": "DSP"}
"""nextpnr's names of the scarce resources, and ours. RAM in LUTs is counted with the LUTs."""
SYNTHESIS = "-nowidelut"
"""Five-input multiplexers made of pairs of LUTs cost the whole switch some 5 % more LUTs than they save."""

CELLS = (
    "-cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r "
    "-cell $_DFFE_??_ 01 -cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r"
)
"""The flip-flops of an ECP5 in Yosys' terms, as in `synth_ecp5`."""
RESET_FLIP_FLOPS_MIN, ENABLE_FLIP_FLOPS_MIN = 100, 4
"""Smaller groups of flip-flops with the same synchronous reset, or the same clock enable, get it by logic. The 8
flip-flops of a tile share one reset net and the 2 of a slice one enable: on a full device, a small group finds no
place."""
NARROW_BITS = 17
"""Adders and comparisons of up to so many bits are made of LUTs, which the mapper then merges with the logic around
them; wider ones of carry chains. The smallest board's switch is smaller with 17 than with 5 or 9."""
ABC = "&scorr;&sweep;&dc2;&dch,-f,-r;&if,{W},{D},-a;&mfs;&st;&dch,-f,-r;&if,{W},{D},-a;&mfs"
"""ABC's script: that of Yosys' `abc9`, with mapping for area, twice."""

LOGIC_SHARE = 0.5
"""Share of a clock's period that the mapper may use; routing takes the rest. It refers to Yosys' delays, with 0.3 ns
for each route."""


class Clock(NamedTuple):
    """A clock that must reach `mhz`. Its net's name in the netlist begins with `net`."""

    net: str
    mhz: float


def placer_options(placer: str) -> list[str]:
    """Return nextpnr's options for a placer of nextpnr."""
    weight = ["--placer-heap-timingweight", str(TIMING_WEIGHT)] if placer == "heap" else []
    return ["--placer", placer, *weight]


def device_options(part: str) -> list[str]:
    """Return nextpnr's options for a part such as LFE5U-25F-6BG256. Raises ValueError for a part that is not an
    ECP5."""
    found = re.fullmatch(r"LFE5(U|UM|UM5G)-(\d+)F-(\d)BG(\d+)", part)
    if not found:
        raise ValueError(f"part must be an ECP5 in a ball grid array, not {part!r}")
    family, size, speed, balls = found.groups()
    return [
        f"--{ {'U': '', 'UM': 'um-', 'UM5G': 'um5g-'}[family] }{size}k",
        "--package",
        f"CABGA{balls}",
        "--speed",
        speed,
    ]


def synthesise(name: str, folder: Path, sources: list[str], *, core_mhz: float, apart: tuple[str, ...] = ()) -> None:
    """Make `<name>.json` of `<name>.il` and Verilog sources.

    Submodules `apart`, those of faster clocks, are each mapped alone and for the shortest delay. The rest is mapped to
    be as small as its clock allows; otherwise Yosys would make all of it as fast as possible, with one delay target for
    everything that it maps.
    """
    read = [*(f"read_verilog {source}" for source in sources), f"read_rtlil {name}.il"]

    def run(log: str, *script: str) -> None:
        tool("yosys", ["-q", "-l", f"{log}.log", "-p", "; ".join(script)], folder)

    for part in apart:
        run(
            part,
            *read,
            f"synth_ecp5 {SYNTHESIS} -top {name}.{part}",
            "delete =A:blackbox =A:whitebox",
            f"write_rtlil {part}.il",
        )
    modules = " ".join(f"{name}.{part}" for part in apart)
    run(
        "yosys",
        *read,
        *([f"blackbox {modules}"] if apart else []),
        f"scratchpad -set abc9.D {round(LOGIC_SHARE * 1e6 / core_mhz)}",
        f'scratchpad -set abc9.script "+{ABC}"',
        f"synth_ecp5 {SYNTHESIS} -top {name} -run begin:map_gates",
        f"select -set narrow t:$alu r:Y_WIDTH<={NARROW_BITS} %i",
        "techmap -map +/techmap.v @narrow",
        f"synth_ecp5 {SYNTHESIS} -top {name} -run map_gates:map_ffs",
        f"dfflegalize -minsrst {RESET_FLIP_FLOPS_MIN} -mince {ENABLE_FLIP_FLOPS_MIN} {CELLS}",
        f"synth_ecp5 {SYNTHESIS} -top {name} -run map_ffs:",
        *([f"delete {modules}"] if apart else []),
        "write_rtlil whole.il",
    )
    run(
        "merge",
        "read_rtlil whole.il",
        *(f"read_rtlil {part}.il" for part in apart),
        f"hierarchy -top {name}",
        "flatten",
        "clean",
        f"write_json {name}.json",
    )


def bitstream(
    name: str,
    folder: Path,
    *,
    part: str,
    core_mhz: float,
    required: dict[str, Clock],
    sources: list[str],
    progress: Callable[[str], None],
    placer: str,
    apart: tuple[str, ...] = (),
    seeds: tuple[int, ...] = SEEDS,
) -> dict[str, Any]:
    """Make `<name>.bit` and `<name>.svf`, if one of the seeds meets the timing, and return the report of the best seed;
    `late` are the seeds given up.

    `required` has the clocks by name. `placer` is nextpnr's. `apart`: see `synthesise`. Raises RuntimeError if a tool
    fails, or finds a clock without a constraint, or if no seed is routed within SECONDS.
    """
    begun = time.monotonic()
    for old in (f"{name}.bit", f"{name}.svf"):
        (folder / old).unlink(missing_ok=True)
    progress(f"{name}: synthesis")
    synthesise(name, folder, sources, core_mhz=core_mhz, apart=apart)
    best: dict[str, Any] = {}
    late: list[int] = []
    for seed in seeds:
        progress(f"{name}: placing and routing with seed {seed}; up to an hour, nextpnr.{seed}.log says how far it is")
        routed = folder / f"nextpnr.{seed}.json"
        routed.unlink(missing_ok=True)
        failure = ""
        try:
            tool(
                "nextpnr-ecp5",
                [
                    "-q",
                    "--log",
                    f"nextpnr.{seed}.log",
                    *device_options(part),
                    "--json",
                    f"{name}.json",
                    "--lpf",
                    f"{name}.lpf",
                    "--textcfg",
                    f"{name}.config",
                    "--report",
                    routed.name,
                    "--freq",
                    str(core_mhz),
                    "--seed",
                    str(seed),
                    *placer_options(placer),
                ],
                folder,
                seconds=SECONDS,
            )
        except subprocess.TimeoutExpired:
            late.append(seed)
            continue
        except RuntimeError as error:
            failure = str(error)
        if not routed.exists():
            raise RuntimeError(failure)
        found = report(json.loads(routed.read_text()), required) | {"board": name, "part": part, "seed": seed}
        if found["timing_met"] and failure:
            raise RuntimeError(failure)
        if not best or slack(found) > slack(best):
            best = found
        if found["timing_met"]:
            progress(f"{name}: bitstream")
            tool(
                "ecppack",
                ["--compress", "--input", f"{name}.config", "--bit", f"{name}.bit", "--svf", f"{name}.svf"],
                folder,
            )
            break
    if not best:
        raise RuntimeError(
            f"none of the seeds {', '.join(map(str, late))} was routed within {SECONDS} seconds: raise SECONDS "
            "in hw/synthesis/place_and_route.py on a "
            "slower machine, or make the board's Config smaller"
        )
    return best | {
        "bitstream": f"{name}.bit" if best["timing_met"] else None,
        "seeds": list(seeds[: seeds.index(seed) + 1]),
        "late": late,
        "seconds": round(time.monotonic() - begun),
    }


def slack(found: dict[str, Any]) -> float:
    return min(clock["slack_ns"] for clock in found["clocks"].values())


def report(routed: dict[str, Any], required: dict[str, Clock]) -> dict[str, Any]:
    """Return nextpnr's report in our terms. Raises RuntimeError if a clock is missing, is not one of `required`, or was
    routed for less."""
    clocks = {}
    for net, clock in routed["fmax"].items():
        name = next((name for name in required if net.removeprefix("$glbnet$").startswith(required[name].net)), None)
        if name is None or name in clocks or clock["constraint"] < required[name].mhz - 0.01:
            raise RuntimeError(
                f"clock {net}, routed for {clock['constraint']:.2f} MHz, is none of {', '.join(required)}"
            )
        clocks[name] = {
            "required_mhz": required[name].mhz,
            "achieved_mhz": round(clock["achieved"], 2),
            "slack_ns": round(1e3 / required[name].mhz - 1e3 / clock["achieved"], 3),
        }
    if clocks.keys() != required.keys():
        raise RuntimeError(f"no path was timed with {', '.join(required.keys() - clocks.keys())}")
    return {
        "timing_met": all(clock["slack_ns"] >= 0 for clock in clocks.values()),
        "clocks": {name: clocks[name] for name in required},
        "resources": {
            ours: {
                "used": routed["utilization"][theirs]["used"],
                "available": routed["utilization"][theirs]["available"],
            }
            for theirs, ours in RESOURCES.items()
        },
    }

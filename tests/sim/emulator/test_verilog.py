# amaranth: UnusedElaboratable=no
"""Rewritten Verilog does what Amaranth simulates, cycle for cycle."""

import re

import numpy as np
import pytest
from amaranth.hdl import Array, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sim.bench.compiled import Compiled
from sim.bench.stream import Bench
from sim.emulator import verilog


class Cell(wiring.Component):
    """Registers of all kinds: one holds, one does not, one is set bit by bit, and a signal is nearly a next value."""

    load: In(1)
    clear: In(1)
    at: In(3)
    value: In(8)
    held: Out(8, init=5)
    free: Out(8)
    next: Out(8)
    bits: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.free.eq(self.held ^ self.value)
        seen = self.free + self.held
        m.d.comb += self.next.eq(Mux(self.load, seen, self.bits))
        with m.If(self.load):
            m.d.sync += [self.held.eq(self.value), Array(self.bits)[self.at].eq(self.value[0])]
            with m.If(self.clear):
                m.d.sync += [self.held.eq(self.free), self.bits.eq(self.bits + 1)]
        with m.Elif(self.clear):
            m.d.sync += [self.free.eq(0), self.bits[2:5].eq(self.held)]
        return m


class Cells(wiring.Component):
    """Three cells in a row."""

    load: In(3)
    clear: In(1)
    at: In(3)
    value: In(8)
    out: Out(8)
    last: Out(8)
    bits: Out(8)

    def elaborate(self, platform):
        m = Module()
        value = self.value
        for k in range(3):
            m.submodules[f"cell_{k}"] = cell = Cell()
            m.d.comb += [
                cell.load.eq(self.load[k]),
                cell.clear.eq(self.clear),
                cell.at.eq(self.at),
                cell.value.eq(value),
            ]
            value = cell.next
        m.d.comb += [self.out.eq(value), self.last.eq(cell.held), self.bits.eq(cell.bits)]
        return m


def simulated(rows, outputs):
    dut, seen = Cells(), []

    async def drive(ctx):
        for row in rows:
            for name in ("load", "clear", "at", "value"):
                ctx.set(getattr(dut, name), int(row[name]))
            seen.append(tuple(int(ctx.get(getattr(dut, name))) for name in outputs.names))
            await ctx.tick()

    Bench(dut).drive(drive)
    return np.array(seen, outputs)


@pytest.fixture
def texts(monkeypatch, tmp_path):
    """The Verilog before and after it is rewritten, with sharing of modules however small; no library is kept."""
    kept, rewritten = [], verilog.rewritten

    def kept_too(text):
        kept.append((text, rewritten(text)))
        return kept[-1][1]

    monkeypatch.setattr(verilog, "SHARED_LINES", 1)
    monkeypatch.setattr(verilog, "rewritten", kept_too)
    monkeypatch.setattr("sim.bench.compiled.BUILD", tmp_path)
    return kept


def test_rewritten_verilog_does_what_amaranth_simulates(texts):
    dut = Compiled(Cells())
    rng = np.random.default_rng(3)
    rows = dut.rows(
        2_000,
        **{
            name: rng.integers(1 << bits, size=2_000)
            for name, bits in (("load", 3), ("clear", 1), ("at", 3), ("value", 8))
        },
    )
    assert (dut.run(rows) == simulated(rows, dut.outputs)).all()

    ((before, after),) = texts
    cells = lambda text: re.findall(r"^module .*cell_\d ", text, re.MULTILINE)
    loads = lambda text: len(re.findall(r"always_ff @\(posedge clk\) begin", text))
    assert len(cells(before)) == 3 > len(cells(after))
    assert loads(before) == 0 < loads(after)
    assert after.count("no_inline_module") == 1


@pytest.mark.parametrize(
    "block",
    [
        "  always_comb begin\n    n = r;\n    m = r;\n  end\n",  # computes two signals
        "  always_comb begin\n    n = r;\n    n = { n[1:0], a };\n  end\n",  # reads its own
        "  always_comb begin\n    n = r;\n  end\n  assign q = n;\n",  # is used elsewhere
        "  always_comb begin\n    n[1] = a;\n  end\n",  # holds some bits
    ],
)
def test_a_next_value_that_is_used_otherwise_stays_a_signal(block):
    register = "  reg [2:0] n;\n  reg [2:0] r;\n  always_ff @(posedge clk)\n    r <= n;\n"
    text = f"module t (clk, a);\n{register}{block}endmodule\n"
    assert verilog.rewritten(text) == text

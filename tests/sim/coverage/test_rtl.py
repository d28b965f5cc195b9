"""Which branches, states and bits of the RTL a load reaches: counted by Verilator, and put together here."""

import ctypes
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal

from sim.coverage.rtl import Counts, Gap, Share, gaps, kept, part_of, shares, table
from sim.emulator import toolchain
from sim.emulator.toolchain import CompileError, shared, verilate

PAGE = Path(__file__).parents[3] / "docs" / "verification.md"
BITS = 100
RISES, STAYS_UP = 40, 70
"""Bits of words 1 and 2 of a signal of four words of 32 bits: the first one rises and falls, the other only rises."""
RUNNER = """
#include "switch.h"
extern "C" __attribute__((visibility("default"))) void run(const char *path, int cycles) {
    VerilatedContext context;
    Vswitch top{&context};
    for (int cycle = 0; cycle < cycles; cycle++) {
        top.clk = 0, top.eval();
        top.clk = 1, top.eval();
    }
    context.coveragep()->write(path);
}
"""


def design():
    """A machine of three states. The second one is left after a cycle, and the third one never reached."""
    m = Module()
    wide, count = Signal(BITS, name="wide"), Signal(4, name="count")
    m.d.sync += count.eq(count + 1)
    with m.FSM():
        with m.State("FIRST"):
            with m.If(count == 3):
                m.d.sync += [wide[RISES].eq(1), wide[STAYS_UP].eq(1)]
                m.next = "SECOND"
        with m.State("SECOND"):
            m.d.sync += wide[RISES].eq(0)
            m.next = "FIRST"
            with m.If(count == 15):
                m.next = "THIRD"
        with m.State("THIRD"):
            m.next = "FIRST"
    return m, wide


def counted(work, cycles=12):
    """Run the design, and return its counts and its Verilog."""
    m, wide = design()
    (work / "switch.il").write_text(rtlil.convert(m, name="switch", ports=[wide]))
    includes, flags, sources, objects = verilate(work, "switch", top="switch", coverage=True)
    (work / "switch.h").write_text("\n".join([*includes, ""]))
    (work / "runner.cpp").write_text(RUNNER)
    made = shared((includes, flags, [(work / "runner.cpp", "-O0"), *sources], objects), work, "design.so")
    path = work / "counts.dat"
    ctypes.CDLL(str(made)).run(str(path).encode(), cycles)
    counts = Counts()
    counts.add(path)
    return counts, (work / "switch.v").read_text()


def changed_bits(counts):
    """Return the bits of `wide` that rose, and those that fell."""
    found = {"0->1": set(), "1->0": set()}
    for point, reached in zip(counts.points, counts.reached.tolist(), strict=True):
        if reached and point["o"].startswith("wide["):
            bit, direction = point["o"].removeprefix("wide[").split("]:")
            found[direction].add(int(bit))
    return found


def test_branches_states_and_bits_that_were_reached_are_counted_and_the_others_named(tmp_path):
    counts, verilog = counted(tmp_path)
    assert changed_bits(counts) == {"0->1": {RISES, STAYS_UP}, "1->0": {RISES}}
    (row,) = shares(counts, verilog).values()
    assert row["states"] == Share(2, 3)
    assert row["bits"].reached < row["bits"].all
    missed = gaps(counts, verilog)
    assert [gap.text for gap in missed if gap.kind == "states"] == ["2"]
    assert row["branches"].all - row["branches"].reached >= sum(gap.kind == "branches" for gap in missed) > 0


@pytest.mark.mutant
def test_bits_that_are_counted_for_each_word_above_are_noticed(tmp_path, monkeypatch):
    """As Verilator's own header does."""
    monkeypatch.setattr(toolchain, "_mend_toggles", lambda include, model: None)
    counts, _ = counted(tmp_path)
    assert changed_bits(counts)["0->1"] > {RISES, STAYS_UP}


def test_a_header_that_need_not_be_mended_is_refused(tmp_path):
    (tmp_path / "verilated_cov.h").write_text("// another Verilator\n")
    with pytest.raises(CompileError, match="counts toggles right"):
        toolchain._mend_toggles(tmp_path, tmp_path)


def dat(path, *points):
    """Write counts as Verilator does: (line, column, page, comment, count)."""
    fields = lambda l, n, page, o: "".join(
        f"\x01{key}\x02{value}" for key, value in {"f": "switch.v", "l": l, "n": n, "page": page, "o": o}.items()
    )
    path.write_text("".join(f"C '{fields(*point[:4])}' {point[4]}\n" for point in points))
    return path


VERILOG = """module \\switch.switch.queue_0 (clk);
  always_comb begin
    full = 1'h0;
    if (a) begin
    end
  end
endmodule
module \\switch.switch.queue_1 (clk);
  always_comb begin
    full = 1'h0;
    if (a) begin
    end
  end
endmodule
"""


def test_instances_of_a_module_count_once(tmp_path):
    counts = Counts()
    for taken in ((1, 0), (0, 0)):
        counts.add(
            dat(
                tmp_path / "counts",
                (4, 5, "v_branch/x", "if", taken[0]),
                (4, 6, "v_branch/x", "else", 0),
                (11, 5, "v_branch/x", "if", 0),
                (11, 6, "v_branch/x", "else", 0),
            )
        )
    assert shares(counts, VERILOG) == {"queue": {"branches": Share(1, 2)}}
    assert gaps(counts, VERILOG) == [Gap("switch.switch.queue", "branches", "full", "if (a) begin else")]


def test_counts_of_another_library_are_refused(tmp_path):
    counts = Counts()
    counts.add(dat(tmp_path / "counts", (4, 5, "v_branch/x", "if", 1)))
    with pytest.raises(ValueError, match="2 points beside 1"):
        counts.add(dat(tmp_path / "counts", (4, 5, "v_branch/x", "if", 1), (4, 6, "v_branch/x", "else", 0)))


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("switch.switch", "switch"),
        ("switch.switch.queue_3", "queue"),
        ("switch.switch.core.ring.lowest$102", "core.ring"),
        ("switch.switch.output_0.results", "output"),
    ],
)
def test_a_module_belongs_to_a_part_of_the_switch(module, part):
    assert part_of(module) == part


def test_the_docs_show_what_was_reached():
    """If this fails: `python -m sim.coverage.rtl --show docs/rtl_coverage.json` prints the table."""
    assert table(kept()[0]) in PAGE.read_text(encoding="utf-8")

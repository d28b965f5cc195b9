"""What is emitted for the boards passes Verilator's lint and Yosys' checks, and designs that must not pass do not."""

import pytest
from amaranth.hdl import DriverConflict, Instance, Module, Signal
from amaranth.lib.wiring import Component, In, Out

import hw.board.lint
from hw.board.boards import BOARDS, DEFAULT
from hw.board.lint import WAIVERS, Finding, Waiver, check_structure, lint, parse, refused, unneeded, verilator
from hw.synthesis.emit import component_verilog
from iswitch.config import Config

EACH = [
    pytest.param(board, id=name, marks=[] if name == DEFAULT else [pytest.mark.slow]) for name, board in BOARDS.items()
]


@pytest.mark.parametrize("board", EACH)
def test_what_is_emitted_for_a_board_is_clean_and_every_waiver_is_needed(board, tmp_path, monkeypatch):
    monkeypatch.setattr(hw.board.lint, "BUILD", tmp_path)
    assert lint(board) == []


def module(text: str, folder):
    """A module `top` of clock, 4-bit a and 8-bit b, driving y."""
    path = folder / "top.v"
    path.write_text(
        f"module top(input clk, input [3:0] a, input [7:0] b, output reg [3:0] y);\n{text}\nendmodule\n"
        "module taker(input [3:0] a, output [3:0] y);\n  assign y = ~a;\nendmodule\n"
    )
    return path


GOOD = "wire [3:0] n; taker taker(.a(a ^ b[3:0] ^ b[7:4]), .y(n)); always @(posedge clk) y <= n;"


def test_a_good_module_passes(tmp_path):
    path = module(GOOD, tmp_path)
    check_structure(path, "top")
    assert {warning.rule for warning in refused(verilator(path, "top"), WAIVERS)} <= {"DECLFILENAME"}


@pytest.mark.parametrize(
    "text",
    ["always @* if (a[0]) y = b[3:0];", "always @* case (a) 0: y = b[3:0]; 1: y = b[7:4]; endcase"],
    ids=["if", "case"],
)
def test_latch_wrong(text, tmp_path):
    with pytest.raises(RuntimeError, match="selection is not empty"):
        check_structure(module(text, tmp_path), "top")


@pytest.mark.parametrize(
    "text",
    [
        "wire [3:0] n; assign n = a; assign n = b[3:0]; always @* y = n;",
        "wire [3:0] n; taker one(.a(a), .y(n)); taker two(.a(b[3:0]), .y(n)); always @* y = n;",
        "wire [3:0] n; always @* y = n;",
        "wire [3:0] n, p; taker one(.a(p), .y(n)); taker two(.a(n), .y(p)); always @* y = n;",
    ],
    ids=["assigned twice", "from two modules", "from nowhere", "from itself"],
)
def test_drivers_wrong(text, tmp_path):
    with pytest.raises(RuntimeError, match=r"Found \d+ problems in 'check -assert'"):
        check_structure(module(text, tmp_path), "top")


@pytest.mark.parametrize(
    "text, rule",
    [
        ("always @(posedge clk) y <= b;", "WIDTHTRUNC"),
        ("wire [7:0] n = a; always @(posedge clk) y <= n[3:0];", "WIDTHEXPAND"),
        ("wire [3:0] n; taker taker(.a(b), .y(n)); always @(posedge clk) y <= n;", "WIDTHTRUNC"),
        ("wire [3:0] n; taker taker(.a(b[1:0]), .y(n)); always @(posedge clk) y <= n;", "WIDTHEXPAND"),
        ("wire [3:0] n; taker taker(.a(a), .y(n), .z()); always @(posedge clk) y <= n;", "PINNOTFOUND"),
        ("wire [3:0] n; taker taker(.y(n)); always @(posedge clk) y <= n;", "PINMISSING"),
        ("wire n; always @(posedge clk) y <= a;", "UNUSEDSIGNAL"),
    ],
    ids=[
        "assigned, too wide",
        "assigned, too narrow",
        "pin, too wide",
        "pin, too narrow",
        "pin that is not there",
        "pin forgotten",
        "signal unused",
    ],
)
def test_widths_and_pins_wrong(text, rule, tmp_path):
    path = module(text, tmp_path)
    try:
        found = {warning.rule for warning in refused(verilator(path, "top"), WAIVERS)}
    except RuntimeError as error:  # some it does not only warn of
        found = {rule for rule in (rule,) if f"%Error-{rule}" in str(error) or f"%Warning-{rule}" in str(error)}
    assert rule in found


class Doubled(Component):
    """Two instances that drive the same signal."""

    i: In(4)
    o: Out(4)

    def elaborate(self, platform):
        m = Module()
        o = Signal(4)
        m.submodules.one = Instance("taker", i_a=self.i, o_y=o)
        m.submodules.two = Instance("taker", i_a=~self.i, o_y=o)
        m.d.comb += self.o.eq(o)
        return m


def test_component_with_two_drivers_wrong(tmp_path):
    with pytest.raises((RuntimeError, DriverConflict)):
        component_verilog(Doubled(), "top", tmp_path)


def test_a_waiver_that_nothing_needs_is_named():
    waivers = [Waiver("A", "x.*", "because"), Waiver("B", ".*", "because", instance=r"top\.one")]
    found = [Finding("A", "xyz", "top"), Finding("B", "xyz", "top.two")]
    assert refused(found, waivers) == [found[1]] and unneeded(found, waivers) == [waivers[1]]


def test_waivers_are_for_whole_messages_and_have_reasons():
    assert not Waiver("A", "x", "because").covers(Finding("A", "xy", ""))
    assert all(len(waiver.reason) > 20 and waiver.message != ".*" for waiver in WAIVERS)
    assert all(waiver.when(Config()) in (True, False) for waiver in WAIVERS)


def test_warnings_are_read_from_what_verilator_prints():
    text = (
        "%Warning-WIDTHTRUNC: top.v:3:5: Operator X\n        : ... note: In instance 'top.part'\n    3 | assign\n"
        "%Warning-EOFNEWLINE: top.v:9:1: No newline\n%Warning-MULTITOP: Two tops\n- V e r i l a t i o n\n"
    )
    assert list(parse(text)) == [
        Finding("WIDTHTRUNC", "Operator X", "top.part"),
        Finding("EOFNEWLINE", "No newline", ""),
        Finding("MULTITOP", "Two tops", ""),
    ]

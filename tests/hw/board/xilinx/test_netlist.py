"""Which signals go between clocks, on small designs where it is known."""

import pytest

from hw.board.xilinx.ip import PRIMITIVES, ports
from hw.board.xilinx.netlist import read

HEAD = "module top(input a, input b, input d, output q, input [3:0] at, input w);\n"
BOX = {"box": ports("in clock ck\nin ck x\nout ck y\nin async z")}


def crossings(body, modules=BOX):
    netlist = read({"top.v": HEAD + body + "\nendmodule\n"}, {**PRIMITIVES, **modules})
    bits = {netlist.ports["a"][1][0]: "a", netlist.ports["b"][1][0]: "b"}
    return {(bits[source], bits[sink]) for source, sink in netlist.crossings}


def test_one_clock_has_none():
    assert crossings("reg r, s; always @(posedge a) begin r <= d; s <= r; end assign q = s;") == set()


def test_a_register_behind_logic():
    assert crossings("reg r, s; always @(posedge a) r <= d; always @(posedge b) s <= ~(r & w) ^ s; assign q = s;") == {
        ("a", "b")
    }


def test_enables_and_synchronous_resets_count_and_asynchronous_resets_do_not():
    assert crossings("reg r, s; always @(posedge a) r <= d; always @(posedge b) if (r) s <= w; assign q = s;") == {
        ("a", "b")
    }
    assert crossings(
        "reg r, s; always @(posedge a) r <= d; always @(posedge b) if (r) s <= 0; else s <= w; assign q = s;"
    ) == {("a", "b")}
    assert (
        crossings(
            "reg r, s; always @(posedge a) r <= d; always @(posedge b or posedge r) if (r) s <= 0; else s <= w; "
            "assign q = s;"
        )
        == set()
    )


def test_a_clock_is_itself_behind_a_buffer():
    assert (
        crossings(
            "wire c; BUFG g(.I(a), .O(c)); reg r, s; always @(posedge a) r <= d; always @(posedge c) s <= r; assign "
            "q = s;"
        )
        == set()
    )


def test_memory_that_is_read_with_another_clock():
    body = "reg m [15:0]; reg s; reg [3:0] k; always @(posedge a) begin k <= at; if (w) m[k] <= d; end "
    body += "always @(posedge b) s <= m[{address}]; assign q = s;"
    assert crossings(body.format(address="at")) == {("a", "b")}


def test_ip_ends_a_path_at_its_pins():
    """In and out with its clock, and a pin without one is none."""
    assert crossings(
        "reg r; wire y; always @(posedge a) r <= d; box x(.ck(b), .x(r), .y(y), .z(r)); reg s; always @(posedge a) s "
        "<= y; assign q = s;"
    ) == {("a", "b"), ("b", "a")}
    assert crossings("reg r; always @(posedge a) r <= d; box x(.ck(b), .x(1'b0), .y(q), .z(r));") == set()


def test_two_drivers_are_reported():
    with pytest.raises(RuntimeError, match="yosys failed"):
        crossings("assign q = d; BUFG g(.I(a), .O(q));")

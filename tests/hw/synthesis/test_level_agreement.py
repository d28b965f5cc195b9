"""Logic levels of ECP5 netlists, counted by hand and beside nextpnr's delays."""

import json
from statistics import mean

import pytest

import hw.synthesis.timing
from hw.synthesis import ecp5_primitives
from hw.synthesis.level_agreement import agreement, rank_correlation
from hw.synthesis.timing import CONFIG, PARTS, component, place
from hw.synthesis.timing_paths import critical_paths

OUTPUTS = {"Z", "Q", "S0", "S1", "COUT", "DO", "DOA0", "P0"}


def levels(end, cells, primitives=ecp5_primitives):
    """Return the levels before register `end` of a netlist: cells as (primitive, name, {pin: nets})."""
    bits: dict[str, int] = {}
    bus = lambda nets: [net if net in "01" else bits.setdefault(net, len(bits) + 2) for net in nets.split()]
    made = {
        name: {
            "type": primitive,
            "parameters": {},
            "connections": {pin: bus(nets) for pin, nets in pins.items()},
            "port_directions": {pin: "output" if pin in OUTPUTS else "input" for pin in pins},
        }
        for primitive, name, pins in cells
    }
    names = {net: {"bits": [bit]} for net, bit in bits.items()}
    netlist = {"modules": {"top": {"cells": made, "ports": {}, "netnames": names}}}
    return next(path.levels for path in critical_paths(netlist, "top", primitives=primitives)["clk"] if path.end == end)


def register(d, q):
    return "TRELLIS_FF", f"{q}_ff", {"CLK": "clk", "DI": d, "Q": q, "CE": "1", "LSR": "0"}


def lut(a, z):
    return "LUT4", f"{z}_lut", {"A": a, "B": "0", "C": "0", "D": "0", "Z": z}


def carry(k, a, cin):
    pins = {"A0": a, "B0": "0", "C0": "0", "D0": "0", "A1": a, "B1": "0", "C1": "0", "D1": "0", "CIN": cin}
    return "CCU2C", f"carry{k}", pins | {"S0": f"s{2 * k}", "S1": f"s{2 * k + 1}", "COUT": f"c{k}"}


def block(address, out):
    return "DP16KD", "rows", {"CLKA": "clk", "CLKB": "clk", "ADA0": address, "DOA0": out}


@pytest.mark.parametrize("length", [0, 1, 2, 9])
def test_each_lut_is_a_level(length):
    luts = [lut(f"n{k}", f"n{k + 1}") for k in range(length)]
    assert levels("end", [register("i", "n0"), *luts, register(f"n{length}", "end")]) == length


@pytest.mark.parametrize("length", [1, 2, 16])
def test_an_adder_is_a_level_however_long(length):
    chain = [carry(k, "a", f"c{k - 1}" if k else "0") for k in range(length)]
    assert levels("end", [register("i", "a"), *chain, register(f"s{2 * length - 1}", "end")]) == 1
    behind = [lut("a", "l"), *(carry(k, "l", f"c{k - 1}" if k else "0") for k in range(length))]
    assert levels("end", [register("i", "a"), *behind, register(f"s{2 * length - 1}", "end")]) == 2


def test_the_low_bit_of_an_adder_does_not_wait_for_the_high_one():
    cells = [register("i", "a"), lut("a", "l"), carry(0, "a", "0"), register("s0", "low"), register("s1", "high")]
    cells[2][2]["A1"] = "l"
    assert (levels("low", cells), levels("high", cells)) == (1, 2)


def test_only_the_select_input_of_a_mux_is_a_level():
    for primitive, pins in (("PFUMX", ("ALUT", "BLUT", "C0")), ("L6MUX21", ("D0", "D1", "SD"))):
        mux = lambda nets, kind=primitive, names=pins: (kind, "mux", dict(zip(names, nets, strict=True)) | {"Z": "z"})
        cells = [register("i", "a"), lut("a", "l"), register("z", "end")]
        assert levels("end", [*cells, mux(("l", "0", "0"))]) == 1
        assert levels("end", [*cells, mux(("0", "0", "l"))]) == 2


def test_memories_begin_and_end_paths():
    table = "TRELLIS_DPR16X4", "t", {"WCK": "clk", "WRE": "1", "WAD": "l", "DI": "l", "RAD": "a", "DO": "q"}
    cells = [register("i", "a"), lut("a", "l"), table, register("q", "read")]
    assert (levels("read", cells), levels("t", cells)) == (1, 1)
    cells = [register("i", "a"), lut("a", "l"), block("l", "word"), lut("word", "w"), register("w", "answer")]
    assert (levels("rows", cells), levels("answer", cells)) == (1, 1)


def test_a_multiplier_is_three_levels():
    cells = [register("i", "a"), ("MULT18X18D", "m", {"A0": "a", "B0": "a", "CLK0": "0", "P0": "p"})]
    assert levels("end", [*cells, register("p", "end")]) == 3


def test_an_unknown_cell_is_refused():
    with pytest.raises(ValueError, match="not 'EHXPLLL'"):
        levels("end", [("EHXPLLL", "pll", {"CLKI": "clk"}), register("i", "end")])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3, 4], [2.0, 3.0, 9.0, 10.0], 1.0),
        ([4, 3, 2, 1], [2.0, 3.0, 9.0, 10.0], -1.0),
        ([1, 2, 3, 4, 5], [2.0, 1.0, 4.0, 3.0, 5.0], 1 - 6 * 4 / (5 * 24)),  # without ties: 1 - 6 sum d^2 / (n^3 - n)
        ([0, 0, 1, 1], [1.0, 1.0, 5.0, 5.0], 1.0),
    ],
)
def test_rank_correlation_is_spearmans(a, b, expected):
    assert rank_correlation(a, b) == pytest.approx(expected)


def routed_sequencer(folder, monkeypatch):
    monkeypatch.setattr(hw.synthesis.timing, "BUILD", folder)
    place("sequencer", *component(PARTS["sequencer"](CONFIG)))
    return [json.loads((folder / "sequencer" / name).read_text()) for name in ("top.json", "nextpnr.json")]


def test_registers_with_more_levels_have_longer_delays_after_routing(tmp_path, monkeypatch):
    netlist, routed = routed_sequencer(tmp_path, monkeypatch)
    found = agreement(netlist, routed)
    assert found.rank_correlation > 0.8
    common = [mean(delays) for delays in found.delays.values() if len(delays) >= 50]
    assert common == sorted(common) and len(common) >= 3
    assert found.critical_levels == max(found.delays)
    with pytest.raises(ValueError, match="detailed-timing-report"):
        agreement(netlist, {name: value for name, value in routed.items() if name != "detailed_net_timings"})

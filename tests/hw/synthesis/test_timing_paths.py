"""`hw.synthesis.timing_paths` on netlists whose paths can be counted by hand, on random ones, and on what Yosys makes
of designs of known depth."""

import random
import re
from functools import cache

import pytest
from amaranth.hdl import Cat, ClockDomain, ClockSignal, Module, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

import hw.synthesis.timing_paths
from hw.board.boards import BOARDS
from hw.synthesis.emit import tool
from hw.synthesis.primitives import MULTIPLIER_LEVELS, begins, clock_pin, ends, kind, passes, resources
from hw.synthesis.timing import PARTS
from hw.synthesis.timing_paths import critical_paths, synthesise


class Sketch:
    """A netlist written by hand: cells by name, pins by the names of the nets on them."""

    OUTPUTS = {
        "O",
        "O5",
        "O6",
        "Q",
        "Q31",
        "CO",
        "P",
        "SPO",
        "DPO",
        "DOA",
        "DOB",
        "DOC",
        "DOD",
        "DOADO",
        "DOBDO",
        "DOUTADOUT",
        "DOUT_A",
    }

    def __init__(self, inputs=("i",), outputs=()):
        self.bits: dict[str, int] = {}
        self.cells: dict[str, dict] = {}
        self.ports = {
            net: {"direction": direction, "bits": self.bus(net)}
            for direction, nets in (("input", ("clk", *inputs)), ("output", outputs))
            for net in nets
        }

    def bus(self, nets):
        return [
            net if net in ("0", "1", "x") else self.bits.setdefault(net, len(self.bits) + 2) for net in nets.split()
        ]

    def cell(self, primitive, name, /, parameters=(), **pins):
        self.cells[name] = {
            "type": primitive,
            "parameters": dict(parameters),
            "connections": {pin: self.bus(nets) for pin, nets in pins.items()},
            "port_directions": {pin: "output" if pin in self.OUTPUTS else "input" for pin in pins},
        }
        return self

    def register(self, d, q, clock="clk"):
        return self.cell("FDRE", f"{q}_reg", C=clock, D=d, Q=q, CE="1", R="0")

    def paths(self, **options):
        names = {net: {"bits": [bit], "hide_name": int(net.startswith("$"))} for net, bit in self.bits.items()}
        return critical_paths(
            {"modules": {"top": {"cells": self.cells, "ports": self.ports, "netnames": names}}}, "top", **options
        )

    def levels(self, register, clock="clk"):
        return next(path.levels for path in self.paths(most=99)[clock] if path.end == register)


def chain(length):
    sketch = Sketch().register("i", "n0")
    for k in range(length):
        sketch.cell("LUT6", f"lut{k}", I0=f"n{k}", I1="n0", O=f"n{k + 1}")
    return sketch.register(f"n{length}", "end")


def adder(width, *, carry=4):
    """Registers a and b, their sum in register s: LUTs of a xor b, and a chain."""
    sketch = Sketch()
    for k in range(width):
        sketch.register("i", f"a{k}").register("i", f"b{k}").cell(
            "LUT2", f"xor{k}", I0=f"a{k}", I1=f"b{k}", O=f"p{k}"
        ).register(f"o{k}", f"s{k}")
    for k in range(0, width, carry):
        row = lambda net: " ".join(f"{net}{k + j}" for j in range(carry))
        sketch.cell(
            f"CARRY{carry}",
            f"carry{k}",
            CI=f"c{k - 1}" if k else "0",
            DI=row("a"),
            S=row("p"),
            O=row("o"),
            CO=row("c"),
            **({"CYINIT": "0"} if carry == 4 else {"CI_TOP": "0"}),
        )
    return sketch


def paths_have_the_levels_counted_by_hand():
    for length in (0, 1, 2, 6, 40):
        assert chain(length).levels("end") == length
    for width, carry in ((4, 4), (8, 4), (64, 4), (64, 8)):
        assert adder(width, carry=carry).levels(f"s{width - 1}") == 2 == adder(width, carry=carry).levels("s0")
    # Two adders in a row: the second's LUTs are between the two chains.
    two = adder(8)
    for k in range(8):
        two.cell("LUT2", f"second{k}", I0=f"o{k}", I1=f"b{k}", O=f"q{k}").register(f"t{k}_o", f"t{k}")
    for k in (0, 4):
        row = lambda net, end="": " ".join(f"{net}{k + j}{end}" for j in range(4))
        two.cell(
            "CARRY4",
            f"other{k}",
            CI=f"d{k - 1}" if k else "0",
            CYINIT="0",
            DI=row("o"),
            S=row("q"),
            O=row("t", "_o"),
            CO=row("d"),
        )
    assert two.levels("t7") == 4
    # A chain that begins without LUTs, at CYINIT or at a CI that no chain drives, is one level.
    for pin in ("CYINIT", "CI"):
        bare = Sketch().register("i", "a")
        bare.cell(
            "CARRY4", "carry", DI="0 0 0 0", S="1 1 1 1", O="x1 x2 x3 x4", **{"CYINIT": "0", "CI": "0"} | {pin: "a"}
        )
        assert bare.register("x4", "end").levels("end") == 1
    # The low bits of a sum do not wait for the high bits of its terms: what looks like a loop by cells is none by bits.
    low = (
        Sketch()
        .register("i", "a")
        .cell("CARRY4", "carry", CI="0", CYINIT="0", DI="a 0 0 0", S="a y 0 0", O="o0 o1 o2 o3", CO="c0 c1 c2 c3")
    )
    assert low.cell("LUT1", "back", I0="o0", O="y").register("o1", "end").levels("end") == 3
    # Muxes are in the slice of their LUTs, but not for what selects.
    mux = (
        Sketch()
        .register("i", "a")
        .register("i", "s")
        .cell("LUT6", "lut", I0="a", O="l")
        .cell("MUXF7", "mux", I0="l", I1="0", S="s", O="m")
    )
    assert mux.register("m", "end").levels("end") == 1
    mux = (
        Sketch()
        .register("i", "s")
        .cell("MUXF7", "f7", I0="1", I1="0", S="s", O="m")
        .cell("MUXF8", "f8", I0="1", I1="0", S="m", O="n")
    )
    assert mux.register("n", "end").levels("end") == 2
    # Memory in LUTs: a look is a level, also by an address of a shift register; what is written ends a path.
    table = (
        Sketch()
        .register("i", "a")
        .cell("RAM32M", "t.0.0", WCLK="clk", WE="1", ADDRA="a", ADDRD="l", DIA="l", DOA="q", DOD="r")
    )
    table.cell("LUT1", "lut", I0="a", O="l").register("q", "read").register("r", "both")
    assert (table.levels("read"), table.levels("both"), table.levels("t")) == (1, 2, 1)
    pair = (
        Sketch()
        .register("i", "a")
        .cell("RAM64X1D", "u.0.0", WCLK="clk", WE="1", A0="l", DPRA0="a", D="a", SPO="q", DPO="r")
    )
    pair.cell("LUT1", "lut", I0="a", O="l").register("q", "single").register("r", "dual")
    assert (pair.levels("single"), pair.levels("dual"), pair.levels("u")) == (2, 1, 1)
    tapped = (
        Sketch()
        .register("i", "a")
        .cell("SRL16E", "s", CLK="clk", CE="1", D="l", A0="l", Q="q")
        .cell("LUT1", "lut", I0="a", O="l")
    )
    assert (tapped.register("q", "end").levels("end"), tapped.levels("q")) == (2, 1)
    # Block RAMs end a path and begin one.
    both = ("CLKARDCLK", "CLKBWRCLK")
    for primitive, address, out, clocks in (
        ("RAMB36E2", "ADDRARDADDR", "DOUTADOUT", both),
        ("URAM288", "ADDR_A", "DOUT_A", ("CLK",)),
        ("RAMB18E1", "ADDRARDADDR", "DOADO", both),
    ):
        block = chain(3).cell(
            primitive, "rows.memory.0.0", **dict.fromkeys(clocks, "clk"), **{address: "n3", out: "word"}
        )
        block.cell("LUT1", "after", I0="word", O="w").register("w", "answer")
        assert (block.levels("rows.memory"), block.levels("answer")) == (3, 1)


def multiplier(**registers):
    parameters = dict.fromkeys(("AREG", "BREG", "CREG", "DREG", "MREG", "PREG"), "0") | {
        name: "1" for name in registers
    }
    sketch = (
        Sketch()
        .register("i", "a")
        .cell("LUT1", "before", I0="a", O="l")
        .cell("LUT1", "after", I0="product", O="p")
        .register("p", "end")
    )
    return sketch.cell("DSP48E2", "dsp", parameters, CLK="clk", A="l", B="l", C="l", P="product")


def multipliers_have_the_levels_counted_by_hand():
    bare = MULTIPLIER_LEVELS
    assert multiplier().levels("end") == 1 + bare + 1
    for registers, into, out in (
        (("AREG", "BREG", "CREG"), 1, bare + 1),
        (("MREG",), 1 + bare, bare + 1),
        (("PREG",), 1 + bare, 1),
        (("AREG", "BREG", "CREG", "PREG"), 1, 1),
    ):
        part = multiplier(**dict.fromkeys(registers))
        assert (part.levels("product"), part.levels("end")) == (into, out)
    # With only one operand's register both hold: from that register, and through the other operand.
    assert multiplier(AREG=1).levels("end") == 1 + bare + 1


def test_paths_have_the_levels_counted_by_hand():
    paths_have_the_levels_counted_by_hand()
    multipliers_have_the_levels_counted_by_hand()


def costing(cost):
    """Counts by another function of cell and cost."""
    return {
        "passes": lambda cell, pin, position: (
            (name, cost(kind(cell["type"]), levels), bit) for name, levels, bit in passes(cell, pin, position)
        )
    }


MUTANTS = {
    **{
        f"{what} is free": costing(lambda what, levels, free=what: 0 if what == free else levels)
        for what in ("lut", "carry", "mux", "lutram", "shift", "dsp")
    },
    "each carry counts": costing(lambda what, levels: 1 if what == "carry" else levels),
    "all of a carry waits for all": {"passes": lambda cell, pin, position: passes(cell, pin, 7)},
    "registers let paths through": {
        "ends": lambda cell, pin: None if kind(cell["type"]) == "register" and pin == "D" else ends(cell, pin)
    },
    "memories end nothing": {
        "ends": lambda cell, pin: None if kind(cell["type"]) in ("lutram", "block", "shift") else ends(cell, pin)
    },
    "a multiplier costs its input nothing": {"ends": lambda cell, pin: ends(cell, pin) and 0},
    "a multiplier costs its output nothing": {"begins": lambda cell, pin: begins(cell, pin) and 0},
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_that_counts_wrongly_is_killed(mutant, monkeypatch):
    for name, function in mutant.items():
        monkeypatch.setattr(hw.synthesis.primitives, name, function)
    with pytest.raises((AssertionError, ValueError, StopIteration, KeyError)):
        paths_have_the_levels_counted_by_hand()
        multipliers_have_the_levels_counted_by_hand()


def test_random_nets_of_luts_are_counted_as_by_following_every_path():
    rng = random.Random(5)
    for _ in range(60):
        sketch, made = Sketch(), {"n0": [], "n1": []}
        sketch.register("i", "n0").register("i", "n1")
        for k in range(2, 30):
            sources = rng.sample(list(made), rng.randint(1, min(6, len(made))))
            sketch.cell(f"LUT{len(sources)}", f"lut{k}", O=f"n{k}", **{f"I{j}": net for j, net in enumerate(sources)})
            made[f"n{k}"] = sources

        @cache
        def depth(net):
            return max((1 + depth(source) for source in made[net]), default=0)

        ends = rng.sample(list(made), 5)
        for net in ends:
            sketch.register(net, f"{net}_end")
        (paths,) = sketch.paths(most=99).values()
        assert {path.end: path.levels for path in paths if path.end.endswith("_end")} == {
            f"{net}_end": depth(net) for net in ends
        }
        assert [path.levels for path in paths] == sorted((path.levels for path in paths), reverse=True)
        assert all(len(path.through) == path.levels + 1 and path.begin in ("n0", "n1", "i") for path in paths)


def test_paths_are_named_from_register_to_register():
    (path, *_) = chain(2).paths()["clk"]
    assert (path.begin, path.end, path.through) == ("n0", "end", ("n0", "n1", "n2"))
    block = chain(1).cell("RAMB36E1", "top.rows.memory.0.12", CLKARDCLK="clk", CLKBWRCLK="clk", DIADI="n1", DOADO="$17")
    block.register("$17", "end2")
    found = {path.end: path.begin for path in block.paths()["clk"]}
    assert found["top.rows.memory"] == "n0" and found["end2"] == "top.rows.memory"


def test_paths_are_grouped_by_the_clock_they_end_in():
    two = (
        Sketch(inputs=("i", "other"))
        .cell("BUFG", "buffer", I="other", O="buffered")
        .register("i", "a")
        .cell("LUT1", "l", I0="a", O="b")
    )
    two.register("b", "slow", clock="buffered").register("a", "fast")
    paths = two.paths()
    assert {clock: (found[0].levels, found[0].end) for clock, found in paths.items()} == {
        "clk": (0, "a"),
        "other": (1, "slow"),
    }


def test_each_side_of_a_block_ram_has_its_clock():
    side = lambda primitive, pin, mode: clock_pin(
        {"type": primitive, "parameters": {"RAM_MODE": mode}, "connections": {"CLKARDCLK": [2], "CLKBWRCLK": [3]}}, pin
    )
    for pin in ("ADDRARDADDR", "DIADI", "DIPADIP", "DOADO", "ENARDEN", "WEA", "REGCEAREGCE", "RSTRAMARSTRAM"):
        assert side("RAMB36E1", pin, "TDP") == "CLKARDCLK"
    for pin in ("ADDRBWRADDR", "DIBDI", "DIPBDIP", "DOBDO", "ENBWREN", "WEBWE", "REGCEB", "RSTRAMB"):
        assert side("RAMB36E1", pin, "TDP") == "CLKBWRCLK"
    assert side("RAMB18E2", "DINADIN", "TDP") == "CLKARDCLK" and side("RAMB18E2", "DINBDIN", "TDP") == "CLKBWRCLK"
    assert side("RAMB36E1", "DIADI", "SDP") == "CLKBWRCLK" and side("RAMB36E1", "ADDRARDADDR", "SDP") == "CLKARDCLK"


def test_ports_count_as_registers_only_if_asked():
    through = Sketch(inputs=("i",), outputs=("o",)).cell("LUT1", "l", I0="i", O="o")
    assert through.paths() == {}
    assert [(path.levels, path.begin, path.end) for path in through.paths(ports=True)["port"]] == [(1, "i", "o")]


def test_loop_wrong():
    loop = (
        Sketch()
        .cell("LUT2", "a", I0="there", I1="i", O="here")
        .cell("LUT1", "b", I0="here", O="there")
        .register("there", "end")
    )
    with pytest.raises(ValueError, match=r"no loop without a register, but t?here is in one"):
        loop.paths()


@pytest.mark.parametrize("primitive", ["LDCE", "GTHE2_CHANNEL", "$_DLATCH_P_", "RAMB4_S1", "LUT7"])
def test_cell_wrong(primitive):
    with pytest.raises(ValueError, match="one of the Xilinx primitives known here"):
        Sketch().cell(primitive, "cell", O="x").register("x", "end").paths()


def test_resources_wrong():
    with pytest.raises(ValueError, match="'LDCE'"):
        resources({"LUT2": 1, "LDCE": 1})


def test_memories_in_luts_count_as_luts():
    found = resources(
        {
            "LUT2": 3,
            "LUT6": 4,
            "INV": 1,
            "RAM32M": 2,
            "RAM64X1S": 5,
            "RAM32M16": 1,
            "SRL16E": 1,
            "FDRE": 5,
            "FDSE": 6,
            "BUFG": 1,
            "RAMB18E1": 7,
            "RAMB36E2": 2,
            "URAM288": 3,
            "DSP48E2": 4,
            "CARRY8": 9,
            "MUXF7": 1,
            "$scopeinfo": 8,
        }
    )
    assert found == {"LUT": 30, "FF": 11, "RAMB36": 2, "RAMB18": 7, "URAM": 3, "DSP": 4}


class Known(Component):
    """Designs of known depth, beside each other."""

    a: In(64)
    b: In(64)
    c: In(64)
    total: Out(64)
    totals: Out(64)
    full: Out(1)
    looked: Out(64)
    word: Out(72)
    product: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.domains.other = other = ClockDomain(reset_less=True)
        m.d.comb += ClockSignal("other").eq(self.c[63])
        assert other.rst is None
        a, b, c, selected, seen = (Signal(64, name=name) for name in ("first", "second", "third", "selected", "seen"))
        m.d.sync += [
            a.eq(self.a),
            b.eq(self.b),
            c.eq(self.c),
            self.total.eq(a + b),
            self.totals.eq(((a - c) ^ (b - c)) + c),
        ]
        m.submodules.table = table = Memory(shape=64, depth=32, init=[])
        m.submodules.rows = rows = Memory(shape=72, depth=512, init=[])
        look, write = table.read_port(domain="comb"), table.write_port()
        read, put = rows.read_port(), rows.write_port()
        m.d.comb += [
            look.addr.eq(a[:5]),
            write.addr.eq(b),
            write.data.eq(c),
            write.en.eq(b[63]),
            read.addr.eq(a),
            put.addr.eq(b),
            put.data.eq(Cat(a, b)),
            put.en.eq(a.xor()),
            self.word.eq(read.data),
        ]
        m.d.sync += [self.looked.eq(look.data), self.product.eq(a[:16] * b[:16])]
        m.d.other += [selected.eq(self.a), seen.eq(selected), self.full.eq(seen[:6].all())]
        return m


@pytest.mark.parametrize("family", ["xc7", "xcup"])
def test_designs_of_known_depth(family, tmp_path, monkeypatch):
    monkeypatch.setattr(hw.synthesis.timing_paths, "BUILD", tmp_path)
    netlist, cells = synthesise("known", Known(), family=family)
    paths = critical_paths(netlist, "top", most=99)
    found = {(path.clock, path.end): path for path in paths["clk"] + paths["c[63]"]}
    assert found["c[63]", "full"].levels == 1 and found["c[63]", "full"].begin == "seen"
    assert found["clk", "total"].levels == 2  # LUTs, then one chain of 64 bits
    # LUTs of the differences and their chains, LUTs of the exclusive or that are those of the sum, too, and its chain
    assert found["clk", "totals"].levels in (4, 5)
    assert found["clk", "looked"].levels == 1 and found["clk", "looked"].begin == "first"
    # With the multiplexers behind LUTs a level takes 8 bits of an exclusive or, or 9, so 64 bits need two levels. Where
    # others are longer, Yosys saves LUTs and makes it deeper.
    assert 2 <= found["clk", "rows"].levels <= 6
    assert found["clk", "table"].levels <= 1
    assert found["clk", "product"].levels in (
        0,
        MULTIPLIER_LEVELS,
    )  # whether or not the multiplier takes the register in
    used = resources(cells)
    assert (used["RAMB36"], used["RAMB18"], used["URAM"], used["DSP"]) == (1, 0, 0, 1)


def test_a_component_of_a_board(tmp_path, monkeypatch):
    monkeypatch.setattr(hw.synthesis.timing_paths, "BUILD", tmp_path)
    config = BOARDS["colorlight_5a_75b"].config
    netlist, cells = synthesise("queue", PARTS["queue"](config))
    (clock, port) = (critical_paths(netlist, "top", ports=True)[clock] for clock in ("clk", "port"))
    assert 2 <= clock[0].levels <= 16 and port and resources(cells)["FF"] > 100
    assert not [path for path in clock if re.match(r"\$(abc|auto|techmap)", path.end)]

    # Yosys' own count, which knows LUTs alone: all else begins and ends its paths.
    tool(
        "yosys",
        ["-q", "-p", "read_json top.json; select -set logic t:LUT* t:INV w:*; tee -o path.txt ltp @logic"],
        tmp_path / "queue",
    )
    monkeypatch.setattr(
        hw.synthesis.primitives,
        "passes",
        lambda cell, pin, position: passes(cell, pin, position) if kind(cell["type"]) == "lut" else (),
    )
    monkeypatch.setattr(hw.synthesis.primitives, "ends", lambda cell, pin: None if kind(cell["type"]) == "lut" else 0)
    most = max(path.levels for paths in critical_paths(netlist, "top", ports=True).values() for path in paths)
    assert most == int(re.search(r"length=(\d+)", (tmp_path / "queue" / "path.txt").read_text()).group(1)) >= 3

"""What `python -m hw.board.utilisation` counts: of a component of known size, against the table in docs/boards.md, and
in a board's report."""

from dataclasses import replace

import pytest
import typer
from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

import hw.synthesis.timing_paths
from hw.board.boards import BOARDS, DEFAULT
from hw.board.expected import TABLE, differences, read
from hw.board.utilisation import DESIGNS, Design, available, block_rams, count, main, with_half_width, xilinx_report
from hw.replay.sampling.sum_tree import SumTree
from hw.synthesis.primitives import resources

QUICK = ("sume-queue", "sume-parser", "sume-sequencer", "sume-counters", "sampler-10x27")
"""Components that are counted in every run of the tests; whole boards and the other components take minutes."""


class Shelf(Component):
    """One block RAM, a multiplier, and a register of an exclusive or."""

    at: In(9)
    old: Out(72)
    new: In(72)
    product: Out(32)
    parity: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=72, depth=512, init=[])
        read, write = memory.read_port(), memory.write_port()
        m.d.comb += [
            read.addr.eq(self.at),
            self.old.eq(read.data),
            write.addr.eq(self.new[:9]),
            write.data.eq(self.new),
            write.en.eq(self.at[0]),
        ]
        m.d.comb += self.product.eq(self.new[:16] * self.new[16:32])
        m.d.sync += self.parity.eq(self.new.xor())
        return m


@pytest.fixture
def build(tmp_path, monkeypatch):
    monkeypatch.setattr(hw.synthesis.timing_paths, "BUILD", tmp_path)


def test_a_component_of_known_size(build):
    found = count("shelf", Design(Shelf))
    assert {name: found[name] for name in ("FF", "RAMB36", "RAMB18", "URAM", "DSP")} == {
        "FF": 1,
        "RAMB36": 1,
        "RAMB18": 0,
        "URAM": 0,
        "DSP": 1,
    }
    # 72 bits need 12 LUTs, 2 and 1; Yosys does not always find the flattest.
    assert 15 <= found["LUT"] <= 24 and 3 <= found["levels"] <= 5
    assert {path["end"] for path in found["paths"]} == {"parity", "memory", "product", "old"}
    (parity,) = (path for path in found["paths"] if (path["clock"], path["end"]) == ("clk", "parity"))
    assert (parity["begin"], parity["levels"]) == ("new", found["levels"])


def test_every_expected_design_has_its_row_and_no_other():
    assert read().keys() == {name for name, design in DESIGNS.items() if design.expected}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, design in DESIGNS.items()
        if design.expected
    ],
)
def test_counts_are_those_of_the_table(name, build):
    """Where the table does not say what is counted now, the message tells the command that writes it anew."""
    assert differences(name, count(name, DESIGNS[name]), read()[name]) == [], TABLE


def test_whole_sume_is_within_its_part_by_the_table():
    """Of 433,200 LUTs and 1,470 block RAMs; that the table is right is held by the test above."""
    found, most = read()["netfpga_sume"], available(BOARDS["netfpga_sume"])
    assert BOARDS["netfpga_sume"].config.window >= 64 and BOARDS["netfpga_sume"].config.replay.capacity == 1 << 17
    assert found["LUT"] <= 0.60 * most["LUT"] and block_rams(found) <= 0.75 * most["RAMB36"]
    assert found["FF"] < most["FF"] and found["DSP"] < most["DSP"]


@pytest.mark.parametrize("family", ["xc7", "xcup"])
def test_report_of_a_board_without_a_tool_for_placement(family, build):
    board = replace(BOARDS["netfpga_sume"], family=family)
    netlist, cells = hw.synthesis.timing_paths.synthesise("shelf", Shelf(), family=family)
    report = xilinx_report(board, netlist, cells)
    assert (report["board"], report["part"], report["timing_met"]) == (board.name, board.part, None)
    assert report["clocks"].keys() == {"clk"} and report["clocks"]["clk"]["achieved_mhz"] is None
    assert (
        report["clocks"]["clk"]["required_mhz"] == board.core_mhz
        and report["clocks"]["clk"]["levels"] == report["paths"][0]["levels"] <= 5
    )
    assert report["resources"]["RAMB36"] == report["resources"]["block RAM"] == {"used": 1, "available": 1470}
    assert (
        report["resources"]["LUT"] == {"used": resources(cells)["LUT"], "available": 433_200}
        and "URAM" not in report["resources"]
    )
    assert xilinx_report(board, netlist, cells, required_mhz={"clk": 250.0})["clocks"]["clk"]["required_mhz"] == 250.0


@pytest.mark.parametrize("options", [{"only": "sume-queue"}, {"only": ""}, {"only": DEFAULT, "write": True}])
def test_half_width_is_for_boards_and_not_for_the_table(options):
    with pytest.raises(typer.BadParameter, match="--half-width needs --only with boards"):
        main(**options, half_width=True)
    assert with_half_width(BOARDS[DEFAULT]).config == replace(BOARDS[DEFAULT].config, half_width=True)


def test_two_half_block_rams_are_one():
    assert block_rams({"RAMB36": 3, "RAMB18": 3}) == 4.5
    assert available(BOARDS["netfpga_sume"])["RAMB18"] == 2940 and available(BOARDS["colorlight_5a_75b"]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("phased", [False, True])
def test_leaves_are_block_rams_of_which_each_leaf_has_its_lanes(phased, build):
    """A leaf of 18 bits and its parity bit are written alone, so they have 3 lanes of 9 bits: 16 of them are 6 block
    RAMs of 512 rows. 32 rows of level 1 with 15 sums of 26 bits and their parity are less than a block RAM is worth."""
    found = count("tree", Design(lambda: SumTree(capacity=1 << 13, priority_bits=18, single_copy=phased)))
    assert (found["RAMB36"], found["RAMB18"]) == (6, 0)


@pytest.mark.slow
def test_a_million_leaves_fit(build):
    found = count("tree", DESIGNS["phased-20x18"])
    assert block_rams(found) < 0.6 * available(BOARDS["netfpga_sume"])["RAMB36"]

"""What `python -m hw.counts` counts, on a component of which one knows what it takes, and on the sum tree."""

import pytest
from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

import hw.counts
from hw.counts import AVAILABLE, DESIGNS, count, report
from hw.replay.tree import SumTree


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
        m.d.comb += [read.addr.eq(self.at), self.old.eq(read.data), write.addr.eq(self.new[:9]), write.data.eq(self.new), write.en.eq(self.at[0])]
        m.d.comb += self.product.eq(self.new[:16] * self.new[16:32])
        m.d.sync += self.parity.eq(self.new.xor())
        return m


def test_a_component_of_which_one_knows(tmp_path, monkeypatch):
    monkeypatch.setattr(hw.counts, "BUILD", tmp_path)
    found = count("shelf", Shelf())
    assert {name: found[name] for name in ("FF", "RAMB36", "RAMB18", "DSP")} == {"FF": 1, "RAMB36": 1, "RAMB18": 0, "DSP": 1}
    # 72 bits need 12 LUTs, 2 and 1; Yosys does not always find the flattest.
    assert 15 <= found["LUT"] <= 24 and 3 <= found["path"]["LUT"] <= 5 and found["path"]["carry"] == 0


def test_memories_in_luts_are_counted():
    cells = {"LUT2": 3, "LUT6": 4, "RAM32M": 2, "FDRE": 5, "FDSE": 6, "BUFG": 1, "RAMB18E1": 7}
    found = report(cells, "0: x\n 1: y (via $a$lut$b)\n 2: z (via c.carry4)\n")
    assert found == {"LUT": 15, "FF": 11, "RAMB36": 0, "RAMB18": 7, "DSP": 0, "path": {"LUT": 1, "carry": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("phased", [False, True])
def test_leaves_and_rows_are_block_rams_without_waste(phased, tmp_path, monkeypatch):
    """512 rows of 16 leaves are 288 bits wide; 32 rows of level 1 with 15 sums of 26 bits are less than a block RAM is worth."""
    monkeypatch.setattr(hw.counts, "BUILD", tmp_path)
    found = count("tree", SumTree(capacity=1 << 13, priority_bits=18, phased=phased))
    assert (found["RAMB36"], found["RAMB18"]) == (4, 0)


@pytest.mark.slow
def test_a_million_leaves_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(hw.counts, "BUILD", tmp_path)
    found = count("tree", DESIGNS["phased-20x18"]())
    assert found["RAMB36"] + found["RAMB18"] / 2 < 0.6 * AVAILABLE["RAMB36"]

"""Reader, writer and memory on the chip as emitted Verilog, against an AXI4 memory and an AXI4 master that are not
ours; mutants are noticed."""

import re

import pytest

import hw.replay.memory.ram
import hw.replay.memory.units
from hw.replay.memory.ram import OnChipRam
from sim.bench.cocotb_memory import RAM_BYTES
from sim.bench.mutant import mutant
from sim.bench.run_cocotb import BUILD, simulate
from sim.bench.units import Units, verilog

ADDRESS_BITS = 20
RAM = {"bytes": RAM_BYTES, "latency": 16, "address_bits": ADDRESS_BITS, "id_bits": 3}


def run(top, part, folder=BUILD):
    return simulate(top, verilog(part, top), "sim.bench.cocotb_memory", only=f"test_{top}_", folder=folder / top)


@pytest.mark.parametrize("data_bits", [64, 256, 512])
def test_reader_and_writer_agree_with_another_memory(data_bits, tmp_path):
    assert len(run("units", Units(ADDRESS_BITS, data_bits=data_bits), tmp_path)) == 4


@pytest.mark.parametrize("data_bits", [64, 256])
def test_memory_agrees_with_another_master(data_bits, tmp_path):
    assert len(run("ram", OnChipRam(**RAM, data_bits=data_bits), tmp_path)) == 2


@pytest.mark.mutant
def test_mutants_of_reader_and_writer_are_noticed(tmp_path):
    """A reader that loses beats while its consumer stalls, a writer that is not busy while memory has yet to answer."""
    reader = mutant(hw.replay.memory.units, "has_room = reserved != self.outstanding", "has_room = Const(1)").UnitReader
    writer = mutant(hw.replay.memory.units, "self.busy.eq(pending != 0)", "self.busy.eq(awaiting_rows != 0)").UnitWriter
    with pytest.raises(RuntimeError) as found:
        run("units", Units(ADDRESS_BITS, reader=reader, writer=writer), tmp_path)
    assert set(re.findall(r"(test_\w+/stalls=bursts) failed", str(found.value))) == {
        "test_units_are_read_in_order/stalls=bursts",
        "test_units_are_written_when_the_writer_is_not_busy/stalls=bursts",
    }


@pytest.mark.mutant
def test_a_mutant_of_the_memory_is_noticed(tmp_path):
    with pytest.raises(RuntimeError, match=r"test_\w+/stalls=\w+ failed|test_ram_\w+ failed"):
        run("ram", mutant(hw.replay.memory.ram, "axi.w.payload.strb, 0", "255, 0").OnChipRam(**RAM), tmp_path)

"""`make sim`: the emitted Verilog of a small switch under cocotb and Verilator, four scenarios with and without
stalls."""

from sim.bench.run_cocotb import run


def test_emitted_verilog_is_the_model():
    assert len(run()) == 8

"""`make sim`: the emitted Verilog of a small switch under cocotb and Verilator, four scenarios with and without
stalls. Icarus Verilog knows X: a bit of a register, a memory or an input that nothing has set and that has an effect
ends a test there."""

import shutil

import pytest

from sim.bench.run_cocotb import run


def test_emitted_verilog_is_the_model():
    assert len(run()) == 8


@pytest.mark.slow
def test_emitted_verilog_is_the_model_where_unset_bits_are_unknown():
    assert shutil.which("iverilog"), "Icarus Verilog is missing (Debian: iverilog)"
    assert len(run("icarus")) == 8

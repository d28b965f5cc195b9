"""Registers against values typed in from a board's working configuration, and dividers against the frequency."""

import pytest

from hw.board.xilinx.si5324 import DEVICE, MUX, SUME_REFCLK, Si5324, writes

# Of designs that are known to run on the board (docs/boards.md, "Sources")
KNOWN = {
    0: 0x54,
    1: 0xE4,
    2: 0x12,
    3: 0x15,
    4: 0x92,
    10: 0x08,
    11: 0x40,
    25: 0xA0,
    31: 0x00,
    32: 0x00,
    33: 0x03,
    40: 0xC2,
    41: 0x49,
    42: 0xEF,
    43: 0x00,
    44: 0x77,
    45: 0x0B,
    46: 0x00,
    47: 0x77,
    48: 0x0B,
    136: 0x40,
}


def test_registers_are_those_of_a_board_that_runs():
    assert SUME_REFCLK.registers() == KNOWN


def test_dividers_of_three_bytes_are_one_less_than_they_divide_by():
    registers = SUME_REFCLK.registers()
    for first in (43, 46):
        assert int.from_bytes(bytes(registers[first + k] for k in range(3)), "big") == SUME_REFCLK.n3 - 1


def test_output_is_a_refclk_of_10gbase_r():
    assert abs(SUME_REFCLK.output_mhz / 156.25 - 1) < 20e-6


def test_calibration_comes_last_and_the_switch_first():
    listed = writes()
    assert listed[0] == (MUX, 0x10) and listed[-1] == (DEVICE, 136, 0x40)
    assert [write[1] for write in listed[1:]] == sorted(write[1] for write in listed[1:])


@pytest.mark.parametrize(("name", "value"), [("n3", 0), ("n2_hs", 3), ("n2_ls", 3), ("n1_hs", 12), ("nc1_ls", 3)])
def test_dividers_wrong(name, value):
    good = {"n3": 30476, "n2_hs": 10, "n2_ls": 150_000, "n1_hs": 9, "nc1_ls": 4}
    with pytest.raises(ValueError, match=f"Si5324 {name} must be .*, not {value}"):
        Si5324(**{**good, name: value})


def test_oscillator_wrong():
    with pytest.raises(ValueError, match="oscillator must run at 4850 to 5670 MHz"):
        Si5324(n3=30476, n2_hs=10, n2_ls=100_000, n1_hs=9, nc1_ls=4)

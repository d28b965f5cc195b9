"""What we put around transceivers that are not here: the gearbox's counter, and that every pin of theirs is
connected."""

import pytest
from amaranth.sim import Simulator

from hw.board.xilinx.ip import gth, gty
from hw.board.xilinx.transceivers import Blocks, Sequence, domains


def test_the_gearbox_takes_32_blocks_in_33_cycles():
    """UG476: the counter goes from 0 to 32, and at 32 data is held."""
    dut, seen = Sequence(), []

    async def bench(ctx):
        for _ in range(2 * 33):
            seen.append((ctx.get(dut.count), ctx.get(dut.ready)))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [(k, int(k != 32)) for k in range(33)] * 2


def test_a_forgotten_pin_is_reported():
    first, other = gty(gbps=10.3125, refclk_mhz=161.1328125, freerun_mhz=100)
    with pytest.raises(
        ValueError, match="transceiver_10g_first connections must be its pins, all but outputs; not \\['nothing'\\]"
    ):
        first.instance(nothing=0)
    assert "gtrefclk00_in" in first.pins and "gtrefclk00_in" not in other.pins


def test_lanes_are_numbered_from_the_lowest_place_on():
    """The wizard's gt0 is the lowest Y, whatever order the cages have."""
    ip = gth(channels=("X1Y39", "X1Y38", "X1Y37", "X1Y36"), refclk="REFCLK0", quad=8, freerun_mhz=100)
    assert {name for name in ip.config if name.endswith("_val") and ip.config[name] == "true"} == {
        f"gt{n}_val" for n in range(36, 40)
    }
    assert {name for name in ip.pins if name.endswith("txdata_in")} == {f"gt{n}_txdata_in" for n in range(4)}


def test_line_rates_wrong():
    with pytest.raises(ValueError, match=r"gty gbps must be 10\.3125 or 25\.78125, not 10"):
        gty(gbps=10, refclk_mhz=161.1328125, freerun_mhz=100)


def test_a_port_has_two_domains_and_one_kind_of_blocks():
    assert domains(3) == ("port3_tx", "port3_rx") and Blocks() == Blocks()

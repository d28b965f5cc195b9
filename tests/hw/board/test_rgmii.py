"""The whole MAC of an ECP5 board, LiteEth's and ours, at its RGMII pins against somebody else's models; slips are noticed."""

from hw.board.rgmii import RgmiiPort
from sim.bench.cocotb_rgmii import SHALLOW_DEPTH
from sim.bench.rgmii import DOMAIN, verilog
from sim.bench.run_cocotb import BUILD, simulate


def run(top, folder=BUILD, only="", *, make=RgmiiPort, **sizes):
    text = verilog(make(bus_bits=64, domain=DOMAIN, **sizes), top, folder / top)
    return simulate(top, text, "sim.bench.cocotb_rgmii", only=only or f"test_{top}_", folder=folder / top)


def test_port_agrees_with_another_phy():
    assert len(run("shallow", rx_depth=SHALLOW_DEPTH)) == 2
    assert len(run("rgmii")) == 8

# amaranth: UnusedElaboratable=no
"""The whole MAC of an ECP5 board, LiteEth's and ours, at its RGMII pins against third-party models; mutants are
noticed."""

import pytest

import hw.board.ecp5.rgmii
from hw.board.ecp5.rgmii import RgmiiPort
from sim.bench.mutant import mutant
from sim.bench.rgmii import DOMAIN, verilog
from sim.bench.run_cocotb import BUILD, simulate


def run(top, folder=BUILD, only="", *, make=RgmiiPort, **sizes):
    text = verilog(make(bus_bits=64, domain=DOMAIN, **sizes), top, folder / top)
    return simulate(top, text, "sim.bench.cocotb_rgmii", only=only or f"test_{top}_", folder=folder / top)


def test_port_agrees_with_another_phy():
    assert len(run("shallow")) == 2
    assert len(run("rgmii", rx_depth=512)) == 8


@pytest.mark.mutant
def test_mutants_are_noticed(tmp_path):
    """A damaged frame that passes for a good one; a frame whose first byte leaves before its last is there."""
    for texts, test in (
        (("word.error.eq(error)", "word.error.eq(0)"), "gives_every_frame_once_and_marks_the_damaged"),
        (
            ('o_domain="sync", store_and_forward=True', 'o_domain="sync", store_and_forward=False'),
            "sends_whole_frames_with_gaps",
        ),
    ):
        with pytest.raises(RuntimeError, match=f"test_rgmii_{test}.*stalls=bursts failed"):
            run(
                "rgmii",
                tmp_path,
                f"test_rgmii_{test}/stalls=bursts",
                rx_depth=512,
                make=mutant(hw.board.ecp5.rgmii, *texts).RgmiiPort,
            )


@pytest.mark.parametrize("bus_bits", [8, 256])
def test_rgmii_port_bus_bits_wrong(bus_bits):
    with pytest.raises(ValueError, match=f"RgmiiPort bus_bits must be 64, not {bus_bits}"):
        RgmiiPort(bus_bits=bus_bits, domain=DOMAIN)


def test_rgmii_port_tx_depth_wrong():
    with pytest.raises(ValueError, match="RgmiiPort tx_depth must hold a frame of 1518 bytes, not 128 words"):
        RgmiiPort(bus_bits=64, domain=DOMAIN, tx_depth=128)

"""The boards: their parts, the configurations of their switches, and the required core clocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from iswitch.config import Config, Replay

__all__ = ["BOARDS", "DEFAULT", "DEFAULT_IP", "DEFAULT_MAC", "OVERHEAD_BYTES", "Board", "line_rate_mhz"]

DEFAULT = "colorlight_5a_75b"
DEFAULT_MAC = "02:69:73:77:00:01"
"""A locally administered address (IEEE 802, bit 1 of the first byte)."""
DEFAULT_IP = "10.0.0.100"
OVERHEAD_BYTES = 8 + 4 + 12
"""Overhead of a frame on the cable: preamble, FCS and inter-frame gap (IEEE 802.3, clauses 3.1.1 and 4.4.2)."""
CYCLES_MIN = 2
"""Cycles that the core takes for an ordinary frame. The switch's own shortest frames take more (docs/results.md); full
segments do not."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board and the switch that it is built with.

    Attributes
    ----------
    name : str
        Name on the command line.
    title : str
        Name in print.
    platform : str
        Key of the board's pins, clocks and constraints: several boards of this table can be one card.
    part : str
        The FPGA, with package and speed grade.
    family : str
        ecp5, xc7 (7 series) or xcup (UltraScale+).
    config : Config
        The switch.
    gbps : float
        Rate of each port.
    core_mhz : float
        Clock of the switch, which timing must meet.
    available : mapping of str to int
        Resources of the part by name.
    maker : str
        "module:function" that makes the project; the function takes (board, folder, mac=, ip=, operator_key=) and
        returns a report.

    Raises
    ------
    ValueError
        If `core_mhz` is too slow for line rate.
    """

    name: str
    title: str
    platform: str
    part: str
    family: str
    config: Config
    gbps: float
    core_mhz: float
    available: Mapping[str, int] = field(hash=False)
    maker: str

    def __post_init__(self) -> None:
        need = line_rate_mhz(self.config, self.gbps)
        if self.core_mhz < need:
            raise ValueError(
                f"Board {self.name} core_mhz must be at least {need:.1f}, or frames are lost at line rate, not "
                f"{self.core_mhz}"
            )


def line_rate_mhz(config: Config, gbps: float) -> float:
    """Return the core clock in MHz at which the shared pipeline takes line rate from all ports at once, for frames of
    every length back to back.

    A frame of n bytes (60 and up) takes ceil(n / bus bytes) cycles of the pipeline, but at least CYCLES_MIN, and
    8 (n + OVERHEAD_BYTES) / gbps nanoseconds on each cable. Results do not add to that: they leave on a path of their
    own, at most as fast as their contributions came.
    """
    worst = 0.0
    for length in range(60, config.frame_bytes_max + 1):
        cycles = max(-(-length // config.bus_bytes), CYCLES_MIN)
        worst = max(worst, cycles * config.ports * gbps * 1e3 / (8 * (length + OVERHEAD_BYTES)))
    return worst


LFE5U_25F = {"LUT": 24_288, "FF": 24_288, "EBR": 56, "DSP": 28}
LFE5U_45F = {"LUT": 43_848, "FF": 43_848, "EBR": 108, "DSP": 72}
LFE5U_85F = {"LUT": 83_640, "FF": 83_640, "EBR": 208, "DSP": 156}
XC7VX690T = {"LUT": 433_200, "FF": 866_400, "RAMB36": 1_470, "DSP": 3_600}
XCU250 = {"LUT": 1_728_000, "FF": 3_456_000, "RAMB36": 2_688, "DSP": 12_288}
XCU280 = {"LUT": 1_303_680, "FF": 2_607_360, "RAMB36": 2_016, "DSP": 9_024}
XCU50 = {"LUT": 871_680, "FF": 1_743_360, "RAMB36": 1_344, "DSP": 5_952}


def alveo(name: str, title: str, part: str, available: Mapping[str, int], *, cages: int) -> tuple[Board, ...]:
    """Return the boards of one Alveo card: with 10G lanes in all cages (named after the card), with four 25G lanes in
    one cage, and with 100G in one cage."""
    lanes = 4 * cages
    return tuple(
        Board(
            name=name + suffix,
            title=f"{title}, {ports} x {gbps}G",
            platform=name,
            part=part,
            family="xcup",
            gbps=gbps,
            core_mhz=core_mhz,
            config=Config(ports=ports, bus_bits=512, window=64, replay=Replay(capacity=1 << 17)),
            available=available,
            maker="hw.board.xilinx.vivado:make",
        )
        for suffix, ports, gbps, core_mhz in (("", lanes, 10, 250), ("_4x25g", 4, 25, 300), ("_1x100g", 1, 100, 300))
    )


BOARDS = {
    board.name: board
    for board in (
        Board(
            name="colorlight_5a_75b",
            title="Colorlight 5A-75B (revision 7.0)",
            platform="colorlight_5a_75b",
            part="LFE5U-25F-6BG256",
            family="ecp5",
            gbps=1,
            core_mhz=37.5,
            config=Config(
                ports=2,
                bus_bits=64,
                members=4,
                jobs=2,
                window=4,
                queue_bytes=4096,
                mac_entries=64,
                staleness=0,
                uplinks=False,
                half_width=False,
            ),
            available=LFE5U_25F,
            maker="hw.board.ecp5.project:make",
        ),
        Board(
            name="versa_ecp5",
            title="Lattice Versa ECP5",
            platform="versa_ecp5",
            part="LFE5UM-45F-8BG381",
            family="ecp5",
            gbps=1,
            core_mhz=50,
            config=Config(
                ports=2,
                bus_bits=64,
                members=4,
                jobs=2,
                window=8,
                queue_bytes=4096,
                mac_entries=256,
                staleness=0,
                uplinks=False,
                half_width=False,
            ),
            available=LFE5U_45F,
            maker="hw.board.ecp5.project:make",
        ),
        Board(
            name="ecpix5_85f",
            title="LambdaConcept ECPIX-5 85F",
            platform="ecpix5_85f",
            part="LFE5UM5G-85F-8BG554",
            family="ecp5",
            gbps=1,
            core_mhz=50,
            config=Config(
                ports=1,
                bus_bits=64,
                members=8,
                jobs=2,
                window=16,
                queue_bytes=8192,
                mac_entries=256,
                uplinks=False,
                half_width=False,
            ),
            available=LFE5U_85F,
            maker="hw.board.ecp5.project:make",
        ),
        Board(
            name="netfpga_sume",
            title="NetFPGA-SUME",
            platform="netfpga_sume",
            part="xc7vx690tffg1761-3",
            family="xc7",
            gbps=10,
            core_mhz=200,
            config=Config(ports=4, bus_bits=256, window=64, replay=Replay(capacity=1 << 17)),
            available=XC7VX690T,
            maker="hw.board.xilinx.vivado:make",
        ),
        *alveo("alveo_u250", "Alveo U250", "xcu250-figd2104-2L-e", XCU250, cages=2),
        *alveo("alveo_u280", "Alveo U280", "xcu280-fsvh2892-2L-e", XCU280, cages=2),
        *alveo("alveo_u50", "Alveo U50", "xcu50-fsvh2104-2-e", XCU50, cages=1),
    )
}

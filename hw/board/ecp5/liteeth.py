"""A gigabit MAC for ECP5 boards, made of LiteEth's parts as Verilog: RGMII pins on one side, bytes of frames on the
other."""

import re

from liteeth.common import eth_phy_description
from liteeth.mac.crc import LiteEthMACCRC32Checker, LiteEthMACCRC32Inserter
from liteeth.mac.gap import LiteEthMACGap
from liteeth.mac.padding import LiteEthMACPaddingInserter
from liteeth.mac.preamble import LiteEthMACPreambleChecker, LiteEthMACPreambleInserter
from liteeth.phy.ecp5rgmii import LiteEthPHYRGMIIRX, LiteEthPHYRGMIITX
from litex.build.io import DDROutput
from litex.build.lattice.common import lattice_ecp5_trellis_special_overrides
from litex.gen import LiteXContext, LiteXModule
from litex.gen.fhdl.verilog import convert
from litex.soc.interconnect.stream import Buffer, Pipeline
from migen import ClockDomain, ClockDomainsRenamer, Instance, Record, ResetInserter, Signal

__all__ = ["PAYLOAD_BYTES_MIN", "TAP_NS", "verilog"]

PAYLOAD_BYTES_MIN = 60
"""Shorter frames are padded: 64 octets with the FCS (IEEE 802.3, clause 3.2.8)."""
TAP_NS = 0.025
"""Nanoseconds of a tap of DELAYG, the delay line behind each pin of an ECP5, which has 128 taps."""


class Mac(LiteXModule):
    """A MAC with one clock, the one that the PHY sends with its data. It has no FIFO: the other side brings the clock
    domain crossing.

    Ports `tx_*` take the bytes of a frame without a pause (the wire does not wait), and append padding, FCS and gap.
    Ports `rx_*` give the bytes of a frame without preamble and FCS, and cannot stall. A frame that is visibly damaged
    ends with `rx_error`, and so does a carrier without a start, or with fewer than five bytes.
    """

    def __init__(self, *, tx_delay_ns: float, rx_delay_ns: float):
        self.clk, self.rst = Signal(name="clk"), Signal(name="rst")
        pads = self.pads = Record(
            [(f"{direction}_{name}", width) for direction in ("tx", "rx") for name, width in (("ctl", 1), ("data", 4))],
            name="rgmii",
        )
        self.tx_clk = Signal(name="rgmii_tx_clk")
        streams = {
            name: Signal(8 if name.endswith("data") else 1, name=name)
            for name in (
                "tx_valid",
                "tx_ready",
                "tx_data",
                "tx_last",
                "rx_valid",
                "rx_data",
                "rx_last",
                "rx_error",
                "link",
            )
        }
        self.ios = {self.clk, self.rst, self.tx_clk, *pads.flatten(), *streams.values()}

        self.cd_eth_rx, self.cd_eth_tx = ClockDomain("eth_rx"), ClockDomain("eth_tx")
        for domain in (self.cd_eth_rx, self.cd_eth_tx):
            self.comb += [domain.clk.eq(self.clk), domain.rst.eq(self.rst)]
        stage = lambda domain, part: ClockDomainsRenamer(domain)(part)

        # The clock leaves through the same kind of register as the data, and may be delayed into the middle of a bit.
        clock = Signal()
        self.specials += [
            DDROutput(clk=self.clk, i1=1, i2=0, o=clock),
            Instance("DELAYG", p_DEL_MODE="SCLK_ALIGNED", p_DEL_VALUE=taps(tx_delay_ns), i_A=clock, o_Z=self.tx_clk),
        ]

        self.phy_tx = stage("eth_tx", LiteEthPHYRGMIITX(pads))
        # Without it `ready` would reach the producer of the bytes late in a cycle.
        self.byte_buffer = stage("eth_tx", Buffer(eth_phy_description(8), pipe_ready=True))
        self.padding = stage("eth_tx", LiteEthMACPaddingInserter(8, PAYLOAD_BYTES_MIN))
        self.tx_buffer = stage("eth_tx", Buffer(eth_phy_description(8), pipe_ready=True))
        self.inserter = stage("eth_tx", LiteEthMACCRC32Inserter(eth_phy_description(8)))
        # Without it the conditions of preamble and gap and the CRC's own choice would share one cycle.
        self.crc_buffer = stage("eth_tx", Buffer(eth_phy_description(8), pipe_ready=True))
        self.tx_preamble = stage("eth_tx", LiteEthMACPreambleInserter(8))
        self.gap = stage("eth_tx", LiteEthMACGap(8))
        self.tx_pipeline = Pipeline(
            self.byte_buffer,
            self.padding,
            self.tx_buffer,
            self.inserter,
            self.crc_buffer,
            self.tx_preamble,
            self.gap,
            self.phy_tx,
        )
        sink = self.byte_buffer.sink
        self.comb += [
            sink.valid.eq(streams["tx_valid"]),
            sink.data.eq(streams["tx_data"]),
            sink.last.eq(streams["tx_last"]),
            sink.last_be.eq(streams["tx_last"]),
            streams["tx_ready"].eq(sink.ready),
        ]

        self.phy_rx = stage("eth_rx", LiteEthPHYRGMIIRX(pads, rx_delay=taps(rx_delay_ns) * TAP_NS * 1e-9))
        self.rx_preamble = stage("eth_rx", LiteEthMACPreambleChecker(8))
        self.rx_buffer = stage("eth_rx", Buffer(eth_phy_description(8)))
        self.checker = stage("eth_rx", ResetInserter()(LiteEthMACCRC32Checker(eth_phy_description(8))))
        self.rx_pipeline = Pipeline(self.phy_rx, self.rx_preamble, self.rx_buffer, self.checker)
        taken, given, ended = self.checker.sink, self.checker.source, Signal()
        lost = Signal()
        self.comb += [
            # The PHY leaves `last_be` at 0; with that the checker would accept every FCS.
            self.phy_rx.source.last_be.eq(self.phy_rx.source.last),
            given.ready.eq(1),
            streams["link"].eq(self.phy_rx.inband_status.fields.link_status),
            # The checker is reset after each frame: without that it takes a frame of one byte for the beginning of the
            # next one.
            self.checker.reset.eq(ended),
            # The checker gives nothing for a frame without a byte beside its FCS.
            lost.eq(self.rx_preamble.error | taken.valid & taken.ready & taken.last & ~given.valid),
        ]
        self.sync.eth_rx += [
            ended.eq(taken.valid & taken.ready & taken.last),
            streams["rx_valid"].eq(given.valid | lost),
            streams["rx_data"].eq(given.data),
            streams["rx_last"].eq(given.last | lost),
            streams["rx_error"].eq(given.error | lost),
        ]


def taps(delay_ns: float) -> int:
    """Return the taps of a delay line. Raises ValueError if the delay needs more than there are."""
    count = round(delay_ns / TAP_NS)
    if not 0 <= count < 128:
        raise ValueError(f"delay must be 0 to {127 * TAP_NS} ns, not {delay_ns!r}")
    return count


def verilog(name: str, *, tx_delay_ns: float = 0.0, rx_delay_ns: float = 0.0) -> str:
    """Return the MAC as a Verilog module of that name, with ECP5 primitives at its pins. The delays, of its transmit
    clock and of the received data, are 0 to 3.175 ns: those that the PHY does not add itself."""
    LiteXContext.top = mac = Mac(tx_delay_ns=tx_delay_ns, rx_delay_ns=rx_delay_ns)
    text = str(convert(mac, mac.ios, name=name, special_overrides=lattice_ecp5_trellis_special_overrides))
    return re.sub(
        r"^//[^\n]*\n|/\*.*?\*/\n", "", text, flags=re.MULTILINE | re.DOTALL
    )  # comments have the time of day, and lists in varying order

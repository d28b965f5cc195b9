"""A gigabit port: words of frames in the switch's clock on one side, RGMII pins on the other."""

from amaranth.hdl import ClockSignal, DomainRenamer, Instance, Module, Mux, ResetSignal, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.board.ecp5.crossing import ClockCrossing
from hw.ethernet.overflow import Overflow
from hw.stream.packet import Packet

__all__ = ["CROSSING_DEPTH", "MAC", "RgmiiPort"]

MAC = "rgmii_mac"
"""Name of the MAC's Verilog module, from `hw.board.ecp5.liteeth.verilog`."""
CROSSING_DEPTH = 16
"""Words of the clock domain crossings, in LUT memory: block RAM answers too late for 125 MHz on the slower parts."""


class Byte(data.Struct):
    data: 8
    last: 1


class RgmiiPort(wiring.Component):
    """A gigabit port: frames without preamble and FCS in `sync`, RGMII pins in clock domain `domain`, the PHY's receive
    clock of 125 MHz, in both directions.

    `tx` stores each frame before its first byte leaves, because a frame from the switch may pause and the wire may not.
    Frames are padded to 60 bytes; full rate, gaps of 12 bytes. `tx` stalls while the PHY gives no clock.

    `rx` may stall as long as its `rx_depth` words last; later words are truncated. Each frame that could not be stored
    completely ends with `error`, after its first words or as a word of its own, and so does each damaged frame. `link`
    is the PHY's report between frames (RGMII 2.0, 3.4.1). `sync` must be faster than an eighth of the pins' clock.
    """

    def __init__(
        self,
        *,
        bus_bits: int,
        domain: str,
        frame_bytes_max: int = 1518,
        tx_depth: int = 512,
        rx_depth: int = CROSSING_DEPTH,
    ):
        if bus_bits != 64:
            raise ValueError(f"RgmiiPort bus_bits must be 64, not {bus_bits!r}")
        if tx_depth * bus_bits // 8 < frame_bytes_max:
            raise ValueError(f"RgmiiPort tx_depth must hold a frame of {frame_bytes_max} bytes, not {tx_depth!r} words")
        self.bus_bits, self.domain, self.tx_depth, self.rx_depth = bus_bits, domain, tx_depth, rx_depth
        word = stream.Signature(Packet(bus_bits))
        super().__init__(
            {
                "rx": Out(word),
                "tx": In(word),
                "link": Out(1),
                "tx_clk": Out(1),
                "tx_ctl": Out(1),
                "tx_data": Out(4),
                "rx_ctl": In(1),
                "rx_data": In(4),
            }
        )

    def elaborate(self, platform):
        m = Module()
        domain = m.d[self.domain]
        word = Packet(self.bus_bits)
        m.submodules.rx_overflow = overflow = DomainRenamer(self.domain)(Overflow(bus_bits=self.bus_bits))
        m.submodules.rx_crossing = rx = ClockCrossing(
            word, depth=self.rx_depth, i_domain=self.domain, o_domain="sync", store_and_forward=False
        )
        m.submodules.tx_frames = frames = ClockCrossing(
            word, depth=self.tx_depth, i_domain="sync", o_domain="sync", store_and_forward=True
        )
        m.submodules.tx_crossing = tx = ClockCrossing(
            word, depth=CROSSING_DEPTH, i_domain="sync", o_domain=self.domain, store_and_forward=False
        )
        bytes = stream.Signature(Byte).create()
        connect(m, flipped(self.tx), frames.i)
        connect(m, frames.o, tx.i)
        connect(m, overflow.o, rx.i)
        connect(m, rx.o, flipped(self.rx))
        got_valid, got, got_error, link = Signal(), Signal(Byte), Signal(), Signal()
        m.submodules.mac = Instance(
            MAC,
            i_clk=ClockSignal(self.domain),
            i_rst=ResetSignal(self.domain),
            i_tx_valid=bytes.valid,
            o_tx_ready=bytes.ready,
            i_tx_data=bytes.payload.data,
            i_tx_last=bytes.payload.last,
            o_rx_valid=got_valid,
            o_rx_data=got.data,
            o_rx_last=got.last,
            o_rx_error=got_error,
            o_link=link,
            o_rgmii_tx_clk=self.tx_clk,
            o_rgmii_tx_ctl=self.tx_ctl,
            o_rgmii_tx_data=self.tx_data,
            i_rgmii_rx_ctl=self.rx_ctl,
            i_rgmii_rx_data=self.rx_data,
        )
        m.submodules.link = FFSynchronizer(link, self.link)
        self._send(m, domain, tx.o, bytes)
        self._receive(m, domain, got_valid, got, got_error, overflow.i)
        return m

    def _send(self, m, domain, words, bytes):
        """Build the transmit path: words to bytes, one each cycle."""
        # Eight remaining bytes are counted as 0.
        word, full = Signal(Packet(self.bus_bits)), Signal()
        index, left = Signal(3), Signal(3)
        ends = left == 1
        m.d.comb += [
            bytes.valid.eq(full),
            bytes.payload.data.eq(word.data.word_select(index, 8)),
            bytes.payload.last.eq(word.last & ends),
            words.ready.eq(~full | bytes.ready & ends),
        ]
        with m.If(bytes.valid & bytes.ready):
            domain += [index.eq(index + 1), left.eq(left - 1)]
        with m.If(words.ready):
            domain += [word.eq(words.payload), full.eq(words.valid), index.eq(0), left.eq(words.payload.count[:3])]

    def _receive(self, m, domain, valid, byte, error, words):
        """Build the receive path: bytes to words, which cannot stall."""
        word, index = words.payload, Signal(3)
        domain += words.valid.eq(valid & (byte.last | (index == 7)))
        with m.If(valid):
            domain += [
                index.eq(Mux(byte.last, 0, index + 1)),
                word.count.eq(index + 1),
                word.last.eq(byte.last),
                word.error.eq(error),
            ]
            for k in range(8):
                with m.If(index == k):
                    domain += word.data[8 * k : 8 * k + 8].eq(byte.data)

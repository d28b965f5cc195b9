"""The 10GBASE-R physical coding sublayer (IEEE 802.3 clause 49) between XGMII and a transceiver with a 64B/66B
gearbox."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.ethernet.blocks import Block, Decoder, Encoder
from hw.ethernet.lock import BerMonitor, BlockLock
from hw.ethernet.scramble import Descrambler, Scrambler
from hw.ethernet.xgmii import ALL_IDLE, LOCAL_FAULT, Xgmii, twice

__all__ = ["PcsReceiver", "PcsTransmitter"]


class PcsTransmitter(wiring.Component):
    """XGMII words to scrambled blocks, each LATENCY cycles later. A transceiver that cannot take one every cycle pauses
    the clock domain."""

    LATENCY = Encoder.LATENCY + 1

    def __init__(self):
        super().__init__({"xgmii": In(Xgmii, init=ALL_IDLE), "block": Out(Block)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.encoder = encoder = Encoder()
        m.submodules.scrambler = scrambler = Scrambler()
        m.d.comb += [
            encoder.xgmii.eq(self.xgmii),
            scrambler.i.eq(encoder.block.payload),
            self.block.payload.eq(scrambler.o),
        ]
        m.d.sync += self.block.header.eq(encoder.block.header)
        return m


class PcsReceiver(wiring.Component):
    """Scrambled blocks to XGMII words, each LATENCY cycles later.

    `slip`, for one cycle, asks the transceiver to begin blocks a bit later; it has `slip_cycles` cycles to do so. `up`
    is 1 while blocks are aligned and few headers are wrong; otherwise the words are local faults. `ber_blocks` and
    `ber_limit` belong to the monitor.
    """

    LATENCY = 1 + Decoder.LATENCY

    def __init__(self, *, slip_cycles: int = 32, ber_blocks: int = 19_531, ber_limit: int = 16):
        self.lock = BlockLock(slip_cycles=slip_cycles)
        self.monitor = BerMonitor(blocks=ber_blocks, limit=ber_limit)
        super().__init__(
            {"block": In(Block), "slip": Out(1), "up": Out(1), "xgmii": Out(Xgmii, init=twice(LOCAL_FAULT))}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.lock, m.submodules.monitor = lock, monitor = self.lock, self.monitor
        m.submodules.descrambler = descrambler = Descrambler()
        m.submodules.decoder = decoder = Decoder()
        header = Signal(2)
        m.d.sync += [header.eq(self.block.header), self.up.eq(lock.locked & ~monitor.high)]
        m.d.comb += [
            lock.header.eq(self.block.header),
            monitor.header.eq(self.block.header),
            monitor.locked.eq(lock.locked),
            self.slip.eq(lock.slip),
            descrambler.i.eq(self.block.payload),
            decoder.block.payload.eq(descrambler.o),
            decoder.block.header.eq(header),
            decoder.fault.eq(~self.up),
            self.xgmii.eq(decoder.xgmii),
        ]
        return m

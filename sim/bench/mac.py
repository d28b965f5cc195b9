"""The MAC's two halves as one component, for benches that stand at XGMII."""

from amaranth.hdl import EnableInserter, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.ethernet.fault import LinkFault
from hw.ethernet.receive import Receiver
from hw.ethernet.transmit import Transmitter
from hw.stream.packet import Packet

__all__ = ["Mac"]


class Mac(wiring.Component):
    """Wiring only: `tx_enable` and `rx_enable` are the pauses of a transceiver."""

    def __init__(self, *, transmitter: type[Transmitter] = Transmitter, receiver: type[Receiver] = Receiver):
        self.transmitter, self.receiver, self.fault = transmitter(), receiver(), LinkFault()
        word = Packet(64)
        super().__init__(
            {
                "i": In(stream.Signature(word)),
                "txd": Out(64),
                "txc": Out(8),
                "tx_enable": In(1),
                "underrun": Out(1),
                "o": Out(stream.Signature(word)),
                "rxd": In(64),
                "rxc": In(8),
                "rx_enable": In(1),
                "local": Out(1),
                "remote": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        transmitter, receiver, fault = self.transmitter, self.receiver, self.fault
        m.submodules.transmitter = EnableInserter(self.tx_enable)(transmitter)
        m.submodules.receiver, m.submodules.fault = (
            EnableInserter(self.rx_enable)(receiver),
            EnableInserter(self.rx_enable)(fault),
        )
        m.d.comb += [
            transmitter.i.valid.eq(self.i.valid),
            transmitter.i.payload.eq(self.i.payload),
            self.i.ready.eq(transmitter.i.ready & self.tx_enable),
            self.txd.eq(transmitter.xgmii.data),
            self.txc.eq(transmitter.xgmii.control),
            self.underrun.eq(transmitter.stat_underrun & self.tx_enable),
            transmitter.remote_fault.eq(fault.local),
            transmitter.halt.eq(fault.remote),
            receiver.xgmii.data.eq(self.rxd),
            receiver.xgmii.control.eq(self.rxc),
            fault.xgmii.eq(receiver.xgmii),
            self.o.valid.eq(receiver.o.valid & self.rx_enable),
            self.o.payload.eq(receiver.o.payload),
            self.local.eq(fault.local),
            self.remote.eq(fault.remote),
        ]
        return m

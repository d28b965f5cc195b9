"""A port of 10 or 25 Gb/s: MAC and PCS between a transceiver and the switch."""

from amaranth.hdl import DomainRenamer, EnableInserter, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hw.ethernet.crossing import FrameCrossing
from hw.ethernet.fault import LinkFault
from hw.ethernet.overflow import Overflow
from hw.ethernet.pcs import PcsReceiver, PcsTransmitter
from hw.ethernet.receive import Receiver
from hw.ethernet.transmit import Transmitter
from hw.ethernet.width import Narrow, Widen
from hw.stream.packet import Packet, require_bus

__all__ = ["Port10G"]

RX_WORDS = 32
SLACK_WORDS = 16
"""Words of the egress memory that may be in flight between its two sides."""


class Port10G(wiring.Component):
    """MAC and PCS of 10GBASE-R between a transceiver and the switch's words.

        rxd, rxh -> PcsReceiver -> Receiver -> Widen -> Overflow -> FrameCrossing -> rx          domain `rx` | `sync`
        txd, txh <- PcsTransmitter <- Transmitter <- Narrow <- FrameCrossing (store and forward) <- tx  `tx` | `sync`

    The instantiator provides the domains `rx`, `tx` and `sync` (`DomainRenamer` names them for each port). Each may be
    reset alone, for at least 4 cycles of the slowest clock, and no incomplete frame ends without an error. Signals
    cross clock domains in `FrameCrossing` and `FFSynchronizer` only, which a platform constrains.

    Transceiver side: `tx_ready` and `rx_valid` are clock enables of the two domains, for gearboxes that pause. Each
    cycle with `tx_ready` takes a block, each with `rx_valid` brings one. `rx_slip` lasts one cycle of `rx`. With
    `msb_first`, as in Xilinx gearboxes, the bit that is sent first is the highest of `txh`, then of `txd`.

    - 7 series GTH (synchronous gearbox, 64 bits, user clocks of 10.3125 GHz / 64 = 161.13 MHz): TXSEQUENCE counts 0 to
      32, and `tx_ready` is low in the cycle in which the gearbox ignores TXDATA; `rx_valid` is RXDATAVALID; `rx_slip`
      goes to RXGEARBOXSLIP.
    - UltraScale+ GTY (asynchronous gearbox, 64 bits, 10.3125 GHz / 66 = 156.25 MHz): `tx_ready` and `rx_valid` are 1,
      or the wizard's outputs. 25GBASE-R is the same at 390.625 MHz, with figures of its own for the monitor; forward
      error correction is not included.

    Switch side: `rx` has frames without FCS, with `error` at `last` if they are incomplete or damaged. A frame that
    `sync` does not take in time is truncated and marked so, too. `tx` gets padding and FCS. A frame leaves when the
    crossing holds all of it, because an output port may pause inside a frame and the line may not; no frame may be
    longer than `frame_bytes_max`. While the link is down, the transmitter discards frames.
    `link` is 1 while blocks are aligned and neither
    end reports a fault.
    """

    def __init__(
        self,
        *,
        bus_bits: int,
        frame_bytes_max: int = 1518,
        msb_first: bool = True,
        slip_cycles: int = 32,
        ber_blocks: int = 19_531,
        ber_limit: int = 16,
    ):
        require_bus("Port10G", bus_bits)
        if frame_bytes_max < 60:
            raise ValueError(f"Port10G frame_bytes_max must be at least 60, not {frame_bytes_max!r}")
        self.bus_bits, self.frame_bytes_max, self.msb_first = bus_bits, frame_bytes_max, msb_first
        self.pcs_receiver = PcsReceiver(slip_cycles=slip_cycles, ber_blocks=ber_blocks, ber_limit=ber_limit)
        word = stream.Signature(Packet(bus_bits))
        super().__init__(
            {
                "txd": Out(64),
                "txh": Out(2),
                "tx_ready": In(1, init=1),
                "rxd": In(64),
                "rxh": In(2),
                "rx_valid": In(1, init=1),
                "rx_slip": Out(1),
                "rx": Out(word),
                "tx": In(word),
                "link": Out(1),
            }
        )

    @property
    def tx_words(self) -> int:
        """Words of the egress memory: it holds the longest frame, while the next comes in."""
        return 1 << ceil_log2(-(-self.frame_bytes_max * 8 // self.bus_bits) + SLACK_WORDS)

    def elaborate(self, platform):
        m = Module()
        turned = lambda bits: bits[::-1] if self.msb_first else bits

        def paused(component, domain, enable):
            return DomainRenamer(domain)(EnableInserter(enable)(component))

        # Receive path
        pcs, receiver, fault, widen = self.pcs_receiver, Receiver(), LinkFault(), Widen(bus_bits=self.bus_bits)
        overflow = Overflow(bus_bits=self.bus_bits)
        inward = FrameCrossing(bus_bits=self.bus_bits, depth=RX_WORDS)
        for name, component in (("pcs_receiver", pcs), ("receiver", receiver), ("fault", fault)):
            m.submodules[name] = paused(component, "rx", self.rx_valid)
        m.submodules.widen, m.submodules.overflow = DomainRenamer("rx")(widen), DomainRenamer("rx")(overflow)
        m.submodules.inward = DomainRenamer({"write": "rx", "read": "sync"})(inward)
        m.d.comb += [
            pcs.block.payload.eq(turned(self.rxd)),
            pcs.block.header.eq(turned(self.rxh)),
            receiver.xgmii.eq(pcs.xgmii),
            fault.xgmii.eq(pcs.xgmii),
            widen.i.valid.eq(receiver.o.valid & self.rx_valid),
            widen.i.payload.eq(receiver.o.payload),
        ]
        m.d.rx += self.rx_slip.eq(pcs.slip & self.rx_valid)
        connect(m, widen.o, overflow.i)
        connect(m, overflow.o, inward.i)
        connect(m, inward.o, flipped(self.rx))

        # Transmit path
        outward, narrow = (
            FrameCrossing(bus_bits=self.bus_bits, depth=self.tx_words, store_and_forward=True),
            Narrow(bus_bits=self.bus_bits),
        )
        transmitter, coder = Transmitter(), PcsTransmitter()
        m.submodules.outward = DomainRenamer({"write": "sync", "read": "tx"})(outward)
        m.submodules.narrow = DomainRenamer("tx")(narrow)
        for name, component in (("transmitter", transmitter), ("pcs_transmitter", coder)):
            m.submodules[name] = paused(component, "tx", self.tx_ready)
        connect(m, flipped(self.tx), outward.i)
        connect(m, outward.o, narrow.i)
        m.d.comb += [
            transmitter.i.valid.eq(narrow.o.valid),
            transmitter.i.payload.eq(narrow.o.payload),
            narrow.o.ready.eq(transmitter.i.ready & self.tx_ready),
            coder.xgmii.eq(transmitter.xgmii),
            self.txd.eq(turned(coder.block.payload)),
            self.txh.eq(turned(coder.block.header)),
        ]

        # The link's state, from the receiver to the transmitter's reaction and to the switch
        local, remote, up = Signal(init=1), Signal(), Signal()
        m.d.rx += [
            local.eq(fault.local | ~pcs.up),
            remote.eq(fault.remote),
            up.eq(pcs.up & ~fault.local & ~fault.remote),
        ]
        m.submodules.local = FFSynchronizer(local, transmitter.remote_fault, o_domain="tx", init=1)
        m.submodules.remote = FFSynchronizer(remote, transmitter.halt, o_domain="tx")
        m.submodules.up = FFSynchronizer(up, self.link)
        return m

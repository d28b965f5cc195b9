"""The vendor's transceivers: blocks of 66 bits, two clocks a lane, and resets."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from hw.board.xilinx.ip import Ip

__all__ = ["Blocks", "GthQuad", "GtyQuad", "Sequence", "domains"]


class Blocks(wiring.Signature):
    """Between a PCS, for which it is Out, and a lane of a transceiver: blocks of clause 49.2 before encoding, a header
    and 64 scrambled bits, the highest bit first on the cable, as in the gearboxes (UG476, UG578: TX gearbox).

    `txd` and `txh` are taken in each cycle of the transmit clock with `tx_ready`. `rxd` and `rxh` are a block in each
    cycle of the receive clock with `rx_valid`. A cycle with `rx_slip` moves the block boundary by a bit.
    """

    def __init__(self):
        super().__init__(
            {
                "txd": Out(64),
                "txh": Out(2),
                "tx_ready": In(1),
                "rxd": In(64),
                "rxh": In(2),
                "rx_valid": In(1),
                "rx_slip": Out(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocks)


class Sequence(wiring.Component):
    """The external sequence counter of a 7 series TX gearbox (UG476): 0 to 32, and the block offered at 32 is not
    taken. 33 cycles for 32 blocks."""

    LENGTH = 33

    def __init__(self):
        super().__init__({"count": Out(7), "ready": Out(1)})

    def elaborate(self, platform):
        m = Module()
        last = self.count == self.LENGTH - 1
        m.d.sync += self.count.eq(self.count + 1)
        with m.If(last):
            m.d.sync += self.count.eq(0)
        m.d.comb += self.ready.eq(~last)
        return m


def domains(port: int) -> tuple[str, str]:
    """Return the clock domains of a port's transmitter and receiver."""
    return f"port{port}_tx", f"port{port}_rx"


def clocked(m: Module, domain: str, clock: Signal, done: Signal) -> None:
    """Make a domain of a transceiver's clock, in reset until the transceiver's own reset is done."""
    m.domains += ClockDomain(domain)
    m.d.comb += ClockSignal(domain).eq(clock)
    m.submodules[f"{domain}_reset"] = ResetSynchronizer(~done, domain=domain)


class GthQuad(Elaboratable):
    """Lanes of a 7 series quad: `blocks[k]` for each of `places`, in the domains of port k. `reset` and `freerun`
    belong to the domain `init`."""

    def __init__(self, ip: Ip, places: tuple[str, ...], quad: int):
        self.ip, self.places, self.quad = ip, places, quad
        self.blocks = [Blocks().flip().create(path=("blocks", str(k))) for k in range(len(places))]
        self.reset, self.refclk_p, self.refclk_n = Signal(), Signal(), Signal()
        self.rx_p, self.rx_n, self.tx_p, self.tx_n = (Signal(len(places)) for _ in range(4))

    def elaborate(self, platform):
        m = Module()
        order = sorted(self.places, key=lambda place: int(place.rpartition("Y")[2]))
        wires = {
            "soft_reset_tx_in": self.reset,
            "soft_reset_rx_in": self.reset,
            "dont_reset_on_data_error_in": 1,
            "sysclk_in": ClockSignal("init"),
            f"q{self.quad}_clk0_gtrefclk_pad_p_in": self.refclk_p,
            f"q{self.quad}_clk0_gtrefclk_pad_n_in": self.refclk_n,
        }
        for port, (place, blocks) in enumerate(zip(self.places, self.blocks, strict=True)):
            gt = f"gt{order.index(place)}_"
            txd, rxd = Signal(64, name=f"txd_{port}"), Signal(64, name=f"rxd_{port}")
            txh, rxh = Signal(2, name=f"txh_{port}"), Signal(2, name=f"rxh_{port}")
            tx, rx = (Signal(name=f"{domain}_clock") for domain in domains(port))
            tx_done, rx_done = Signal(name=f"tx_done_{port}"), Signal(name=f"rx_done_{port}")
            clocked(m, domains(port)[0], tx, tx_done)
            clocked(m, domains(port)[1], rx, rx_done)
            sequence = Sequence()
            m.submodules[f"sequence_{port}"] = DomainRenamer(domains(port)[0])(sequence)
            m.d.comb += [
                txd.eq(blocks.txd),
                txh.eq(blocks.txh),
                blocks.rxd.eq(rxd),
                blocks.rxh.eq(rxh),
                blocks.tx_ready.eq(sequence.ready),
            ]
            wires |= {
                gt + name: wire
                for name, wire in {
                    "tx_fsm_reset_done_out": tx_done,
                    "rx_fsm_reset_done_out": rx_done,
                    "data_valid_in": 1,
                    "txusrclk2_out": tx,
                    "rxusrclk2_out": rx,
                    "drpaddr_in": 0,
                    "drpdi_in": 0,
                    "drpen_in": 0,
                    "drpwe_in": 0,
                    "eyescanreset_in": 0,
                    "eyescantrigger_in": 0,
                    "rxuserrdy_in": 1,
                    "txuserrdy_in": 1,
                    "gtrxreset_in": 0,
                    "gttxreset_in": 0,
                    "rxmonitorsel_in": 0,
                    "gthrxp_in": self.rx_p[port],
                    "gthrxn_in": self.rx_n[port],
                    "gthtxp_out": self.tx_p[port],
                    "gthtxn_out": self.tx_n[port],
                    "rxgearboxslip_in": blocks.rx_slip,
                    "rxdata_out": rxd,
                    "rxheader_out": rxh,
                    "rxdatavalid_out": blocks.rx_valid,
                    "txdata_in": txd,
                    "txheader_in": txh,
                    "txsequence_in": sequence.count,
                }.items()
            }
        m.submodules.wizard = self.ip.instance(**wires)
        return m


class GtyQuad(Elaboratable):
    """Lanes of an UltraScale+ quad, up to four, of ports `first` and on: `blocks[k]`, in the domains of port `first` +
    k. `refclk` has come through its buffer; `reset` belongs to the domain `init`."""

    def __init__(self, ips: tuple[Ip, Ip], *, first: int, lanes: int):
        self.ips, self.first, self.lanes = ips, first, lanes
        self.blocks = [Blocks().flip().create(path=("blocks", str(k))) for k in range(lanes)]
        self.reset, self.refclk = Signal(), Signal()
        self.rx_p, self.rx_n, self.tx_p, self.tx_n = (Signal(lanes) for _ in range(4))

    def elaborate(self, platform):
        m = Module()
        pll, pll_ref, locked = Signal(), Signal(), Signal()
        for lane, blocks in enumerate(self.blocks):
            port = self.first + lane
            txd, rxd = Signal(64, name=f"txd_{port}"), Signal(64, name=f"rxd_{port}")
            rxh, rx_valid, txh = (
                Signal(6, name=f"rxh_{port}"),
                Signal(2, name=f"rx_valid_{port}"),
                Signal(6, name=f"txh_{port}"),
            )
            tx, rx = (Signal(name=f"{domain}_clock") for domain in domains(port))
            tx_done, rx_done = Signal(name=f"tx_done_{port}"), Signal(name=f"rx_done_{port}")
            clocked(m, domains(port)[0], tx, tx_done)
            clocked(m, domains(port)[1], rx, rx_done)
            m.d.comb += [
                txd.eq(blocks.txd),
                txh.eq(blocks.txh),
                blocks.rxd.eq(rxd),
                blocks.rxh.eq(rxh[:2]),
                blocks.tx_ready.eq(1),
                blocks.rx_valid.eq(rx_valid[0]),
            ]
            wires = {
                "gtwiz_reset_clk_freerun_in": ClockSignal("init"),
                "gtwiz_reset_all_in": self.reset,
                "gtwiz_userclk_tx_reset_in": 0,
                "gtwiz_reset_tx_pll_and_datapath_in": 0,
                "gtwiz_reset_tx_datapath_in": 0,
                "gtwiz_userclk_rx_reset_in": 0,
                "gtwiz_reset_rx_pll_and_datapath_in": 0,
                "gtwiz_reset_rx_datapath_in": 0,
                "gtyrxp_in": self.rx_p[lane],
                "gtyrxn_in": self.rx_n[lane],
                "gtytxp_out": self.tx_p[lane],
                "gtytxn_out": self.tx_n[lane],
                "gtwiz_userclk_tx_usrclk2_out": tx,
                "gtwiz_userclk_rx_usrclk2_out": rx,
                "gtwiz_reset_tx_done_out": tx_done,
                "gtwiz_reset_rx_done_out": rx_done,
                "gtwiz_userdata_tx_in": txd,
                "txheader_in": txh,
                "txsequence_in": 0,
                "rxgearboxslip_in": blocks.rx_slip,
                "gtwiz_userdata_rx_out": rxd,
                "rxheader_out": rxh,
                "rxdatavalid_out": rx_valid,
            }
            if lane == 0:
                wires |= {
                    "gtrefclk00_in": self.refclk,
                    "qpll0outclk_out": pll,
                    "qpll0outrefclk_out": pll_ref,
                    "qpll0lock_out": locked,
                }
            else:
                wires |= {
                    "qpll0clk_in": pll,
                    "qpll0refclk_in": pll_ref,
                    "qpll1clk_in": 0,
                    "qpll1refclk_in": 0,
                    "gtwiz_reset_qpll0lock_in": locked,
                }
            m.submodules[f"lane_{lane}"] = self.ips[lane > 0].instance(**wires)
        return m

"""Between the switch and the integrated 100G MAC of UltraScale+: clock, handshake and link bring-up."""

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Elaboratable, Module, Mux, ResetSignal, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from hw.board.xilinx.ip import Ip
from hw.stream.packet import Packet
from hw.stream.skid_buffer import SkidBuffer

__all__ = ["BUS_BITS", "Cmac", "FrameReader", "FrameWriter"]

BUS_BITS = 512
BYTES = BUS_BITS // 8
DOMAIN = "port0_mac"
WORDS = 512
"""Words in each direction's FIFO: 32 KiB, the next block RAM depth."""
OWED_MAX = 255
MARGIN = 8
"""Words by which the writer's view of the FIFO may lag, and the end of a frame."""


class FrameWriter(wiring.Component):
    """Frames from the MAC (in domain `port0_mac`, which cannot stall) to `rx` in `sync`.

    A word appears 5 to 6 cycles of the core after the next word came, or 5 to 6 cycles after it came if it is its
    frame's last. When the FIFO is full, the rest of that frame is truncated, and the stored part ends with `error`
    and `count` 0, so that the switch drops and counts it. Frames that come then are lost until there is room, and each
    is reported by such a word in its place, up to OWED_MAX of them. A frame truncated by a reset of the MAC ends with
    `error`, too; a frame whose beginning a reset of the core took is lost. Bytes come lowest first, as many as `keep`
    has ones.
    """

    def __init__(self, words: int = WORDS):
        self.words = words
        super().__init__(
            {
                "valid": In(1),
                "data": In(BUS_BITS),
                "keep": In(BYTES),
                "last": In(1),
                "bad": In(1),
                "rx": Out(stream.Signature(Packet(BUS_BITS))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout = Packet(BUS_BITS)
        m.submodules.queue = queue = AsyncFIFO(width=layout.size, depth=self.words, w_domain=DOMAIN, r_domain="sync")
        self._store(m, queue, layout)

        # The register in front of `rx` holds an offered word, whatever a reset does to the FIFO. `inside`: the FIFO's
        # output is inside a frame, which a reset of the core does not change. `begun`: the switch has seen the
        # beginning of that frame; otherwise the rest is skipped.
        m.submodules.skid = skid = SkidBuffer(layout)
        inside, begun, broken, skips, taken = Signal(reset_less=True), Signal(), Signal(), Signal(), Signal()
        m.d.comb += skips.eq(inside & ~begun)
        with m.If(broken):
            m.d.comb += [
                skid.i.payload.count.eq(1),
                skid.i.payload.last.eq(1),
                skid.i.payload.error.eq(1),
                skid.i.valid.eq(1),
            ]
            with m.If(skid.i.ready):
                m.d.sync += [broken.eq(0), begun.eq(0)]
        with m.Else():
            m.d.comb += [
                skid.i.payload.eq(queue.r_data),
                skid.i.valid.eq(queue.r_rdy & ~skips),
                queue.r_en.eq(skid.i.ready | skips),
                taken.eq(queue.r_rdy & queue.r_en),
            ]
        with m.If(taken):
            m.d.sync += [inside.eq(~skid.i.payload.last), begun.eq(~skid.i.payload.last & ~skips)]
        with m.Elif(queue.r_rst & ~broken):
            m.d.sync += [inside.eq(0), broken.eq(begun)]
        wiring.connect(m, skid.o, wiring.flipped(self.rx))
        return m

    def _store(self, m, queue, layout):
        mac = m.d[DOMAIN]
        word, held = Signal(layout), Signal(layout)
        inside, cut, filled, writes, spare = Signal(), Signal(), Signal(), Signal(), Signal()
        owed, adds, reports = Signal(range(OWED_MAX + 1)), Signal(), Signal()
        truncated = layout.const({"count": 0, "last": 1, "error": 1})
        # A word waits until the next one has come, unless it is the last: the last word that fits can then still end
        # its frame.
        m.d.comb += [
            word.data.eq(self.data),
            word.count.eq(sum(self.keep[k] for k in range(BYTES))),
            word.last.eq(self.last),
            word.error.eq(self.bad),
            spare.eq(queue.w_level < self.words - MARGIN),
            writes.eq(filled & (self.valid | held.last)),
            queue.w_data.eq(held),
            # While a report is owed no frame begins, and the one before has ended: no word comes between.
            reports.eq((owed != 0) & spare & ~writes),
            queue.w_en.eq(writes | reports),
        ]
        with m.If(writes):
            mac += filled.eq(0)
        with m.If(self.valid):
            mac += inside.eq(~self.last)
            with m.If(cut):
                mac += cut.eq(~self.last)
            with m.Elif(spare & (inside | (owed == 0))):
                mac += [held.eq(word), filled.eq(1)]
            with m.Else():
                mac += cut.eq(~self.last)
                with m.If(inside):
                    m.d.comb += queue.w_data.eq(truncated)
                with m.Else():
                    m.d.comb += adds.eq(owed != OWED_MAX)
        with m.If(reports):
            m.d.comb += queue.w_data.eq(truncated)
        mac += owed.eq(owed + adds - reports)


class FrameReader(wiring.Component):
    """Frames from `tx` in `sync` to the MAC (in domain `port0_mac`).

    Frames are stored and forwarded, because the MAC aborts a frame that has a gap (PG203, tx_unfout); so a frame must
    not be longer than the FIFO. One word per cycle of the slower clock; the first word 5 to 8 cycles of the MAC after
    the last was taken. The rest of a frame after a reset of the MAC is not sent; a reset of the core ends a frame as a
    gap does. While `link`, in the MAC's domain, is 0, frames of which the MAC has taken no word are discarded, so that
    none leaves when the cable is in again.
    """

    def __init__(self, words: int = WORDS):
        self.words = words
        super().__init__(
            {
                "tx": In(stream.Signature(Packet(BUS_BITS))),
                "valid": Out(1),
                "data": Out(BUS_BITS),
                "keep": Out(BYTES),
                "last": Out(1),
                "ready": In(1),
                "link": In(1, init=1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = AsyncFIFO(
            width=Packet(BUS_BITS).size, depth=self.words, w_domain="sync", r_domain=DOMAIN
        )
        m.submodules.ends = ends = AsyncFIFO(width=1, depth=self.words, w_domain="sync", r_domain=DOMAIN)
        word = Signal(Packet(BUS_BITS))
        ended, taken = Signal(2), Signal()
        sending, fresh = (Signal(reset_less=True), Signal(init=1))  # a reset sets `fresh`; the FIFO keeps its content
        dropping, drops, begins = Signal(), Signal(), Signal()
        m.d.comb += [
            queue.w_data.eq(self.tx.payload),
            queue.w_en.eq(self.tx.valid),
            self.tx.ready.eq(queue.w_rdy),
            word.eq(queue.r_data),
            self.data.eq(word.data),
            self.last.eq(word.last),
            # Two cycles after the last word, so that the reader sees the words' pointer no later than that of their
            # end.
            ends.w_data.eq(1),
            ends.w_en.eq(ended[1]),
            begins.eq(~sending & ends.r_rdy & ~fresh),
            drops.eq(fresh & sending | dropping | begins & ~self.link),
            self.valid.eq(queue.r_rdy & (sending | begins) & ~fresh & ~drops),
            taken.eq((self.valid & self.ready) | (drops & queue.r_rdy)),
            queue.r_en.eq(taken),
            ends.r_en.eq(taken & word.last),
            self.keep.eq(Mux(word.last, Cat(word.count > k for k in range(BYTES)), (1 << BYTES) - 1)),
        ]
        m.d.sync += ended.eq(Cat(self.tx.valid & self.tx.ready & self.tx.payload.last, ended))
        with m.If(~sending):
            m.d[DOMAIN] += fresh.eq(0)
        with m.If(taken):
            m.d[DOMAIN] += [sending.eq(~word.last), dropping.eq(drops & ~fresh & ~word.last)]
        with m.Elif(queue.r_rst):
            # A reset of the core has emptied the FIFO: no frame is left, and the next word begins one.
            m.d[DOMAIN] += [sending.eq(0), dropping.eq(0)]
        return m


class Cmac(Elaboratable):
    """The MAC with its FIFOs: `rx`, `tx` and `link` in `sync`; this component provides clock and reset of domain
    `port0_mac`. The receiver is enabled from the beginning. Until it is aligned the transmitter sends remote faults,
    then frames (PG203, "Core bring up sequence")."""

    def __init__(self, ip: Ip):
        self.ip = ip
        word = stream.Signature(Packet(BUS_BITS))
        self.rx, self.tx = word.create(path=("rx",)), word.flip().create(path=("tx",))
        self.link, self.reset, self.refclk_p, self.refclk_n = Signal(), Signal(), Signal(), Signal()
        self.rx_p, self.rx_n, self.tx_p, self.tx_n = (Signal(4) for _ in range(4))

    def elaborate(self, platform):
        m = Module()
        m.domains += ClockDomain(DOMAIN)
        m.submodules.writer = writer = FrameWriter()
        m.submodules.reader = reader = FrameReader()
        clock, reset, rx_reset, aligned, up = Signal(), Signal(), Signal(), Signal(), Signal()
        wiring.connect(m, writer.rx, wiring.flipped(self.rx))
        wiring.connect(m, wiring.flipped(self.tx), reader.tx)
        m.d.comb += [ClockSignal(DOMAIN).eq(clock), ResetSignal(DOMAIN).eq(reset | rx_reset)]
        m.d[DOMAIN] += up.eq(aligned)
        m.d.comb += reader.link.eq(up)
        m.submodules.linked = FFSynchronizer(up, self.link)
        on = {
            name: 1
            for name in (
                "ctl_rx_enable",
                "ctl_tx_rsfec_enable",
                "ctl_rx_rsfec_enable",
                "ctl_rsfec_ieee_error_indication_mode",
                "ctl_rx_rsfec_enable_correction",
                "ctl_rx_rsfec_enable_indication",
            )
        }
        off = {
            name: 0
            for name in (
                "core_rx_reset",
                "core_tx_reset",
                "core_drp_reset",
                "gtwiz_reset_tx_datapath",
                "gtwiz_reset_rx_datapath",
                "gt_loopback_in",
                "tx_axis_tuser",
                "tx_preamblein",
                "ctl_tx_send_idle",
                "ctl_tx_send_lfi",
                "ctl_tx_test_pattern",
                "ctl_rx_force_resync",
                "ctl_rx_test_pattern",
                "drp_addr",
                "drp_di",
                "drp_en",
                "drp_we",
            )
        }
        m.submodules.mac = self.ip.instance(
            gt_rxp_in=self.rx_p,
            gt_rxn_in=self.rx_n,
            gt_txp_out=self.tx_p,
            gt_txn_out=self.tx_n,
            gt_ref_clk_p=self.refclk_p,
            gt_ref_clk_n=self.refclk_n,
            gt_txusrclk2=clock,
            rx_clk=clock,
            init_clk=ClockSignal("init"),
            drp_clk=ClockSignal("init"),
            sys_reset=self.reset,
            usr_tx_reset=reset,
            usr_rx_reset=rx_reset,
            rx_axis_tvalid=writer.valid,
            rx_axis_tdata=writer.data,
            rx_axis_tkeep=writer.keep,
            rx_axis_tlast=writer.last,
            rx_axis_tuser=writer.bad,
            tx_axis_tvalid=reader.valid,
            tx_axis_tdata=reader.data,
            tx_axis_tkeep=reader.keep,
            tx_axis_tlast=reader.last,
            tx_axis_tready=reader.ready,
            stat_rx_aligned=aligned,
            ctl_tx_enable=up,
            ctl_tx_send_rfi=~up,
            **on,
            **off,
        )
        return m

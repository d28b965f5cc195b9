"""AXI4 across a clock domain boundary, and AXI4 of 512 bits to a memory that takes 256 bits only."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.axi import Axi4, Burst

__all__ = ["AxiCrossing", "AxiNarrower"]

CHANNELS = {"aw": True, "w": True, "b": False, "ar": True, "r": False}
"""The channels of AXI4, and whether they go from the manager to the memory."""


class AxiCrossing(wiring.Component):
    """`manager` in domain `sync` and `memory` in `memory_domain`, with one FIFO for each channel.

    Up to `depth` items wait in each channel; an item arrives 3 to 4 cycles of the reader after it was taken. No channel
    takes items before the reader has run. The two pointers of a FIFO cross in Gray code, each behind two registers of
    the other side. Both sides must be reset together, because a reset loses the bursts in progress.
    """

    def __init__(
        self, address_bits: int, *, memory_domain: str, data_bits: int = 64, id_bits: int = 1, depth: int = 16
    ):
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"AxiCrossing depth must be a power of two of at least 4, not {depth!r}")
        self.memory_domain, self.depth = memory_domain, depth
        bus = Axi4(address_bits, data_bits=data_bits, id_bits=id_bits)
        super().__init__({"manager": In(bus), "memory": Out(bus)})

    def elaborate(self, platform):
        m = Module()
        for name, forth in CHANNELS.items():
            source, sink = (self.manager, self.memory) if forth else (self.memory, self.manager)
            i, o = getattr(source, name), getattr(sink, name)
            domains = ("sync", self.memory_domain) if forth else (self.memory_domain, "sync")
            m.submodules[name] = fifo = AsyncFIFO(
                width=i.payload.shape().size, depth=self.depth, w_domain=domains[0], r_domain=domains[1]
            )
            m.d.comb += [
                fifo.w_data.eq(i.payload),
                fifo.w_en.eq(i.valid),
                i.ready.eq(fifo.w_rdy),
                o.payload.eq(fifo.r_data),
                o.valid.eq(fifo.r_rdy),
                fifo.r_en.eq(o.ready),
            ]
        return m


class AxiNarrower(wiring.Component):
    """Bursts of 1 beat of 512 bits to bursts of 2 beats of 256 bits, for the replay service only: each burst is an
    aligned unit of 64 bytes.

    `memory.ar.payload.len` and the like belong to the narrow bus. Requests pass in the same cycle. A wide beat is taken
    in the cycle in which its second half is written, and offered in the cycle in which memory offers its second half,
    with the worse response of the two. Throughput is that of the narrow side. Only half a beat is stored, of reads.
    """

    NARROW_BITS = 256

    def __init__(self, address_bits: int):
        narrow = self.NARROW_BITS
        super().__init__(
            {
                "manager": In(Axi4(address_bits, data_bits=2 * narrow)),
                "memory": Out(Axi4(address_bits, data_bits=narrow)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        wide, narrow = self.manager, self.memory
        for name in ("aw", "ar"):
            i, o = getattr(wide, name), getattr(narrow, name)
            m.d.comb += [
                o.payload.eq(i.payload),
                o.payload.len.eq(1),
                o.payload.size.eq(exact_log2(self.NARROW_BITS // 8)),
                o.payload.burst.eq(Burst.INCR),
                o.valid.eq(i.valid),
                i.ready.eq(o.ready),
            ]
        m.d.comb += [
            wide.b.payload.eq(narrow.b.payload),
            wide.b.valid.eq(narrow.b.valid),
            narrow.b.ready.eq(wide.b.ready),
        ]

        w, at_second = wide.w, Signal()
        m.d.comb += [
            narrow.w.payload.data.eq(w.payload.data.word_select(at_second, self.NARROW_BITS)),
            narrow.w.payload.strb.eq(w.payload.strb.word_select(at_second, self.NARROW_BITS // 8)),
            narrow.w.payload.last.eq(at_second),
            narrow.w.valid.eq(w.valid),
            w.ready.eq(narrow.w.ready & at_second),
        ]
        with m.If(narrow.w.valid & narrow.w.ready):
            m.d.sync += at_second.eq(~at_second)

        r, has_first, first = narrow.r, Signal(), Signal.like(narrow.r.payload)
        m.d.comb += [
            wide.r.payload.id.eq(r.payload.id),
            wide.r.payload.resp.eq(r.payload.resp | first.resp),
            wide.r.payload.data.eq(Cat(first.data, r.payload.data)),
            wide.r.payload.last.eq(1),
            wide.r.valid.eq(r.valid & has_first),
            r.ready.eq(~has_first | wide.r.ready),
        ]
        with m.If(r.valid & r.ready):
            m.d.sync += has_first.eq(~has_first)
            with m.If(~has_first):
                m.d.sync += first.eq(r.payload)
        return m

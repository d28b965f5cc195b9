"""AXI4 across a clock domain boundary, and AXI4 of 64 bits to a memory that takes 256 bits only."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from hw.interface.axi import Axi4, Burst

__all__ = ["AxiCrossing", "AxiWidener"]

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


class AxiWidener(wiring.Component):
    """Bursts of 8 beats of 64 bits to bursts of 2 beats of 256 bits, for the replay service only: each burst is an
    aligned unit of 64 bytes.

    `memory.ar.payload.len` and the like belong to the wide bus. Requests pass in the same cycle. A wide beat is written
    in the cycle in which the last of its four parts came. A read takes the cycle in which the memory offers it and
    three more. Throughput is that of the narrow side. Only three quarters of a beat are stored.
    """

    RATIO = 4

    def __init__(self, address_bits: int):
        super().__init__({"manager": In(Axi4(address_bits)), "memory": Out(Axi4(address_bits, data_bits=256))})

    def elaborate(self, platform):
        m = Module()
        narrow, wide = self.manager, self.memory
        for name in ("aw", "ar"):
            i, o = getattr(narrow, name), getattr(wide, name)
            m.d.comb += [
                o.payload.eq(i.payload),
                o.payload.len.eq(1),
                o.payload.size.eq(5),
                o.payload.burst.eq(Burst.INCR),
                o.valid.eq(i.valid),
                i.ready.eq(o.ready),
            ]
        m.d.comb += [
            narrow.b.payload.eq(wide.b.payload),
            narrow.b.valid.eq(wide.b.valid),
            wide.b.ready.eq(narrow.b.ready),
        ]

        at = Signal(range(self.RATIO))
        kept, strobes = Signal(3 * 64), Signal(3 * 8)
        full = at == self.RATIO - 1
        w = narrow.w
        m.d.comb += [
            wide.w.payload.data.eq(Cat(kept, w.payload.data)),
            wide.w.payload.strb.eq(Cat(strobes, w.payload.strb)),
            wide.w.payload.last.eq(w.payload.last),
            wide.w.valid.eq(w.valid & full),
            w.ready.eq(Mux(full, wide.w.ready, 1)),
        ]
        with m.If(w.valid & w.ready):
            m.d.sync += at.eq(at + 1)
            with m.If(~full):
                m.d.sync += [kept.eq(Cat(kept[64:], w.payload.data)), strobes.eq(Cat(strobes[8:], w.payload.strb))]

        part = Signal(range(self.RATIO))
        r = wide.r
        m.d.comb += [
            narrow.r.payload.id.eq(r.payload.id),
            narrow.r.payload.resp.eq(r.payload.resp),
            narrow.r.payload.data.eq(r.payload.data.word_select(part, 64)),
            narrow.r.payload.last.eq(r.payload.last & (part == self.RATIO - 1)),
            narrow.r.valid.eq(r.valid),
            r.ready.eq(narrow.r.ready & (part == Const(self.RATIO - 1, 2))),
        ]
        with m.If(narrow.r.valid & narrow.r.ready):
            m.d.sync += part.eq(part + 1)
        return m

"""The one packet stream: words of a frame, and the register that cuts a stream's combinational paths."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["NEVER_READ_BEFORE_WRITTEN", "NEVER_READ_WHILE_WRITTEN", "Cut", "Word", "require_bus"]

NEVER_READ_BEFORE_WRITTEN = {"never_read_before_written": 1}
"""Attribute of memories that hold payload, or are wiped before they are used: `hw.synthesis.emit` leaves out their initial
zeros."""
NEVER_READ_WHILE_WRITTEN = {"never_read_while_written": 1}
"""Attribute of memories whose read port never looks at the word that is written in the same cycle:
`hw.synthesis.emit.for_synthesis` says so."""


def require_bus(owner: str, bus_bits: int) -> None:
    """Raise unless the width is one that our 64-byte header fills exactly."""
    if bus_bits not in (64, 256, 512):
        raise ValueError(f"{owner} bus_bits must be 64, 256 or 512, not {bus_bits!r}")


class Word(data.StructLayout):
    """One bus word of a frame. `count` is the number of valid bytes: all of them but in the word with `last`. `error`
    (a bad FCS) means something only with `last`. Byte 0 of the frame is the lowest byte of the first word."""

    def __init__(self, bus_bits: int):
        require_bus("Word", bus_bits)
        self.bus_bits = bus_bits
        super().__init__({"data": bus_bits, "count": range(bus_bits // 8 + 1), "last": 1, "error": 1})


class Cut(wiring.Component):
    """A stream with both its forward and its backward path registered.

    Latency 1 cycle, one item per cycle, holds up to two items while `o` stalls.
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        payload, spare = (Signal(self.o.payload.shape(), name=name, reset_less=True) for name in ("payload", "spare"))
        spare_valid = Signal()

        m.d.comb += [self.i.ready.eq(~spare_valid), self.o.payload.eq(payload)]
        with m.If(~self.o.valid | self.o.ready):
            # The spare item is older than the one arriving: it leaves first, and nothing arrives while it waits.
            m.d.sync += self.o.valid.eq(self.i.valid | spare_valid)
            m.d.sync += spare_valid.eq(0)
            with m.If(spare_valid):
                m.d.sync += payload.eq(spare)
            with m.Elif(self.i.valid):
                m.d.sync += payload.eq(self.i.payload)
        with m.Elif(self.i.valid & self.i.ready):
            # The consumer stalled in the very cycle an item came: keep it aside.
            m.d.sync += spare.eq(self.i.payload)
            m.d.sync += spare_valid.eq(1)
        return m

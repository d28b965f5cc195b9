"""Memory in units of 64 bytes: addresses in, data out, or both in; behind it AXI4, a unit a burst."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.interface.axi import Address, ReadData, WriteData, WriteResponse, incrementing
from hw.stream.fifo import Fifo
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire.replay import ROW_BYTES, UNIT_BYTES

__all__ = ["BEATS", "Beat", "UnitReader", "UnitWriter"]

BEATS = UNIT_BYTES // ROW_BYTES
"""Of a unit, which is one burst: units are aligned, so none crosses what AXI4 bursts must not, a multiple of 4096."""


class Beat(data.Struct):
    """`last` of its unit."""

    data: 8 * ROW_BYTES
    last: 1


def require(owner: str, address_bits: int, outstanding: int) -> None:
    if not 12 < address_bits <= 64:
        raise ValueError(f"{owner} address_bits must be 13 to 64, not {address_bits!r}")
    if not 1 <= outstanding <= 64:
        raise ValueError(f"{owner} outstanding must be 1 to 64, not {outstanding!r}")


def aligned(address):
    return Cat(Const(0, exact_log2(UNIT_BYTES)), address[exact_log2(UNIT_BYTES) :])


class UnitReader(wiring.Component):
    """Reads the units at `units`, byte addresses whose low bits do not count, and gives their `beats` in the same
    order.

    Up to `outstanding` units are asked for ahead, each only when there is room for all of its beats: memory is never
    made to wait, so whatever else it serves goes on. One beat a cycle, if memory delivers that and its latency is less
    than 8 cycles times `outstanding`; a beat is there 2 cycles after memory gave it. `error`: a beat came that memory
    says is none; it is passed on all the same.
    """

    def __init__(self, address_bits: int, *, outstanding: int = 8):
        require("UnitReader", address_bits, outstanding)
        self.outstanding = outstanding
        super().__init__(
            {
                "units": In(stream.Signature(address_bits)),
                "beats": Out(stream.Signature(Beat)),
                "error": Out(1),
                "ar": Out(stream.Signature(Address(address_bits))),
                "r": In(stream.Signature(ReadData())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = Fifo(Beat, depth=self.outstanding * BEATS)
        connect(m, fifo.o, flipped(self.beats))
        held, taken, left = Signal(range(self.outstanding + 1)), Signal(), Signal()  # units that have room in the queue
        address = Signal.like(self.units.payload)
        m.d.comb += [
            self.units.ready.eq(~self.ar.valid & (held != self.outstanding)),
            taken.eq(self.units.valid & self.units.ready),
            left.eq(self.beats.valid & self.beats.ready & self.beats.payload.last),
            *incrementing(self.ar.payload, address, BEATS),
        ]
        m.d.sync += held.eq(held + taken - left)
        with m.If(taken):
            m.d.sync += [self.ar.valid.eq(1), address.eq(aligned(self.units.payload))]
        with m.Elif(self.ar.ready):
            m.d.sync += self.ar.valid.eq(0)

        # What comes though nobody awaits it was asked for before a reset.
        beat, put, came, awaited = Signal(range(BEATS)), Signal(Beat), Signal(), Signal.like(held)
        m.d.comb += [
            self.r.ready.eq(1),
            came.eq(self.r.valid & (awaited != 0)),
            put.data.eq(self.r.payload.data),
            put.last.eq(beat == BEATS - 1),
            fifo.i.payload.eq(put),
            fifo.i.valid.eq(came),
            self.error.eq(came & self.r.payload.resp[1]),
        ]
        m.d.sync += [beat.eq(beat + came), awaited.eq(awaited + taken - (came & put.last))]
        return m


class UnitWriter(wiring.Component):
    """Writes 8 `beats` to each of the `units`, byte addresses whose low bits do not count.

    Up to `outstanding` units are on their way; a unit's beats are taken once its address was. One beat a cycle. `busy`:
    from the cycle after a unit was taken until memory has said of all that they are written, so that what is read when
    it is low again is what was written. `error`: memory says that a unit was not.
    """

    def __init__(self, address_bits: int, *, outstanding: int = 8):
        require("UnitWriter", address_bits, outstanding)
        self.outstanding = outstanding
        super().__init__(
            {
                "units": In(stream.Signature(address_bits)),
                "beats": In(stream.Signature(8 * ROW_BYTES)),
                "busy": Out(1),
                "error": Out(1),
                "aw": Out(stream.Signature(Address(address_bits))),
                "w": Out(stream.Signature(WriteData())),
                "b": In(stream.Signature(WriteResponse())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.cut = cut = SkidBuffer(WriteData())
        # Units that were not answered, and those of them whose beats were not all taken.
        pending, open = (Signal(range(self.outstanding + 1), name=name) for name in ("pending", "open"))
        taken, whole, told, beat = (
            Signal(),
            Signal(),
            Signal(),
            Signal(range(BEATS)),
        )  # told: an answer, not one from before a reset
        address = Signal.like(self.units.payload)
        m.d.comb += [
            self.units.ready.eq(~self.aw.valid & (pending != self.outstanding)),
            taken.eq(self.units.valid & self.units.ready),
            *incrementing(self.aw.payload, address, BEATS),
            self.b.ready.eq(1),
            self.busy.eq(pending != 0),
            told.eq(self.b.valid & self.busy),
            self.error.eq(told & self.b.payload.resp[1]),
        ]
        m.d.sync += [pending.eq(pending + taken - told), open.eq(open + taken - whole)]
        with m.If(taken):
            m.d.sync += [self.aw.valid.eq(1), address.eq(aligned(self.units.payload))]
        with m.Elif(self.aw.ready):
            m.d.sync += self.aw.valid.eq(0)

        # A beat never waits for its address to be taken, which a memory may do only when it sees the beat; but it does
        # not come before it.
        put = cut.i.payload
        m.d.comb += [
            cut.i.valid.eq(self.beats.valid & (open != 0)),
            self.beats.ready.eq(cut.i.ready & (open != 0)),
            put.data.eq(self.beats.payload),
            put.strb.eq(-1),
            put.last.eq(beat == BEATS - 1),
            whole.eq(cut.i.valid & cut.i.ready & put.last),
        ]
        m.d.sync += beat.eq(beat + (cut.i.valid & cut.i.ready))
        connect(m, cut.o, wiring.flipped(self.w))
        return m

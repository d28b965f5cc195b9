"""Memory in units of 64 bytes, each an AXI4 burst: a reader and a writer."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.interface.axi import Address, ReadData, WriteData, WriteResponse, incrementing
from hw.stream.fifo import Fifo
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire.replay import ROW_BYTES, UNIT_BYTES

__all__ = ["Beat", "UnitReader", "UnitWriter", "beats_of"]

BEATS_AHEAD = 64
"""Beats that a reader requests ahead by default: more than the memory's latency in cycles."""


def beats_of(data_bits: int) -> int:
    """Return the number of beats of a unit on a bus of `data_bits`. A unit is one aligned burst, so no burst crosses a
    multiple of 4096, which AXI4 forbids."""
    return 8 * UNIT_BYTES // data_bits


class Beat(data.StructLayout):
    """A bus word of a unit. `parity`: even parity of `data`; a wrong one says that the word had a bit error or an error
    response."""

    def __init__(self, data_bits: int):
        super().__init__({"data": data_bits, "parity": 1})


def require(owner: str, address_bits: int, data_bits: int, outstanding: int) -> None:
    if not 12 < address_bits <= 64:
        raise ValueError(f"{owner} address_bits must be 13 to 64, not {address_bits!r}")
    if data_bits not in (64, 128, 256, 512):
        raise ValueError(f"{owner} data_bits must be 64, 128, 256 or 512, not {data_bits!r}")
    if not 1 <= outstanding <= 64:
        raise ValueError(f"{owner} outstanding must be 1 to 64, not {outstanding!r}")


def aligned(address):
    return Cat(Const(0, exact_log2(UNIT_BYTES)), address[exact_log2(UNIT_BYTES) :])


class UnitReader(wiring.Component):
    """Reads units, and returns their `beats` in the order of the addresses in `units`. The low bits of an address,
    within a unit, are ignored.

    Up to `outstanding` units are requested ahead, by default those of 64 beats. A unit is requested only if the FIFO
    has room for all its beats, so `r` never stalls. Latency: 2 cycles from a beat in `r` to `beats`. One address and
    one beat in each cycle, if memory delivers one and its latency is below the cycles of `outstanding` units. `error`:
    a beat had an error response; the beat is passed on with a wrong parity. A bit error in the FIFO makes the parity
    wrong, too, and moves no unit's end.
    """

    def __init__(self, address_bits: int, *, data_bits: int = 64, outstanding: int | None = None):
        self.data_bits, self.unit_beats = data_bits, beats_of(data_bits)
        self.outstanding = BEATS_AHEAD // self.unit_beats if outstanding is None else outstanding
        require("UnitReader", address_bits, data_bits, self.outstanding)
        super().__init__(
            {
                "units": In(stream.Signature(address_bits)),
                "beats": Out(stream.Signature(Beat(data_bits))),
                "error": Out(1),
                "ar": Out(stream.Signature(Address(address_bits))),
                "r": In(stream.Signature(ReadData(data_bits))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = Fifo(Beat(self.data_bits), depth=max(2, self.outstanding * self.unit_beats))
        m.submodules.addresses = addresses = SkidBuffer(len(self.units.payload))
        leaving, leaves = Signal(range(self.unit_beats)), Signal()
        connect(m, fifo.o, flipped(self.beats))
        m.d.comb += leaves.eq(self.beats.valid & self.beats.ready)
        m.d.sync += leaving.eq(leaving + leaves)
        reserved, accepted, released = (
            Signal(range(self.outstanding + 1)),
            Signal(),
            Signal(),
        )  # units for which the FIFO reserves room
        has_room = reserved != self.outstanding
        m.d.comb += [
            addresses.i.payload.eq(self.units.payload),
            addresses.i.valid.eq(self.units.valid & has_room),
            self.units.ready.eq(addresses.i.ready & has_room),
            accepted.eq(self.units.valid & self.units.ready),
            released.eq(leaves & (leaving == self.unit_beats - 1)),
            *incrementing(self.ar.payload, aligned(addresses.o.payload), self.unit_beats, self.data_bits),
            self.ar.valid.eq(addresses.o.valid),
            addresses.o.ready.eq(self.ar.ready),
        ]
        m.d.sync += reserved.eq(reserved + accepted - released)

        # Beats that no request awaits answer requests from before a reset; drop them.
        beat, put, arrived = Signal(range(self.unit_beats)), fifo.i.payload, Signal()
        awaited_units, ends_unit = Signal.like(reserved), beat == self.unit_beats - 1
        m.d.comb += [
            self.r.ready.eq(1),
            arrived.eq(self.r.valid & (awaited_units != 0)),
            put.data.eq(self.r.payload.data),
            put.parity.eq(self.r.payload.data.xor() ^ self.r.payload.resp[1]),
            fifo.i.valid.eq(arrived),
            self.error.eq(arrived & self.r.payload.resp[1]),
        ]
        m.d.sync += [beat.eq(beat + arrived), awaited_units.eq(awaited_units + accepted - (arrived & ends_unit))]
        return m


class UnitWriter(wiring.Component):
    """Writes the `rows` of units, 64 bits each, as bus words to each address in `units`. The low bits of an address,
    within a unit, are ignored.

    Up to `outstanding` units are unconfirmed; a unit's rows are accepted after its address. One row in each cycle, as
    memory accepts the words, each of which is offered 1 cycle after its last row was taken. `busy`: from the cycle
    after a unit was accepted until memory has confirmed all writes, so a read that begins while `busy` is 0 returns the
    written data. `error`: a write had an error response.
    """

    def __init__(self, address_bits: int, *, data_bits: int = 64, outstanding: int = 8):
        require("UnitWriter", address_bits, data_bits, outstanding)
        self.data_bits, self.unit_beats, self.outstanding = data_bits, beats_of(data_bits), outstanding
        super().__init__(
            {
                "units": In(stream.Signature(address_bits)),
                "rows": In(stream.Signature(8 * ROW_BYTES)),
                "busy": Out(1),
                "error": Out(1),
                "aw": Out(stream.Signature(Address(address_bits))),
                "w": Out(stream.Signature(WriteData(data_bits))),
                "b": In(stream.Signature(WriteResponse())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = buffer = SkidBuffer(WriteData(self.data_bits))
        # Unconfirmed units, and those of them whose rows were not all accepted, if it `awaits` any. `confirmed`: a
        # confirmation of a unit that was not written before a reset.
        pending, awaiting_rows = (
            Signal(range(self.outstanding + 1), name=name) for name in ("pending", "awaiting_rows")
        )
        awaits = Signal()
        accepted, unit_complete, confirmed, beat = (Signal(), Signal(), Signal(), Signal(range(self.unit_beats)))
        address = Signal.like(self.units.payload)
        m.d.comb += [
            self.units.ready.eq(~self.aw.valid & (pending != self.outstanding)),
            accepted.eq(self.units.valid & self.units.ready),
            *incrementing(self.aw.payload, address, self.unit_beats, self.data_bits),
            self.b.ready.eq(1),
            self.busy.eq(pending != 0),
            confirmed.eq(self.b.valid & self.busy),
            self.error.eq(confirmed & self.b.payload.resp[1]),
        ]
        m.d.sync += pending.eq(pending + accepted - confirmed)
        with m.If(accepted & ~unit_complete):
            m.d.sync += [awaiting_rows.eq(awaiting_rows + 1), awaits.eq(1)]
        with m.Elif(unit_complete & ~accepted):
            m.d.sync += [awaiting_rows.eq(awaiting_rows - 1), awaits.eq(awaiting_rows != 1)]
        with m.If(accepted):
            m.d.sync += [self.aw.valid.eq(1), address.eq(aligned(self.units.payload))]
        with m.Elif(self.aw.ready):
            m.d.sync += self.aw.valid.eq(0)

        # A row follows its address, but does not wait until memory accepts the address: memory may wait for the beat.
        row_bits = 8 * ROW_BYTES
        rows_per_beat, put, taken, ends_beat = self.data_bits // row_bits, buffer.i.payload, Signal(), Signal()
        kept, row = Signal(self.data_bits - row_bits), Signal(range(rows_per_beat))
        m.d.comb += [
            self.rows.ready.eq(buffer.i.ready & awaits),
            taken.eq(self.rows.valid & self.rows.ready),
            ends_beat.eq(row == rows_per_beat - 1),
            buffer.i.valid.eq(self.rows.valid & awaits & ends_beat),
            put.data.eq(Cat(kept, self.rows.payload)),
            put.strb.eq(-1),
            put.last.eq(beat == self.unit_beats - 1),
            unit_complete.eq(buffer.i.valid & buffer.i.ready & put.last),
        ]
        m.d.sync += [row.eq(row + taken), beat.eq(beat + (taken & ends_beat))]
        if rows_per_beat > 1:
            with m.If(taken):
                m.d.sync += kept.eq(Cat(kept, self.rows.payload)[row_bits:])
        connect(m, buffer.o, flipped(self.w))
        return m

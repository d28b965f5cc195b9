"""Memory in units of 64 bytes, each an AXI4 burst: a reader and a writer."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import exact_log2

from hw.interface.axi import Address, ReadData, WriteData, WriteResponse, incrementing
from hw.stream.fifo import Fifo
from hw.stream.skid_buffer import SkidBuffer
from iswitch.wire.replay import ROW_BYTES, UNIT_BYTES

__all__ = ["BEATS", "Beat", "UnitReader", "UnitWriter"]

BEATS = UNIT_BYTES // ROW_BYTES
"""Beats of a unit. A unit is one aligned burst, so no burst crosses a multiple of 4096, which AXI4 forbids."""


class Beat(data.Struct):
    """A row of a unit; `last` of its unit. `parity`: even parity of `data`; a wrong one says that the row had a bit
    error or an error response."""

    data: 8 * ROW_BYTES
    parity: 1
    last: 1


def require(owner: str, address_bits: int, outstanding: int) -> None:
    if not 12 < address_bits <= 64:
        raise ValueError(f"{owner} address_bits must be 13 to 64, not {address_bits!r}")
    if not 1 <= outstanding <= 64:
        raise ValueError(f"{owner} outstanding must be 1 to 64, not {outstanding!r}")


def aligned(address):
    return Cat(Const(0, exact_log2(UNIT_BYTES)), address[exact_log2(UNIT_BYTES) :])


class UnitReader(wiring.Component):
    """Reads units, and returns their `beats` in the order of the addresses in `units`. The low bits of an address,
    within a unit, are ignored.

    Up to `outstanding` units are requested ahead. A unit is requested only if the FIFO has room for all its beats, so
    `r` never stalls. Latency: 2 cycles from a beat in `r` to `beats`. One beat in each
    cycle, if memory delivers one and its latency is below 8 * `outstanding` cycles. `error`: a beat had an error
    response; the beat is passed on with a wrong parity. A bit error in the FIFO makes the parity wrong, too, and moves
    no unit's end.
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
        stored = data.StructLayout({"data": 8 * ROW_BYTES, "parity": 1})
        m.submodules.fifo = fifo = Fifo(stored, depth=self.outstanding * BEATS)
        leaving, leaves = Signal(range(BEATS)), Signal()
        m.d.comb += [
            self.beats.valid.eq(fifo.o.valid),
            fifo.o.ready.eq(self.beats.ready),
            self.beats.payload.data.eq(fifo.o.payload.data),
            self.beats.payload.parity.eq(fifo.o.payload.parity),
            self.beats.payload.last.eq(leaving == BEATS - 1),
            leaves.eq(self.beats.valid & self.beats.ready),
        ]
        m.d.sync += leaving.eq(leaving + leaves)
        reserved, accepted, released = (
            Signal(range(self.outstanding + 1)),
            Signal(),
            Signal(),
        )  # units for which the FIFO reserves room
        address = Signal.like(self.units.payload)
        m.d.comb += [
            self.units.ready.eq(~self.ar.valid & (reserved != self.outstanding)),
            accepted.eq(self.units.valid & self.units.ready),
            released.eq(leaves & self.beats.payload.last),
            *incrementing(self.ar.payload, address, BEATS),
        ]
        m.d.sync += reserved.eq(reserved + accepted - released)
        with m.If(accepted):
            m.d.sync += [self.ar.valid.eq(1), address.eq(aligned(self.units.payload))]
        with m.Elif(self.ar.ready):
            m.d.sync += self.ar.valid.eq(0)

        # Beats that no request awaits answer requests from before a reset; drop them.
        beat, put, arrived, awaited_units = Signal(range(BEATS)), Signal(stored), Signal(), Signal.like(reserved)
        ends_unit = beat == BEATS - 1
        m.d.comb += [
            self.r.ready.eq(1),
            arrived.eq(self.r.valid & (awaited_units != 0)),
            put.data.eq(self.r.payload.data),
            put.parity.eq(self.r.payload.data.xor() ^ self.r.payload.resp[1]),
            fifo.i.payload.eq(put),
            fifo.i.valid.eq(arrived),
            self.error.eq(arrived & self.r.payload.resp[1]),
        ]
        m.d.sync += [beat.eq(beat + arrived), awaited_units.eq(awaited_units + accepted - (arrived & ends_unit))]
        return m


class UnitWriter(wiring.Component):
    """Writes `BEATS` of the `beats` to each address in `units`. The low bits of an address, within a unit, are ignored.

    Up to `outstanding` units are unconfirmed; a unit's beats are accepted after its address. One beat in each cycle, as
    memory accepts them. `busy`: from the cycle after a unit was accepted until memory has confirmed all writes, so a
    read that begins while `busy` is 0 returns the written data. `error`: a write had an error response.
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
        m.submodules.skid = buffer = SkidBuffer(WriteData())
        # Unconfirmed units, and those of them whose beats were not all accepted. `confirmed`: a confirmation of a unit
        # that was not written before a reset.
        pending, awaiting_beats = (
            Signal(range(self.outstanding + 1), name=name) for name in ("pending", "awaiting_beats")
        )
        accepted, unit_complete, confirmed, beat = (Signal(), Signal(), Signal(), Signal(range(BEATS)))
        address = Signal.like(self.units.payload)
        m.d.comb += [
            self.units.ready.eq(~self.aw.valid & (pending != self.outstanding)),
            accepted.eq(self.units.valid & self.units.ready),
            *incrementing(self.aw.payload, address, BEATS),
            self.b.ready.eq(1),
            self.busy.eq(pending != 0),
            confirmed.eq(self.b.valid & self.busy),
            self.error.eq(confirmed & self.b.payload.resp[1]),
        ]
        m.d.sync += [
            pending.eq(pending + accepted - confirmed),
            awaiting_beats.eq(awaiting_beats + accepted - unit_complete),
        ]
        with m.If(accepted):
            m.d.sync += [self.aw.valid.eq(1), address.eq(aligned(self.units.payload))]
        with m.Elif(self.aw.ready):
            m.d.sync += self.aw.valid.eq(0)

        # A beat follows its address, but does not wait until memory accepts the address: memory may wait for the beat.
        put = buffer.i.payload
        m.d.comb += [
            buffer.i.valid.eq(self.beats.valid & (awaiting_beats != 0)),
            self.beats.ready.eq(buffer.i.ready & (awaiting_beats != 0)),
            put.data.eq(self.beats.payload),
            put.strb.eq(-1),
            put.last.eq(beat == BEATS - 1),
            unit_complete.eq(buffer.i.valid & buffer.i.ready & put.last),
        ]
        m.d.sync += beat.eq(beat + (buffer.i.valid & buffer.i.ready))
        connect(m, buffer.o, wiring.flipped(self.w))
        return m

"""Addresses of the units of a record or of a stretch of a log, for the reader and the writer of units."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.axi import address_bits_of
from iswitch.config import Replay
from iswitch.wire.replay import UNIT_BYTES

__all__ = ["UnitRange", "UnitSequencer"]


class UnitRange(data.StructLayout):
    """`count` units one behind the other.

    `in_record`: all units of record `index` of the table, `start` is 0; else units of the log of session `index` from
    `start` on, of which only the bits below the log's length matter.
    """

    def __init__(self, replay: Replay):
        super().__init__(
            {
                "in_record": 1,
                "index": range(max(replay.capacity, replay.sessions)),
                "start": max(exact_log2(replay.log_units), 4),
                "count": 8,
            }
        )


class UnitSequencer(wiring.Component):
    """Gives the addresses of a range's units, in order, to a writer or a reader of units.

    `load` replaces what is left of the last range by `range`, whose first address is offered in the next cycle: one
    address a cycle, while `units` is ready. `idle`: no address is left; `last`: the range's last address is
    taken in this cycle, so `load` may follow at once. `table` must not change while a record's addresses are left.

    Memory holds the records of all tables, then the logs of all sessions (`Config.replay`).
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        self.address_bits = address_bits_of(replay.memory_bytes)
        super().__init__(
            {
                "table": In(range(replay.tables)),
                "load": In(1),
                "range": In(UnitRange(replay)),
                "units": Out(stream.Signature(self.address_bits)),
                "idle": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay = self.replay
        in_record = Signal()
        index, unit, left = Signal.like(self.range.index), Signal.like(self.range.start), Signal.like(self.range.count)
        address, taken = Signal(self.address_bits), Signal()
        records = self.table * (replay.capacity * replay.record_bytes)
        logs = replay.tables * replay.capacity * replay.record_bytes
        m.d.comb += [
            address.eq(
                Mux(
                    in_record,
                    records + index * replay.record_bytes + unit[:4] * UNIT_BYTES,
                    logs
                    + index[: (replay.sessions - 1).bit_length()] * replay.log_bytes
                    + unit[: exact_log2(replay.log_units)] * UNIT_BYTES,
                )
            ),
            self.idle.eq(left == 0),
            self.units.payload.eq(address),
            self.units.valid.eq(~self.idle),
            taken.eq(self.units.valid & self.units.ready),
            self.last.eq(taken & (left == 1)),
        ]
        with m.If(taken):
            m.d.sync += [left.eq(left - 1), unit.eq(unit + 1)]
        with m.If(self.load):
            m.d.sync += [
                in_record.eq(self.range.in_record),
                index.eq(self.range.index),
                unit.eq(self.range.start),
                left.eq(self.range.count),
            ]
        return m

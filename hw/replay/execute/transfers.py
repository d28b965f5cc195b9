"""What a request moves to and from memory and tables: WRITE, ADD, UPDATE bring data, FETCH, LOAD, SHOUT ask for it."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.utils import exact_log2

from iswitch.wire.replay import ROW_BYTES, UNIT_BYTES, Fate, Kind

__all__ = ["loads", "memory", "stores"]

UNIT_ROWS = UNIT_BYTES // ROW_BYTES


def memory(m: Module, s: SimpleNamespace) -> None:
    """Addresses, unit by unit, of the record or the log that is written or read; and the data that is written."""
    replay = s.replay
    records, logs = (
        s.tables.table * (replay.capacity * replay.record_bytes),
        replay.tables * replay.capacity * replay.record_bytes,
    )
    in_record = (s.kind == Kind.ADD) | (s.kind == Kind.FETCH)
    puts, address = s.kind.matches(Kind.WRITE, Kind.ADD), Signal(s.address_bits)
    m.d.comb += [
        address.eq(
            Mux(
                in_record,
                records + s.record * replay.record_bytes + s.unit[:4] * UNIT_BYTES,
                logs + s.log * replay.log_bytes + s.unit[: exact_log2(replay.log_units)] * UNIT_BYTES,
            )
        ),
        s.writer.units.payload.eq(address),
        s.reader.units.payload.eq(address),
        s.writer.beats.payload.eq(s.row.data),
        s.writer.units.valid.eq(puts & (s.units != 0)),
        s.reader.units.valid.eq(~puts & (s.units != 0)),  # none are left over: no look at the state
    ]
    s.asks = Signal()
    m.d.comb += s.asks.eq(s.writer.units.valid & s.writer.units.ready | s.reader.units.valid & s.reader.units.ready)
    with m.If(s.asks):
        m.d.sync += [
            s.units.eq(s.units - 1),
            s.unit.eq(Mux(in_record & (s.units == 1), 0, s.unit + 1)),
        ]  # behind a record there may be another


def stores(m: Module, s: SimpleNamespace) -> None:
    """What brings data: WRITE, ADD, UPDATE."""
    rows, writer, commands = s.inlet.rows, s.writer, s.tables.commands
    record_units, record_rows = s.replay.record_bytes // UNIT_BYTES, s.replay.record_bytes // ROW_BYTES
    with m.State("WRITE"):
        m.d.comb += [writer.beats.valid.eq(rows.valid & ~s.ended), rows.ready.eq(writer.beats.ready & ~s.ended)]
        with m.If(s.ended & (s.units == 0) & ~writer.busy):
            m.next = "SETTLE"
    m.d.comb += s.adding.eq(
        s.heads & ~s.ended & rows.valid & commands.ready & (s.units == 0)
    )  # without a look at the state
    with m.State("ADD"):
        with m.If(~s.ended & s.heads):
            m.d.comb += [commands.valid.eq(rows.valid & (s.units == 0)), rows.ready.eq(commands.ready & (s.units == 0))]
            with m.If(s.adding):
                m.d.sync += [
                    s.units.eq(record_units),
                    s.record.eq(s.table.adds),
                    s.at.eq(record_rows - 1),
                    s.heads.eq(0),
                ]
        with m.Elif(~s.ended):
            m.d.comb += [writer.beats.valid.eq(rows.valid), rows.ready.eq(writer.beats.ready)]
            with m.If(rows.valid & writer.beats.ready):
                m.d.sync += [s.at.eq(s.at - 1), s.heads.eq(s.at == 0)]
        with m.Elif((s.units == 0) & ~writer.busy & ~s.tables.pending):
            m.d.sync += s.heads.eq(0)
            m.next = "SETTLE"
    with m.State("UPDATE"):
        looks = (s.table.times != 0) & (s.looked != 2)
        m.d.comb += [
            commands.valid.eq(rows.valid & ~s.ended & ~looks),
            rows.ready.eq(commands.ready & ~s.ended & ~looks),
        ]
        with m.If(~rows.valid | s.ended | ~looks & commands.ready):
            m.d.sync += s.looked.eq(0)
        with m.Elif(looks):
            m.d.sync += s.looked.eq(s.looked + 1)
        with m.If(s.ended & ~s.tables.pending):
            m.next = "SETTLE"


def loads(m: Module, s: SimpleNamespace) -> None:
    """What asks for data: FETCH, LOAD, SHOUT."""
    replay, rows, reader = s.replay, s.inlet.rows, s.reader
    record_units, record_rows = replay.record_bytes // UNIT_BYTES, replay.record_bytes // ROW_BYTES
    fetches, shouts = s.kind == Kind.FETCH, s.kind == Kind.SHOUT
    m.submodules.asked = asked = Memory(shape=range(replay.capacity), depth=32, init=[])
    put, get = asked.write_port(), asked.read_port(domain="comb")
    item, age, missing = Signal(32), Signal(32), Signal()
    m.d.comb += [
        item.eq(s.row.data),
        age.eq(s.table.adds + replay.capacity - 1 - item),
        missing.eq(age >= s.tables.filled),
        put.addr.eq(s.left),
        put.data.eq(item),
        get.addr.eq(s.left),
    ]
    beat = Signal(range(record_rows))
    with m.State("FETCH"):
        m.d.comb += [rows.ready.eq(~s.ended), put.en.eq(rows.valid & ~s.ended)]
        with m.If(put.en):
            m.d.sync += [s.left.eq(s.left + 1), s.gone.bit_select(s.left[:5], 1).eq(missing)]
        with m.If(s.ended):
            m.d.sync += [s.left.eq(0), s.answers.eq(0)]
            with m.If(s.gone != 0):
                m.d.sync += s.fate.eq(Fate.OVERWRITTEN)
            m.next = "DATA"
    with m.State("SHOUT"):
        m.d.comb += s.sessions.index.eq(s.recipient)
        m.next = "SHOUT_TO"
    with m.State("SHOUT_TO"):
        m.d.sync += s.to.eq(s.sessions.row)
        m.next = "SHOUT_NEXT"
        with m.If(s.sessions.row.open & (s.recipient != s.place)):
            m.next = "DATA"
    with m.State("SHOUT_NEXT"):
        m.d.sync += s.recipient.eq(s.recipient + 1)
        m.next = "SHOUT"
        with m.If(s.recipient == replay.sessions - 1):
            m.next = "SETTLE"
    with m.State("DATA"):
        total = Mux(fetches, s.count * record_rows, s.count << exact_log2(UNIT_ROWS))
        m.d.comb += [s.head.valid.eq(1), s.head.payload.rows.eq(total)]
        with m.If(s.head.ready):
            m.d.sync += [
                s.at.eq(total),
                s.units.eq(Mux(fetches, record_units, s.count)),
                s.unit.eq(Mux(fetches, 0, s.load.start)),
                s.log.eq(s.load.session),
                s.record.eq(get.data),
                beat.eq(0),
            ]
            m.next = "BEATS"
    hidden = fetches & s.gone[0]
    with m.State("BEATS"):
        m.d.comb += [
            s.data.valid.eq(reader.beats.valid),
            reader.beats.ready.eq(s.data.ready),
            s.data.payload.eq(Mux(hidden, 0, reader.beats.payload.data)),
        ]
        with m.If(reader.beats.valid & reader.beats.ready):
            m.d.sync += [s.at.eq(s.at - 1), beat.eq(beat + 1)]
            with m.If(fetches & (beat == record_rows - 1)):
                m.d.sync += s.gone.eq(s.gone >> 1)
        m.d.comb += get.addr.eq(s.left + 1)
        with m.If(fetches & s.asks & (s.units == 1)):
            # The next record's place is read while this one's last unit is asked for.
            m.d.sync += [
                s.left.eq(s.left + 1),
                s.units.eq(Mux(s.left + 1 < s.count, record_units, 0)),
                s.record.eq(get.data),
            ]
        with m.If(s.at == 0):
            m.next = "SETTLE"
            with m.If(shouts & (s.fate == Fate.DONE)):
                m.next = "SHOUT_NEXT"

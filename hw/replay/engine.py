"""The replay service: requests in, one after another, and what they are answered with."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from hw.control.reply import Addressed
from hw.frame import NEVER_READ_BEFORE_WRITTEN, Word
from hw.layout import layout
from hw.replay.answerer import Answerer
from hw.replay.axi import Axi4
from hw.replay.draws import Draws
from hw.replay.inlet import Arrived, Inlet
from hw.replay.judge import LEAD_ROWS, Form, Judge, Table, as_lead
from hw.replay.kept import Kept
from hw.replay.outlet import Head, Outlet
from hw.replay.sessions import Session, Sessions
from hw.replay.slots import Kind as Command
from hw.replay.tables import Tables
from hw.replay.units import UnitReader, UnitWriter
from hw.replay.whole import WholeFrames
from iswitch.config import Config
from iswitch.replay_wire import (
    ADD_ROW, LIMITS, LIST, LOAD, OPEN, PUBLISH, REPLAY_FRAME, ROW_BYTES, SAMPLE, STATUS, UNIT_BYTES, UPDATE_ROW, WRITE, Fate, Kind,
)
from iswitch.wire import FRAME_BYTES, NOTICE_INTERVAL_US, VERSION, Type

__all__ = ["Engine"]

ROW_BITS = 8 * ROW_BYTES
HEAD_ROWS, STATUS_ROWS, UNIT_ROWS = FRAME_BYTES // ROW_BYTES, STATUS.itemsize // ROW_BYTES, UNIT_BYTES // ROW_BYTES


class Engine(wiring.Component):
    """Carries out requests in the order in which they came, each whole before the next is looked at.

    Frames come as words that cannot be held up, with `first` and `arrived`; one for which there is no room is dropped, with `stat_drop`. `o` are
    the frames that leave, whole and without their addresses. `memory` has records and logs as `Config.replay` lays them out. `fate` says in the
    cycle of `fated` what became of a request; `saturated` marks a priority that was too large, `memory_error` an error of the memory. Not ready
    after a reset until slots are wiped.

    A request takes 18 cycles, 8 of which are its header's, and 1 for each row of its body, each draw and each item that it adds. Then OPEN takes
    1 more and 2 for each place, UPDATE the sampler's `latency` and 1, SAMPLE that and 9 (7 if the switch counts no draws; longer while `times` is
    set); ADD, WRITE and what reads as long as memory needs. Answers leave while the next request is carried out. The truth
    is `sim/model/replay/service.py`, the rules are docs/replay.md.
    """

    def __init__(self, config: Config):
        if config.replay is None:
            raise ValueError("Engine config.replay must be a Replay, not None")
        self.config, self.replay = config, config.replay
        self.address_bits = max(13, (self.replay.memory_bytes - 1).bit_length())
        super().__init__({
            "words": In(stream.Signature(Word(config.bus_bits), always_ready=True)), "first": In(1), "arrived": In(Arrived),
            "o": Out(stream.Signature(Addressed(config.bus_bits))), "memory": Out(Axi4(self.address_bits)), "now_us": In(32),
            "fated": Out(1), "fate": Out(Fate), "stat_drop": Out(1), "saturated": Out(1), "memory_error": Out(1),
            "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        parts = self._parts(m)
        s = self._state(m, parts)
        self._commands(m, s)
        self._memory(m, s)
        self._send(m, s)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~(fsm.ongoing("HEAD") & (s.at == 0)) | s.inlet.busy | s.outlet.busy | s.answerer.busy | s.whole.busy)
            with m.State("WIPE"):
                with m.If(s.sessions.wiped & s.tables.ready):
                    m.next = "HEAD"
            self._take(m, s)
            with m.State("ACT"):
                m.next = "SETTLE"
                with m.Switch(s.fate):
                    with m.Case(Fate.SESSION):
                        m.next = "FAULT"
                    with m.Case(Fate.REPEATED):
                        m.next = "KEPT"
                    with m.Case(Fate.GONE):
                        m.d.sync += [s.answers.eq(0), s.gone.eq(1), s.frame.count.eq(0)]
                        m.next = "DATA"
                    with m.Case(Fate.DONE):
                        self._begin(m, s)
            self._open(m, s)
            self._stores(m, s)
            self._samples(m, s)
            self._loads(m, s)
            self._settle(m, s)
        return m

    def _parts(self, m):
        replay = self.replay
        parts = SimpleNamespace(
            inlet=Inlet(bus_bits=self.config.bus_bits, depth=self.config.queue_words), outlet=Outlet(bus_bits=self.config.bus_bits),
            whole=WholeFrames(bus_bits=self.config.bus_bits), form=Form(replay), judge=Judge(replay),
            sessions=Sessions(sessions=replay.sessions, kept=replay.kept), tables=Tables(replay), draws=Draws(),
            kept=Kept(replay), reader=UnitReader(self.address_bits), writer=UnitWriter(self.address_bits))
        parts.answerer = Answerer(replay, parts.kept)
        for name, part in vars(parts).items():
            m.submodules[name] = part
        connect(m, flipped(self.words), parts.inlet.words)
        connect(m, parts.outlet.o, parts.whole.i)
        connect(m, parts.whole.o, flipped(self.o))
        m.d.comb += self.memory_error.eq(parts.reader.error | parts.writer.error)
        for channel, part in (("ar", parts.reader), ("r", parts.reader), ("aw", parts.writer), ("w", parts.writer), ("b", parts.writer)):
            connect(m, getattr(part, channel), flipped(getattr(self.memory, channel)))
        return parts

    def _state(self, m, parts):
        """The request, whom and what it is about, how far it is."""
        replay = self.replay
        place = range(replay.sessions)
        s = SimpleNamespace(
            **vars(parts), replay=replay, frame=Signal(layout(REPLAY_FRAME), reset_less=True), lead=Signal(ROW_BITS * LEAD_ROWS, reset_less=True),
            arrived=Signal(Arrived), now=Signal(32), fate=Signal(Fate), place=Signal(place),
            session=Signal(Session), other=Signal(Session), table=Signal(Table), product=Signal(48),
            states=[Signal(Table, init={"turn": 1}, name=f"table_{k}") for k in range(replay.tables)],
            counts=Signal(), enough=Signal(), answers=Signal(),          # its number is used up; enough items; it is answered
            ended=Signal(), left=Signal(16), at=Signal(16),              # its last row was taken; rows or such to go; the one to come
            done=Signal(16), stale=Signal(16), drawn=Signal(64), lowest=Signal(8), highest=Signal(8),         # results; the total that was drawn from
            units=Signal(8), unit=Signal(32), log=Signal(place), record=Signal(range(replay.capacity)),  # to go in memory, and where
            gone=Signal(32), recipient=Signal(place), to=Signal(Session),
            answer=Signal.like(parts.kept.answer), list=Signal.like(parts.kept.at), list_at=Signal.like(parts.kept.at),
            head=stream.Signature(Head).create(), data=stream.Signature(ROW_BITS).create(),
            looked=Signal(), spent=Signal(),                             # how often the item of an update was drawn is known: too often
            noticed=Signal(), noticed_us=Signal(32))
        s.kind, s.count, s.row = s.frame.kind, s.frame.count, parts.inlet.rows.payload
        for name, record in (("sample", SAMPLE), ("write", WRITE), ("publish", PUBLISH), ("limits", LIMITS), ("load", LOAD)):
            setattr(s, name, as_lead(record, s.lead))
        m.d.comb += [
            s.inlet.first.eq(self.first), s.inlet.arrived.eq(self.arrived), self.stat_drop.eq(s.inlet.stat_drop), self.fate.eq(s.fate),
            s.form.frame.eq(s.frame), s.form.length.eq(s.arrived.length), s.judge.frame.eq(s.frame), s.judge.lead.eq(s.lead),
            s.judge.session.eq(s.session), s.judge.other.eq(s.other), s.judge.table.eq(s.table), s.judge.filled.eq(s.tables.filled),
            s.judge.product.eq(s.product), s.judge.ordered.eq(s.form.ordered),
            s.tables.table.eq(Mux(s.frame.table < replay.tables, s.frame.table, 0)),
            s.sessions.index.eq(s.place), s.sessions.row_next.eq(s.session), s.sessions.now_us.eq(self.now_us),
            s.sessions.nonce.eq(as_lead(OPEN, s.lead).nonce),
            s.kept.index.eq(s.place * replay.kept + (s.frame.seq & replay.kept - 1)),
        ]
        with m.If(s.inlet.rows.valid & s.inlet.rows.ready & s.row.last):
            m.d.sync += s.ended.eq(1)
        return s

    def _take(self, m, s):
        """The header, what stands first in the body, and what is to become of it."""
        rows = s.inlet.rows
        known = lambda index: Mux(index < s.replay.sessions, index, 0)
        with m.State("HEAD"):
            m.d.comb += rows.ready.eq(1)
            with m.If(rows.valid):
                m.d.sync += [s.frame.eq(Cat(s.frame.as_value()[ROW_BITS:], s.row.data)), s.at.eq(s.at + 1), s.ended.eq(s.row.last),
                             s.arrived.eq(s.inlet.arrived_o)]
                with m.If(s.at == HEAD_ROWS - 1):
                    m.d.sync += s.now.eq(self.now_us)
                    m.next = "FORM"
        with m.State("FORM"):
            m.d.sync += [
                s.at.eq(0), s.left.eq(s.form.leads), s.place.eq(known(s.frame.session)), s.fate.eq(s.form.fate), s.answers.eq(1), s.counts.eq(0),
                s.done.eq(0), s.stale.eq(0), s.units.eq(0), s.gone.eq(0), s.answer.eq(0), s.session.eq(0)]
            m.next = "LEAD"
            with m.If(s.form.fault):
                m.next = "FAULT"
        with m.State("LEAD"):
            m.d.sync += s.table.eq(Array(s.states)[s.tables.table])
            with m.If(s.left == 0):
                m.d.sync += s.at.eq(0)
                m.next = "LOOK_UP"
            with m.Else():
                m.d.comb += rows.ready.eq(1)
                with m.If(rows.valid):
                    m.d.sync += [s.lead.word_select(s.at[:2], ROW_BITS).eq(s.row.data), s.at.eq(s.at + 1), s.left.eq(s.left - 1)]
        with m.State("LOOK_UP"):
            m.d.sync += [s.session.eq(s.sessions.row), s.product.eq(s.count * s.table.ratio)]
            m.d.comb += s.sessions.index.eq(known(s.load.session))
            m.next = "OTHER"
            with m.If(s.kind == Kind.OPEN):
                m.d.comb += s.sessions.search.eq(1)
                m.next = "SEARCH"
        with m.State("OTHER"):
            m.d.sync += s.other.eq(s.sessions.row)
            m.next = "JUDGE"
        with m.State("JUDGE"):
            m.d.sync += [s.fate.eq(s.judge.fate), s.counts.eq(s.judge.counts), s.enough.eq(s.judge.enough)]
            with m.If(s.judge.known):
                m.d.sync += s.session.heard.eq(s.now)
            m.next = "ACT"

    def _begin(self, m, s):
        """The first step of what is carried out; the rest is in the kind's own states."""
        table, count = s.table, s.count
        with m.Switch(s.kind):
            with m.Case(Kind.CLOSE):
                m.d.sync += s.session.open.eq(0)
            with m.Case(Kind.WRITE):
                m.d.sync += [s.units.eq(count), s.unit.eq(s.write.start), s.log.eq(s.place), s.session.oldest.eq(s.write.oldest),
                             s.session.written.eq(s.session.written + count)]
                m.next = "WRITE"
            with m.Case(Kind.ADD):
                with m.If((table.ratio != 0) & s.enough):
                    m.d.sync += table.credit.eq(table.credit + s.product)
                m.next = "ADD"
            with m.Case(Kind.SAMPLE):
                m.d.sync += [s.drawn.eq(table.total), s.lowest.eq(s.tables.lowest), s.highest.eq(s.tables.highest),
                             table.draws.eq(table.draws + count), s.left.eq(count), s.list.eq(s.kept.index * s.replay.draws)]
                with m.If(table.ratio != 0):
                    m.d.sync += table.credit.eq(table.credit - (count << 16))
                m.next = "BATCH"
            with m.Case(Kind.UPDATE):
                m.next = "UPDATE"
            with m.Case(Kind.PUBLISH):
                m.d.sync += [table.publisher.eq(s.place), table.version.eq(s.publish.version), table.start.eq(s.publish.start),
                             table.units.eq(s.publish.units)]
            with m.Case(Kind.LIMIT):
                m.d.sync += [getattr(table, name).eq(getattr(s.limits, name)) for name in ("size", "ratio", "behind", "ahead", "times")]
                m.d.sync += table.credit.eq(0)
            with m.Case(Kind.FETCH):
                m.d.sync += s.left.eq(0)
                m.next = "FETCH"
            with m.Case(Kind.LOAD):
                m.d.sync += [s.answers.eq(0), s.to.eq(s.session)]
                m.next = "DATA"
            with m.Case(Kind.SHOUT):
                m.d.sync += s.recipient.eq(0)
                m.d.comb += s.sessions.index.eq(0)
                m.next = "SHOUT"
            with m.Case(Kind.LIST):
                m.d.sync += [s.left.eq(count), s.record.eq(as_lead(LIST, s.lead).slot), s.list.eq(s.kept.scratch)]
                m.next = "LIST"

    def _open(self, m, s):
        session = s.session
        with m.State("SEARCH"):
            m.d.sync += s.place.eq(s.sessions.place)
            with m.If(s.sessions.found):
                m.next = "PLACE"
                with m.If(s.sessions.full):
                    m.d.sync += s.fate.eq(Fate.FULL)
                    m.next = "FAULT"
        with m.State("PLACE"):
            m.next = "ENTER"
        with m.State("ENTER"):
            row, frame = s.sessions.row, s.frame
            m.d.sync += [session.eq(row), session.heard.eq(s.now)]
            with m.If(~s.sessions.opened):
                m.d.sync += [
                    session.open.eq(1), session.nonce.eq(s.sessions.nonce), session.next.eq(row.next + s.replay.kept), session.kept.eq(0),
                    session.port.eq(s.arrived.port),
                    session.address.mac.eq(frame.eth_src), session.address.ip.eq(frame.ip_src), session.address.udp.eq(frame.udp_src)]
            m.d.sync += frame.session.eq(s.place)
            m.next = "SETTLE"

    def _commands(self, m, s):
        """What goes to the sampler of the table, and what comes from it."""
        replay, kind, table = s.replay, s.kind, s.table
        commands, command = s.tables.commands, s.tables.commands.payload
        slot_bits, most = exact_log2(replay.capacity), (1 << replay.priority_bits) - 1
        priority, item = Signal(32), Signal(32)
        s.times_item, s.drawing = Signal(32), Signal()
        add, update = as_lead(ADD_ROW, s.row.data), as_lead(UPDATE_ROW, s.row.data)
        m.d.comb += [
            priority.eq(Mux(kind == Kind.ADD, add.priority, Mux(kind == Kind.UPDATE, update.priority, 0))), item.eq(update.item),
            command.priority.eq(Mux((kind == Kind.UPDATE) & s.spent, 0, Mux(priority > most, most, priority))),
            command.slot.eq(item), command.generation.eq(item >> slot_bits),
            command.fraction.eq(s.draws.fractions.payload.fraction), command.kind.eq(Command.UPDATE),
            self.saturated.eq(commands.valid & commands.ready & (priority > most)),
        ]
        with m.Switch(kind):
            with m.Case(Kind.ADD):
                m.d.comb += command.kind.eq(Command.ADD)
            with m.Case(Kind.SAMPLE):
                m.d.comb += [command.kind.eq(Mux(s.drawing, Command.DRAW, Command.UPDATE)), item.eq(s.times_item)]
            with m.Case(Kind.LIST):
                m.d.comb += [command.kind.eq(Command.READ), item.eq(s.record)]
        with m.If(commands.valid & commands.ready & (kind == Kind.ADD)):
            m.d.sync += table.adds.eq(table.adds + 1)

        results, result = s.tables.results, s.tables.results.payload
        lists = (result.kind == Command.DRAW) | (result.kind == Command.READ)
        never = (result.kind == Command.READ) & result.stale
        m.d.comb += [
            s.kept.list_put.eq(results.valid & lists), s.kept.put_at.eq(s.list + s.done), s.kept.put_row.priority.eq(result.priority),
            s.kept.put_row.item.eq(Mux(never, 0, result.slot | (result.generation << slot_bits))),
        ]
        # Updates of what was drawn too often are no results of the request.
        counted = (kind != Kind.SAMPLE) | lists
        with m.If(results.valid):
            m.d.sync += [s.done.eq(s.done + (counted & (lists | ~result.stale))), s.stale.eq(s.stale + (counted & ~lists & result.stale))]
            with m.If(~lists):
                m.d.sync += table.total.eq(result.total)

    def _memory(self, m, s):
        """Addresses, unit by unit, of the record or the log that is written or read; and the data that is written."""
        replay = s.replay
        records, logs = s.tables.table * (replay.capacity * replay.record_bytes), replay.tables * replay.capacity * replay.record_bytes
        in_record = (s.kind == Kind.ADD) | (s.kind == Kind.FETCH)
        address, s.puts, s.gets = Signal(self.address_bits), Signal(), Signal()
        m.d.comb += [
            address.eq(Mux(in_record, records + s.record * replay.record_bytes + s.unit[:4] * UNIT_BYTES,
                           logs + s.log * replay.log_bytes + s.unit[:exact_log2(replay.log_units)] * UNIT_BYTES)),
            s.writer.units.payload.eq(address), s.reader.units.payload.eq(address), s.writer.beats.payload.eq(s.row.data),
            s.writer.units.valid.eq(s.puts & (s.units != 0)), s.reader.units.valid.eq(s.gets & (s.units != 0)),
        ]
        s.asks = Signal()
        m.d.comb += s.asks.eq(s.writer.units.valid & s.writer.units.ready | s.reader.units.valid & s.reader.units.ready)
        with m.If(s.asks):
            m.d.sync += [s.units.eq(s.units - 1), s.unit.eq(s.unit + 1)]

    def _stores(self, m, s):
        """What brings data: WRITE, ADD, UPDATE."""
        rows, writer, commands = s.inlet.rows, s.writer, s.tables.commands
        record_units, record_rows = s.replay.record_bytes // UNIT_BYTES, s.replay.record_bytes // ROW_BYTES
        with m.State("WRITE"):
            m.d.comb += [s.puts.eq(1), writer.beats.valid.eq(rows.valid & ~s.ended), rows.ready.eq(writer.beats.ready & ~s.ended)]
            with m.If(s.ended & (s.units == 0) & ~writer.busy):
                m.next = "SETTLE"
        with m.State("ADD"):
            m.d.comb += s.puts.eq(1)
            with m.If(~s.ended & (s.at == 0)):
                m.d.comb += [commands.valid.eq(rows.valid & (s.units == 0)), rows.ready.eq(commands.ready & (s.units == 0))]
                with m.If(rows.valid & rows.ready):
                    m.d.sync += [s.units.eq(record_units), s.unit.eq(0), s.record.eq(s.table.adds), s.at.eq(record_rows)]
            with m.Elif(~s.ended):
                m.d.comb += [writer.beats.valid.eq(rows.valid), rows.ready.eq(writer.beats.ready)]
                with m.If(rows.valid & rows.ready):
                    m.d.sync += s.at.eq(s.at - 1)
            with m.Elif((s.units == 0) & ~writer.busy & ~s.tables.pending):
                m.next = "SETTLE"
        with m.State("UPDATE"):
            looks = (s.table.times != 0) & ~s.looked
            m.d.comb += [commands.valid.eq(rows.valid & ~s.ended & ~looks), rows.ready.eq(commands.ready & ~s.ended & ~looks)]
            m.d.sync += s.looked.eq(rows.valid & ~s.ended & ~rows.ready)
            with m.If(s.ended & ~s.tables.pending):
                m.next = "SETTLE"

    def _samples(self, m, s):
        """SAMPLE and LIST, and what becomes of items that are drawn too often."""
        replay, draws, commands = s.replay, s.draws, s.tables.commands
        batch, fraction = draws.batches, draws.fractions
        m.d.comb += [batch.payload.count.eq(s.count), batch.payload.stride.eq(s.sample.stride), batch.payload.seed.eq(Cat(s.sample.seed))]
        with m.State("BATCH"):
            # Where its list goes may be that of an answer that is still being sent.
            m.d.comb += batch.valid.eq(~s.answerer.busy | (s.answerer.list != s.list))
            with m.If(batch.valid & batch.ready):
                m.next = "DRAW"
        with m.State("DRAW"):
            m.d.comb += [s.drawing.eq(1), commands.valid.eq(fraction.valid), fraction.ready.eq(commands.ready)]
            with m.If(commands.valid & commands.ready):
                m.d.sync += s.left.eq(s.left - 1)
            with m.If((s.left == 0) & ~s.tables.pending):
                m.d.sync += s.at.eq(0)
                m.next = "TIMES" if replay.times_bits else "SETTLE"
        with m.State("LIST"):
            m.d.comb += commands.valid.eq((s.left != 0) & ~s.answerer.busy)
            with m.If(commands.valid & commands.ready):
                m.d.sync += [s.left.eq(s.left - 1), s.record.eq(s.record + 1)]
            with m.If((s.left == 0) & ~s.tables.pending):
                m.next = "SETTLE"
        if not replay.times_bits:
            return
        slot_bits = exact_log2(replay.capacity)
        m.submodules.times = memory = Memory(shape=replay.times_bits, depth=replay.tables * replay.capacity, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        put, get = memory.write_port(), memory.read_port()
        adding, counting, after = Signal(), Signal(), Signal(replay.times_bits)
        item = s.kept.row.item
        m.d.comb += [
            after.eq(Mux(get.data.all(), get.data, get.data + 1)), s.spent.eq((s.table.times != 0) & (get.data >= s.table.times)),
            get.addr.eq(Cat(Mux(s.kind == Kind.UPDATE, s.row.data, item)[:slot_bits], s.tables.table)),
            adding.eq((s.kind == Kind.ADD) & commands.valid & commands.ready), put.en.eq(adding | counting), put.data.eq(Mux(adding, 0, after)),
            put.addr.eq(Cat(Mux(adding, s.table.adds, item)[:slot_bits], s.tables.table)), s.times_item.eq(item)]
        with m.State("TIMES"):
            m.d.comb += s.list_at.eq(s.list + s.at)
            with m.If((s.at == s.count) | (s.table.times == 0)):
                m.next = "TIMES_LAST"
            with m.Elif(~s.answerer.busy):
                m.next = "TIMES_ITEM"
        with m.State("TIMES_ITEM"):
            m.d.comb += s.list_at.eq(s.list + s.at)
            m.next = "TIMES_COUNT"
        with m.State("TIMES_COUNT"):
            due = after >= s.table.times
            m.d.comb += [s.list_at.eq(s.list + s.at), counting.eq(commands.ready), commands.valid.eq(due)]
            with m.If(commands.ready):
                m.d.sync += s.at.eq(s.at + 1)
                m.next = "TIMES"
        with m.State("TIMES_LAST"):
            with m.If(~s.tables.pending):
                m.next = "SETTLE"

    def _loads(self, m, s):
        """What asks for data: FETCH, LOAD, SHOUT."""
        replay, rows, reader = s.replay, s.inlet.rows, s.reader
        record_units, record_rows = replay.record_bytes // UNIT_BYTES, replay.record_bytes // ROW_BYTES
        fetches, shouts = s.kind == Kind.FETCH, s.kind == Kind.SHOUT
        m.submodules.asked = asked = Memory(shape=range(replay.capacity), depth=32, init=[])
        put, get = asked.write_port(), asked.read_port(domain="comb")
        item, age, missing = Signal(32), Signal(32), Signal()
        m.d.comb += [
            item.eq(s.row.data), age.eq(s.table.adds + replay.capacity - 1 - item), missing.eq(age >= s.tables.filled),
            put.addr.eq(s.left), put.data.eq(item), get.addr.eq(s.left)]
        beat = Signal(range(record_rows))
        with m.State("FETCH"):
            m.d.comb += [rows.ready.eq(~s.ended), put.en.eq(rows.valid & ~s.ended)]
            with m.If(put.en):
                m.d.sync += [s.left.eq(s.left + 1), s.gone.bit_select(s.left[:5], 1).eq(missing)]
            with m.If(s.ended):
                m.d.sync += [s.left.eq(0), s.answers.eq(0)]
                with m.If(s.gone != 0):
                    m.d.sync += s.fate.eq(Fate.GONE)
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
                m.d.sync += [s.at.eq(total), s.units.eq(Mux(fetches, record_units, s.count)), s.unit.eq(Mux(fetches, 0, s.load.start)),
                             s.log.eq(s.load.session), s.record.eq(get.data), beat.eq(0)]
                m.next = "BEATS"
        hidden = fetches & s.gone[0]
        with m.State("BEATS"):
            m.d.comb += [s.gets.eq(1), s.data.valid.eq(reader.beats.valid), reader.beats.ready.eq(s.data.ready),
                         s.data.payload.eq(Mux(hidden, 0, reader.beats.payload.data))]
            with m.If(reader.beats.valid & reader.beats.ready):
                m.d.sync += [s.at.eq(s.at - 1), beat.eq(beat + 1)]
                with m.If(fetches & (beat == record_rows - 1)):
                    m.d.sync += s.gone.eq(s.gone >> 1)
            with m.If(fetches & s.asks & (s.units == 1)):
                # The next record's place is read while this one's last unit is asked for.
                m.d.comb += get.addr.eq(s.left + 1)
                m.d.sync += [s.left.eq(s.left + 1), s.units.eq(Mux(s.left + 1 < s.count, record_units, 0)), s.unit.eq(0), s.record.eq(get.data)]
            with m.If(s.at == 0):
                m.next = "SETTLE"
                with m.If(shouts & (s.fate == Fate.DONE)):
                    m.next = "SHOUT_NEXT"

    def _settle(self, m, s):
        """What is to be remembered of a request."""
        replay, table, session, kept = s.replay, s.table, s.session, s.kept
        turns = s.kind.matches(Kind.ADD, Kind.SAMPLE, Kind.UPDATE, Kind.LIMIT)
        done = s.fate == Fate.DONE
        sampled = done & (s.kind == Kind.SAMPLE)  # what is told of priorities is what was drawn from
        composed, status = Signal.like(s.answer), layout(STATUS)
        shown = {
            "reason": s.fate, "lowest": Mux(sampled, s.lowest, s.tables.lowest), "highest": Mux(sampled, s.highest, s.tables.highest),
            "publisher": table.publisher, "next": session.next,
            "adds": table.adds, "turn": table.turn, "total": Mux(sampled, s.drawn, table.total), "draws": table.draws,
            "done": s.done, "stale": s.stale, "written": session.written, "oldest": session.oldest, "version": table.version,
            "start": table.start, "units": table.units, "filled": s.tables.filled, "nonce": session.nonce}
        assert shown.keys() == set(STATUS.names) and status.size == 8 * STATUS.itemsize
        m.d.comb += [composed.status[name].eq(value) for name, value in shown.items()]
        m.d.comb += [composed.kind.eq(s.kind), composed.table.eq(s.frame.table), kept.put_answer.eq(composed),
                     composed.rows.eq(Mux(done & s.kind.matches(Kind.SAMPLE, Kind.LIST), s.done, 0))]
        with m.State("SETTLE"):
            with m.If(s.counts):
                m.d.sync += [session.next.eq(session.next + 1), session.kept.eq(session.kept + (session.kept != replay.kept))]
                with m.If(turns & done):
                    m.d.sync += table.turn.eq(Mux(table.turn == (1 << 32) - 1, 1, table.turn + 1))
            m.next = "RECORD"
        with m.State("RECORD"):
            m.d.comb += [s.sessions.write.eq(1), kept.put.eq(s.counts), self.fated.eq(1)]
            m.d.sync += s.answer.eq(composed)
            for k, state in enumerate(s.states):
                with m.If(s.tables.table == k):
                    m.d.sync += state.eq(table)
            m.next = "DRAIN"
            with m.If(s.answers):
                m.next = "ANSWER"
        with m.State("KEPT"):
            m.d.comb += [s.sessions.write.eq(1), self.fated.eq(1)]
            m.d.sync += [s.answer.eq(kept.answer), s.list.eq(kept.index * replay.draws)]
            m.next = "ANSWER"
        with m.State("FAULT"):
            m.d.comb += self.fated.eq(1)
            m.d.sync += [s.answer.status.reason.eq(s.fate), s.answer.kind.eq(s.kind), s.answer.table.eq(s.frame.table)]
            m.next = "DRAIN"
            with m.If(~s.noticed | ((s.now - s.noticed_us)[:32] >= NOTICE_INTERVAL_US)):
                m.d.sync += [s.noticed.eq(1), s.noticed_us.eq(s.now)]
                m.next = "ANSWER"
        with m.State("ANSWER"):
            m.d.comb += s.answerer.answers.valid.eq(1)
            with m.If(s.answerer.answers.ready):
                m.next = "DRAIN"
        with m.State("DRAIN"):
            m.d.comb += s.inlet.rows.ready.eq(~s.ended)
            m.d.sync += s.at.eq(0)
            with m.If(s.ended):
                m.next = "HEAD"

    def _send(self, m, s):
        """Frames out: answers, or data while none is under way."""
        outlet, answerer, frame, kept = s.outlet, s.answerer, s.frame, s.kept
        asked, head = answerer.answers.payload, s.head.payload
        header = head.header
        m.d.comb += [
            asked.answer.eq(s.answer), asked.port.eq(s.arrived.port), asked.address.mac.eq(frame.eth_src), asked.address.ip.eq(frame.ip_src),
            asked.address.udp.eq(frame.udp_src), asked.session.eq(frame.session), asked.seq.eq(frame.seq), asked.token.eq(frame.token),
            asked.fragments.eq(frame.fragments), asked.list.eq(s.list), answerer.row.eq(kept.row),
            kept.at.eq(Mux(answerer.busy, answerer.at, s.list_at)),
            head.port.eq(asked.port), head.address.eq(asked.address), header.version_type.eq(VERSION << 4 | Type.DATA), header.kind.eq(s.kind),
            header.session.eq(frame.session), header.table.eq(frame.table), header.seq.eq(frame.seq), header.turn.eq(s.gone),
            header.count.eq(head.rows >> exact_log2(UNIT_ROWS)), header.token.eq(frame.token),
            header.fragments.eq(Mux(s.kind == Kind.FETCH, 0, s.load.session))]
        with m.If((s.kind == Kind.SHOUT) & (s.fate == Fate.DONE)):
            m.d.comb += [head.port.eq(s.to.port), head.address.eq(s.to.address), header.session.eq(s.recipient), header.token.eq(s.to.nonce[:32]),
                         header.seq.eq(s.load.start)]
        for name in ("heads", "rows"):
            theirs, mine, out = getattr(answerer, name), s.head if name == "heads" else s.data, getattr(outlet, name)
            m.d.comb += [out.payload.eq(Mux(answerer.busy, theirs.payload, mine.payload)), theirs.ready.eq(out.ready & answerer.busy),
                         out.valid.eq(Mux(answerer.busy, theirs.valid, mine.valid)), mine.ready.eq(out.ready & ~answerer.busy)]

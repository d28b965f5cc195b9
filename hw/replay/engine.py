"""The replay service: requests in, one after another, and what they are answered with."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import bits_for

from hw.interface.axi import Axi4, address_bits_of
from hw.interface.layout import layout
from hw.interface.replay_request import Arrived
from hw.interface.reply import ReplyRoute
from hw.replay.execute.sampling import commands, samples
from hw.replay.execute.settling import send, settle
from hw.replay.execute.transfers import loads, memory, stores
from hw.replay.memory.units import UnitReader, UnitWriter
from hw.replay.reply.answers import AnswerSender
from hw.replay.reply.cache import ReplyCache
from hw.replay.reply.framer import FrameHead, ReplyFramer, queue_words
from hw.replay.request.admission import PARAMETER_ROWS, Admission, HeaderCheck, TableState, kind_of, view_as
from hw.replay.request.receiver import RequestReceiver
from hw.replay.request.sessions import Session, Sessions
from hw.replay.sampling.fractions import RandomFractions
from hw.replay.sampling.samplers import Samplers
from hw.stream.packet import Packet
from hw.stream.store_and_forward import StoreAndForward
from iswitch.config import Config
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import LIMITS, LIST, LOAD, OPEN, PUBLISH, REPLAY_FRAME, ROW_BYTES, SAMPLE, WRITE, Fate, Kind

__all__ = ["Engine"]

ROW_BITS = 8 * ROW_BYTES
HEAD_ROWS = FRAME_BYTES // ROW_BYTES


class Engine(wiring.Component):
    """Carries out requests in the order in which they came, each whole before the next is looked at.

    Frames come as words that cannot be held up, with `first` and `arrived`; one for which there is no room is dropped,
    with `stat_drop`. `o` are the frames that leave, whole and without their addresses. `memory` has records and logs as
    `Config.replay` lays them out. `fate` says in the cycle of `fated` what became of a request; `saturated` marks a
    priority that was too large, `memory_error` an error of the memory. Not ready after a reset until slots are wiped.

    A request takes 18 cycles, 8 of which are its header's, and 1 for each row of its body, each draw and each item that
    it adds; a row of an UPDATE 3 while `times` is set. Then OPEN takes 1 more and 2 for each place, UPDATE the
    sampler's `latency` and 2, SAMPLE that and 10 (8 if the switch counts no draws; 4 more for each draw while `times`
    is set); ADD, WRITE and what reads as long as memory needs. Answers leave while the next request is carried out. The
    truth is `sim/model/replay/service.py`, the rules are docs/replay.md.
    """

    def __init__(self, config: Config):
        if config.replay is None:
            raise ValueError("Engine config.replay must be a Replay, not None")
        self.config, self.replay = config, config.replay
        self.address_bits = address_bits_of(self.replay.memory_bytes)
        super().__init__(
            {
                "words": In(stream.Signature(Packet(config.bus_bits), always_ready=True)),
                "first": In(1),
                "arrived": In(Arrived),
                "o": Out(stream.Signature(Packet(config.bus_bits, meta=ReplyRoute))),
                "memory": Out(Axi4(self.address_bits)),
                "now_us": In(32),
                "fated": Out(1),
                "fate": Out(Fate),
                "stat_drop": Out(1),
                "saturated": Out(1),
                "memory_error": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        parts = self._parts(m)
        s = self._state(m, parts)
        commands(m, s)
        memory(m, s)
        send(m, s)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(
                ~(fsm.ongoing("HEAD") & (s.at == 0)) | s.inlet.busy | s.outlet.busy | s.answerer.busy | s.whole.busy
            )
            with m.State("WIPE"):
                with m.If(s.sessions.wiped & s.tables.ready):
                    m.next = "HEAD"
            self._take(m, s)
            self._open(m, s)
            with m.State("ACT"):
                m.next = "SETTLE"
                with m.Switch(s.fate):
                    with m.Case(Fate.SESSION):
                        m.next = "FAULT"
                    with m.Case(Fate.REPEATED):
                        m.next = "KEPT"
                    with m.Case(Fate.OVERWRITTEN):
                        m.d.sync += [s.answers.eq(0), s.gone.eq(1), s.frame.count.eq(0)]
                        m.next = "DATA"
                    with m.Case(Fate.DONE):
                        self._begin(m, s)
            stores(m, s)
            samples(m, s)
            loads(m, s)
            settle(m, s)
        return m

    def _parts(self, m):
        replay = self.replay
        parts = SimpleNamespace(
            inlet=RequestReceiver(bus_bits=self.config.bus_bits, depth=self.config.queue_words),
            outlet=ReplyFramer(bus_bits=self.config.bus_bits),
            whole=StoreAndForward(
                bus_bits=self.config.bus_bits, depth=queue_words(self.config.bus_bits), meta=ReplyRoute
            ),
            form=HeaderCheck(replay),
            judge=Admission(replay),
            sessions=Sessions(sessions=replay.sessions, kept=replay.kept),
            tables=Samplers(replay),
            draws=RandomFractions(),
            kept=ReplyCache(replay),
            reader=UnitReader(self.address_bits),
            writer=UnitWriter(self.address_bits),
        )
        parts.answerer = AnswerSender(replay, parts.kept)
        for name, part in vars(parts).items():
            m.submodules[name] = part
        connect(m, flipped(self.words), parts.inlet.words)
        connect(m, parts.outlet.o, parts.whole.i)
        connect(m, parts.whole.o, flipped(self.o))
        m.d.comb += self.memory_error.eq(parts.reader.error | parts.writer.error)
        for channel, part in (
            ("ar", parts.reader),
            ("r", parts.reader),
            ("aw", parts.writer),
            ("w", parts.writer),
            ("b", parts.writer),
        ):
            connect(m, getattr(part, channel), flipped(getattr(self.memory, channel)))
        return parts

    def _state(self, m, parts):
        """The request, whom and what it is about, how far it is."""
        replay = self.replay
        place = range(replay.sessions)
        s = SimpleNamespace(
            **vars(parts),
            replay=replay,
            address_bits=self.address_bits,
            fated=self.fated,
            saturated=self.saturated,
            frame=Signal(layout(REPLAY_FRAME), reset_less=True),
            lead=Signal(ROW_BITS * PARAMETER_ROWS, reset_less=True),
            arrived=Signal(Arrived),
            now=Signal(32),
            fate=Signal(Fate),
            place=Signal(place),
            session=Signal(Session),
            table=Signal(TableState),
            product=Signal(48),
            states=[Signal(TableState, init={"ticket": 1}, name=f"table_{k}") for k in range(replay.tables)],
            counts=Signal(),
            enough=Signal(),
            answers=Signal(),  # its number is used up; enough items; it is answered
            ended=Signal(),
            heads=Signal(),  # its last row was taken; an ADD's item is next
            left=Signal(16),
            at=Signal(16),  # rows or such to go; the one to come
            done=Signal(16),
            stale=Signal(16),
            drawn=Signal(64),
            lowest=Signal(8),
            highest=Signal(8),  # results; the total that was drawn from
            units=Signal(8),
            unit=Signal(32),
            log=Signal(place),
            record=Signal(range(replay.capacity)),  # to go in memory, and where
            gone=Signal(32),
            recipient=Signal(place),
            to=Signal(Session),
            answer=Signal.like(parts.kept.answer),
            list=Signal.like(parts.kept.at),
            list_at=Signal.like(parts.kept.at),
            head=stream.Signature(FrameHead).create(),
            data=stream.Signature(ROW_BITS).create(),
            looked=Signal(2),
            spent=Signal(),
            adding=Signal(),  # at 2 it is known whether an update's item was drawn too often; one is added
            noticed=Signal(),
            noticed_us=Signal(32),
        )
        for name, value in vars(s).items():
            if isinstance(value, Signal) and value.name.startswith("$"):
                value.name = name
        s.kind, s.count, s.row = kind_of(s.frame), s.frame.count, parts.inlet.rows.payload
        for name, record in (
            ("sample", SAMPLE),
            ("write", WRITE),
            ("publish", PUBLISH),
            ("limits", LIMITS),
            ("load", LOAD),
        ):
            setattr(s, name, view_as(record, s.lead))
        m.d.comb += [
            s.inlet.first.eq(self.first),
            s.inlet.arrived.eq(self.arrived),
            self.stat_drop.eq(s.inlet.stat_drop),
            self.fate.eq(s.fate),
            s.form.frame.eq(s.frame),
            s.form.length.eq(s.arrived.length),
            s.judge.frame.eq(s.frame),
            s.judge.lead.eq(s.lead),
            s.judge.session.eq(s.session),
            s.judge.other.eq(s.sessions.row),
            s.judge.table.eq(s.table),
            s.judge.filled.eq(s.tables.filled),
            s.judge.product.eq(s.product),
            s.judge.ordered.eq(s.form.ordered),
            s.tables.table.eq(Mux(s.frame.table < replay.tables, s.frame.table, 0)),
            s.sessions.index.eq(s.place),
            s.sessions.row_next.eq(s.session),
            s.sessions.now_us.eq(self.now_us),
            s.sessions.nonce.eq(view_as(OPEN, s.lead).nonce),
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
                m.d.sync += [
                    s.frame.eq(Cat(s.frame.as_value()[ROW_BITS:], s.row.data)),
                    s.at.eq(s.at + 1),
                    s.ended.eq(s.row.last),
                    s.arrived.eq(s.inlet.arrived_o),
                ]
                with m.If(s.at == HEAD_ROWS - 1):
                    m.d.sync += s.now.eq(self.now_us)
                    m.next = "FORM"
        with m.State("FORM"):
            m.d.sync += [
                s.at.eq(0),
                s.left.eq(s.form.leads),
                s.place.eq(known(s.frame.session)),
                s.answers.eq(1),
                s.counts.eq(0),
                s.done.eq(0),
                s.stale.eq(0),
                s.units.eq(0),
                s.unit.eq(0),
                s.gone.eq(0),
                s.answer.eq(0),
                s.session.eq(0),
            ]
            m.next = "LEAD"
        with m.State("LEAD"):
            m.d.sync += [s.table.eq(Array(s.states)[s.tables.table]), s.fate.eq(s.form.fate)]
            with m.If(s.form.fault):
                m.next = "FAULT"
            with m.Elif(s.left[: bits_for(PARAMETER_ROWS)] == 0):
                m.d.sync += s.at.eq(0)
                m.next = "LOOK_UP"
            with m.Else():
                m.d.comb += rows.ready.eq(1)
                with m.If(rows.valid):
                    m.d.sync += [
                        s.lead.word_select(s.at[:2], ROW_BITS).eq(s.row.data),
                        s.at.eq(s.at + 1),
                        s.left.eq(s.left - 1),
                    ]
        with m.State("LOOK_UP"):
            m.d.sync += [s.session.eq(s.sessions.row), s.product.eq(s.count * s.table.ratio)]
            m.d.comb += s.sessions.index.eq(known(s.load.session))
            m.next = "OTHER"
            with m.If(s.kind == Kind.OPEN):
                m.d.comb += s.sessions.search.eq(1)
                m.next = "SEARCH"
        with m.State("OTHER"):
            # The judge looks at the session, and at the other one as it is shown.
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
                m.d.sync += [
                    s.units.eq(count),
                    s.unit.eq(s.write.start),
                    s.log.eq(s.place),
                    s.session.oldest.eq(s.write.oldest),
                    s.session.written.eq(s.session.written + count),
                ]
                m.next = "WRITE"
            with m.Case(Kind.ADD):
                with m.If((table.ratio != 0) & s.enough):
                    m.d.sync += table.credit.eq(table.credit + s.product)
                m.d.sync += s.heads.eq(1)
                m.next = "ADD"
            with m.Case(Kind.SAMPLE):
                m.d.sync += [
                    s.drawn.eq(table.total),
                    s.lowest.eq(s.tables.lowest),
                    s.highest.eq(s.tables.highest),
                    table.draws.eq(table.draws + count),
                    s.left.eq(count),
                    s.list.eq(s.kept.index * s.replay.draws),
                ]
                with m.If(table.ratio != 0):
                    m.d.sync += table.credit.eq(table.credit - (count << 16))
                m.next = "BATCH"
            with m.Case(Kind.UPDATE):
                m.next = "UPDATE"
            with m.Case(Kind.PUBLISH):
                m.d.sync += [
                    table.publisher.eq(s.place),
                    table.version.eq(s.publish.version),
                    table.start.eq(s.publish.start),
                    table.units.eq(s.publish.units),
                ]
            with m.Case(Kind.LIMIT):
                m.d.sync += [
                    getattr(table, name).eq(getattr(s.limits, name))
                    for name in ("size", "ratio", "behind", "ahead", "times")
                ]
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
                m.d.sync += [s.left.eq(count), s.record.eq(view_as(LIST, s.lead).slot), s.list.eq(s.kept.scratch)]
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
                    session.open.eq(1),
                    session.nonce.eq(s.sessions.nonce),
                    session.next.eq(row.next + s.replay.kept),
                    session.kept.eq(0),
                    session.port.eq(s.arrived.port),
                    session.address.mac.eq(frame.eth_src),
                    session.address.ip.eq(frame.ip_src),
                    session.address.udp.eq(frame.udp_src),
                ]
            m.d.sync += frame.session.eq(s.place)
            m.next = "SETTLE"

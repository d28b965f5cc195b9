"""Executors of requests that are answered with data: FETCH, LOAD and SHOUT."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.replay.memory.sequencer import UnitRange
from hw.replay.memory.units import Beat
from hw.replay.reply.framer import FrameHead
from hw.replay.request.record import ROW_BITS, Request, kind_of, view_as
from hw.replay.request.sessions import Session
from hw.stream.parity import with_parity
from iswitch.config import Replay
from iswitch.wire import VERSION, Type
from iswitch.wire.replay import FETCH_ROW, LOAD, ROW_BYTES, UNIT_BYTES, Kind, ReplayOutcome

__all__ = ["Broadcast", "FetchList", "SendData"]

UNIT_ROWS = UNIT_BYTES // ROW_BYTES
LIST_LENGTH = 32
"""Records that a FETCH names at most: bits of the field that says which are overwritten."""


class FetchList(wiring.Component):
    """Begins a FETCH: keeps the slots that its body names, and checks whether the handles are stale.

    A handle is stale if the item is not among the last `filled` of the `adds` items. `done` is 1 for one cycle when the
    body has `ended`; one row a cycle. Then `slot` is that of the row at `position`, in the same cycle, and
    `slot_corrupt` is 1 if it has a bit error; and bit 0 of
    `overwritten` is 1 if the first row's handle was stale, bit 1 if the second's, ...; `shift` drops bit 0.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "body": In(stream.Signature(ROW_BITS)),
                "ended": In(1),
                "adds": In(32),
                "filled": In(range(replay.capacity + 1)),
                "position": In(range(LIST_LENGTH)),
                "slot": Out(range(replay.capacity)),
                "slot_corrupt": Out(1),
                "overwritten": Out(LIST_LENGTH),
                "shift": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        stored = data.StructLayout({"slot": range(self.replay.capacity), "parity": 1})
        m.submodules.slots = memory = Memory(shape=stored, depth=LIST_LENGTH, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        active, item, age, stale = Signal(), Signal(32), Signal(32), Signal()
        m.d.comb += [
            item.eq(view_as(FETCH_ROW, self.body.payload).item),
            # An item's handle is the number of items before it, plus the capacity.
            age.eq(self.adds + self.replay.capacity - 1 - item),
            stale.eq(age >= self.filled),
            write.data.eq(with_parity(item[: len(self.slot)])),
            write.en.eq(self.body.valid & self.body.ready),
            self.body.ready.eq(active),
            read.addr.eq(self.position),
            self.slot.eq(read.data.slot),
            self.slot_corrupt.eq(read.data.as_value().xor()),
            self.done.eq(active & self.ended),
        ]
        m.d.sync += active.eq(self.start | active & ~self.done)
        with m.If(write.en):
            m.d.sync += [self.overwritten.bit_select(write.addr, 1).eq(stale), write.addr.eq(write.addr + 1)]
        with m.If(self.start):
            m.d.sync += [self.overwritten.eq(0), write.addr.eq(0)]
        with m.If(self.shift):
            m.d.sync += self.overwritten.eq(self.overwritten >> 1)
        return m


class SendData(wiring.Component):
    """Sends one DATA frame: the records of a FETCH, units of a log, or nothing but its header, if a log is asked for
    units that are overwritten.

    A stale handle's record is sent as zeros. With `to_recipient` the frame goes to `recipient`, whose session is
    `recipient_session`, else to the requester. `done` is 1 for one cycle, 1 cycle after the last row was taken. `heads`
    waits until the framer is ready; then one row a cycle, as memory gives beats and `rows` is ready.

    `spoil` is 1 in the cycle after a row with a bit error or an error response was taken (also of a slot with a bit
    error): the frame must not leave under a right checksum. Then a second frame follows, with `lost`: it says that all
    that was requested was overwritten. With `to_recipient` there is no second frame.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "request": In(Request(replay)),
                "outcome": In(ReplayOutcome),
                "to_recipient": In(1),
                "recipient": In(Session),
                "recipient_session": In(range(replay.sessions)),
                "position": Out(range(LIST_LENGTH)),
                "slot": In(range(replay.capacity)),
                "slot_corrupt": In(1),
                "overwritten": In(LIST_LENGTH),
                "shift": Out(1),
                "load": Out(1),
                "range": Out(UnitRange(replay)),
                "last_address": In(1),
                "beats": In(stream.Signature(Beat)),
                "heads": Out(stream.Signature(FrameHead)),
                "rows": Out(stream.Signature(ROW_BITS)),
                "spoil": Out(1),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        frame, load, beat = self.request.frame, view_as(LOAD, self.request.parameters), self.beats.payload
        record_units, record_rows = self.replay.record_bytes // UNIT_BYTES, self.replay.record_bytes // ROW_BYTES
        fetches, log_overwritten, units = Signal(), Signal(), Signal.like(frame.count)
        head_rows, rows_left, row = Signal(16), Signal(16), Signal(range(record_rows))
        position, taken, is_blank, spoiled = Signal.like(self.position), Signal(), Signal(), Signal()
        m.d.comb += [
            fetches.eq(kind_of(frame) == Kind.FETCH),
            log_overwritten.eq(~fetches & ((self.outcome == ReplayOutcome.OVERWRITTEN) | self.lost)),
            is_blank.eq(fetches & (self.overwritten[0] | self.lost)),
            units.eq(Mux(log_overwritten, 0, frame.count)),
            head_rows.eq(Mux(fetches, frame.count * record_rows, units << exact_log2(UNIT_ROWS))),
            self.range.in_record.eq(fetches),
            self.range.index.eq(Mux(fetches, self.slot, load.session)),
            self.range.start.eq(Mux(fetches, 0, load.start)),
            self.range.count.eq(Mux(fetches, record_units, units)),
            self.rows.payload.eq(Mux(is_blank, 0, beat.data)),
            self.position.eq(position),
        ]
        self._address(m, log_overwritten)
        m.d.sync += [
            self.spoil.eq(
                ~self.lost
                & (taken & ~is_blank & (beat.data.xor() != beat.parity) | self.load & fetches & self.slot_corrupt)
            ),
            spoiled.eq(spoiled | self.spoil),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [position.eq(0), spoiled.eq(0), self.lost.eq(0)]
                with m.If(self.start):
                    m.next = "HEAD"
            with m.State("HEAD"):
                m.d.comb += [self.heads.valid.eq(1), self.heads.payload.rows.eq(head_rows)]
                m.d.sync += [rows_left.eq(head_rows), row.eq(0)]
                with m.If(self.heads.ready):
                    m.d.comb += self.load.eq(1)
                    m.next = "ROWS"
            with m.State("ROWS"):
                m.d.comb += [
                    self.rows.valid.eq(self.beats.valid),
                    self.beats.ready.eq(self.rows.ready),
                    taken.eq(self.rows.valid & self.rows.ready),
                    self.shift.eq(taken & fetches & (row == record_rows - 1)),
                    self.position.eq(position + 1),
                ]
                with m.If(taken):
                    m.d.sync += [rows_left.eq(rows_left - 1), row.eq(row + 1)]
                with m.If(fetches & self.last_address):
                    # The next record is asked for in the cycle after this one's last address was taken.
                    m.d.sync += position.eq(position + 1)
                    m.d.comb += self.load.eq(position + 1 < frame.count)
                with m.If(rows_left == 0):
                    with m.If((spoiled | self.spoil) & ~self.lost & ~self.to_recipient):
                        m.d.sync += [position.eq(0), self.lost.eq(1)]
                        m.next = "HEAD"
                    with m.Else():
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
        return m

    def _address(self, m, log_overwritten):
        """Assign the destination of the frame, and its header."""
        request, head, recipient = self.request, self.heads.payload, self.recipient
        frame, header, load = request.frame, head.header, view_as(LOAD, request.parameters)
        all_fetched = (1 << frame.count[: LIST_LENGTH.bit_length()]) - 1
        overwritten = Mux(self.lost, all_fetched[:LIST_LENGTH], self.overwritten)
        m.d.comb += [
            head.port.eq(request.arrived.port),
            head.address.mac.eq(frame.eth_src),
            head.address.ip.eq(frame.ip_src),
            head.address.udp.eq(frame.udp_src),
            header.version_type.eq(VERSION << 4 | Type.DATA),
            header.kind.eq(kind_of(frame)),
            header.session.eq(frame.session),
            header.table.eq(frame.table),
            header.seq.eq(frame.seq),
            header.ticket.eq(Mux(kind_of(frame) == Kind.FETCH, overwritten, log_overwritten)),
            header.count.eq(head.rows >> exact_log2(UNIT_ROWS)),
            header.token.eq(frame.token),
            header.fragments.eq(Mux(kind_of(frame) == Kind.FETCH, 0, load.session)),
        ]
        with m.If(self.to_recipient):
            m.d.comb += [
                head.port.eq(recipient.port),
                head.address.eq(recipient.address),
                header.session.eq(self.recipient_session),
                header.seq.eq(load.start),
                header.token.eq(recipient.nonce[:32]),
            ]


class Broadcast(wiring.Component):
    """Executes SHOUT: has the same units of the requester's log sent to every other open session, in the order of
    sessions.

    `index` chooses the row of `sessions` that comes 1 cycle later, as `row`, and 2 cycles later `row_corrupt` says
    whether the row has a bit error: then no client has the session. While `active`, `send` is 1 for one cycle for each
    recipient, and the next session follows when `sent`. 4 cycles for each session, beside sending. `found_corrupt` is 1
    for one cycle for each row with a bit error. `done` is 1 for one cycle.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "active": Out(1),
                "requester": In(range(replay.sessions)),
                "index": Out(range(replay.sessions)),
                "row": In(Session),
                "row_corrupt": In(1),
                "found_corrupt": Out(1),
                "recipient": Out(Session),
                "send": Out(1),
                "sent": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        with m.FSM() as fsm:
            m.d.comb += self.active.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += self.index.eq(0)
                with m.If(self.start):
                    m.next = "WAIT_ROW"
            with m.State("WAIT_ROW"):
                m.next = "WAIT_PARITY"
            with m.State("WAIT_PARITY"):
                m.d.sync += self.recipient.eq(self.row)
                m.next = "CHECK_SESSION"
            with m.State("CHECK_SESSION"):
                m.d.comb += self.found_corrupt.eq(self.row_corrupt)
                m.next = "NEXT_SESSION"
                with m.If(self.recipient.open & ~self.row_corrupt & (self.index != self.requester)):
                    m.d.comb += self.send.eq(1)
                    m.next = "SEND"
            with m.State("SEND"):
                with m.If(self.sent):
                    m.next = "NEXT_SESSION"
            with m.State("NEXT_SESSION"):
                m.d.sync += self.index.eq(self.index + 1)
                m.next = "WAIT_ROW"
                with m.If(self.index == self.replay.sessions - 1):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

"""Executors of requests that are answered with data: FETCH, LOAD and SHOUT."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.replay.execute.data import LIST_LENGTH, LISTS, DataJob
from hw.replay.request.record import ROW_BITS, Request, kind_of, view_as
from hw.replay.request.sessions import Session
from hw.stream.parity import with_parity
from iswitch.config import Replay
from iswitch.wire.replay import FETCH_ROW, LOAD, Kind, ReplayOutcome

__all__ = ["Broadcast", "FetchList", "RequestData"]


class FetchList(wiring.Component):
    """Executes a FETCH: keeps the slots that its body names, and checks whether the handles are stale.

    A handle is stale if the item is not among the last `filled` of the `adds` items. `done` is 1 for one cycle when the
    body has `ended`; one row a cycle. Then `list` is the list of its slots, and bit 0 of `overwritten` is 1 if the
    first row's handle was stale, bit 1 if the second's, ... Each FETCH has the next list.

    `slot` is that of the row at `position` of list `read_list`, in the same cycle, and `slot_corrupt` is 1 if it has a
    bit error.
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
                "list": Out(range(LISTS)),
                "overwritten": Out(LIST_LENGTH),
                "read_list": In(range(LISTS)),
                "position": In(range(LIST_LENGTH)),
                "slot": Out(range(replay.capacity)),
                "slot_corrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        stored = data.StructLayout({"slot": range(self.replay.capacity), "parity": 1})
        m.submodules.slots = memory = Memory(shape=stored, depth=LISTS * LIST_LENGTH, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        active, item, age, stale, place = Signal(), Signal(32), Signal(32), Signal(), Signal.like(self.position)
        m.d.comb += [
            item.eq(view_as(FETCH_ROW, self.body.payload).item),
            # An item's handle is the number of items before it, plus the capacity.
            age.eq(self.adds + self.replay.capacity - 1 - item),
            stale.eq(age >= self.filled),
            write.data.eq(with_parity(item[: len(self.slot)])),
            write.en.eq(self.body.valid & self.body.ready),
            self.body.ready.eq(active),
            write.addr.eq(Cat(place, self.list)),
            read.addr.eq(Cat(self.position, self.read_list)),
            self.slot.eq(read.data.slot),
            self.slot_corrupt.eq(read.data.as_value().xor()),
            self.done.eq(active & self.ended),
        ]
        m.d.sync += active.eq(self.start | active & ~self.done)
        with m.If(write.en):
            m.d.sync += [self.overwritten.bit_select(place, 1).eq(stale), place.eq(place + 1)]
        with m.If(self.start):
            m.d.sync += [self.overwritten.eq(0), place.eq(0), self.list.eq(self.list + 1)]
        return m


class RequestData(wiring.Component):
    """Requests one DATA frame: for the sender of the request, or, with `to_recipient`, for the recipient of a
    broadcast.

    `outcome` OVERWRITTEN says that the units of a log are overwritten; `overwritten` and `list` are those of a FETCH.
    `jobs` offers the job from the cycle after `start` on. `done` is 1 for one cycle, when the job is taken.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "request": In(Request(replay)),
                "outcome": In(ReplayOutcome),
                "list": In(range(LISTS)),
                "overwritten": In(LIST_LENGTH),
                "to_recipient": In(1),
                "recipient": In(Session),
                "recipient_session": In(range(replay.sessions)),
                "jobs": Out(stream.Signature(DataJob(replay))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, job, recipient = self.request, self.jobs.payload, self.recipient
        frame, load = request.frame, view_as(LOAD, request.parameters)
        fetches = kind_of(frame) == Kind.FETCH
        m.d.sync += self.jobs.valid.eq(self.start | self.jobs.valid & ~self.jobs.ready)
        m.d.comb += [
            self.done.eq(self.jobs.valid & self.jobs.ready),
            job.port.eq(request.arrived.port),
            job.address.mac.eq(frame.eth_src),
            job.address.ip.eq(frame.ip_src),
            job.address.udp.eq(frame.udp_src),
            job.kind.eq(kind_of(frame)),
            job.session.eq(frame.session),
            job.table.eq(frame.table),
            job.seq.eq(frame.seq),
            job.token.eq(frame.token),
            job.fetches.eq(fetches),
            job.requested.eq(~self.to_recipient),
            job.count.eq(frame.count),
            job.ticket.eq(Mux(fetches, self.overwritten, self.outcome == ReplayOutcome.OVERWRITTEN)),
            job.list.eq(self.list),
            job.table_index.eq(request.table),
            job.log.eq(load.session),
            job.start.eq(load.start),
        ]
        with m.If(self.to_recipient):
            m.d.comb += [
                job.port.eq(recipient.port),
                job.address.eq(recipient.address),
                job.session.eq(self.recipient_session),
                job.seq.eq(load.start),
                job.token.eq(recipient.nonce[:32]),
            ]
        return m


class Broadcast(wiring.Component):
    """Executes SHOUT: requests the same units of the requester's log for every other open session, in the order of
    sessions.

    `index` chooses the row of `sessions` that comes 1 cycle later, as `row`, and 2 cycles later `row_corrupt` says
    whether the row has a bit error: then no client has the session. While `active`, `send` is 1 for one cycle for each
    recipient, and the next session follows when `sent`. 4 cycles for each session, and until `sent`. `found_corrupt` is
    1 for one cycle for each row with a bit error. `done` is 1 for one cycle.
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

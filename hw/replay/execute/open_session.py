"""Executor of OPEN: finds the client's session, or a free one."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interface.address import Address
from hw.replay.request.record import Request, view_as
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire.replay import CORRUPT_ROW_GAP, OPEN, ReplayOutcome

__all__ = ["OpenSession"]


class OpenSession(wiring.Component):
    """Searches the sessions for the client's nonce, and makes the session's row.

    `start` begins the search of `sessions` (`search`). `found`, `opened` and `full` are its results. `row` must show
    the session that was found from 2 cycles after `found` on, and `corrupt`, 1 cycle later, whether the row has a bit
    error. `done` is 1 for one cycle, 3 cycles after `found`. Then `session` is the row to be written; or, if `failed`
    is 1, `failure` says why no row is written.

    A session that is given to a client, or moves with its client to another address, needs the right `challenge` in the
    request's ticket. Then the challenge changes. The first OPEN after a reset sets it to the upper half of its nonce.

    A session of a new client begins its numbers `cached_answers` behind the last client's: no late request of that
    client can be taken for one of this client's. If the row is corrupt, it is not known where numbers and log were.
    Then the log is empty, and both go on `CORRUPT_ROW_GAP` further than the row says.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "failed": Out(1),
                "failure": Out(ReplayOutcome),
                "challenge": Out(32),
                "active": Out(1),
                "request": In(Request(replay)),
                "search": Out(1),
                "found": In(1),
                "opened": In(1),
                "full": In(1),
                "row": In(Session),
                "corrupt": In(1),
                "session": Out(Session),
            }
        )

    def elaborate(self, platform):
        m = Module()
        frame, session = self.request.frame, self.session
        nonce, address = view_as(OPEN, self.request.parameters).nonce, Signal(Address)
        challenge_known, moved, changes, is_stale = Signal(), Signal(), Signal(), Signal()
        is_given, end = Signal(), Signal(32)  # to a new client; the end of the log
        m.d.comb += [
            self.search.eq(self.start),
            session.eq(self.row),
            session.heard.eq(self.request.now_us),
            session.port.eq(self.request.arrived.port),
            session.address.eq(address),
            address.mac.eq(frame.eth_src),
            address.ip.eq(frame.ip_src),
            address.udp.eq(frame.udp_src),
            is_given.eq(~self.opened | self.corrupt),
            changes.eq(is_given | moved),
            end.eq(self.row.written + CORRUPT_ROW_GAP),
        ]
        with m.If(is_given):
            m.d.comb += [
                session.open.eq(1),
                session.nonce.eq(nonce),
                session.next.eq(self.row.next + self.replay.cached_answers),
                session.cached.eq(0),
            ]
        with m.If(self.corrupt):
            m.d.comb += [
                session.next.eq(self.row.next + (self.replay.cached_answers + CORRUPT_ROW_GAP)),
                session.written.eq(end),
                session.oldest.eq(end),
            ]
        with m.FSM() as fsm:
            m.d.comb += self.active.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "SEARCH"
                    with m.If(~challenge_known & (nonce[:32] != 0)):
                        m.d.sync += [challenge_known.eq(1), self.challenge.eq(nonce[32:])]
            with m.State("SEARCH"):
                with m.If(self.found):
                    m.next = "WAIT_ROW"
            with m.State("WAIT_ROW"):
                m.next = "CHECK"
            with m.State("CHECK"):
                is_moved = Cat(self.row.port, self.row.address) != Cat(self.request.arrived.port, address)
                m.d.sync += [moved.eq(is_moved), is_stale.eq(frame.ticket != self.challenge)]
                m.next = "ENTER"
            with m.State("ENTER"):
                m.d.comb += [self.done.eq(1), self.failed.eq(1)]
                m.next = "IDLE"
                with m.If(nonce[:32] == 0):
                    m.d.comb += self.failure.eq(ReplayOutcome.RANGE)
                with m.Elif(changes & is_stale):
                    m.d.comb += self.failure.eq(ReplayOutcome.CHALLENGE)
                with m.Elif(self.full):
                    m.d.comb += self.failure.eq(ReplayOutcome.FULL)
                with m.Else():
                    m.d.comb += self.failed.eq(0)
                    m.d.sync += self.challenge.eq(self.challenge + changes)
        return m

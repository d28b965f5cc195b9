"""Executor of OPEN: finds the client's session, or a free one."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.replay.request.record import Request, view_as
from hw.replay.request.sessions import Session
from iswitch.config import Replay
from iswitch.wire.replay import OPEN

__all__ = ["OpenSession"]


class OpenSession(wiring.Component):
    """Searches the sessions for the client's nonce, and makes the session's row.

    `start` begins the search of `sessions` (`search`). `found`, `opened` and `full` are its results, and `row` must
    show the session that was found from 2 cycles after `found` on. Then, for one cycle, `done` is 1 and `session` is
    the row to be written. If no session is free, `done` and `failed` are 1 in the cycle of `found`.

    A session of a new client begins its numbers `cached_answers` behind the last client's: no late request of that
    client can be taken for one of this client's.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "failed": Out(1),
                "active": Out(1),
                "request": In(Request(replay)),
                "search": Out(1),
                "found": In(1),
                "opened": In(1),
                "full": In(1),
                "row": In(Session),
                "session": Out(Session),
            }
        )

    def elaborate(self, platform):
        m = Module()
        frame, session = self.request.frame, self.session
        m.d.comb += [self.search.eq(self.start), session.eq(self.row), session.heard.eq(self.request.now_us)]
        with m.If(~self.opened):
            m.d.comb += [
                session.open.eq(1),
                session.nonce.eq(view_as(OPEN, self.request.parameters).nonce),
                session.next.eq(self.row.next + self.replay.cached_answers),
                session.cached.eq(0),
                session.port.eq(self.request.arrived.port),
                session.address.mac.eq(frame.eth_src),
                session.address.ip.eq(frame.ip_src),
                session.address.udp.eq(frame.udp_src),
            ]
        with m.FSM() as fsm:
            m.d.comb += self.active.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                with m.If(self.start):
                    m.next = "SEARCH"
            with m.State("SEARCH"):
                with m.If(self.found):
                    m.next = "WAIT_ROW"
                    with m.If(self.full):
                        m.d.comb += [self.done.eq(1), self.failed.eq(1)]
                        m.next = "IDLE"
            with m.State("WAIT_ROW"):
                m.next = "ENTER"
            with m.State("ENTER"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return m

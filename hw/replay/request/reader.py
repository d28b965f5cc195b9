"""Reads requests from rows: header, parameters, and the rest of the body for the request's executor."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.interface.replay_request import RequestOrigin
from hw.replay.request.header_check import HeaderCheck
from hw.replay.request.receiver import RequestRow
from hw.replay.request.record import PARAMETER_ROWS, ROW_BITS, Request
from iswitch.config import Replay
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import ReplayOutcome

__all__ = ["RequestReader"]

HEADER_ROWS = 8 * FRAME_BYTES // ROW_BITS


class RequestReader(wiring.Component):
    """Reads one request after another, each when the one before it was released.

    Reads nothing before `enable` is 1 for the first time. `done` is 1 for one cycle, in which `outcome` is DONE or says
    what is wrong with the header; from the next cycle until `release` `request` and `ordered` are those of the request.
    From the cycle after `start_body`, `body` offers the rows behind the parameters until `ended` is 1; all of them must
    be taken. With `opened` the request's session becomes `opened_session`. `idle`: no row of a request was taken.

    Latency: `done` comes 2 cycles after the header's last row, and 1 cycle later for each row of parameters. One row a
    cycle. Rows that are left at `release` are skipped, one a cycle; the next request's first row is taken 2 cycles
    after `release` or 1 cycle after the last of these.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "enable": In(1),
                "rows": In(stream.Signature(RequestRow)),
                "arrived": In(RequestOrigin),
                "now_us": In(32),
                "done": Out(1),
                "outcome": Out(ReplayOutcome),
                "request": Out(Request(replay)),
                "ordered": Out(1),
                "start_body": In(1),
                "body": Out(stream.Signature(ROW_BITS)),
                "ended": Out(1),
                "opened": In(1),
                "opened_session": In(range(replay.sessions)),
                "release": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay, rows, row, request = self.replay, self.rows, self.rows.payload, self.request
        m.submodules.header_check = check = HeaderCheck(replay)
        frame = Signal(request.frame.shape(), reset_less=True)
        parameters = Signal(request.parameters.shape(), reset_less=True)
        arrived, now_us, session = Signal(RequestOrigin), Signal(32), Signal.like(request.session)
        offering = Signal()
        position, parameters_left = Signal(range(HEADER_ROWS)), Signal(range(PARAMETER_ROWS + 1))
        m.d.comb += [
            request.frame.eq(frame),
            request.parameters.eq(parameters),
            request.arrived.eq(arrived),
            request.now_us.eq(now_us),
            request.session.eq(session),
            request.table.eq(Mux(frame.table < replay.tables, frame.table, 0)),
            check.frame.eq(frame),
            check.length.eq(arrived.length),
            self.outcome.eq(check.outcome),
            self.ordered.eq(check.ordered),
            self.body.payload.eq(row.data),
            self.body.valid.eq(rows.valid & offering),
            rows.ready.eq(self.body.ready & offering),
        ]
        with m.If(self.start_body):
            m.d.sync += offering.eq(~self.ended)
        with m.If(rows.valid & rows.ready & row.last):
            m.d.sync += [self.ended.eq(1), offering.eq(0)]
        with m.If(self.opened):
            m.d.sync += [session.eq(self.opened_session), frame.session.eq(self.opened_session)]
        with m.FSM() as fsm:
            m.d.comb += self.idle.eq(fsm.ongoing("HEADER") & (position == 0))
            with m.State("WAIT_ENABLE"):
                m.d.comb += rows.ready.eq(0)
                with m.If(self.enable):
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += rows.ready.eq(1)
                with m.If(rows.valid):
                    m.d.sync += [
                        frame.eq(Cat(frame.as_value()[ROW_BITS:], row.data)),
                        position.eq(position + 1),
                        self.ended.eq(row.last),
                        arrived.eq(self.arrived),
                    ]
                    with m.If(position == HEADER_ROWS - 1):
                        m.d.sync += now_us.eq(self.now_us)
                        m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [
                    position.eq(0),
                    parameters_left.eq(check.parameter_rows),
                    session.eq(Mux(frame.session < replay.sessions, frame.session, 0)),
                ]
                m.next = "PARAMETERS"
            with m.State("PARAMETERS"):
                with m.If(check.fault | (parameters_left == 0)):
                    m.d.comb += self.done.eq(1)
                    m.d.sync += position.eq(0)
                    m.next = "BODY"
                with m.Else():
                    m.d.comb += rows.ready.eq(1)
                    with m.If(rows.valid):
                        m.d.sync += [
                            parameters.word_select(position[: PARAMETER_ROWS.bit_length() - 1], ROW_BITS).eq(row.data),
                            position.eq(position + 1),
                            parameters_left.eq(parameters_left - 1),
                        ]
            with m.State("BODY"):
                with m.If(self.release):
                    m.next = "SKIP"
            with m.State("SKIP"):
                m.d.comb += rows.ready.eq(~self.ended)
                with m.If(self.ended):
                    m.next = "HEADER"
        return m

"""Checks of a request that need nothing but its header and the length of its frame."""

from amaranth.hdl import Const, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interface.layout import layout
from hw.replay.request.record import PARAMETER_ROWS
from hw.stream.packet import LENGTH_BITS
from iswitch.config import Replay
from iswitch.wire import FRAME_BYTES
from iswitch.wire.replay import (
    BODY_BYTES,
    ORDERED,
    PAYLOAD_BYTES,
    REBUILD_SLOTS,
    REPLAY_FRAME,
    ROW_BYTES,
    SAMPLES_PER_FRAGMENT,
    UNIT_BYTES,
    Kind,
    ReplayOutcome,
)

__all__ = ["HeaderCheck"]

UNIT_ROWS, HEADER_ROWS = UNIT_BYTES // ROW_BYTES, FRAME_BYTES // ROW_BYTES
PARAMETER_ROWS_OF = {
    Kind.OPEN: 1,
    Kind.WRITE: 1,
    Kind.SAMPLE: 4,
    Kind.PUBLISH: 2,
    Kind.LIMIT: 3,
    Kind.LOAD: 1,
    Kind.LIST: 1,
    Kind.SHOUT: 1,
    Kind.REBUILD: 1,
}


def times_constant(count, constant: int):
    """Multiply by shifts and sums. Synthesis would share a multiplier between kinds, and choose its operand first."""
    return sum((count << bit for bit in range(constant.bit_length()) if constant >> bit & 1), Const(0))


class HeaderCheck(wiring.Component):
    """Finds what is wrong with a header (docs/replay.md, section 3), and what body belongs to it.

    `fault` and `outcome` describe the header that stood at the inputs 1 cycle before, and the `length` of 2 cycles
    before; without a fault `outcome` is DONE. `parameter_rows`, the number of rows that come before anything is done,
    and `ordered` follow in the same cycle.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "frame": In(layout(REPLAY_FRAME)),
                "length": In(LENGTH_BITS),
                "fault": Out(1),
                "outcome": Out(ReplayOutcome),
                "parameter_rows": Out(range(PARAMETER_ROWS + 1)),
                "ordered": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay, frame = self.replay, self.frame
        count, kind = frame.count, frame.kind
        most_rows = BODY_BYTES // ROW_BYTES
        item_rows = 1 + replay.record_bytes // ROW_BYTES
        # Of each kind: the largest count (0: the count must be 0), rows of the body for each, and rows before them.
        forms = {
            Kind.OPEN: (0, 0, 1),
            Kind.CLOSE: (0, 0, 0),
            Kind.WRITE: (PAYLOAD_BYTES // UNIT_BYTES, UNIT_ROWS, 1),
            Kind.ADD: (most_rows // item_rows, item_rows, 0),
            Kind.SAMPLE: (replay.samples_per_request, 0, 4),
            Kind.UPDATE: (most_rows, 1, 0),
            Kind.PUBLISH: (0, 0, 2),
            Kind.LIMIT: (0, 0, 3),
            Kind.SKIP: (0, 0, 0),
            Kind.FETCH: (replay.records, 1, 0),
            Kind.LOAD: (PAYLOAD_BYTES // UNIT_BYTES, 0, 1),
            Kind.LOOK: (0, 0, 0),
            Kind.LIST: (SAMPLES_PER_FRAGMENT, 0, 1),
            Kind.SHOUT: (PAYLOAD_BYTES // UNIT_BYTES, 0, 1),
            Kind.REBUILD: (REBUILD_SLOTS, 0, 1),
        }
        count_required, length_fits, count_too_large = Signal(), Signal(), Signal()
        # All comparisons run in parallel and the kind selects one. How many rows follow the header, and the rows before
        # the counted ones, is in registers: the frame's length is there before its header is.
        rows_behind = {
            before: Signal(signed(LENGTH_BITS - 2), name=f"rows_behind_{before}") for *_, before in forms.values()
        }
        whole_rows = Signal()
        m.d.sync += whole_rows.eq(~self.length[:3].any())
        m.d.sync += [rows.eq(self.length[3:] - (HEADER_ROWS + before)) for before, rows in rows_behind.items()]
        length_fits_form = {
            (each, before): whole_rows & (rows_behind[before] == times_constant(count[:8], each))
            for each, before in {form[1:] for form in forms.values()}
        }
        exceeds = {most: count > most for most, *_ in forms.values()}
        with m.Switch(kind):
            for name, (most, *form) in forms.items():
                with m.Case(name):
                    m.d.comb += [
                        count_required.eq(most != 0),
                        count_too_large.eq(exceeds[most]),
                        length_fits.eq(length_fits_form[tuple(form)]),
                        self.parameter_rows.eq(PARAMETER_ROWS_OF.get(name, 0)),
                    ]
        m.d.comb += [
            self.ordered.eq(kind.matches(*ORDERED)),
            self.outcome.eq(ReplayOutcome.DONE),
            self.fault.eq(self.outcome != ReplayOutcome.DONE),
        ]
        no_kind, no_table, wrong_length, too_many, too_few = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            no_kind.eq(kind > max(Kind)),
            no_table.eq(frame.table >= replay.tables),
            wrong_length.eq(~length_fits),
            too_many.eq(count_too_large),
            too_few.eq((count == 0) & count_required),
        ]
        with m.If(no_kind):
            m.d.comb += self.outcome.eq(ReplayOutcome.KIND)
        with m.Elif(no_table):
            m.d.comb += self.outcome.eq(ReplayOutcome.TABLE)
        with m.Elif(wrong_length | too_many | too_few):
            m.d.comb += self.outcome.eq(ReplayOutcome.LENGTH)
        return m

"""Slots that complete without a frame: after a departure, and at an FBCAST."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.decide.membership.procedure import procedure_ports, wait_row
from hw.decide.rules.completion import admit_joining, has_enough, is_complete
from hw.decide.tables.tables import SLOT_CHANGES
from hw.interface.rows import slot_number, slot_row
from hw.stream.reduction import popcount
from iswitch.config import Config
from iswitch.wire import Reason, SlotState

__all__ = ["SlotCompletion"]

WRITES = {"roster": (), "admitted_seq": (), "entry": ("number",), "slot": SLOT_CHANGES}


class SlotCompletion(wiring.Component):
    """Sweeps all slots of a job, none of which waits for `member` any more, or forces the one that an FBCAST names.

    With `forces_one` in the cycle of `start` it is the latter; a slot that is not open, or waits for all, refuses it. A
    slot that completes is offered at `completed`, as it will be, while the tables point at it. It is written, and
    `admitted` joins, in the cycle in which the offer is accepted; `completed` may stall.

    A sweep takes 2 cycles and one for each slot, and 6 more for each slot that collects; an FBCAST takes 4; without
    stalls of `completed`. Procedure: see `procedure_ports`. Source: `leave` and `force` of
    `host/iswitch/golden/decide/ring.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                **procedure_ports(config, writes=WRITES),
                "forces_one": In(1),
                "completed": Out(stream.Signature(slot_row(config))),
                "admitted": Out(config.members),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, request, tables = self.config, self.request, self.tables
        frame, segment = request.headers.frame, request.headers.body.segment
        job, slot, completed = tables.job_row, tables.slot_row, self.completed
        is_leaf = request.is_leaf if config.uplinks else Const(0)
        # `index` points at a slot. In a sweep the row that is here belongs to the slot before, if that `is_read`, and
        # `collects` to the one before that.
        index, is_read, collects = Signal(range(config.slots + 2)), Signal(), Signal()
        m.d.comb += [
            tables.job.eq(frame.job),
            tables.member.eq(self.member),
            tables.slot.eq(slot_number(config, frame.job, index)),
            tables.entry_next.number.eq(frame.seq),
        ]
        taken = completed.valid & completed.ready
        m.d.comb += self.admitted.eq(admit_joining(m, completed.valid, slot, taken, job, tables))

        # The tables point at a slot from before it is offered until it is written, so only what changes is selected.
        named, complete, remains = Signal(), Signal(), Signal(slot_row(config))
        collecting = slot.state == SlotState.COLLECTING
        count, after = Signal(range(config.members + 1)), completed.payload
        m.d.comb += [
            remains.eq(slot),
            remains.expected.eq(slot.expected & ~Mux(named, 0, 1 << self.member)),
            after.eq(remains),
            after.state.eq(Mux(is_leaf & ~named, SlotState.SENT_UP, SlotState.COMPLETE)),
            after.members_changed.eq(slot.members_changed | slot.boundary & job.joining.any()),
            tables.slot_next.state.eq(Mux(completed.valid, after.state, slot.state)),
            tables.slot_next.expected.eq(remains.expected),
            tables.slot_next.incarnation.eq(slot.incarnation),
            tables.slot_next.members_changed.eq(Mux(completed.valid, after.members_changed, slot.members_changed)),
        ]
        m.d.sync += [count.eq(popcount(slot.members)), collects.eq(is_read & collecting)]
        enough = has_enough(slot.requires_all, count, job.threshold, 0)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    index.eq(Mux(self.forces_one, segment[: exact_log2(config.slots)], 0)),
                    is_read.eq(0),
                    collects.eq(0),
                    named.eq(self.forces_one),
                ]
                with m.If(self.start):
                    m.next = "SCAN_SLOTS"
                    with m.If(self.forces_one):
                        m.next = "READ_NAMED_SLOT"
            # A cycle more than the row takes: nothing is offered before its parity is checked.
            wait_row(m, "READ_NAMED_SLOT", then="CHECK_SLOT", cycles=2)
            with m.State("CHECK_SLOT"):
                is_segment = slot.seq == segment
                m.d.sync += [
                    complete.eq(is_segment & (slot.state == SlotState.COMPLETE)),
                    completed.valid.eq(is_segment & collecting & ~slot.requires_all),
                ]
                m.next = "FORCE_SLOT"
            with m.State("FORCE_SLOT"):
                with m.If(~completed.valid | completed.ready):
                    m.d.comb += self.done.eq(1)
                    m.d.sync += completed.valid.eq(0)
                    m.next = "IDLE"
                    with m.If(~completed.valid & ~complete):
                        m.d.comb += self.reason.eq(Reason.SEQ)
                    with m.Else():
                        m.d.comb += [tables.slot_write.eq(completed.valid), tables.entry_write.eq(1)]
            with m.State("SCAN_SLOTS"):
                with m.If(collects):
                    m.d.sync += [index.eq(index - 2), is_read.eq(0), collects.eq(0)]
                    m.next = "READ_SLOT"
                with m.Elif(index == config.slots + 1):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.sync += [index.eq(index + 1), is_read.eq(1)]
            # The slot's row comes with the second cycle, and how many members it has with the third. The first slot
            # is offered 7 cycles after a departure wrote the roster, and the ring's `lowest` follows that in 7 cycles.
            wait_row(m, "READ_SLOT", then="COMPARE_SLOT", cycles=2)
            with m.State("COMPARE_SLOT"):
                m.d.sync += completed.valid.eq(is_complete(remains.expected, remains.arrived, enough))
                m.next = "WRITE_SLOT"
            with m.State("WRITE_SLOT"):
                with m.If(~completed.valid | completed.ready):
                    m.d.comb += tables.slot_write.eq(1)
                    m.d.sync += [completed.valid.eq(0), index.eq(index + 1)]
                    m.next = "SCAN_SLOTS"
        return m

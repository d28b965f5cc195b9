"""Jobs, members and slots as registers, readable by any station, without keys and tokens."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from hw.interface.layout import layout
from hw.interface.rows import SEQ_BITS, TICK_BITS, job_row, member_row, slot_number, slot_row
from hw.numeric.formats import is_half
from hw.stream.reduction import reaches
from iswitch.config import Config
from iswitch.wire import (
    JOB_VIEW,
    MEMBER_VIEW,
    REGISTERS_PER_READ,
    SILENCE_TICKS_MAX,
    SLOT_VIEW,
    VIEWED_JOBS,
    VIEWED_MEMBERS,
    VIEWED_SLOTS,
    JobState,
    MemberState,
    Register,
    SlotState,
)

__all__ = ["Views"]

JOB_BITS, MEMBER_BITS, SLOT_BITS = exact_log2(VIEWED_JOBS), exact_log2(VIEWED_MEMBERS), exact_log2(VIEWED_SLOTS)
WORD_BITS = exact_log2(REGISTERS_PER_READ)
JOB_WORD_BITS = exact_log2(JOB_VIEW.itemsize // 4)
SEQ_WORD = SLOT_VIEW.fields["seq"][1] // 4
SILENT_WORD, SILENT_BIT = MEMBER_VIEW.fields["silent"][1] // 4, 8 * (MEMBER_VIEW.fields["silent"][1] % 4)


class Views(wiring.Component):
    """Translates the `address` of a register into pointers to rows, one cycle later, and the rows, which come another
    cycle later, into its `value`, 3 cycles behind the address.

    Of an address that belongs to no view, the value is what is `counted` 2 cycles behind the address. The value is 0
    where there is no such job, member or slot. The views are aligned to their sizes, so that job, member, slot and word
    of an address are some of its bits. One address a cycle. The records are those of `iswitch.wire`. Source:
    `host/iswitch/golden/decide/views.py`.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "address": In(32),
                "tick": In(TICK_BITS),
                "job": Out(range(config.jobs)),
                "member": Out(range(config.members)),
                "slot": Out(range(config.jobs * config.slots)),
                "job_row": In(job_row(config)),
                "member_row": In(member_row(config)),
                "slot_row": In(slot_row(config)),
                "acknowledged": In(data.ArrayLayout(SEQ_BITS, config.members)),
                "heard": In(data.ArrayLayout(TICK_BITS, config.members)),
                "counted": In(32),
                "value": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        member, slot, low = (
            self.address[WORD_BITS:][:MEMBER_BITS],
            self.address[WORD_BITS:][:SLOT_BITS],
            self.address[:MEMBER_BITS],
        )
        # The word of the rows that are valid now, and the member to which they belong.
        pointed, before, member_read = Signal.like(self.member), Signal(MEMBER_BITS), Signal(MEMBER_BITS)
        m.d.sync += [self.member.eq(member), pointed.eq(self.member), before.eq(low), member_read.eq(before)]
        word, job_word = member_read[:WORD_BITS], member_read[:JOB_WORD_BITS]
        # Of a member that is not live, and of an empty slot except its seq, every word shows 0. The state of a slot is
        # known late in the cycle, so it only selects.
        is_empty, is_seq = self.slot_row.state == SlotState.EMPTY, word == SEQ_WORD
        exists = self.job_row.state != JobState.NONE
        points, chosen, values = [], [], []
        for base, below, there, holds, value in (
            (Register.JOBS_VIEW, JOB_WORD_BITS, 1, 1, self._job(m).as_value().word_select(job_word, 32)),
            (
                Register.HAVE_VIEW,
                MEMBER_BITS,
                ~reaches(low, config.members),
                1,
                self.acknowledged[member_read[: ceil_log2(config.members)]],
            ),
            (
                Register.MEMBERS_VIEW,
                WORD_BITS + MEMBER_BITS,
                ~reaches(member, config.members),
                self.member_row.live,
                self._member(m, pointed).as_value().word_select(word, 32),
            ),
            (
                Register.SLOTS_VIEW,
                WORD_BITS + SLOT_BITS,
                ~reaches(slot, config.slots),
                ~is_empty,
                self._slot(m).as_value().word_select(word, 32),
            ),
        ):
            number, size = self.address[below : below + JOB_BITS], below + JOB_BITS
            inside, point, in_view, in_view_1 = self.address[size:] == base >> size, Signal(), Signal(), Signal()
            m.d.sync += [
                point.eq(inside),
                in_view.eq(inside & there & ~reaches(number, config.jobs)),
                in_view_1.eq(in_view),
            ]
            with m.If(inside):
                m.d.sync += [self.job.eq(number), self.slot.eq(slot_number(config, number, slot))]
            points.append(point)
            chosen.append(in_view_1)
            values.append(Mux(in_view_1 & holds & exists, value, 0))
        _, _, of_member, of_slot = chosen
        viewed, read, shows_silence = Signal(), Signal(32), Signal()
        values += [Mux(of_slot & is_seq & is_empty & exists, self._empty_seq(m), 0), Mux(viewed, 0, self.counted)]
        m.d.sync += [
            viewed.eq(Cat(points).any()),
            read.eq(reduce(or_, values)),
            shows_silence.eq(of_member & self.member_row.live & exists & (word == SILENT_WORD)),
        ]
        silence = (self.tick - read[SILENT_BIT:])[:TICK_BITS]
        m.d.comb += self.value.eq(read)
        with m.If(shows_silence):
            m.d.comb += self.value[SILENT_BIT:].eq(Mux(reaches(silence, SILENCE_TICKS_MAX), SILENCE_TICKS_MAX, silence))
        return m

    def _job(self, m):
        shown, row = Signal(layout(JOB_VIEW)), self.job_row
        m.d.comb += [
            shown.state.eq(row.state),
            shown["format"].eq(row.numeric),
            shown.fraction.eq(row.fraction),
            shown.epoch.eq(row.epoch),
            shown.elements.eq(row.elements),
            shown.world.eq(row.world),
            shown.threshold.eq(row.threshold),
            shown.mode.eq(row.mode),
            shown.live.eq(row.live),
            shown.joining.eq(row.joining),
            shown.first_seq.eq(row.first_seq),
            shown.deadline_us.eq(row.deadline_us),
            shown.evict_us.eq(row.evict_us),
            shown.segments.eq(row.segments),
            shown.staleness.eq(row.staleness),
        ]
        return shown

    def _member(self, m, index):
        """Return what a member shows, with the time at which it was last heard in place of its silence."""
        shown, row = Signal(layout(MEMBER_VIEW)), self.member_row
        live = self.job_row.live.bit_select(index, 1)
        m.d.comb += [
            shown.standing.eq(Mux(live, MemberState.LIVE, MemberState.JOINING)),
            shown.port.eq(row.port),
            shown.udp.as_value().eq(row.address.udp),
            shown.ip.as_value().eq(row.address.ip),
            shown.mac.as_value().eq(row.address.mac),
            shown.silent.eq(self.heard[index]),
        ]
        return shown

    def _slot(self, m):
        shown, row = Signal(layout(SLOT_VIEW)), self.slot_row
        m.d.comb += [
            shown.seq.eq(row.seq),
            shown.state.eq(row.state),
            shown["format"].eq(row.numeric),
            shown.length.eq(row.length >> is_half(row.numeric) if self.config.half_width else row.length),
            shown.arrived.eq(row.arrived),
            shown.members.eq(row.members),
            shown.expected.eq(row.expected),
            shown.tainted.eq(row.tainted),
            shown.collective.eq(row.collective),
            shown.rival.eq(row.rival),
        ]
        return shown

    def _empty_seq(self, m):
        """Return the seq that an empty slot shows, one lap before the first seq of its job, whatever its row says."""
        number = Signal(exact_log2(self.config.slots))
        m.d.sync += number.eq(self.slot)
        return Cat(number, self.job_row.empty_lap)

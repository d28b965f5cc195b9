"""How often each item was sampled, and the end of items that were sampled as often as their table allows."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.interface.layout import layout
from hw.replay.execute.commands import ItemCommand
from hw.replay.sampling.slots import CommandKind
from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN
from hw.stream.parity import with_parity
from iswitch.config import Replay
from iswitch.wire.replay import SAMPLED_ROW

__all__ = ["RetireItems", "SampleCounts"]


class SampleCounts(wiring.Component):
    """A count for each slot of each table. Its largest value says that the item is retired, whatever `times` is later.

    `slot` and `table` choose a count; 2 cycles later `exhausted` is 1 if the item is retired or the count has reached
    `times`, and `last` is 1 if the count will reach it with one more. With `times` 0 no count reaches it. While
    `limited` is 0, nothing is exhausted. `count` adds 1 to the count that `slot` chose 2 cycles before, or retires the
    item if this is its `last`. `clear` sets the count of `clear_slot` to 0; it may be chosen again 2 cycles later.

    Each count has a parity bit. A count with a bit error is that of a retired item: `exhausted` (if `limited`) and
    `last` are 1, and so is `corrupt`, if the slot is below `filled`. (The counts of other slots were never written.)
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        slots = range(replay.capacity)
        super().__init__(
            {
                "table": In(range(replay.tables)),
                "slot": In(slots),
                "times": In(16),
                "limited": In(1),
                "exhausted": Out(1),
                "last": Out(1),
                "count": In(1),
                "clear": In(1),
                "clear_slot": In(slots),
                "filled": In(range(replay.capacity + 1)),
                "corrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        replay = self.replay
        m.submodules.memory = memory = Memory(
            shape=replay.sample_count_bits + 1,
            depth=replay.tables * replay.capacity,
            init=[],
            attrs=NEVER_READ_BEFORE_WRITTEN,
        )
        write, read = memory.write_port(), memory.read_port()
        count, wrong = read.data[:-1], read.data.xor()
        counted, times_less_1 = Signal(replay.sample_count_bits), Signal.like(self.times)
        written = Signal.like(counted)
        m.d.comb += [
            read.addr.eq(Cat(self.slot, self.table)),
            counted.eq(Mux(count.all() | self.last, -1, count + 1)),
            write.data.eq(with_parity(written)),
        ]
        m.d.sync += [
            times_less_1.eq(self.times - 1),
            self.exhausted.eq(self.limited & (wrong | count.all() | (self.times != 0) & (count >= self.times))),
            self.last.eq(wrong | (count >= times_less_1)),
            self.corrupt.eq(wrong & (self.slot < self.filled)),
            write.en.eq(self.clear | self.count),
            written.eq(Mux(self.clear, 0, counted)),
            write.addr.eq(Cat(Mux(self.clear, self.clear_slot, self.slot), self.table)),
        ]
        return m


class RetireItems(wiring.Component):
    """Executes the end of a SAMPLE: counts each item of its list, and sets the priority of an item to 0 when it was
    sampled as often as `times` says.

    `position` chooses a row of the request's list, which comes as `row` 1 cycle later, and `row_corrupt` 2 cycles
    later; waits while `list_in_use`, when the list's memory is not ours. A row with a bit error names no item, so
    nothing is counted (the list is not sent, either), and `found_corrupt` is 1 for one cycle. `slot` goes to the
    counts, and `count` with it. `active` from the cycle after `start` through `done`. 4 cycles for each item, or 1 in
    all if `times` is 0; `done` is 1 for one cycle when no command is `pending`.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        super().__init__(
            {
                "start": In(1),
                "done": Out(1),
                "active": Out(1),
                "items": In(16),
                "times": In(16),
                "position": Out(16),
                "row": In(layout(SAMPLED_ROW)),
                "row_corrupt": In(1),
                "found_corrupt": Out(1),
                "list_in_use": In(1),
                "slot": Out(range(replay.capacity)),
                "last": In(1),
                "count": Out(1),
                "commands": Out(stream.Signature(ItemCommand)),
                "pending": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.slot.eq(self.row.item[: exact_log2(self.replay.capacity)]),
            self.commands.payload.kind.eq(CommandKind.UPDATE),
            self.commands.payload.item.eq(self.row.item),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.active.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += self.position.eq(0)
                with m.If(self.start):
                    m.next = "NEXT_ITEM"
            with m.State("NEXT_ITEM"):
                with m.If((self.position == self.items) | (self.times == 0)):
                    m.next = "WAIT_RESULTS"
                with m.Elif(~self.list_in_use):
                    m.next = "WAIT_ROW"
            with m.State("WAIT_ROW"):
                m.next = "WAIT_COUNT"
            with m.State("WAIT_COUNT"):
                m.next = "COUNT"
            with m.State("COUNT"):
                m.d.comb += [
                    self.commands.valid.eq(self.last & ~self.row_corrupt),
                    self.count.eq(self.commands.ready & ~self.row_corrupt),
                    self.found_corrupt.eq(self.row_corrupt),
                ]
                with m.If(self.commands.ready | self.row_corrupt):
                    m.d.sync += self.position.eq(self.position + 1)
                    m.next = "NEXT_ITEM"
            with m.State("WAIT_RESULTS"):
                with m.If(~self.pending):
                    m.d.comb += self.done.eq(1)
                    m.next = "IDLE"
        return m

"""The slot table: which slot is filled next, and whether a handle is still good."""

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["Command", "CommandKind", "PlacedCommand", "SlotTable", "generation"]


class CommandKind(IntEnum):
    """ADD fills the next slot with a priority; UPDATE changes that of a handle; DRAW leaves the table as it is, and so
    does READ, which tells what is in a slot."""

    ADD = 0
    UPDATE = 1
    DRAW = 2
    READ = 3


class Command(data.StructLayout):
    """`slot` and `generation` of an UPDATE's handle, `slot` of a READ, `priority` of what is added or updated,
    `fraction` of a draw."""

    def __init__(self, capacity: int, priority_bits: int, generation_bits: int):
        super().__init__(
            {
                "kind": CommandKind,
                "slot": range(capacity),
                "generation": generation_bits,
                "priority": priority_bits,
                "fraction": 64,
            }
        )


def generation(adds, slot, slots: int):
    """Of a slot after so many adds: the lap in which it was filled, counted from 1."""
    following = adds[: exact_log2(slots)]
    return adds[exact_log2(slots) :] + (slot < following)


class PlacedCommand(data.StructLayout):
    """A command whose slot is known. `stale`: an update of what is no longer there, or a READ of what never was.
    `changes`: the priority becomes `new`; else `new` is `old`. `adds`: what `generation` needs to know, after this
    command. Of a draw only `kind`, `adds` and `fraction` mean something."""

    def __init__(self, capacity: int, priority_bits: int, generation_bits: int):
        super().__init__(
            {
                "kind": CommandKind,
                "stale": 1,
                "changes": 1,
                "slot": range(capacity),
                "adds": exact_log2(capacity) + generation_bits,
                "old": priority_bits,
                "new": priority_bits,
                "fraction": 64,
            }
        )


class SlotTable(wiring.Component):
    """Priorities of `capacity` slots that are filled first in, first out, and what handles of them are good for. A
    handle is a slot with the generation that it was filled with: an update by one that has been filled again since, or
    never, is `stale`. SlotTable are filled in turn, so the generation follows from how many adds there were, and takes no
    memory.

    A command is taken each cycle, and comes out in order 2 cycles later with the priority that its slot had; `placed`
    cannot be held up. `filled` slots have been filled, after what has been taken. `ready` rises `capacity` cycles after
    a reset, in which the table is wiped. `phased`: priorities are somewhere else, `old` means nothing and `new` only if
    it `changes`; a command comes out the cycle after it was taken and can be held up. The truth is
    `sim/model/replay/slots.py`.
    """

    def __init__(self, *, capacity: int, priority_bits: int = 27, generation_bits: int = 8, phased: bool = False):
        if not (isinstance(capacity, int) and 2 <= capacity <= 1 << 24 and not capacity & (capacity - 1)):
            raise ValueError(f"SlotTable capacity must be a power of two from 2 to {1 << 24}, not {capacity!r}")
        if not 1 <= priority_bits <= 36:
            raise ValueError(f"SlotTable priority_bits must be 1 to 36, not {priority_bits!r}")
        if not 1 <= generation_bits <= 32:
            raise ValueError(f"SlotTable generation_bits must be 1 to 32, not {generation_bits!r}")
        self.capacity, self.priority_bits, self.generation_bits, self.phased = (
            capacity,
            priority_bits,
            generation_bits,
            phased,
        )
        about = capacity, priority_bits, generation_bits
        super().__init__(
            {
                "commands": In(stream.Signature(Command(*about))),
                "placed": Out(stream.Signature(PlacedCommand(*about), always_ready=not phased)),
                "filled": Out(range(capacity + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asked, placed = self.commands.payload, self.placed.payload
        adds, after = Signal.like(placed.adds), Signal.like(placed.adds)
        taken, adding, judged = Signal(), asked.kind == CommandKind.ADD, Signal.like(placed)
        there = asked.slot < self.filled
        good = there & (asked.generation == generation(adds, asked.slot, self.capacity)[: self.generation_bits])
        m.d.comb += [
            taken.eq(self.commands.valid & self.commands.ready),
            after.eq(adds + (taken & adding)),
            judged.kind.eq(asked.kind),
            judged.stale.eq((asked.kind == CommandKind.UPDATE) & ~good | (asked.kind == CommandKind.READ) & ~there),
            judged.changes.eq(adding | (asked.kind == CommandKind.UPDATE) & good),
            judged.slot.eq(Mux(adding, adds[: exact_log2(self.capacity)], asked.slot)),
            judged.adds.eq(after),
            judged.new.eq(asked.priority),
            judged.fraction.eq(asked.fraction),
        ]
        m.d.sync += [adds.eq(after), self.filled.eq(self.filled + (taken & adding & (self.filled != self.capacity)))]
        if self.phased:
            m.d.comb += self.commands.ready.eq(~self.placed.valid | self.placed.ready)
            with m.If(self.commands.ready):
                m.d.sync += [self.placed.valid.eq(self.commands.valid), placed.eq(judged)]
        else:
            self._table(m, taken, judged)
        return m

    def _table(self, m, taken, judged):
        """Priorities, read and written as commands pass."""
        placed = self.placed.payload
        m.submodules.memory = memory = Memory(
            shape=self.priority_bits, depth=self.capacity, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        write = memory.write_port()
        read = memory.read_port(
            transparent_for=[write]
        )  # of the command before: it is written while this one's row is asked for
        wiped, wipe = Signal(), Signal(exact_log2(self.capacity))
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == self.capacity - 1)]
        here, held = Signal(), Signal.like(judged)
        m.d.comb += [
            self.commands.ready.eq(wiped),
            read.addr.eq(judged.slot),
            write.addr.eq(Mux(wiped, held.slot, wipe)),
            write.data.eq(Mux(wiped, held.new, 0)),
            write.en.eq(~wiped | here & held.changes),
        ]
        m.d.sync += [
            here.eq(taken),
            held.eq(judged),
            self.placed.valid.eq(here),
            placed.eq(held),
            placed.old.eq(read.data),
        ]
        with m.If(~held.changes):
            m.d.sync += placed.new.eq(read.data)

"""The slot table: which slot is filled next, and whether a handle is still good."""

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.frame import NEVER_READ_BEFORE_WRITTEN

__all__ = ["Command", "Kind", "Placed", "Slots"]


class Kind(IntEnum):
    """ADD fills the next slot with a priority; UPDATE changes that of a handle; DRAW leaves the table as it is."""

    ADD = 0
    UPDATE = 1
    DRAW = 2


class Command(data.StructLayout):
    """`slot` and `generation` of an UPDATE's handle, `priority` of what is added or updated, `fraction` of a draw."""

    def __init__(self, capacity: int, priority_bits: int, generation_bits: int):
        super().__init__({"kind": Kind, "slot": range(capacity), "generation": generation_bits, "priority": priority_bits, "fraction": 64})


class Placed(data.StructLayout):
    """A command whose slot is known. `stale`: an update of what is no longer there; `new` is `old` then, so that nothing changes. Of a draw only
    `kind` and `fraction` mean something."""

    def __init__(self, capacity: int, priority_bits: int, generation_bits: int):
        super().__init__({"kind": Kind, "stale": 1, "slot": range(capacity), "generation": generation_bits, "old": priority_bits,
                          "new": priority_bits, "fraction": 64})


class Slots(wiring.Component):
    """Generations and priorities of `capacity` slots, first in, first out. A handle is a slot with the generation that it was filled with: an
    update by one that has been filled again since, or never, is `stale`.

    A command is taken each cycle, and comes out in order 2 cycles later with the priority that its slot had; `placed` cannot be held up.
    `filled` slots have been filled, after what has been taken. `ready` rises `capacity` cycles after a reset, in which the table is wiped. The
    truth is `sim/model/replay/slots.py`.
    """

    def __init__(self, *, capacity: int, priority_bits: int = 27, generation_bits: int = 8):
        if not (isinstance(capacity, int) and 2 <= capacity <= 1 << 24 and not capacity & (capacity - 1)):
            raise ValueError(f"Slots capacity must be a power of two from 2 to {1 << 24}, not {capacity!r}")
        if not 1 <= priority_bits <= 36:
            raise ValueError(f"Slots priority_bits must be 1 to 36, not {priority_bits!r}")
        if not 1 <= generation_bits <= 32:
            raise ValueError(f"Slots generation_bits must be 1 to 32, not {generation_bits!r}")
        self.capacity, self.priority_bits, self.generation_bits = capacity, priority_bits, generation_bits
        about = capacity, priority_bits, generation_bits
        super().__init__({
            "commands": In(stream.Signature(Command(*about))), "placed": Out(stream.Signature(Placed(*about), always_ready=True)),
            "filled": Out(range(capacity + 1))})

    def elaborate(self, platform):
        m = Module()
        asked, placed = self.commands.payload, self.placed.payload
        row = data.StructLayout({"generation": self.generation_bits, "priority": self.priority_bits})
        m.submodules.memory = memory = Memory(shape=row, depth=self.capacity, init=[], attrs=NEVER_READ_BEFORE_WRITTEN)
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write])  # of the command before: it is written while this one's row is asked for
        wiped, wipe = Signal(), Signal(exact_log2(self.capacity))
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == self.capacity - 1)]

        following, adds = Signal.like(asked.slot), asked.kind == Kind.ADD
        taken, held, known = Signal(), Signal.like(asked), Signal()
        m.d.comb += [self.commands.ready.eq(wiped), read.addr.eq(Mux(adds, following, asked.slot))]
        m.d.sync += [taken.eq(self.commands.valid & wiped), held.eq(asked), held.slot.eq(read.addr), known.eq(asked.slot < self.filled)]
        with m.If(self.commands.valid & wiped & adds):
            m.d.sync += following.eq(following + 1)
            with m.If(self.filled != self.capacity):
                m.d.sync += self.filled.eq(self.filled + 1)

        adding, stale = held.kind == Kind.ADD, (held.kind == Kind.UPDATE) & ~(known & (read.data.generation == held.generation))
        generation = Signal(self.generation_bits)
        m.d.comb += [
            generation.eq(read.data.generation + adding),
            write.addr.eq(Mux(wiped, held.slot, wipe)), write.en.eq(~wiped | taken & (adding | (held.kind == Kind.UPDATE) & ~stale)),
            write.data.generation.eq(Mux(wiped, generation, 0)), write.data.priority.eq(Mux(wiped, held.priority, 0)),
        ]
        m.d.sync += [
            self.placed.valid.eq(taken), placed.kind.eq(held.kind), placed.stale.eq(stale), placed.slot.eq(held.slot),
            placed.old.eq(read.data.priority), placed.new.eq(Mux(stale, read.data.priority, held.priority)), placed.generation.eq(generation),
            placed.fraction.eq(held.fraction),
        ]
        return m

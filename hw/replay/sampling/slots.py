"""The slot table: which slot is filled next, and which handles are stale."""

from enum import IntEnum

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.stream.memory import NEVER_READ_BEFORE_WRITTEN

__all__ = ["Command", "CommandKind", "PlacedCommand", "SlotTable"]


class CommandKind(IntEnum):
    """ADD fills the next slot with a priority. UPDATE changes the priority of a handle's slot. SAMPLE samples a slot,
    and READ reads one; both change nothing. RESTORE returns the next slot to a sum tree that is rebuilt."""

    ADD = 0
    UPDATE = 1
    SAMPLE = 2
    READ = 3
    RESTORE = 4


class Command(data.StructLayout):
    """A command. `slot` and `generation` are the handle of an UPDATE; a READ has a `slot`, an ADD and an UPDATE a
    `priority`, a SAMPLE the `fraction` at which it samples."""

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


class PlacedCommand(data.StructLayout):
    """A command whose slot is known.

    `stale`: an UPDATE's handle is stale, or a READ's slot was never filled, or the priority of a RESTORE is lost.
    `changes`: the priority becomes `new`; else `new` is `old`, but `old` is 0 for a RESTORE. `early`: the slot is not
    restored yet, so `old` is `new`. `adds` is the number of items after this command, from which `generation` follows.
    A SAMPLE has only `kind`, `adds` and `fraction`."""

    def __init__(self, capacity: int, priority_bits: int, generation_bits: int):
        super().__init__(
            {
                "kind": CommandKind,
                "stale": 1,
                "changes": 1,
                "early": 1,
                "slot": range(capacity),
                "adds": exact_log2(capacity) + generation_bits,
                "old": priority_bits,
                "new": priority_bits,
                "fraction": 64,
            }
        )


class SlotTable(wiring.Component):
    """Priorities of `capacity` slots, which are filled first in, first out, and the check of their handles.

    A handle is a slot with the generation in which it was filled. It is stale if the slot has been filled again since,
    or was never filled. Slots are filled in order, so a slot's generation follows from the number of items added, and
    takes no memory.

    Latency: a command comes out 2 cycles after it was taken, with the priority that its slot had. One command in each
    cycle, in order; `placed` must not stall. `filled` counts filled slots, including the command taken in the cycle
    before. Not ready for `capacity` cycles after a reset, in which the priorities are wiped.

    `restored` counts the slots whose priorities are in the sum tree: all, unless the tree is rebuilt. `restart` sets it
    to 0. Each RESTORE places the next slot, and the commands until its result must be RESTOREs. Each priority in memory
    has a parity bit. `corrupted` is 1 in the cycle in which a command is placed whose priority has the wrong parity,
    and `placed` is then wrong; but a RESTORE sets such a priority to 0, and `lost` is 1 instead.

    `single_copy`: this table holds no priorities; `old` is undefined, and `new` is valid only if the command `changes`
    it; `corrupted` and `lost` are 0. Then a command comes out 1 cycle after it was taken, `placed` may stall, and
    nothing is wiped. The golden model of both is `host/iswitch/golden/replay/slots.py`.
    """

    def __init__(self, *, capacity: int, priority_bits: int = 27, generation_bits: int = 8, single_copy: bool = False):
        if not (isinstance(capacity, int) and 2 <= capacity <= 1 << 24 and not capacity & (capacity - 1)):
            raise ValueError(f"SlotTable capacity must be a power of two from 2 to {1 << 24}, not {capacity!r}")
        if not 1 <= priority_bits <= 36:
            raise ValueError(f"SlotTable priority_bits must be 1 to 36, not {priority_bits!r}")
        if not 1 <= generation_bits <= 32:
            raise ValueError(f"SlotTable generation_bits must be 1 to 32, not {generation_bits!r}")
        self.capacity, self.priority_bits, self.generation_bits, self.single_copy = (
            capacity,
            priority_bits,
            generation_bits,
            single_copy,
        )
        shape = capacity, priority_bits, generation_bits
        super().__init__(
            {
                "commands": In(stream.Signature(Command(*shape))),
                "placed": Out(stream.Signature(PlacedCommand(*shape), always_ready=not single_copy)),
                "filled": Out(range(capacity + 1)),
                "restart": In(1),
                "restored": Out(range(capacity + 1), init=capacity),
                "lost": Out(1),
                "corrupted": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        command, placed = self.commands.payload, self.placed.payload
        adds = Signal(placed.adds.shape(), name="adds")
        taken, adding, checked = Signal(), command.kind == CommandKind.ADD, Signal.like(placed)
        restores, slot_bits = command.kind == CommandKind.RESTORE, exact_log2(self.capacity)
        was_filled = command.slot < self.filled
        # Both generations that the slot may have are compared before it is known which one it has.
        laps, in_lap, in_next = adds[slot_bits:], Signal(), Signal()
        handle_valid = was_filled & Mux(command.slot < adds[:slot_bits], in_next, in_lap)
        m.d.comb += [
            taken.eq(self.commands.valid & self.commands.ready),
            in_lap.eq(command.generation == laps),
            in_next.eq(command.generation == (laps + 1)[: self.generation_bits]),
            checked.kind.eq(command.kind),
            checked.stale.eq(
                (command.kind == CommandKind.UPDATE) & ~handle_valid | (command.kind == CommandKind.READ) & ~was_filled
            ),
            checked.changes.eq(adding | (command.kind == CommandKind.UPDATE) & handle_valid),
            checked.early.eq(
                command.kind.matches(CommandKind.ADD, CommandKind.UPDATE) & (checked.slot >= self.restored)
            ),
            checked.slot.eq(Mux(adding, adds[:slot_bits], Mux(restores, self.restored[:slot_bits], command.slot))),
            checked.adds.eq(adds + adding),
            checked.new.eq(command.priority),
            checked.fraction.eq(command.fraction),
        ]
        m.d.sync += [
            self.filled.eq(self.filled + (taken & adding & (self.filled != self.capacity))),
            self.restored.eq(Mux(self.restart, 0, self.restored + (taken & restores))),
        ]
        with m.If(taken & adding):
            m.d.sync += adds.eq(adds + 1)
        if self.single_copy:
            m.d.comb += self.commands.ready.eq(~self.placed.valid | self.placed.ready)
            with m.If(self.commands.ready):
                m.d.sync += [self.placed.valid.eq(self.commands.valid), placed.eq(checked)]
        else:
            self._table(m, taken, checked)
        return m

    def _table(self, m, taken, checked):
        """Build the memory of priorities, which commands read and write as they pass."""
        placed = self.placed.payload
        m.submodules.memory = memory = Memory(
            shape=self.priority_bits + 1, depth=self.capacity, init=[], attrs=NEVER_READ_BEFORE_WRITTEN
        )
        write = memory.write_port()
        # The command before may write the slot in the cycle in which this command reads it.
        read = memory.read_port(transparent_for=[write])
        wiped, wipe = Signal(), Signal(exact_log2(self.capacity))
        with m.If(~wiped):
            m.d.sync += [wipe.eq(wipe + 1), wiped.eq(wipe == self.capacity - 1)]
        held_valid, held, old, wrong = Signal(), Signal.like(checked), Signal(self.priority_bits), Signal()
        restores = held.kind == CommandKind.RESTORE
        m.d.comb += [
            self.commands.ready.eq(wiped),
            read.addr.eq(checked.slot),
            write.addr.eq(Mux(wiped, Mux(self.lost, placed.slot, held.slot), wipe)),
            write.data.eq(Mux(wiped & ~self.lost, Cat(held.new, held.new.xor()), 0)),
            write.en.eq(~wiped | held_valid & held.changes | self.lost),
            old.eq(read.data),
            wrong.eq(read.data.xor() & held_valid & (held.kind != CommandKind.SAMPLE)),
        ]
        m.d.sync += [
            held_valid.eq(taken),
            held.eq(checked),
            self.placed.valid.eq(held_valid),
            placed.eq(held),
            placed.old.eq(Mux(restores, 0, Mux(held.early & held.changes, held.new, old))),
            placed.stale.eq(held.stale | restores & wrong),
            self.lost.eq(restores & wrong),
            self.corrupted.eq(wrong & ~restores & ~held.early),
        ]
        with m.If(~held.changes):
            m.d.sync += placed.new.eq(Mux(restores & wrong, 0, old))

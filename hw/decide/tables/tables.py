"""The switch's tables in memories: jobs, members, slots, claims."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from hw.decide.tables.access import BY_MEMBER, Access, records
from hw.interface.rows import SEQ_BITS, TICK_BITS
from iswitch.config import Config
from iswitch.wire import SILENCE_TICKS_MAX, SlotState

__all__ = ["FRAME_WRITES", "MEMBERSHIP_WRITES", "REGISTERS_MAX", "SLOT_CHANGES", "Tables"]

FRAME_WRITES = ("roster", "slot", "claims", *BY_MEMBER)
"""What a data frame may change."""

SLOT_CHANGES = ("state", "expected", "members_changed", "incarnation")
"""Fields of a slot that also change without a frame: a member leaves, or the ring is reset."""

MEMBERSHIP_WRITES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("settings", "status", "ring", "sender", "entry", *FRAME_WRITES), ()),
    "slot": SLOT_CHANGES,
}
"""What membership may change: everything, but of a slot only some fields."""

REGISTERS_MAX = 2
"""Up to so many rows, a memory consists of flip-flops. Four bits of LUT RAM take six LUTs of an ECP5, at any depth up
to 16; two rows of flip-flops take one LUT a bit, which selects the row."""


class Tables(wiring.Component):
    """Jobs, members, slots and claims, and for each member what it acknowledged and when (`tick`) it was last heard.

    `control` selects whose pointers and writes count: those of `frames` if 0, of `membership` if 1. Rows follow the
    pointers by 1 cycle; one row of each table per cycle, without stalls. A read in the cycle after a write by `frames`
    sees what was written. A write by `membership` passes a register first, so the cycle after that is the first to see
    it, and in the cycle after `control` falls `frames` must write nothing. `pins`: members of the job that `frames`
    points at, which were last heard `SILENCE_TICKS_MAX` ago from now on, so that their silence does not wrap. `tick`
    counts in the cycle in which a memory is written. The state of a slot that belongs to another incarnation of its
    job's ring reads as EMPTY, so a new incarnation empties a ring. Source: docs/protocol.md sections 3 and 4.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "control": In(1),
                "tick": In(TICK_BITS),
                "pins": In(config.members),
                "frames": In(Access(config, writes=FRAME_WRITES)),
                "membership": In(Access(config, writes=MEMBERSHIP_WRITES)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, frames, membership, control = self.config, self.frames, self.membership, self.control
        depths = {"job": config.jobs, "member": config.jobs * config.members, "slot": config.jobs * config.slots}
        address = {name: Mux(control, getattr(membership, name), getattr(frames, name)) for name in ("job", "slot")}
        address["member"] = address["job"] * config.members + Mux(control, membership.member, frames.member)

        # What membership writes, and where it pointed, one cycle later.
        late = Signal()
        pointed = {name: Signal(len(Value.cast(at)), name=f"pointed_{name}") for name, at in address.items()}
        m.d.sync += [late.eq(control), *(kept.eq(address[name]) for name, kept in pointed.items())]

        def later(name):
            """Return a port of `membership` as it was in the last cycle; a write without control is none."""
            value = Value.cast(getattr(membership, name))
            kept = Signal(len(value), name=f"later_{name}", reset_less=name.endswith("_next"))
            m.d.sync += kept.eq(value if name.endswith("_next") else Mux(control, value, 0))
            return kept

        def enable(record):
            name = f"{record}_write"
            if record not in FRAME_WRITES:
                return later(name)
            return Mux(late, later(name), Mux(control, 0, getattr(frames, name)))

        def written(record):
            name = f"{record}_next"
            if record not in FRAME_WRITES:
                return later(name)
            return Mux(late, later(name), Value.cast(getattr(frames, name)))

        def memory(name, table, shape, granularity=None):
            """Add a memory beside a table's pointer; return its write port and the data read."""
            depth = depths[table]
            attrs = {"ram_style": "registers"} if depth <= REGISTERS_MAX else {}
            m.submodules[name] = words = Memory(shape=shape, depth=depth, init=[], attrs=attrs)
            write, read = words.write_port(granularity=granularity), words.read_port()
            m.d.comb += [write.addr.eq(Mux(late, pointed[table], address[table])), read.addr.eq(address[table])]
            return write, read.data

        def show(row, fields, values):
            for access in (frames, membership):
                m.d.comb += [getattr(access, row)[field].eq(values[field]) for field in fields]

        tables = {"sender": "member", "entry": "member", "slot": "slot"}
        for record, layout in records(config).items():
            if record == "claims" and not config.staleness:
                continue
            table = tables.get(record, "job")
            if record == "slot":
                # Only frames write what a slot contains, so its memory needs no selection among writers.
                content = [name for name in layout.members if name not in SLOT_CHANGES]
                row, late_slot = Signal(layout, name="slot_stored"), Signal(membership.slot_next.shape())
                m.d.comb += late_slot.as_value().eq(later("slot_next"))
                for name, kept in (("slot", SLOT_CHANGES), ("slot_content", content)):
                    write, stored = memory(name, table, data.StructLayout({f: layout.members[f] for f in kept}))
                    m.d.comb += write.en.eq(enable("slot") if name == "slot" else ~late & ~control & frames.slot_write)
                    for field in kept:
                        put = Value.cast(frames.slot_next[field])
                        if name == "slot":
                            put = Mux(late, Value.cast(late_slot[field]), put)
                        m.d.comb += [write.data[field].eq(put), row[field].eq(stored[field])]
                row = self._vacated(m, row)
            else:
                write, row = memory(record, table, layout)
                m.d.comb += [write.data.as_value().eq(written(record)), write.en.eq(enable(record))]
            show("claims_row" if record == "claims" else f"{table}_row", layout.members, row)

        # A new member acknowledges everything before its first seq.
        members, admitted = range(config.members), enable("admitted_seq")
        acknowledged, admitted_seq = written("acknowledged"), written("admitted_seq")
        write, row = memory("acknowledged", "job", data.ArrayLayout(SEQ_BITS, config.members), granularity=1)
        m.d.comb += write.en.eq(enable("acknowledged") | admitted)
        m.d.comb += [write.data[k].eq(Mux(admitted[k], admitted_seq, acknowledged)) for k in members]
        show("acknowledged", members, row)
        write, row = memory("heard", "job", data.ArrayLayout(TICK_BITS, config.members), granularity=1)
        m.d.comb += write.en.eq(enable("heard") | self.pins)
        m.d.comb += [write.data[k].eq(self.tick - Mux(self.pins[k], SILENCE_TICKS_MAX, 0)) for k in members]
        show("heard", members, row)
        return m

    def _vacated(self, m, row):
        """Return a slot's row whose state is EMPTY unless the slot belongs to the present incarnation of its ring."""
        shown = Signal.like(row, name="slot_shown")
        m.d.comb += shown.eq(row)
        with m.If(row.incarnation != self.frames.job_row.incarnation):
            m.d.comb += shown.state.eq(SlotState.EMPTY)
        return shown

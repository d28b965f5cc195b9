"""The switch's tables in memories: jobs, members, slots, claims."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.decide.tables.access import BY_MEMBER, Access, records
from hw.decide.tables.checked_memory import CheckedMemory
from hw.interface.rows import SEQ_BITS, TICK_BITS
from iswitch.config import Config
from iswitch.wire import SILENCE_TICKS_MAX, SlotState

__all__ = ["FRAME_WRITES", "MEMBERSHIP_WRITES", "SLOT_CHANGES", "Tables"]

FRAME_WRITES = ("roster", "slot", "claims", *BY_MEMBER)
"""What a data frame may change."""

SLOT_CHANGES = ("state", "expected", "members_changed", "incarnation")
"""Fields of a slot that also change without a frame: a member leaves, or the ring is reset."""

MEMBERSHIP_WRITES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("settings", "status", "ring", "sender", "entry", *FRAME_WRITES), ()),
    "slot": SLOT_CHANGES,
}
"""What membership may change: everything, but of a slot only some fields."""


class Tables(wiring.Component):
    """Jobs, members, slots and claims, and for each member what it acknowledged and when (`tick`) it was last heard.

    `control` selects whose pointers and writes count: those of `frames` if 0, of `membership` if 1. Rows follow the
    pointers by 1 cycle; one row of each table per cycle, without stalls. A read in the cycle after a write by `frames`
    sees what was written. `frames` writes the rows of the job `written_job` and the slot `written_slot`, wherever it
    points. A write by `membership` passes a register first, so the cycle after that is the first to see it, and in the
    cycle after `control` falls `frames` must write nothing.

    `pins`: members of `written_job`, which from now on were last heard `SILENCE_TICKS_MAX` ago, so that their silence
    does not wrap. `tick` counts in the cycle in which a memory is written. The state of a slot that belongs to another
    incarnation of its job's ring reads as EMPTY, so a new incarnation empties a ring.

    Each record in a memory has a parity bit, and so has each member's part of the rows of `acknowledged` and `heard`.
    `corrupt`: one of the rows that the port showed in the last cycle has the wrong parity. `heard_corrupt`: that row is
    one of `heard`. The content of an empty slot has no meaning, so its parity does not count. Source: docs/protocol.md
    sections 3 and 4.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "control": In(1),
                "tick": In(TICK_BITS),
                "pins": In(config.members),
                "written_job": In(range(config.jobs)),
                "written_slot": In(range(config.jobs * config.slots)),
                "frames": In(Access(config, writes=FRAME_WRITES)),
                "membership": In(Access(config, writes=MEMBERSHIP_WRITES)),
                "corrupt": Out(1),
                "heard_corrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, frames, membership, control = self.config, self.frames, self.membership, self.control
        depths = {"job": config.jobs, "member": config.jobs * config.members, "slot": config.jobs * config.slots}
        address = {name: Mux(control, getattr(membership, name), getattr(frames, name)) for name in ("job", "slot")}
        member = Mux(control, membership.member, frames.member)
        address["member"] = address["job"] * config.members + member
        # A scan of the entries may point behind the last one.
        is_entry = Signal()
        m.d.sync += is_entry.eq(member < config.members)

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

        # Only membership writes members.
        target = {"job": self.written_job, "slot": self.written_slot, "member": pointed["member"]}

        def memory(name, table, shape, granules=1):
            """Add a memory beside a table's pointer."""
            m.submodules[name] = rows = CheckedMemory(shape, depths[table], granules=granules)
            m.d.comb += [
                rows.write_address.eq(Mux(late, pointed[table], target[table])),
                rows.address.eq(address[table]),
            ]
            return rows

        # The parity of each row read, a cycle later.
        corrupt = []

        def check(name, rows, matters=1):
            """Let a row read with the wrong parity count if it `matters`. Return whether the last row read did."""
            found = Signal(name=f"corrupt_{name}")
            if not rows.is_registers:
                m.d.sync += found.eq(rows.wrong & matters)
                corrupt.append(found)
            return found

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
                parts = {}
                for name, kept in (("slot", SLOT_CHANGES), ("slot_content", content)):
                    parts[name] = rows = memory(name, table, data.StructLayout({f: layout.members[f] for f in kept}))
                    m.d.comb += rows.write.eq(
                        enable("slot") if name == "slot" else ~late & ~control & frames.slot_write
                    )
                    for field in kept:
                        put = Value.cast(frames.slot_next[field])
                        if name == "slot":
                            put = Mux(late, Value.cast(late_slot[field]), put)
                        m.d.comb += [rows.written[0][field].eq(put), row[field].eq(rows.read[0][field])]
                row = self._vacated(m, row)
                check("slot", parts["slot"])
                check("slot_content", parts["slot_content"], row.state != SlotState.EMPTY)
            else:
                rows = memory(record, table, layout)
                m.d.comb += [rows.written[0].as_value().eq(written(record)), rows.write.eq(enable(record))]
                row = rows.read[0]
                check(record, rows, is_entry if table == "member" else 1)
            show("claims_row" if record == "claims" else f"{table}_row", layout.members, row)

        # A new member acknowledges everything before its first seq.
        members, admitted = range(config.members), enable("admitted_seq")
        acknowledged, admitted_seq = written("acknowledged"), written("admitted_seq")
        rows = memory("acknowledged", "job", SEQ_BITS, config.members)
        m.d.comb += rows.write.eq(enable("acknowledged") | admitted)
        m.d.comb += [rows.written[k].eq(Mux(admitted[k], admitted_seq, acknowledged)) for k in members]
        check("acknowledged", rows)
        show("acknowledged", members, rows.read)
        rows = memory("heard", "job", TICK_BITS, config.members)
        m.d.comb += rows.write.eq(enable("heard") | self.pins)
        m.d.comb += [rows.written[k].eq(self.tick - Mux(self.pins[k], SILENCE_TICKS_MAX, 0)) for k in members]
        m.d.comb += self.heard_corrupt.eq(check("heard", rows))
        show("heard", members, rows.read)
        m.d.comb += self.corrupt.eq(Cat(corrupt).any())
        return m

    def _vacated(self, m, row):
        """Return a slot's row whose state is EMPTY unless the slot belongs to the present incarnation of its ring."""
        shown = Signal.like(row, name="slot_shown")
        m.d.comb += shown.eq(row)
        with m.If(row.incarnation != self.frames.job_row.incarnation):
            m.d.comb += shown.state.eq(SlotState.EMPTY)
        return shown

"""Rows of the switch's tables: jobs, members, slots; and the items the core hands on."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from hw.decide.tables.access import Access
from hw.interface.rows import (
    MEMBERSHIP_FIELDS,
    SENDER_FIELDS,
    SEQ_BITS,
    SETTINGS_FIELDS,
    TICK_BITS,
    claims_row,
    job_row,
    member_row,
    slot_row,
)
from iswitch.config import Config

__all__ = ["Tables"]


def part(shape, *, within: tuple[str, ...] = (), without: tuple[str, ...] = ()):
    """The row of some of a row's fields."""
    return data.StructLayout(
        {name: shape.members[name] for name in shape.members if (name in within if within else name not in without)}
    )


class Tables(wiring.Component):
    """Jobs, members, slots, claims, what each member holds and when (`tick`) it was last heard, in memories.

    `control` selects whose Access counts: 0 for `frames`, 1 for `members`. Rows follow the pointers by one cycle. A
    write by `frames` is seen by a read of the next cycle. One by `members` is registered, and seen by a read of the
    cycle after that; so in the cycle after `control` falls `frames` writes nothing. `tick` is that of the cycle in
    which a row is written.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__(
            {
                "control": In(1),
                "tick": In(TICK_BITS),
                "frames": In(Access(config, registers=False)),
                "members": In(Access(config, registers=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, frames, members = self.config, self.frames, self.members
        job, member, slot = job_row(config), member_row(config), slot_row(config)
        address = {name: Mux(self.control, getattr(members, name), getattr(frames, name)) for name in ("job", "slot")}
        address["member"] = address["job"] * config.members + Mux(self.control, members.member, frames.member)

        # What `members` writes, and where it pointed, one cycle later.
        late, pointed = (
            Signal(),
            {name: Signal(len(Value.cast(at)), name=f"pointed_{name}") for name, at in address.items()},
        )
        m.d.sync += [late.eq(self.control), *(kept.eq(address[name]) for name, kept in pointed.items())]

        def later(name):
            """A port of `members` as it was in the last cycle; enables are 0 without control."""
            value = Value.cast(getattr(members, name))
            kept = Signal(len(value), name=f"later_{name}", reset_less=name.endswith("_next"))
            m.d.sync += kept.eq(value if name.endswith("_next") else Mux(self.control, value, 0))
            return kept

        def row(name, shape):
            return data.View(shape, later(name))

        written = {
            name: later(name)
            for name in (
                "job_write",
                "settings_write",
                "member_write",
                "sender_write",
                "slot_write",
                "acknowledged_write",
                "admitted_seq_write",
                "heard_write",
                "claims_write",
            )
        }

        def enable(name):
            return Mux(late, written[name], Mux(self.control, 0, getattr(frames, name)))

        def store(name, at, shape, parts, values, enables, granularity=None):
            """A memory whose rows are some fields of others: (Access' field, wanted fields) in `parts`."""
            m.submodules[name] = memory = Memory(shape=shape, depth=depths[at], init=[])
            put, get = memory.write_port(granularity=granularity), memory.read_port()
            m.d.comb += [put.addr.eq(Mux(late, pointed[at], address[at])), get.addr.eq(address[at]), put.en.eq(enables)]
            for field in values:
                m.d.comb += put.data[field].eq(values[field])
            for access in (frames, members):
                whole = getattr(access, parts)
                m.d.comb += [whole[field].eq(get.data[field]) for field in values]

        depths = {"job": config.jobs, "member": config.jobs * config.members, "slot": config.jobs * config.slots}
        job_next, member_next, slot_next = row("job_next", job), row("member_next", member), row("slot_next", slot)
        only = {
            "settings": part(job, within=SETTINGS_FIELDS),
            "crowd": part(job, within=MEMBERSHIP_FIELDS),
            "standing": part(job, without=SETTINGS_FIELDS + MEMBERSHIP_FIELDS),
            "senders": part(member, within=SENDER_FIELDS),
            "entries": part(member, without=SENDER_FIELDS),
        }
        both = lambda name, kept: {
            field: Mux(late, kept[field], getattr(frames, name)[field]) for field in kept.shape().members
        }
        fields = lambda kept, shape: {field: kept[field] for field in shape.members}
        crowd = both("job_next", job_next)
        store(
            "settings",
            "job",
            only["settings"],
            "job_row",
            fields(job_next, only["settings"]),
            written["settings_write"],
        )
        store("standings", "job", only["standing"], "job_row", fields(job_next, only["standing"]), written["job_write"])
        store(
            "crowds",
            "job",
            only["crowd"],
            "job_row",
            {field: crowd[field] for field in MEMBERSHIP_FIELDS},
            enable("job_write"),
        )
        store(
            "senders",
            "member",
            only["senders"],
            "member_row",
            fields(member_next, only["senders"]),
            written["sender_write"],
        )
        store(
            "entries",
            "member",
            only["entries"],
            "member_row",
            fields(member_next, only["entries"]),
            written["member_write"],
        )
        store("slots", "slot", slot, "slot_row", both("slot_next", slot_next), enable("slot_write"))
        if config.staleness:
            claims = row("claims_next", claims_row(config))
            store("claims", "job", claims.shape(), "claims_row", both("claims_next", claims), enable("claims_write"))

        acknowledged_next, admitted_seq_next = (
            Mux(late, later(name), getattr(frames, name)) for name in ("acknowledged_next", "admitted_seq_next")
        )
        starts = enable("admitted_seq_write")
        for name, size, enables, values in (
            (
                "acknowledged",
                SEQ_BITS,
                enable("acknowledged_write") | starts,
                [Mux(starts[k], admitted_seq_next, acknowledged_next) for k in range(config.members)],
            ),
            ("heard", TICK_BITS, enable("heard_write"), [self.tick] * config.members),
        ):
            store(
                name,
                "job",
                data.ArrayLayout(size, config.members),
                name,
                dict(enumerate(values)),
                enables,
                granularity=1,
            )
        return m

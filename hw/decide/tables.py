"""Rows of the switch's tables: jobs, members, slots; and the items the core hands on."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.bridge.host_requests import Answer
from hw.ingress.packet_queue import LENGTH_BITS
from iswitch.config import Config
from iswitch.wire import SEGMENTS_MAX, UDP_PORT, JobState, Operation, Reason, SlotState

__all__ = [
    "CROWD",
    "SENDER",
    "SETTINGS",
    "SWITCH_UDP",
    "TICK",
    "Access",
    "Address",
    "Binding",
    "Parent",
    "ResultHeader",
    "Tables",
    "Verdict",
    "Work",
    "claims_row",
    "job_row",
    "member_row",
    "slot_number",
    "slot_row",
]

SEQ, TICK = 32, 16
SETTINGS = (
    "world",
    "numeric",
    "fraction",
    "limit",
    "elements",
    "mode",
    "key",
    "deadline",
    "evict",
    "staleness",
    "segments",
)
"""Of a job: what its founder says, written once."""
CROWD = ("live", "joining", "newcomers", "start")
"""Of a job: what changes at a boundary, too, and not only by control messages."""
SENDER = ("nonce", "address", "port")
"""Of a member: what its first Join says, written once."""
SWITCH_UDP = int.from_bytes(UDP_PORT.to_bytes(2, "big"), "little")
"""Of an Address that is a switch's."""


class Address(data.Struct):
    """Where a frame to a host goes; bytes in wire order, first byte lowest."""

    mac: 48
    ip: 32
    udp: 16


class Parent(data.Struct):
    """Where a job's parent is, if it has one here (`valid`), and the global ranks that join below this switch; bytes in
    wire order."""

    mac: 48
    ip: 32
    ranks: 32
    port: 8
    valid: 8


def job_row(config: Config) -> data.StructLayout:
    """One job. `elements` is its largest segment, `limit` the biased exponent at which window64 rejects; `deadline` and
    `evict` in microseconds; `segments` is 0 if it is synchronous. Of `live`, `joining`, `newcomers` and `start` the
    model's `ring.Ring` says what they are. In trees: `tree` as in the model's `membership.Job`, `ranks` those of all
    who have confirmed, and what the switch is to its parent (`up_...`, the model's `tree_switch.Above`)."""
    return data.StructLayout(
        {
            "state": JobState,
            "epoch": 16,
            "first": SEQ,
            "world": range(config.members + 1),
            "threshold": range(config.members + 1),
            "numeric": 4,
            "fraction": signed(9),
            "limit": 8,
            "elements": range(config.elements + 1),
            "mode": 1,
            "key": 64,
            "deadline": 31,
            "evict": 29,
            "staleness": range(config.staleness + 1),
            "segments": range(SEGMENTS_MAX if config.staleness else 1),
            "live": config.members,
            "joining": config.members,
            "newcomers": config.members,
            "start": SEQ,
            **(
                {
                    "tree": 1,
                    "ranks": config.members,
                    "up_nonce": 64,
                    "up_member": 8,
                    "up_token": 32,
                    "up_running": 1,
                    "up_reason": Reason,
                }
                if config.uplinks
                else {}
            ),
        }
    )


def member_row(config: Config) -> data.StructLayout:
    """One member of one job. `pending`: the Join was answered but not yet confirmed; `live`: it was, and the member is
    live or joining. The token outlives a departure, so that a repeated Leave can be answered. `ranks`: its global
    ranks."""
    return data.StructLayout(
        {
            "pending": 1,
            "live": 1,
            "token": 32,
            "nonce": 64,
            "address": Address,
            "port": 4,
            "number": 32,
            **({"ranks": config.members} if config.uplinks else {}),
        }
    )


def slot_row(config: Config) -> data.StructLayout:
    """One slot; the fields are those of the model's `ring.Slot`. `length` in bytes. In trees `tainted` is by rank, as
    are `ranks`, and `partial` stands beside them (the model's `ring.Names`)."""
    members = config.members
    return data.StructLayout(
        {
            "seq": SEQ,
            "state": SlotState,
            "arrived": members,
            "members": members,
            "tainted": members,
            "expected": members,
            "numeric": 4,
            "length": range(4 * config.elements + 1),
            "boundary": 1,
            "whole": 1,
            "change": 1,
            "opened": 32,
            **({"ranks": members, "partial": 1} if config.uplinks else {}),
        }
    )


def slot_number(config: Config, job: Value, seq: Value) -> Value:
    """Of the slot of a job to which a seq belongs."""
    return Cat(seq[: exact_log2(config.slots)], job[: exact_log2(config.jobs)])


def claims_row(config: Config) -> data.StructLayout:
    """What is claimed in one asynchronous job, as in the model's `claims.Claims`: the `base` of the next update, the
    set `waiting`, each member's `last` k, and the kept grants, newest first."""
    grant = data.StructLayout({"valid": 1, "base": SEQ, "members": config.members})
    return data.StructLayout(
        {
            "base": SEQ,
            "waiting": config.members,
            "last": data.ArrayLayout(SEQ, config.members),
            "grants": data.ArrayLayout(grant, config.staleness + 1),
        }
    )


class Binding(data.StructLayout):
    """A member's index in the whole table, with its port and address, told to the ports when it joins. The index after
    the last member's is that of the job's parent."""

    def __init__(self, config: Config):
        super().__init__(
            {"job": range(config.jobs), "member": range(config.members + config.uplinks), "port": 4, "address": Address}
        )


class ResultHeader(data.StructLayout):
    """What the header of a result says, and who gets it (`recipients`, members of `job`, the parent behind them).
    `length`: payload bytes at four an element. `up`: it is an uplink, whose other fields are these and the `partial` of
    its tail. A GRANT has no length: its `seq` is the base, its `members` those granted."""

    def __init__(self, config: Config):
        super().__init__(
            {
                "job": range(config.jobs),
                "epoch": 16,
                "seq": SEQ,
                "numeric": 4,
                "flags": 4,
                "members": config.members,
                "tainted": config.members,
                "recipients": config.members + config.uplinks,
                "length": range(4 * config.elements + 1),
                **({"up": 1, "member": 8, "token": 32, "behind": 16, "partial": 1} if config.uplinks else {}),
            }
        )


class Work(data.StructLayout):
    """One operation for the aggregator. `include`: add the payload; `first`: overwrite; `write`: store the sum; `emit`:
    send it out under `result`. `wide`: the payload has 8 bytes an element; `tailed`: a tail stands behind it; `as_is`:
    what is stored is a result from above."""

    def __init__(self, config: Config):
        super().__init__(
            {
                "operation": Operation,
                "slot": range(config.jobs * config.slots),
                "include": 1,
                "first": 1,
                "write": 1,
                "emit": 1,
                "fraction": signed(9),
                "limit": 8,
                "result": ResultHeader(config),
                **({"wide": 1, "tailed": 1, "as_is": 1} if config.uplinks else {}),
            }
        )


class Verdict(data.StructLayout):
    """The core's word on a frame, or (`frame` = 0) an operation that needs none. `ports`: the set of those by which an
    ordinary frame leaves, as the `answer` if it is one. `replay`: it is a request for the replay service, from
    `port`."""

    def __init__(self, config: Config):
        super().__init__(
            {
                "frame": 1,
                "ports": config.ports,
                "answer": Answer,
                "length": LENGTH_BITS,
                "works": 1,
                "work": Work(config),
                **({"replay": 1, "port": 4} if config.replay else {}),
            }
        )


class Access(wiring.Signature):
    """One user's view of the tables. It points with `job`, `member` and `slot`; the rows there come one cycle later,
    and a row is written where it points. `have_write` and `start_write` select members whose lowest seq lacked becomes
    `have_next` or `start_next`, `heard_write` those that have been heard now. `job_write` is of a job's row but what
    its founder says, which is written by `job_founds`, too; `member_write` of a member's but who it is, which
    `member_enters` writes, too. These are for who `registers` members: of another's `job_next` only who is live,
    joining or new, and from where, is written."""

    def __init__(self, config: Config, *, registers: bool):
        job, member, slot, claims = job_row(config), member_row(config), slot_row(config), claims_row(config)
        super().__init__(
            {
                "job": Out(range(config.jobs)),
                "member": Out(range(config.members)),
                "slot": Out(range(config.jobs * config.slots)),
                **(
                    {"member_write": Out(1), "member_enters": Out(1), "member_next": Out(member), "job_founds": Out(1)}
                    if registers
                    else {}
                ),
                "job_write": Out(1),
                "job_next": Out(job),
                "slot_write": Out(1),
                "slot_next": Out(slot),
                "have_write": Out(config.members),
                "have_next": Out(SEQ),
                "start_write": Out(config.members),
                "start_next": Out(SEQ),
                "heard_write": Out(config.members),
                "claims_write": Out(1),
                "claims_next": Out(claims),
                "job_row": In(job),
                "member_row": In(member),
                "slot_row": In(slot),
                "claims_row": In(claims),
                "have": In(data.ArrayLayout(SEQ, config.members)),
                "heard": In(data.ArrayLayout(TICK, config.members)),
            }
        )


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
                "tick": In(TICK),
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
                "job_founds",
                "member_write",
                "member_enters",
                "slot_write",
                "have_write",
                "start_write",
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
            "settings": part(job, within=SETTINGS),
            "crowd": part(job, within=CROWD),
            "standing": part(job, without=SETTINGS + CROWD),
            "senders": part(member, within=SENDER),
            "entries": part(member, without=SENDER),
        }
        both = lambda name, kept: {
            field: Mux(late, kept[field], getattr(frames, name)[field]) for field in kept.shape().members
        }
        fields = lambda kept, shape: {field: kept[field] for field in shape.members}
        crowd = both("job_next", job_next)
        store("settings", "job", only["settings"], "job_row", fields(job_next, only["settings"]), written["job_founds"])
        store("standings", "job", only["standing"], "job_row", fields(job_next, only["standing"]), written["job_write"])
        store("crowds", "job", only["crowd"], "job_row", {field: crowd[field] for field in CROWD}, enable("job_write"))
        store(
            "senders",
            "member",
            only["senders"],
            "member_row",
            fields(member_next, only["senders"]),
            written["member_enters"],
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

        have_next, start_next = (Mux(late, later(name), getattr(frames, name)) for name in ("have_next", "start_next"))
        starts = enable("start_write")
        for name, size, enables, values in (
            (
                "have",
                SEQ,
                enable("have_write") | starts,
                [Mux(starts[k], start_next, have_next) for k in range(config.members)],
            ),
            ("heard", TICK, enable("heard_write"), [self.tick] * config.members),
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

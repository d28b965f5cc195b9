"""Rows of the switch's tables: jobs, members, slots; and the items the core hands on."""

from amaranth.hdl import Module, Mux, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.net.requests import Answer
from hw.queue import LENGTH_BITS
from iswitch.config import Config
from iswitch.wire import SEGMENTS_MAX, JobState, Operation, Reason, SlotState

__all__ = ["TICK", "Access", "Address", "Binding", "Parent", "ResultHeader", "Tables", "Verdict", "Work", "claims_row", "job_row", "member_row",
           "slot_row"]

SEQ, TICK = 32, 16


class Address(data.Struct):
    """Where a frame to a host goes; bytes in wire order, first byte lowest."""

    mac: 48
    ip: 32
    udp: 16


class Parent(data.Struct):
    """Where a job's parent is, if it has one here (`valid`), and the global ranks that join below this switch; bytes in wire order."""

    mac: 48
    ip: 32
    ranks: 32
    port: 8
    valid: 8


def job_row(config: Config) -> data.StructLayout:
    """One job. `elements` is its largest segment, `limit` the biased exponent at which window64 rejects, `slot_base` the
    first slot of its ring; `deadline` and `evict` in microseconds; `segments` is 0 if it is synchronous. Of `live`, `joining`, `newcomers` and
    `start` the model's `ring.Ring` says what they are. In trees: `tree` as in the model's `membership.Job`, `ranks` those of all who have
    confirmed, and what the switch is to its parent (`up_...`, the model's `tree_switch.Above`)."""
    return data.StructLayout({
        "state": JobState, "epoch": 16, "first": SEQ, "world": range(config.members + 1),
        "threshold": range(config.members + 1), "numeric": 4, "fraction": signed(9), "limit": 8,
        "elements": range(config.elements + 1), "mode": 1, "key": 64, "deadline": 31, "evict": 29,
        "staleness": range(config.staleness + 1), "segments": range(SEGMENTS_MAX if config.staleness else 1),
        "live": config.members, "joining": config.members, "newcomers": config.members, "start": SEQ,
        "slot_base": range(config.jobs * config.slots),
        **({"tree": 1, "ranks": config.members, "up_nonce": 64, "up_member": 8, "up_token": 32, "up_running": 1, "up_reason": Reason}
           if config.uplinks else {})})


def member_row(config: Config) -> data.StructLayout:
    """One member of one job. `pending`: the Join was answered but not yet confirmed; `live`: it was, and the member is live or joining.
    The token outlives a departure, so that a repeated Leave can be answered. `ranks`: its global ranks."""
    return data.StructLayout({
        "pending": 1, "live": 1, "token": 32, "nonce": 64, "address": Address, "port": 4, "number": 32,
        **({"ranks": config.members} if config.uplinks else {})})


def slot_row(config: Config) -> data.StructLayout:
    """One slot; the fields are those of the model's `ring.Slot`. `length` in bytes. In trees `tainted` is by rank, as are `ranks`, and
    `partial` stands beside them (the model's `ring.Names`)."""
    members = config.members
    return data.StructLayout({
        "seq": SEQ, "state": SlotState, "arrived": members, "members": members, "tainted": members,
        "expected": members, "numeric": 4, "length": range(4 * config.elements + 1), "boundary": 1, "whole": 1, "change": 1,
        "opened": 32, **({"ranks": members, "partial": 1} if config.uplinks else {})})


def claims_row(config: Config) -> data.StructLayout:
    """What is claimed in one asynchronous job, as in the model's `claims.Claims`: the `base` of the next update, the set `waiting`,
    each member's `last` k, and the kept grants, newest first."""
    grant = data.StructLayout({"valid": 1, "base": SEQ, "members": config.members})
    return data.StructLayout({"base": SEQ, "waiting": config.members, "last": data.ArrayLayout(SEQ, config.members),
                              "grants": data.ArrayLayout(grant, config.staleness + 1)})


class Binding(data.StructLayout):
    """A member's index in the whole table, with its port and address, told to the ports when it joins. The index after the last member's
    is that of the job's parent."""

    def __init__(self, config: Config):
        super().__init__({"job": range(config.jobs), "member": range(config.members + config.uplinks), "port": 4, "address": Address})


class ResultHeader(data.StructLayout):
    """What the header of a result says, and who gets it (`recipients`, members of `job`, the parent behind them). `length`: payload bytes
    at four an element. `up`: it is an uplink, whose other fields are these and the `partial` of its tail. A GRANT has no length: its
    `seq` is the base, its `members` those granted."""

    def __init__(self, config: Config):
        super().__init__({
            "job": range(config.jobs), "epoch": 16, "seq": SEQ, "numeric": 4, "flags": 4, "members": config.members,
            "tainted": config.members, "recipients": config.members + config.uplinks, "length": range(4 * config.elements + 1),
            **({"up": 1, "member": 8, "token": 32, "behind": 16, "partial": 1} if config.uplinks else {})})


class Work(data.StructLayout):
    """One operation for the aggregator. `include`: add the payload; `first`: overwrite; `write`: store the sum; `emit`: send
    it out under `result`. `wide`: the payload has 8 bytes an element; `tailed`: a tail stands behind it; `as_is`: what is stored is a
    result from above."""

    def __init__(self, config: Config):
        super().__init__({
            "operation": Operation, "slot": range(config.jobs * config.slots), "include": 1, "first": 1, "write": 1,
            "emit": 1, "fraction": signed(9), "limit": 8, "result": ResultHeader(config),
            **({"wide": 1, "tailed": 1, "as_is": 1} if config.uplinks else {})})


class Verdict(data.StructLayout):
    """The core's word on a frame, or (`frame` = 0) an operation that needs none. `ports`: the set of those by which an ordinary frame
    leaves, as the `answer` if it is one. `replay`: it is a request for the replay service, from `port`."""

    def __init__(self, config: Config):
        super().__init__({
            "frame": 1, "ports": config.ports, "answer": Answer, "length": LENGTH_BITS, "works": 1, "work": Work(config),
            **({"replay": 1, "port": 4} if config.replay else {})})


class Access(wiring.Signature):
    """One user's view of the tables. It points with `job`, `member` and `slot`; the rows there come one cycle later, and a
    row is written where it points. `have_write` and `start_write` select members whose lowest seq lacked becomes `have_next` or
    `start_next`, `heard_write` those that have been heard now. Members are written only by who `registers` them."""

    def __init__(self, config: Config, *, registers: bool):
        job, member, slot, claims = job_row(config), member_row(config), slot_row(config), claims_row(config)
        super().__init__({
            "job": Out(range(config.jobs)), "member": Out(range(config.members)),
            "slot": Out(range(config.jobs * config.slots)),
            **({"member_write": Out(1), "member_next": Out(member)} if registers else {}),
            "job_write": Out(1), "job_next": Out(job), "slot_write": Out(1), "slot_next": Out(slot),
            "have_write": Out(config.members), "have_next": Out(SEQ), "start_write": Out(config.members), "start_next": Out(SEQ),
            "heard_write": Out(config.members), "claims_write": Out(1), "claims_next": Out(claims),
            "job_row": In(job), "member_row": In(member), "slot_row": In(slot), "claims_row": In(claims),
            "have": In(data.ArrayLayout(SEQ, config.members)), "heard": In(data.ArrayLayout(TICK, config.members)),
        })


class Tables(wiring.Component):
    """Jobs, members, slots, claims, what each member holds and when (`tick`) it was last heard, in a memory each.

    `control` selects whose Access counts: 0 for `frames`, 1 for `members`. Rows follow the pointers by one cycle. A write is seen by
    a read of the next cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({"control": In(1), "tick": In(TICK), "frames": In(Access(config, registers=False)),
                          "members": In(Access(config, registers=True))})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        rows = {"job": job_row(config), "member": member_row(config), "slot": slot_row(config)}
        depths = {"job": config.jobs, "member": config.jobs * config.members, "slot": config.jobs * config.slots}
        if config.staleness:
            rows["claims"], depths["claims"] = claims_row(config), config.jobs

        def chosen(name):
            return Mux(self.control, getattr(self.members, name), getattr(self.frames, name))

        address = {"job": chosen("job"), "slot": chosen("slot"), "claims": chosen("job"),
                   "member": chosen("job") * config.members + chosen("member")}
        written = {
            "job": (chosen("job_write"), Mux(self.control, self.members.job_next.as_value(), self.frames.job_next.as_value())),
            "member": (self.control & self.members.member_write, self.members.member_next),
            "slot": (chosen("slot_write"), Mux(self.control, self.members.slot_next.as_value(), self.frames.slot_next.as_value())),
            "claims": (chosen("claims_write"), Mux(self.control, self.members.claims_next.as_value(), self.frames.claims_next.as_value())),
        }
        for name, shape in rows.items():
            enable, row = written[name]
            m.submodules[f"{name}_rows"] = memory = Memory(shape=shape, depth=depths[name], init=[])
            put, get = memory.write_port(), memory.read_port()
            m.d.comb += [
                put.addr.eq(address[name]), get.addr.eq(address[name]),
                put.en.eq(enable), data.View(shape, put.data).eq(row),
                getattr(self.frames, f"{name}_row").eq(get.data), getattr(self.members, f"{name}_row").eq(get.data),
            ]
        starts = chosen("start_write")
        have = [Mux(starts[k], chosen("start_next"), chosen("have_next")) for k in range(config.members)]
        for name, enable, values in (("have", chosen("have_write") | starts, have),
                                     ("heard", chosen("heard_write"), [self.tick] * config.members)):
            row = data.ArrayLayout(SEQ if name == "have" else TICK, config.members)
            m.submodules[name] = memory = Memory(shape=row, depth=config.jobs, init=[])
            put, get = memory.write_port(granularity=1), memory.read_port()
            m.d.comb += [put.addr.eq(address["job"]), get.addr.eq(address["job"]), put.en.eq(enable),
                         getattr(self.frames, name).eq(get.data), getattr(self.members, name).eq(get.data)]
            for k, value in enumerate(values):
                m.d.comb += put.data[k].eq(value)
        return m

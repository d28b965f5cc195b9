"""The tables against dictionaries."""

import random

from amaranth.hdl import Value
from amaranth.lib import data

from hw.decide.tables.tables import Tables
from hw.interface.rows import (
    MEMBERSHIP_FIELDS,
    SENDER_FIELDS,
    SETTINGS_FIELDS,
    claims_row,
    job_row,
    member_row,
    slot_row,
)
from iswitch.config import Config
from sim.bench.stream import Bench

CONFIG = Config(ports=2, bus_bits=64, members=3, jobs=2, window=1, elements=4, queue_bytes=4096)


def mixed(layout, before, after, fields):
    """A row of `after` in these fields, and of `before` in the others."""
    mask = sum(((1 << field.width) - 1) << field.offset for name, field in data.Layout.cast(layout) if name in fields)
    return before & ~mask | after & mask


def test_rows_are_what_was_last_written_there_by_whoever_had_control():
    """Random pointers and writes by both users in every cycle; only the one selected counts. What `members` writes is
    seen a cycle later."""
    rng, dut = random.Random(1), Tables(CONFIG)
    jobs, slots, members = CONFIG.jobs, CONFIG.jobs * CONFIG.slots, CONFIG.members
    widths = {
        "job": data.Layout.cast(job_row(CONFIG)).size,
        "member": data.Layout.cast(member_row(CONFIG)).size,
        "slot": data.Layout.cast(slot_row(CONFIG)).size,
        "claims": data.Layout.cast(claims_row(CONFIG)).size,
    }
    stored = {"job": [0] * jobs, "member": [0] * (jobs * members), "slot": [0] * slots, "claims": [0] * jobs}
    acknowledged = [[0] * members for _ in range(jobs)]
    others = {
        name: set(dict(data.Layout.cast(row(CONFIG)))) - set(fields)
        for name, row, fields in (("job", job_row, SETTINGS_FIELDS), ("member", member_row, SENDER_FIELDS))
    }

    def write(control, given, at):
        """Carries out what one user wanted."""
        for name in widths:
            new, old = given.get(f"{name}_next", 0), stored[name][at[name]]
            if not control and name == "job":
                new = mixed(job_row(CONFIG), old, new, MEMBERSHIP_FIELDS)
            elif control and name == "job":
                founded = mixed(job_row(CONFIG), old, new, SETTINGS_FIELDS) if given["settings_write"] else old
                new = mixed(job_row(CONFIG), founded, new if given["job_write"] else old, others["job"])
            elif control and name == "member":
                entered = mixed(member_row(CONFIG), old, new, SENDER_FIELDS) if given["sender_write"] else old
                new = mixed(member_row(CONFIG), entered, new if given["member_write"] else old, others["member"])
            if given.get(f"{name}_write") or (control and name in ("job", "member")):
                stored[name][at[name]] = new
        for member in range(members):
            if given["acknowledged_write"] >> member & 1:
                acknowledged[at["job"]][member] = given["acknowledged_next"]

    async def bench(ctx):
        late = None
        for _ in range(600):
            control = rng.randrange(2)
            ctx.set(dut.control, control)
            for user, access in enumerate((dut.frames, dut.members)):
                given = {
                    "job": rng.randrange(jobs),
                    "member": rng.randrange(members),
                    "slot": rng.randrange(slots),
                    "acknowledged_write": rng.randrange(1 << members) if rng.random() < 0.5 else 0,
                    "acknowledged_next": rng.randrange(1 << 32),
                }
                for name, width in widths.items():
                    if access is dut.members or name != "member":  # who serves frames writes no members
                        given |= {f"{name}_write": rng.randrange(2), f"{name}_next": rng.getrandbits(width)}
                if access is dut.members:
                    given |= {"settings_write": rng.randrange(2), "sender_write": rng.randrange(2)}
                elif late:
                    given |= {name: 0 for name in given if name.endswith("_write")}
                for name, value in given.items():
                    port = Value.cast(getattr(access, name))
                    ctx.set(port, value)
                if user == control:
                    chosen = given
            at = {
                "job": chosen["job"],
                "member": chosen["job"] * members + chosen["member"],
                "slot": chosen["slot"],
                "claims": chosen["job"],
            }
            expected = {name: stored[name][at[name]] for name in widths}
            expected_have = list(acknowledged[at["job"]])
            if late:
                write(1, *late)
            if not control:
                write(0, chosen, at)
            late = (chosen, at) if control else None
            await ctx.tick()
            for access in (dut.frames, dut.members):
                assert {name: ctx.get(Value.cast(getattr(access, f"{name}_row"))) for name in widths} == expected
                assert [ctx.get(access.acknowledged[member]) for member in range(members)] == expected_have

    Bench(dut).drive(bench)

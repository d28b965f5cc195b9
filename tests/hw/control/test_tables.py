"""The tables against dictionaries."""

import random

from amaranth.hdl import Value
from amaranth.lib import data
from iswitch.config import Config

from hw.control.tables import Tables, claims_row, job_row, member_row, slot_row
from sim.bench.stream import Bench

CONFIG = Config(ports=2, bus_bits=64, members=3, jobs=2, window=1, elements=4, queue_bytes=4096)


def test_rows_are_what_was_last_written_there_by_whoever_had_control():
    """Random pointers and writes by both users in every cycle; only the one selected counts."""
    rng, dut = random.Random(1), Tables(CONFIG)
    jobs, slots, members = CONFIG.jobs, CONFIG.jobs * CONFIG.slots, CONFIG.members
    widths = {"job": data.Layout.cast(job_row(CONFIG)).size, "member": data.Layout.cast(member_row(CONFIG)).size,
              "slot": data.Layout.cast(slot_row(CONFIG)).size, "claims": data.Layout.cast(claims_row(CONFIG)).size}
    stored = {"job": [0] * jobs, "member": [0] * (jobs * members), "slot": [0] * slots, "claims": [0] * jobs}
    have = [[0] * members for _ in range(jobs)]

    async def bench(ctx):
        for _ in range(300):
            control = rng.randrange(2)
            ctx.set(dut.control, control)
            for user, access in enumerate((dut.frames, dut.members)):
                given = {"job": rng.randrange(jobs), "member": rng.randrange(members), "slot": rng.randrange(slots),
                         "have_write": rng.randrange(1 << members) if rng.random() < 0.5 else 0, "have_next": rng.randrange(1 << 32)}
                for name, width in widths.items():
                    if access is dut.members or name in ("slot", "claims"):  # who serves frames writes no jobs and no members
                        given |= {f"{name}_write": rng.randrange(2), f"{name}_next": rng.getrandbits(width)}
                for name, value in given.items():
                    port = Value.cast(getattr(access, name))
                    ctx.set(port, value)
                if user == control:
                    chosen = given
            at = {"job": chosen["job"], "member": chosen["job"] * members + chosen["member"], "slot": chosen["slot"],
                  "claims": chosen["job"]}
            expected = {name: stored[name][at[name]] for name in widths}
            expected_have = list(have[at["job"]])
            for name in widths:
                if chosen.get(f"{name}_write"):
                    stored[name][at[name]] = chosen[f"{name}_next"]
            for member in range(members):
                if chosen["have_write"] >> member & 1:
                    have[at["job"]][member] = chosen["have_next"]
            await ctx.tick()
            for access in (dut.frames, dut.members):
                assert {name: ctx.get(Value.cast(getattr(access, f"{name}_row"))) for name in widths} == expected
                assert [ctx.get(access.have[member]) for member in range(members)] == expected_have

    Bench(dut).drive(bench)

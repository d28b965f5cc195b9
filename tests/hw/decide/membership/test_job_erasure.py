"""The erasure of jobs alone."""

from dataclasses import replace

import pytest

from hw.decide.membership.job_erasure import JobErasure
from hw.decide.membership.procedure import FollowUp
from hw.decide.tables.access import BY_MEMBER, records
from hw.interface.rows import RING_FIELDS, SENDER_FIELDS, SETTINGS_FIELDS
from iswitch.config import Config
from iswitch.wire import Reason, SlotState
from sim.bench.procedure import ProcedureBench
from sim.bench.stream import Bench
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=4, window=2, elements=16, queue_bytes=4096)


def test_after_a_reset_every_entry_and_every_slot_of_every_job_is_erased():
    part, begun, erased, emptied = JobErasure(CONFIG), [], [], []

    async def bench(ctx):
        while True:
            tables = part.tables
            assert ctx.get(tables.roster_write) and ctx.get(tables.ring_write)
            job = ctx.get(tables.job)
            if ctx.get(tables.status_write):
                assert ctx.get(tables.status_next.challenge) == 0
                begun.append(job)
            if ctx.get(tables.entry_write):
                erased.append((job, ctx.get(tables.member)))
            if ctx.get(tables.slot_write):
                emptied.append((job, ctx.get(tables.slot)))
            if ctx.get(part.done):
                break
            await ctx.tick()
        await ctx.tick()
        assert not ctx.get(part.tables.status_write)

    Bench(part).drive(bench)
    assert begun == list(range(CONFIG.jobs))
    assert erased == [(job, member) for job in range(CONFIG.jobs) for member in range(CONFIG.members)]
    assert emptied == [(job, job * CONFIG.slots + slot) for job in range(CONFIG.jobs) for slot in range(CONFIG.slots)]


def test_a_job_ends_with_all_its_entries_and_no_other_does():
    bench = ProcedureBench(JobErasure(CONFIG), reset_cycles=CONFIG.jobs * max(CONFIG.members, CONFIG.slots))
    for job in range(CONFIG.jobs):
        bench.jobs[job] = {name: 1 for name in bench.jobs[job]}
        bench.entries[job] = [{name: 1 for name in entry} for entry in bench.entries[job]]
    [outcome] = bench.run(bench.request(Client.numbered(1, job=2).leave()))
    assert outcome[:3] == (Reason.DONE, FollowUp.NONE, CONFIG.members)
    for job in range(CONFIG.jobs):
        kept = {name for name, value in bench.jobs[job].items() if value}
        assert kept == ({*SETTINGS_FIELDS, *RING_FIELDS, "challenge"} if job == 2 else set(bench.jobs[job]))
        assert bench.jobs[job]["challenge"] == (2 if job == 2 else 1)
        for entry in bench.entries[job]:
            assert {name for name, value in entry.items() if value} == (set(SENDER_FIELDS) if job == 2 else set(entry))


@pytest.mark.parametrize("window", [1, 4])
def test_a_job_that_is_wiped_has_every_row_written_and_every_slot_emptied(window):
    """Also with more members than slots. The other jobs keep theirs."""
    config = replace(CONFIG, window=window)
    rows, names = max(config.members, config.slots), (*records(config), "acknowledged", "heard")
    bench = ProcedureBench(
        JobErasure(config), strobes=tuple(f"tables.{name}_write" for name in names), reset_cycles=config.jobs * rows
    )
    for job in range(config.jobs):
        bench.jobs[job] = {name: 1 for name in bench.jobs[job]}
        bench.slots[job] = [dict.fromkeys(slot, 1) for slot in bench.slots[job]]
    [outcome] = bench.run(bench.request(Client.numbered(1, job=2).leave()), inputs={"wipes": 1})
    assert outcome[:3] == (Reason.DONE, FollowUp.NONE, rows)
    counts = {"sender": config.members, "entry": config.members, "slot": config.slots}
    for name in names:
        written = outcome.strobes[f"tables.{name}_write"]
        if name in counts:
            assert written == [int(k < counts[name]) for k in range(rows)]
        else:
            assert written[0] == ((1 << config.members) - 1 if name in BY_MEMBER else 1)
    for job in range(config.jobs):
        assert bench.jobs[job]["incarnation"] == (0 if job == 2 else 1)
        assert bench.jobs[job]["challenge"] == (2 if job == 2 else 1)
        assert {slot["state"] for slot in bench.slots[job]} == {SlotState.EMPTY if job == 2 else 1}

"""The erasure of jobs alone."""

from hw.decide.membership.job_erasure import JobErasure
from hw.decide.membership.procedure import FollowUp
from hw.interface.rows import RING_FIELDS, SENDER_FIELDS, SETTINGS_FIELDS
from iswitch.config import Config
from iswitch.wire import Reason
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

"""The read-out of registers alone."""

import pytest

from hw.decide.membership.register_read import RegisterRead
from iswitch.config import Config
from iswitch.wire import REGISTERS_PER_READ, JobState, Reason, have_view_register, job_view_register
from sim.bench.procedure import ProcedureBench
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)


class CountingBench(ProcedureBench):
    """A bench with counters beside the tables: at each address stands three times the address and 1."""

    async def tick(self, ctx, *, active=True):
        address = ctx.get(self.part.read_address)
        await super().tick(ctx, active=active)
        ctx.set(self.part.read_value, (3 * address + 1) % 2**32)


def read(bench, address):
    [outcome] = bench.run(bench.request(Client.numbered(1).read(address)))
    assert (outcome.reason, outcome.cycles) == (Reason.DONE, REGISTERS_PER_READ + 3)
    words = bench.after
    return [words >> 32 * k & 0xFFFFFFFF for k in range(REGISTERS_PER_READ)]


@pytest.mark.parametrize("address", [0, 5, 40, 2**32 - 4])
def test_counters_are_read_from_any_address_on(address):
    bench = CountingBench(RegisterRead(CONFIG), at_end="registers")
    addresses = [(address + k) % 2**32 for k in range(REGISTERS_PER_READ)]
    assert read(bench, address) == [(3 * one + 1) % 2**32 for one in addresses]


def test_views_show_the_tables():
    bench = CountingBench(RegisterRead(CONFIG), at_end="registers")
    bench.jobs[1] |= {"state": JobState.RUNNING, "epoch": 0x1234}
    bench.acknowledged[1] = [7, 8, 9]
    assert read(bench, have_view_register(1, 0)) == [7, 8, 9, 0, 0, 0, 0, 0]
    bench = CountingBench(RegisterRead(CONFIG), at_end="registers")
    bench.jobs[1] |= {"state": JobState.RUNNING, "epoch": 0x1234}
    assert read(bench, job_view_register(1))[:2] == [JobState.RUNNING, 0x1234]

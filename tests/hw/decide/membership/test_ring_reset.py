"""The reset of a ring alone."""

import pytest

from hw.decide.membership.procedure import FollowUp
from hw.decide.membership.ring_reset import RingReset
from iswitch.config import Config
from iswitch.wire import Reason, SlotState
from sim.bench.procedure import ProcedureBench
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)


@pytest.mark.parametrize("first_seq", [0, 8, 2**32 - 4])
def test_a_ring_is_empty_one_lap_before_its_first_seq_and_nothing_is_claimed(first_seq):
    bench = ProcedureBench(RingReset(CONFIG))
    bench.jobs[1]["first_seq"] = first_seq
    bench.slots[1] = [{name: 1 for name in slot} for slot in bench.slots[1]]
    bench.claims[1] = {name: 1 for name in bench.claims[1]}
    untouched = [dict(slot) for slot in bench.slots[0]]
    [outcome] = bench.run(bench.request(Client.numbered(1, job=1).join()))
    assert outcome[:3] == (Reason.DONE, FollowUp.NONE, CONFIG.slots)
    for index, slot in enumerate(bench.slots[1]):
        assert slot["seq"] == (first_seq - CONFIG.slots + index) % 2**32
        assert slot["state"] == SlotState.EMPTY
        assert not any(value for name, value in slot.items() if name != "seq")
    assert bench.acknowledged[1] == [first_seq] * CONFIG.members
    assert bench.claims[1]["base"] == first_seq
    assert not any(value for name, value in bench.claims[1].items() if name != "base")
    assert bench.slots[0] == untouched

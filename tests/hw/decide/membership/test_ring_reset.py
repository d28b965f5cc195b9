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
    """In the next incarnation no slot has content; the slot of that number, whose old one may be the same, is
    written."""
    bench = ProcedureBench(RingReset(CONFIG))
    bench.jobs[1] |= {"first_seq": first_seq, "incarnation": 2}
    bench.slots[1] = [{name: 1 for name in slot} | {"incarnation": index} for index, slot in enumerate(bench.slots[1])]
    bench.claims[1] = {name: 1 for name in bench.claims[1]}
    untouched = [[dict(slot) for slot in slots] for slots in bench.slots]
    [outcome] = bench.run(bench.request(Client.numbered(1, job=1).join()))
    assert outcome[:3] == (Reason.DONE, FollowUp.NONE, 2)
    job, written = bench.jobs[1], bench.slots[1].pop(3)
    assert (job["incarnation"], job["empty_lap"] * CONFIG.slots) == (3, (first_seq - CONFIG.slots) % 2**32)
    assert (written["incarnation"], written["state"]) == (3, SlotState.EMPTY)
    del untouched[1][3]
    assert all(slot["incarnation"] != 3 for slot in bench.slots[1]) and bench.slots == untouched
    assert bench.acknowledged[1] == [first_seq] * CONFIG.members
    assert bench.claims[1]["base"] == first_seq
    assert not any(value for name, value in bench.claims[1].items() if name != "base")


def test_before_an_incarnation_comes_again_each_slot_has_been_written():
    """Slots keep the number of the incarnation in which they were written last; none is ever that of the ring."""
    bench = ProcedureBench(RingReset(CONFIG))
    request = bench.request(Client.numbered(1, job=1).join())
    for turn in range(3 * CONFIG.slots):
        used = bench.slots[1][turn * 5 % CONFIG.slots]
        used |= {"state": SlotState.COMPLETE, "incarnation": bench.jobs[1]["incarnation"]}
        bench.run(request)
        present = [slot for slot in bench.slots[1] if slot["incarnation"] == bench.jobs[1]["incarnation"]]
        assert [slot["state"] for slot in present] == [SlotState.EMPTY]

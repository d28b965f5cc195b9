"""Slots that complete without a frame, alone: the sweep of a departure, and an FBCAST."""

import pytest

from hw.decide.membership.procedure import FollowUp
from hw.decide.membership.slot_completion import SlotCompletion
from iswitch.config import Config
from iswitch.wire import Reason, SlotState
from sim.bench.procedure import ProcedureBench
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)


class StallingBench(ProcedureBench):
    """A bench that takes a completed slot after it has been offered for `patience` cycles."""

    patience = 0
    waited = 0

    async def tick(self, ctx, *, active=True):
        part = self.part
        self.waited = self.waited + 1 if ctx.get(part.completed.valid) and not ctx.get(part.completed.ready) else 0
        await super().tick(ctx, active=active)
        ctx.set(part.completed.ready, self.waited >= self.patience)


def with_slots(*slots, patience=0, **job):
    bench = StallingBench(SlotCompletion(CONFIG), strobes=("admitted",))
    bench.patience = patience
    bench.jobs[0] |= {"threshold": 3, "live": 0b011} | job
    for index, slot in enumerate(slots):
        bench.slots[0][index] |= {"seq": index, "state": SlotState.COLLECTING, "expected": 0b111} | slot
    return bench


def sweep(bench, **options):
    [outcome] = bench.run(bench.request(Client.numbered(1).leave(), **options), member=2)
    return outcome


@pytest.mark.parametrize("patience", [0, 3])
def test_a_sweep_completes_what_waited_for_the_member_and_nothing_else(patience):
    bench = with_slots({"arrived": 0b011}, {"arrived": 0b001}, {"state": SlotState.COMPLETE}, patience=patience)
    outcome = sweep(bench)
    assert outcome[:2] == (Reason.DONE, FollowUp.NONE)
    assert outcome.cycles == CONFIG.slots + 2 + 2 * 6 + patience
    states = [slot["state"] for slot in bench.slots[0]]
    assert states == [SlotState.COMPLETE, SlotState.COLLECTING, SlotState.COMPLETE, SlotState.EMPTY]
    assert [slot["expected"] for slot in bench.slots[0][:3]] == [0b011, 0b011, 0b111]


def test_at_a_leaf_a_slot_that_completes_goes_up():
    bench = with_slots({"arrived": 0b011})
    sweep(bench, is_leaf=1)
    assert bench.slots[0][0]["state"] == SlotState.SENT_UP


def test_a_boundary_that_completes_admits_waiting_members():
    bench = with_slots({"arrived": 0b011, "boundary": 1}, joining=0b100)
    outcome = sweep(bench)
    assert max(outcome.strobes["admitted"]) == 0b100
    assert (bench.jobs[0]["live"], bench.jobs[0]["joining"], bench.jobs[0]["admitted_seq"]) == (0b111, 0, 1)
    assert bench.slots[0][0]["members_changed"] == 1 and bench.acknowledged[0][2] == 1


def force(bench, seq):
    client = Client.numbered(1)
    [outcome] = bench.run(bench.request(client.fbcast(seq)), member=0, inputs={"forces_one": 1})
    return outcome, client.number


def test_an_fbcast_completes_its_slot_and_uses_its_number_up():
    bench = with_slots({}, {"arrived": 0b001, "members": 0b001})
    outcome, number = force(bench, 1)
    assert outcome[:3] == (Reason.DONE, FollowUp.NONE, 4)
    assert [slot["state"] for slot in bench.slots[0][:2]] == [SlotState.COLLECTING, SlotState.COMPLETE]
    assert bench.entries[0][0]["number"] == number


@pytest.mark.parametrize("slot", [{"seq": 5}, {"requires_all": 1}, {"state": SlotState.EMPTY}])
def test_an_fbcast_of_a_slot_that_is_not_open_or_waits_for_all_is_refused(slot):
    bench = with_slots({}, slot)
    before = dict(bench.slots[0][1])
    outcome, _ = force(bench, 1)
    assert outcome.reason == Reason.SEQ
    assert (bench.slots[0][1], bench.entries[0][0]["number"]) == (before, 0)


def test_an_fbcast_of_a_complete_slot_leaves_it():
    bench = with_slots({}, {"state": SlotState.COMPLETE})
    before = dict(bench.slots[0][1])
    outcome, number = force(bench, 1)
    assert outcome.reason == Reason.DONE
    assert (bench.slots[0][1], bench.entries[0][0]["number"]) == (before, number)

"""A departure alone: what is written, and what has to follow."""

import dataclasses

import pytest

from hw.decide.membership.departure import Departure
from hw.decide.membership.procedure import FollowUp
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, Reason
from sim.bench.procedure import ProcedureBench
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)
FLAT = dataclasses.replace(CONFIG, uplinks=False)


def depart(config=CONFIG, member=1, is_leaf=0, **job):
    bench = ProcedureBench(Departure(config), strobes=("requests_parent",))
    bench.jobs[0] |= job
    bench.entries[0][member] |= {"live": 1} | ({"ranks": 1 << member} if config.uplinks else {})
    bench.claims[0]["waiting"] = 0b111
    request = bench.request(Client.numbered(1).leave(), **({"is_leaf": is_leaf} if config.uplinks else {}))
    [outcome] = bench.run(request, member=member)
    return bench, outcome


@pytest.mark.parametrize("config", [FLAT, CONFIG])
def test_a_member_leaves_and_the_slots_have_to_be_swept(config):
    bench, outcome = depart(config, live=0b111, joining=0b010)
    assert outcome[:3] == (Reason.DONE, FollowUp.SWEEP_SLOTS, 1)
    assert (bench.jobs[0]["live"], bench.jobs[0]["joining"], bench.entries[0][1]["live"]) == (0b101, 0, 0)
    assert (bench.claims[0]["waiting"], bench.jobs[0]["challenge"]) == (0b101, 1)


def test_a_member_that_leaves_owns_no_rank():
    bench, _ = depart(live=0b111, ranks=0b111)
    assert bench.jobs[0]["ranks"] == 0b101


@pytest.mark.parametrize("admitted", [0b000, 0b100])
def test_the_last_member_that_has_the_state_ends_the_job(admitted):
    _, outcome = depart(live=0b010 | admitted, admitted=admitted)
    assert outcome[:2] == (Reason.DONE, FollowUp.ERASE_JOB)


def test_the_last_member_of_a_leaf_leaves_when_the_parent_has_released_the_switch():
    bench, outcome = depart(live=0b010, is_leaf=1, up_member=5)
    assert outcome == (Reason.DONE, FollowUp.NONE, 1, {"requests_parent": [1]})
    assert (bench.jobs[0]["live"], bench.entries[0][1]["live"]) == (0b010, 1)
    _, outcome = depart(live=0b010, is_leaf=1, up_member=NO_MEMBER)
    assert outcome[1:] == (FollowUp.ERASE_JOB, 1, {"requests_parent": [0]})

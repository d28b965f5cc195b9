"""A Join alone: what a creator, a new member and one that has moved find in the tables."""

import dataclasses

import pytest

from hw.decide.membership.join import Join
from hw.decide.membership.procedure import FollowUp
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, JobState, Reason
from sim.bench.procedure import ProcedureBench, address
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)
RANDOM = 0x89ABCDEF_76543210
SETTINGS = {"world": 2, "elements": 8, "threshold": 2}
SEARCH_CYCLES = CONFIG.members + 4


class Joining(ProcedureBench):
    """A bench whose random number is always the same."""

    def __init__(self, config=CONFIG):
        super().__init__(Join(config), strobes=("draw", "grants", "entry", "binding.valid", "binding.payload.member"))

    def join(self, client, *, at_leaf=False, **options):
        request = self.request(client.join(**SETTINGS | options), port=client.port)
        if at_leaf:
            request |= {"is_leaf": 1, "parent": {"mac": 1, "ip": 2, "port": 3, "ranks": 0b11, "valid": 1}}
        [outcome] = self.run(request, inputs={"random": RANDOM})
        self.granted = [outcome.strobes["entry"][k] for k, grants in enumerate(outcome.strobes["grants"]) if grants]
        return outcome


def test_the_first_join_creates_the_job_and_is_its_first_member():
    bench, client = Joining(), Client.numbered(7, port=2)
    outcome = bench.join(client)
    assert outcome[:3] == (Reason.DONE, FollowUp.EMPTY_RING, SEARCH_CYCLES + 6)
    assert bench.granted == [0] and sum(outcome.strobes["draw"]) == 1
    job, entry = bench.jobs[0], bench.entries[0][0]
    assert (job["state"], job["world"], job["elements"]) == (JobState.FORMING, 2, 8)
    assert (job["epoch"], job["first_seq"]) == (RANDOM & 0xFFFF, (RANDOM >> 32) & ~(CONFIG.slots - 1))
    assert (job["live"], job["up_member"], job["job_token"]) == (1, NO_MEMBER, client.job_token)
    assert (entry["live"], entry["token"], entry["nonce"]) == (1, client.token, client.nonce)
    assert (entry["port"], entry["address"]) == (2, address(client))


def test_the_last_member_makes_the_job_run_and_a_repeat_changes_nothing():
    bench, clients = Joining(), [Client.numbered(7), Client.numbered(8)]
    clients[1].key = clients[0].key
    bench.join(clients[0])
    assert bench.join(clients[1])[:3] == (Reason.DONE, FollowUp.NONE, SEARCH_CYCLES + 4)
    assert bench.granted == [1]
    assert (bench.jobs[0]["live"], bench.jobs[0]["state"]) == (0b11, JobState.RUNNING)
    before = dict(bench.jobs[0])
    for index, client in enumerate(clients):
        assert bench.join(client)[:3] == (Reason.DONE, FollowUp.NONE, SEARCH_CYCLES + 3)
        assert bench.granted == [index] and bench.jobs[0] == before


def test_a_new_member_of_a_job_that_runs_is_joining():
    bench, clients = Joining(dataclasses.replace(CONFIG, uplinks=False)), [Client.numbered(7), Client.numbered(8)]
    clients[1].key = clients[0].key
    bench.join(clients[0])
    bench.jobs[0]["state"] = JobState.RUNNING
    bench.join(clients[1])
    assert (bench.jobs[0]["live"], bench.jobs[0]["joining"]) == (0b001, 0b010)


def test_a_member_that_moves_is_bound_to_its_new_place_and_the_challenge_changes():
    bench, client = Joining(), Client.numbered(7, port=1)
    bench.join(client)
    client.port, client.udp_port = 3, 5
    outcome = bench.join(client)
    assert outcome.reason == Reason.DONE and sum(outcome.strobes["binding.valid"]) == 1
    assert (bench.entries[0][0]["port"], bench.entries[0][0]["address"]) == (3, address(client))
    assert bench.jobs[0]["challenge"] == 1
    client.port = 2
    assert bench.join(client).reason == Reason.CHALLENGE and bench.entries[0][0]["port"] == 3


def test_at_a_leaf_the_creators_secrets_are_the_switchs_own_at_the_parent():
    bench, client = Joining(), Client.numbered(7)
    outcome = bench.join(client, at_leaf=True)
    assert outcome[:3] == (Reason.DONE, FollowUp.EMPTY_RING, SEARCH_CYCLES + 7)
    assert (bench.jobs[0]["up_nonce"], bench.jobs[0]["up_token"]) == (client.nonce, client.token)
    bound = [
        member
        for valid, member in zip(
            outcome.strobes["binding.valid"], outcome.strobes["binding.payload.member"], strict=True
        )
        if valid
    ]
    assert bound == [0, CONFIG.members]


@pytest.mark.parametrize("at_leaf", [False, True])
def test_a_new_member_of_a_tree_that_runs_is_live_at_once_and_the_job_begins_anew(at_leaf):
    bench, clients = Joining(), [Client.numbered(7), Client.numbered(8)]
    clients[1].key = clients[0].key
    bench.join(clients[0], at_leaf=at_leaf)
    bench.jobs[0] |= {"state": JobState.RUNNING, "tree": 1, "epoch": 9, "up_nonce": 6}
    outcome = bench.join(clients[1], at_leaf=at_leaf)
    job = bench.jobs[0]
    assert (outcome.reason, outcome.follow_up) == (Reason.DONE, FollowUp.EMPTY_RING)
    assert (job["live"], job["joining"], job["challenge"]) == (0b011, 0, 1)
    if at_leaf:
        assert (job["state"], job["epoch"], job["renewed"], job["up_nonce"]) == (JobState.FORMING, 9, 0, 7)
    else:
        assert (job["state"], job["epoch"], job["renewed"]) == (JobState.RUNNING, 10, 1)

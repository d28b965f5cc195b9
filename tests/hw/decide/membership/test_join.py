"""A Join alone: what a creator, a new member and a confirmed one find in the tables."""

import dataclasses

from hw.decide.membership.join import Join
from hw.decide.membership.procedure import FollowUp
from iswitch.config import Config
from iswitch.wire import NO_MEMBER, JobState, Reason
from sim.bench.procedure import ProcedureBench, address
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=3, jobs=2, window=2, elements=16, queue_bytes=4096)
RANDOM = 0x89ABCDEF_76543210
TOKEN = RANDOM >> 32 | 1
SETTINGS = {"world": 2, "elements": 8, "threshold": 2}
SEARCH_CYCLES = CONFIG.members + 4


class Joining(ProcedureBench):
    """A bench whose random number is always the same."""

    def __init__(self, config=CONFIG):
        super().__init__(
            Join(config), strobes=("draw", "grants", "entry", "token", "binding.valid", "binding.payload.member")
        )

    def join(self, client, *, at_leaf=False, **options):
        request = self.request(client.join(**SETTINGS | options), port=client.port)
        if at_leaf:
            request |= {"is_leaf": 1, "parent": {"mac": 1, "ip": 2, "port": 3, "ranks": 0b11, "valid": 1}}
        [outcome] = self.run(request, inputs={"random": RANDOM})
        granted = [k for k, grants in enumerate(outcome.strobes["grants"]) if grants]
        self.granted = [(outcome.strobes["entry"][k], outcome.strobes["token"][k]) for k in granted]
        return outcome

    def confirm(self, client, **options):
        return self.join(client, token=TOKEN, **options)


def test_the_first_join_creates_the_job_and_takes_an_entry():
    bench, client = Joining(), Client.numbered(7, port=2)
    outcome = bench.join(client)
    assert outcome[:3] == (Reason.DONE, FollowUp.EMPTY_RING, SEARCH_CYCLES + 4)
    assert bench.granted == [(0, TOKEN)] and sum(outcome.strobes["draw"]) == 2
    job, entry = bench.jobs[0], bench.entries[0][0]
    assert (job["state"], job["world"], job["elements"]) == (JobState.FORMING, 2, 8)
    assert (job["epoch"], job["first_seq"]) == (RANDOM & 0xFFFF, (RANDOM >> 32) & ~(CONFIG.slots - 1))
    assert (job["live"], job["up_member"]) == (0, NO_MEMBER)
    assert (entry["pending"], entry["live"], entry["token"], entry["nonce"]) == (1, 0, TOKEN, client.nonce)
    assert (entry["port"], entry["address"]) == (2, address(client))


def test_the_next_join_takes_the_next_entry_of_the_job():
    bench, first, second = Joining(), Client.numbered(7), Client.numbered(8)
    second.key = first.key
    bench.join(first)
    assert bench.join(second)[:3] == (Reason.DONE, FollowUp.NONE, SEARCH_CYCLES + 2)
    assert bench.granted == [(1, TOKEN)]


def test_a_confirmed_member_is_live_and_the_last_one_lets_the_job_run():
    bench, clients = Joining(), [Client.numbered(7), Client.numbered(8)]
    clients[1].key = clients[0].key
    for client in clients:
        bench.join(client)
    for live, state, client in ((0b01, JobState.FORMING, clients[0]), (0b11, JobState.RUNNING, clients[1])):
        assert bench.confirm(client)[:3] == (Reason.DONE, FollowUp.NONE, SEARCH_CYCLES + 3)
        assert (bench.jobs[0]["live"], bench.jobs[0]["state"]) == (live, state)
    assert [entry["pending"] for entry in bench.entries[0]] == [0, 0, 0]


def test_a_member_confirmed_in_a_job_that_runs_is_joining():
    bench, client = Joining(dataclasses.replace(CONFIG, uplinks=False)), Client.numbered(7)
    bench.join(client)
    bench.jobs[0]["state"] = JobState.RUNNING
    bench.confirm(client)
    assert (bench.jobs[0]["live"], bench.jobs[0]["joining"]) == (0, 0b001)


def test_a_wrong_token_is_refused():
    bench, client = Joining(), Client.numbered(7)
    bench.join(client)
    assert bench.join(client, token=TOKEN ^ 2).reason == Reason.TOKEN
    assert bench.granted == [] and bench.entries[0][0]["pending"]


def test_at_a_leaf_the_creator_makes_the_switch_a_member_of_the_parent():
    bench = Joining()
    outcome = bench.join(Client.numbered(7), at_leaf=True)
    assert outcome[:3] == (Reason.DONE, FollowUp.EMPTY_RING, SEARCH_CYCLES + 7)
    assert bench.jobs[0]["up_nonce"] == RANDOM
    bound = [
        member
        for valid, member in zip(
            outcome.strobes["binding.valid"], outcome.strobes["binding.payload.member"], strict=True
        )
        if valid
    ]
    assert bound == [0, CONFIG.members]

"""The search for a Join's entry, alone."""

import pytest

from hw.decide.membership.entry_search import EntrySearch
from iswitch.config import Config
from iswitch.wire import JobState, Reason
from sim.bench.procedure import ProcedureBench, address
from sim.frames.client import Client

CONFIG = Config(ports=4, bus_bits=64, members=4, jobs=2, window=2, elements=16, queue_bytes=4096)
SETTINGS = {"world": 4, "elements": 8}


class Search(ProcedureBench):
    """A bench in which job 0 may have members; `find` returns reason, index and whether that is the sender's own."""

    def __init__(self):
        super().__init__(EntrySearch(CONFIG), strobes=("entry", "own"))

    def seat(self, index, client, **entry):
        self.entries[0][index] |= {
            "live": 1,
            "nonce": client.nonce,
            "port": client.port,
            "address": address(client),
            "ranks": 1 << index,
        } | entry

    def find(self, client, *, silent=0, tree_closed=0, **options):
        frame = client.join(**SETTINGS | options)
        [self.outcome] = self.run(
            self.request(frame, port=client.port), inputs={"silent": silent, "tree_closed": tree_closed}
        )
        strobes = self.outcome.strobes
        return self.outcome.reason, strobes["entry"][-1], strobes["own"][-1]


def test_the_lowest_free_entry_is_found_in_a_cycle_for_each_entry_and_four():
    bench = Search()
    assert bench.find(Client.numbered(1)) == (Reason.DONE, 0, 0)
    assert bench.outcome.cycles == CONFIG.members + 4


def test_the_wanted_entry_is_found_or_refused():
    bench = Search()
    assert bench.find(Client.numbered(1), member=2) == (Reason.DONE, 2, 0)
    assert bench.find(Client.numbered(1), member=4)[0] == Reason.MEMBER


def with_job(**job):
    """A bench whose job has the settings of a Join that was read back."""
    bench, client = Search(), Client.numbered(1)
    client.join(**SETTINGS)
    settings = client.settings
    bench.jobs[0] |= {
        "state": JobState.FORMING,
        "key": client.key,
        "numeric": settings["format"],
        **{name: settings.get(name, 0) for name in ("world", "threshold", "fraction", "elements", "mode")},
        **{name: settings.get(name, 0) for name in ("deadline_us", "evict_us", "staleness", "segments")},
    } | job
    bench.jobs[0]["fraction"] %= 512
    return bench


def sharing_key(number):
    client = Client.numbered(number)
    client.key = Client.numbered(1).key
    return client


def test_the_senders_own_entry_is_found_whatever_it_wants():
    bench, client = with_job(), sharing_key(2)
    bench.seat(1, client)
    assert bench.find(client, member=3) == (Reason.DONE, 1, 1)


def test_the_settings_of_the_job_are_compared_before_entries():
    bench, client = with_job(), sharing_key(2)
    bench.seat(1, client)
    assert bench.find(client, elements=7)[0] == Reason.ELEMENTS
    assert bench.find(client, world=9)[0] == Reason.WORLD


def test_a_pending_entry_yields_and_a_silent_one_while_the_job_forms():
    bench = with_job()
    for index in range(4):
        bench.seat(index, Client.numbered(10 + index))
    assert bench.find(sharing_key(2))[0] == Reason.MEMBER
    assert bench.find(sharing_key(2), silent=0b0100) == (Reason.DONE, 2, 0)
    bench.entries[0][1] |= {"live": 0, "pending": 1}
    assert bench.find(sharing_key(2)) == (Reason.DONE, 1, 0)
    bench.jobs[0]["state"] = JobState.RUNNING
    bench.entries[0][1] |= {"live": 1, "pending": 0}
    assert bench.find(sharing_key(2), silent=0b0100)[0] == Reason.MEMBER


def test_the_confirmation_of_an_entry_that_is_gone_creates_nothing():
    assert with_job().find(sharing_key(2), token=5)[0] == Reason.TOKEN


def test_no_host_joins_a_running_tree():
    assert with_job().find(sharing_key(2), tree_closed=1)[0] == Reason.MEMBER


@pytest.mark.parametrize("pending", [0, 1])
def test_an_entry_that_holds_the_wanted_rank_is_cleared_if_it_yields(pending):
    bench = with_job(live=0b1000, ranks=0b0001)
    bench.seat(3, Client.numbered(10), ranks=0b0001, pending=pending, live=1 - pending)
    reason, index, _ = bench.find(sharing_key(2), member=0)
    if not pending:
        assert reason == Reason.MEMBER
        return
    assert (reason, index, bench.outcome.cycles) == (Reason.DONE, 0, 2 * (CONFIG.members + 4) + 2)
    assert (bench.entries[0][3]["pending"], bench.jobs[0]["live"]) == (0, 0)

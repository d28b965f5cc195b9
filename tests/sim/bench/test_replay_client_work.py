"""The client's own work beside recorded answers."""

import pytest

from iswitch.replay import channel
from sim.bench import replay_client_work
from sim.bench.replay_client_work import OwnWork, Spent, fitted, measure
from sim.bench.replay_costs import Workload
from sim.bench.replay_traffic import NARROW


def test_work_is_measured_with_the_part_in_c_and_without_and_the_part_is_in_use_again(monkeypatch):
    """A request and its answer at least: a push, a SAMPLE with its FETCH, an UPDATE."""
    library = channel.compiled_library
    monkeypatch.setattr(replay_client_work, "WORKLOADS", {"small": Workload(10, 32, 64)})
    monkeypatch.setattr(replay_client_work, "SCALES", {"small": (1,)})
    monkeypatch.setattr(replay_client_work, "SAMPLE", 4)
    for work in measure("small", turns=1, realtime=False, repetitions=3, config=NARROW):
        assert min(one.spent_us for one in work) > 0
        assert all(one.datagrams >= least for one, least in zip(work, (2, 4, 2), strict=True))
    assert channel.compiled_library is library


def test_what_grows_with_the_datagrams_is_told_from_what_does_not():
    """Over turns, one of which was slow throughout."""
    turns = [[Spent(count, slow * (300 + 7 * count)) for count in (10, 20, 40)] for slow in (1, 1, 5)]
    assert fitted(turns) == OwnWork(pytest.approx(300), pytest.approx(7), 40)


@pytest.mark.parametrize("counts", [(6, 6), (6, 12)], ids=["as many", "in proportion"])
def test_work_without_a_constant_part_is_shared_by_the_datagrams(counts):
    turns = [[Spent(count, 50 * count - (count > 6)) for count in counts]]
    assert fitted(turns) == OwnWork(pytest.approx(0, abs=2), pytest.approx(50, rel=0.01), counts[-1])


def test_work_that_shrinks_with_the_datagrams_is_constant():
    assert fitted([[Spent(10, 100), Spent(20, 80), Spent(30, 90)]]) == OwnWork(90, 0, 30)

"""The client's own work beside recorded answers."""

from iswitch.replay import channel
from sim.bench import replay_client_work, replay_switch
from sim.bench.replay_client_work import measure
from sim.bench.replay_costs import Workload
from sim.bench.replay_traffic import NARROW


def test_work_is_measured_with_the_part_in_c_and_without_and_the_part_is_in_use_again(monkeypatch):
    """A request and its answer at least: a push, a SAMPLE with its FETCH, an UPDATE."""
    library = channel.compiled_library
    for module in (replay_client_work, replay_switch):
        monkeypatch.setattr(module, "WORKLOADS", {"small": Workload(10, 32, 64)})
        monkeypatch.setattr(module, "SCALES", {"small": (1,)})
    monkeypatch.setattr(replay_client_work, "SAMPLE", 4)
    for work in measure("small", turns=1, realtime=False, repetitions=3, config=NARROW):
        assert min(one.spent_us for one in work) > 0
        assert all(one.datagrams >= least for one, least in zip(work, (2, 4, 2), strict=True))
    assert channel.compiled_library is library

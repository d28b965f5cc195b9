"""The bench of replay buffers beside TorchRL's: ratios are to TorchRL, and places mean the handles of their items."""

import numpy as np

from iswitch.replay import ReplayClient
from sim.bench.replay_baselines import Rates
from sim.bench.replay_torchrl import ClientBuffer, figures, ratios, served, table


def row(system, rate):
    return Rates(system, 64, 8, rate, rate, rate, 2 * rate, (rate,) * 4)


def test_ratios_are_to_torchrl_or_else_to_the_first_system():
    found = [row("cpprb", 6.0), row("torchrl", 2.0)]
    assert ratios(found)["cpprb", 8] == [3.0] * 4 and ratios(found)["torchrl", 8] == [1.0] * 4
    assert ratios([row("cpprb", 6.0), row("client", 3.0)])["client", 8] == [0.5] * 4
    assert "no such file" in table(found, {"switch": "no such file"}).caption


def test_the_figures_of_the_bench_are_the_ratios_and_the_reasons():
    found = dict((key, value) for key, value, _ in figures([row("torchrl", 2.0), row("cpprb", 6.0)], {"switch": "why"}))
    assert found["replay.torchrl.cpprb.8.sample"] == 3.0 and found["replay.torchrl.torchrl.8.add"] == 1.0
    assert found["replay.torchrl.switch"] is None and len(found) == 9


def test_a_place_is_the_handle_of_its_latest_item(monkeypatch):
    """Half of the places are filled a second time; if a place named an older item, its update would be stale."""
    stale = []
    update = ReplayClient.update_priority
    monkeypatch.setattr(
        ReplayClient, "update_priority", lambda self, *given: stale.append((made := update(self, *given)).stale) or made
    )
    with served(64) as addresses:
        buffer = ClientBuffer(64, 8, address=addresses[0])
        for count in (64, 32):
            buffer.add(np.zeros((count, 8), np.uint8), np.ones(count))
        buffer.update(np.arange(64), np.full(64, 2.0))
        assert stale == [0] and set(buffer.sample(128)) <= set(range(64))
        buffer.close()

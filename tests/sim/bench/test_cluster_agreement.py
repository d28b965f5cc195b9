"""The models are held to a recorded run of the real systems, so no test depends on the speed of a machine."""

import statistics

import pytest

from sim.bench.cluster_agreement import medians, read


def middle(turns):
    return statistics.median(medians(turns).values())


@pytest.mark.parametrize("system, least, most", [("tcp_server", 0.85, 1.2), ("tcp_ring", 0.55, 1.5)])
def test_the_models_agree_with_the_recorded_run(system, least, most):
    found = medians(turn for turn in read() if turn.system == system)
    assert len(found) == 8 and 0.85 <= statistics.median(found.values()) <= 1.2
    assert all(least <= ratio <= most for ratio in found.values())


@pytest.mark.parametrize(
    "change",
    [
        {"cores": 64},
        {"costs": {"tcp_send_byte_ns": 0.06, "tcp_receive_byte_ns": 0.2, "tcp_call_us": 1.6, "wake_us": 7.0}},
    ],
    ids=["a core for each process", "costs of a single unloaded stream"],
)
def test_a_model_that_lacks_a_cause_does_not_agree(change):
    turns = [
        turn._replace(**{name: turn.costs | value if name == "costs" else value for name, value in change.items()})
        for turn in read()
        if turn.workers == 4
    ]
    assert middle(turns) < 0.8

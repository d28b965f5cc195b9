"""The models are held to recorded runs of the real systems, so no test depends on the speed of a machine."""

import statistics

import pytest

from sim.bench.cluster_agreement import ISWITCH, RECORD, SIZES, TCP_RECORD, medians, read

ONE_STREAM = {"tcp_send_byte_ns": 0.06, "tcp_receive_byte_ns": 0.2, "tcp_call_us": 1.6, "wake_us": 7.0}


def middle(turns):
    return statistics.median(medians(turns).values())


@pytest.mark.parametrize(
    "record, system, least, most",
    [
        (TCP_RECORD, "tcp_server", 0.85, 1.2),
        (TCP_RECORD, "tcp_ring", 0.55, 1.5),
        (RECORD, "tcp_server", 0.75, 1.2),
        (RECORD, "tcp_ring", 0.6, 1.25),
        (RECORD, ISWITCH, 0.75, 1.2),
    ],
)
def test_the_models_agree_with_the_recorded_runs(record, system, least, most):
    found = medians(turn for turn in read(record) if turn.system == system)
    assert len(found) == 8 and 0.85 <= statistics.median(found.values()) <= 1.2
    assert all(least <= ratio <= most for ratio in found.values())


@pytest.mark.parametrize(
    "change", [{"cores": 64}, {"costs": ONE_STREAM}], ids=["a core for each process", "costs of one unloaded stream"]
)
def test_a_model_that_lacks_a_cause_does_not_agree(change):
    turns = [
        turn._replace(**{name: turn.costs | value if name == "costs" else value for name, value in change.items()})
        for turn in read(TCP_RECORD)
        if turn.workers == 4
    ]
    assert middle(turns) < 0.8


@pytest.mark.parametrize("system", ["tcp_server", "tcp_ring", ISWITCH])
def test_a_model_with_a_core_for_each_process_does_not_agree(system):
    turns = [turn._replace(cores=64) for turn in read() if turn.workers == 4 and turn.system == system]
    assert middle(turns) < 0.8


def test_a_ring_whose_own_python_takes_no_time_does_not_agree():
    turns = [turn._replace(code_s=0.0) for turn in read() if turn.system == "tcp_ring" and turn.size_bytes < 1e6]
    assert middle(turns) < 0.65


@pytest.mark.parametrize(
    "vectors, part, names",
    [(["PPO"], "costs", ["udp_call_us"]), (["A2C", "DQN"], "served", ["burst_us", "datagram_us"])],
    ids=["a call costs nothing", "the switch costs nothing"],
)
def test_a_model_of_iswitch_that_lacks_a_cost_does_not_agree(vectors, part, names):
    turns = [
        turn._replace(**{part: getattr(turn, part) | dict.fromkeys(names, 0.0)})
        for turn in read()
        if turn.system == ISWITCH and turn.size_bytes in [SIZES[name] for name in vectors]
    ]
    assert middle(turns) < 0.7

"""The software switch against the golden switch, frame by frame."""

from dataclasses import replace

import pytest

from iswitch.config import Config
from iswitch.wire import SILENCE_TICK_US, Format, Mode, Outcome
from sim.bench.software_pair import SoftwarePair, run_poisoned_sums, run_random_frames
from sim.bench.traffic import Traffic

SMALL = Config(ports=2, bus_bits=64, members=4, jobs=2, window=4, elements=16)
CONFIGS = [
    pytest.param(SMALL, id="4-members"),
    pytest.param(Config(ports=3, members=32, window=4), id="32-members"),
    pytest.param(replace(SMALL, uplinks=False), id="no-trees"),
    pytest.param(replace(SMALL, half_width=True), id="half-width"),
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(4))
def test_random_traffic_gives_the_same_frames_counters_and_jobs(config, seed):
    pair = SoftwarePair(config, seed=seed)
    traffic = Traffic(config, seed=seed, workers=3, jobs=2, exchange=pair.exchange)
    traffic.form(0)
    traffic.form(1, mode=Mode.PROPAGATE, format=Format.BF16 if config.half_width else Format.FP32)
    for us in (0, 40_000_000, 310_000_000, 3_000_000_000):
        pair.wait(us)
        traffic.steps(500)
        pair.compare()
    assert pair.by_data_path > 500
    seen = {Outcome(k) for k, count in enumerate(pair.model.outcomes) if count}
    assert seen >= {Outcome.ADDED, Outcome.RECEIPT, Outcome.DUPLICATE, Outcome.LATE, Outcome.WINDOW, Outcome.SLOT_HELD}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(2))
def test_random_traffic_of_asynchronous_jobs_gives_the_same_frames_counters_and_jobs(config, seed):
    pair = SoftwarePair(config, seed=seed)
    traffic = Traffic(config, seed=seed + 2, workers=3, jobs=2, exchange=pair.exchange)
    traffic.form(0, segments=3, staleness=1, threshold=2, evict_us=3 * SILENCE_TICK_US)
    traffic.form(1, segments=1, staleness=7, threshold=1)
    for us in (0, 30_000, 2**32 - 1_000_000, 2_000_000):
        pair.wait(us)
        traffic.steps(700)
        pair.compare()
    assert pair.by_data_path > 300


def test_adverse_traffic_over_a_bad_network_gives_the_same_frames_counters_and_jobs():
    found = run_random_frames(20_000, seed=7)
    rare = {"ADDRESS", "CORRUPT", "FLOOD_LIMITED", "REPLAY"}
    assert {name for name, count in found.outcomes.items() if not count} <= rare
    assert found.by_data_path > 0.4 * found.frames


@pytest.mark.parametrize("workers", [1, 2])
def test_a_result_and_what_is_sent_again_are_the_same_whichever_contribution_is_poisoned(workers):
    run_poisoned_sums(workers)

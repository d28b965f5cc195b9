"""How often items are drawn, by frames through the compiled switch: each of 10^6 draws is where exact sums say, and
none has priority 0."""

import numpy as np
import pytest

from iswitch.config import Config, Replay
from iswitch.replay.seeds import hash_seed
from sim.bench.replay_boundary import Station
from sim.bench.statistics import chi_square, quantile
from sim.emulator.engine import Board

REPLAY = Replay(capacity=1 << 12, samples_per_request=1024, log_bytes=4096)
CONFIG = Config(
    ports=2, bus_bits=64, members=2, jobs=2, window=4, mac_entries=64, staleness=0, uplinks=False, replay=REPLAY
)
DRAWS = 10**6
LIMIT = 3.0902  # deviations: 0.1 % of all seeds would fail on each side


def uniform(items, rng):
    return np.full(items, 1 << 20)


def one_hot(items, rng):
    return np.where(np.arange(items) == 1234, 77, 0)


def power_law(items, rng):
    return np.maximum((1 << 27) / rng.permutation(np.arange(2, items + 2)) ** 0.7, 1).astype(np.int64)


def mostly_zero(items, rng):
    return np.where(rng.random(items) < 0.02, rng.integers(1, 1 << 27, items), 0)


@pytest.mark.parametrize("distribution", [uniform, one_hot, power_law, mostly_zero])
def test_items_are_drawn_as_often_as_their_priority_says(distribution):
    priorities = distribution(REPLAY.capacity, np.random.default_rng(3))
    counts = np.zeros(REPLAY.capacity, np.int64)
    with Board(CONFIG, stamps=True) as board:
        station = Station(board)
        station.add(priorities.tolist())
        for seed in range(-(-DRAWS // REPLAY.samples_per_request)):
            rows, _ = station.sample(REPLAY.samples_per_request, hash_seed(seed))  # compares each with cumulative sums
            counts += np.bincount([item % REPLAY.capacity for item, _ in rows], minlength=REPLAY.capacity)
    there = priorities > 0
    assert counts.sum() >= DRAWS and not counts[~there].any()
    if there.sum() > 1:
        statistic, freedom = chi_square(counts[there], priorities[there] / priorities.sum() * counts.sum())
        assert quantile(freedom, -LIMIT) < statistic < quantile(freedom, LIMIT)

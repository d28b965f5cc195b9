"""The token bucket of each port, against a list of the times at which frames were flooded."""

import random

import pytest

from iswitch.golden.bridge.flood_limit import BPDU_RESERVE, BURST, FloodLimit


def admitted(limit: FloodLimit, port: int, frames: int, *, bpdu: bool = False) -> int:
    return sum(limit.admits(port, bpdu=bpdu) for _ in range(frames))


def test_a_port_floods_a_burst_and_keeps_a_reserve_for_bpdus():
    limit = FloodLimit(2, 1024)
    assert admitted(limit, 0, 2000) == BURST - BPDU_RESERVE + 1 == 992
    assert admitted(limit, 0, 2000, bpdu=True) == BPDU_RESERVE - 1
    assert admitted(limit, 1, 10) == 10


@pytest.mark.parametrize("begin", [0, 1000, 2**32 - 50_000])
def test_a_port_floods_one_frame_an_interval_on_average(begin):
    limit, rng, count = FloodLimit(1, 1024), random.Random(1), 0
    limit.advance(begin)
    admitted(limit, 0, 2000)
    now_us = begin
    while now_us < begin + 1_024_000:
        now_us += rng.randrange(5000)
        limit.advance(now_us % 2**32)
        count += admitted(limit, 0, rng.randrange(10))
    assert 900 <= count <= 1010


def test_a_bucket_is_full_after_a_long_time():
    limit = FloodLimit(1, 1024)
    admitted(limit, 0, 2000)
    limit.advance(3_000_000_000)
    assert admitted(limit, 0, 2000) == 992


def test_without_an_interval_there_is_no_limit():
    assert admitted(FloodLimit(1, 0), 0, 5000) == 5000

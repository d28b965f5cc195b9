"""The parts of a sum are found again in sums that are made of them."""

import os
import time

import pytest

from sim.cluster.driver_costs import PartTimes, SumTimes, split
from sim.cluster.processor_time import median_cpu_s, process_cpu_s


def sums_of(parts, segments, burst_segments):
    """Return the times of sums that consist of a call, and of bursts and datagrams there and back."""
    call_s, burst_s, datagram_s = (part / 1e6 for part in parts)

    def vector_s(bursts):
        return call_s + 2 * bursts * burst_s + 2 * segments * datagram_s

    return SumTimes(call_s + 2 * burst_s, vector_s(segments), vector_s(-(-segments // burst_segments)))


@pytest.mark.parametrize("segments, burst_segments", [(5, 4), (29, 32), (2351, 32)])
def test_a_sum_is_split_into_the_parts_of_which_it_consists(segments, burst_segments):
    parts = PartTimes(call_us=120.0, burst_us=6.5, datagram_us=0.3)
    found = split(sums_of(parts, segments, burst_segments), segments, burst_segments)
    assert found == pytest.approx(parts)


def test_no_part_is_negative_if_noise_makes_longer_bursts_slower():
    assert min(split(SumTimes(1e-4, 2e-4, 3e-4), 29, 32)) >= 0


@pytest.mark.parametrize("segments, burst_segments", [(1, 32), (9, 1)])
def test_sums_without_longer_bursts_do_not_tell_the_parts(segments, burst_segments):
    with pytest.raises(ValueError, match="do not tell a burst from a datagram"):
        split(SumTimes(1e-4, 1e-4, 1e-4), segments, burst_segments)


def test_the_processor_time_of_a_process_is_that_which_it_reads_itself():
    before_s, read_s, after_s = time.process_time(), process_cpu_s(os.getpid()), time.process_time()
    assert before_s <= read_s <= after_s


def test_the_processor_time_of_a_function_is_the_median_of_its_calls(monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 12.0, 20.0, 27.0])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    assert median_cpu_s(lambda: None, 3) == 2.0

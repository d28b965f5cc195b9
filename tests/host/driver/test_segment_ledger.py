import itertools

import numpy as np
import pytest

from iswitch.driver.segment_ledger import REORDERING, SegmentLedger
from iswitch.driver.timer import RetransmissionTimer


def sent(segments, *, reach=24, at=1.0):
    """A ledger of segments all of which were sent at one time."""
    ledger = SegmentLedger(reach)
    ledger.record_requests(slice(0, segments), at)
    return ledger


def hold(ledger, *positions):
    for position in positions:
        ledger.record_results(np.array([position]), timed=True)
    ledger.advance()


def overtaken(ledger, end=20):
    return ledger.overtaken(end, last_held=ledger.high >= end)


def test_low_is_the_first_lacked_and_high_is_above_the_last_held():
    ledger = sent(10)
    hold(ledger, 0, 1, 4)
    assert (ledger.low, ledger.high, ledger.count_held(0, 10), ledger.newest) == (2, 5, 3, 4)
    assert ledger.lacks(2) and not ledger.lacks(4) and ledger.lacks(10**6)
    assert ledger.lacked(2, 7).tolist() == [2, 3, 5, 6]


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("first", [0, 1, 3, 6])
def test_held_segments_are_counted_below_low_and_above_it(first, count):
    ledger = sent(10)
    hold(ledger, 0, 1, 2, 4, 7)
    assert ledger.count_held(first, first + count) == len({0, 1, 2, 4, 7} & set(range(first, first + count)))


def test_a_burst_in_order_is_recorded_as_one_slice():
    ledger = sent(10)
    assert ledger.record_results(slice(0, 6), timed=True) == 0
    ledger.advance()
    assert (ledger.low, ledger.high, ledger.newest, ledger.timed) == (6, 6, 5, 5)


@pytest.mark.parametrize("later", range(5))
def test_a_segment_is_overtaken_after_three_later_results(later):
    ledger = sent(20)
    hold(ledger, *range(1, 1 + later))
    assert overtaken(ledger).tolist() == ([0] if later >= REORDERING else [])


def test_the_last_segment_overtakes_alone():
    ledger = sent(5)
    hold(ledger, 4)
    assert overtaken(ledger, 5).tolist() == [0, 1, 2, 3]


def test_an_overtaken_segment_is_lost_after_a_round_trip_and_again_after_a_timeout():
    ledger, timer = sent(4), RetransmissionTimer()
    timer.add_delay(0.01)
    hold(ledger, 1, 2, 3)
    found = overtaken(ledger)
    assert ledger.lost(found, 1.0 + 0.009, timer).tolist() == []
    assert ledger.lost(found, 1.0 + 0.011, timer).tolist() == [0]
    ledger.record_requests(np.array([0]), 1.011)
    assert ledger.lost(found, 1.011 + timer.base_s + 0.001, timer).tolist() == []  # nothing that was sent later is here
    ledger.record_requests(slice(4, 5), 1.02)
    hold(ledger, 4)
    assert ledger.lost(found, 1.011 + timer.base_s + 0.001, timer).tolist() == [0]


def test_an_overtaken_segment_that_was_never_requested_is_perhaps_only_late():
    ledger, timer = SegmentLedger(24), RetransmissionTimer()
    timer.add_delay(0.01)
    hold(ledger, 1, 2, 3)
    assert ledger.lost(overtaken(ledger), 1.0, timer).tolist() == []
    assert ledger.lost(overtaken(ledger), 1.009, timer).tolist() == []
    assert ledger.lost(overtaken(ledger), 1.011, timer).tolist() == [0]


def test_a_segment_that_was_requested_again_says_nothing_about_delays():
    ledger = sent(10)
    ledger.record_requests(np.array([3]), 2.0)
    assert ledger.record_results(slice(3, 4), timed=True) == 1
    assert ledger.newest == -1 and ledger.timed is None
    hold(ledger, 2)
    assert ledger.newest == ledger.timed == 2


def test_a_result_that_answers_no_request_of_this_member_says_nothing_about_delays():
    ledger = sent(10)
    ledger.record_results(slice(0, 4), timed=False)
    assert ledger.timed is None
    hold(SegmentLedger(24), 0)
    assert ledger.timed is None


def test_probes_are_the_lowest_segment_and_the_last():
    ledger, timer = sent(10), RetransmissionTimer()
    timer.add_delay(0.01)
    hold(ledger, 0)
    assert ledger.probes(overtaken(ledger, 10), 10, 9.0, timer).tolist() == [1, 9]
    assert ledger.probes(overtaken(ledger, 10), 10, 1.001, timer).tolist() == [1]
    timer.record_loss()
    assert ledger.probes(overtaken(ledger, 10), 10, 9.0, timer).tolist() == [1, *range(2, 10)]


def test_a_lossy_network_is_probed_by_the_last_eight():
    ledger, timer = sent(14), RetransmissionTimer()
    timer.add_delay(0.01)
    timer.record_loss()
    hold(ledger, 0)
    assert ledger.probes(overtaken(ledger, 14), 14, 9.0, timer).tolist() == [1, *range(6, 14)]


@pytest.mark.parametrize("seed", range(4))
def test_results_of_segments_that_were_requested_more_than_once_are_counted(seed):
    """Requests and results of random segments, one by one and in runs, against a count for each."""
    chance = np.random.default_rng(seed)
    for _ in range(40):
        ledger, requests = SegmentLedger(24), [0] * 24
        for _ in range(chance.integers(1, 4)):
            some = np.flatnonzero(chance.integers(0, 2, 24))
            ledger.record_requests(some, 1.0)
            for position in some.tolist():
                requests[position] += 1
        ends = [0, *sorted(set(chance.integers(1, 24, 4).tolist())), 24]
        for first, end in itertools.pairwise(ends):
            positions = slice(first, end) if chance.integers(2) else np.arange(first, end)
            repeated = sum(count > 1 for count in requests[first:end])
            once = [position for position in range(first, end) if requests[position] == 1]
            ledger.timed = None
            assert ledger.record_results(positions, timed=True) == repeated
            assert ledger.timed == (once[-1] if once else None)


def test_positions_beyond_the_reach_are_not_new():
    ledger = SegmentLedger(4)
    hold(ledger, 1)
    assert ledger.new(np.array([-1, 0, 1, 2, 3, 4, 5])).tolist() == [False, True, False, True, True, False, False]


@pytest.mark.parametrize("reach", [1, 2, 5, 8])
def test_the_record_has_no_end(reach):
    """A thousand positions, held in a random order inside the reach, against a set."""
    chance, ledger, held = np.random.default_rng(reach), SegmentLedger(reach), set()
    while ledger.low < 1000:
        position = ledger.low + int(chance.integers(reach))
        if position in held:
            continue
        ledger.record_requests(np.array([position]), float(position))
        assert ledger.requested_at(position) == position
        assert ledger.record_results(slice(position, position + 1), timed=True) == 0
        held.add(position)
        ledger.advance()
        low = next(k for k in range(1100) if k not in held)
        assert (ledger.low, ledger.high) == (low, max(held) + 1)
        assert ledger.lacked(low, low + reach).tolist() == [k for k in range(low, low + reach) if k not in held]
        assert [ledger.lacks(k) for k in range(low, low + reach + 2)] == [
            k not in held for k in range(low, low + reach + 2)
        ]
        around = range(low - 2, low + reach + 2)
        assert ledger.new(np.array(around)).tolist() == [low <= k < low + reach and k not in held for k in around]

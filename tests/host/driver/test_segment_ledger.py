"""What a member's record of its segments says, also after its arrays have slid."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from iswitch.driver.segment_ledger import SegmentLedger
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


def test_a_new_record_holds_nothing_and_lacks_all_however_far():
    ledger = SegmentLedger(4)
    assert (ledger.low, ledger.high) == (0, 0)
    assert ledger.lacked(0, 100).tolist() == list(range(100))


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
    assert overtaken(ledger).tolist() == ([0] if later >= 3 else [])


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


def test_a_first_contribution_has_a_delay_although_a_receipt_has_requested_its_result():
    """The switch answers the receipt when the slot is complete, and the slot waits for the contribution."""
    for again in ([], [1]):
        ledger = SegmentLedger(24)
        ledger.record_requests(np.arange(4), 1.0)  # receipts
        ledger.record_requests(slice(0, 4), 2.0)
        ledger.record_requests(np.array(again, np.int64), 3.0)
        for position in range(2 * len(again), 4):
            assert ledger.record_results(slice(position, position + 1), timed=True) == 0
            assert ledger.timed == position


def test_a_result_that_comes_late_says_nothing_about_delays():
    ledger = sent(10)
    hold(ledger, 5)
    ledger.timed = None
    hold(ledger, 4)
    assert (ledger.timed, ledger.newest) == (None, 5)


def test_a_result_below_others_that_was_requested_last_has_a_delay():
    ledger = SegmentLedger(24)
    ledger.record_requests(np.array([5]), 1.0)
    ledger.record_requests(np.array([3]), 2.0)
    hold(ledger, 5)
    ledger.timed = None
    hold(ledger, 3)
    assert (ledger.timed, ledger.newest, ledger.newest_request_at) == (3, 5, 2.0)


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


class PlainRecord:
    """The same record by a set and two dictionaries, without an end."""

    def __init__(self):
        self.held, self.requested_at, self.requests = set(), {}, {}

    def request(self, positions, now):
        for position in positions:
            self.requested_at[position] = now
            self.requests[position] = self.requests.get(position, 0) + 1

    @property
    def low(self):
        return next(position for position in itertools.count() if position not in self.held)

    def lacked(self, first, end):
        return [position for position in range(first, end) if position not in self.held]

    def overtaken(self, end, *, last_held):
        later = sorted(position for position in self.held if position > self.low)
        gap = 1 if last_held else 3
        return self.lacked(self.low, min(later[-gap], end)) if len(later) >= gap else []

    def lost(self, overtaken, now, timer, newest_request_at):
        found = []
        for position in overtaken:
            requested_at = self.requested_at.setdefault(position, now)
            again = self.requests.get(position, 0) > 1
            if requested_at <= (min(now - timer.base_s, newest_request_at) if again else now - timer.reordering_s):
                found.append(position)
        return found

    def probes(self, overtaken, end, now, timer):
        wanted = [*overtaken, *self.lacked(self.low, end)[-1:]]
        overdue = {at for at in wanted if self.requested_at.get(at, -math.inf) <= now - timer.base_s}
        return sorted(overdue | {self.low})


@pytest.mark.parametrize("seed", range(4))
def test_what_to_request_again_is_that_of_a_record_without_an_end(seed):
    """Requests and results in a random order, until the arrays have slid several times. Times are exact."""
    chance, ledger, plain, now = np.random.default_rng(seed), SegmentLedger(8), PlainRecord(), 0.0
    timer = RetransmissionTimer()
    timer.add_delay(0.25)
    assert (timer.reordering_s, timer.base_s) == (0.25, 0.75)
    while ledger.low < 150:
        low = ledger.low
        some = low + np.flatnonzero(chance.integers(0, 4, 8) == 0)
        ledger.record_requests(some, now)
        plain.request(some.tolist(), now)
        new = np.array([at for at in plain.lacked(low, low + 8) if chance.integers(3) == 0], np.int64)
        if len(new):
            ledger.record_results(new, timed=True)
            plain.held.update(new.tolist())
            ledger.advance()
        assert ledger.low == plain.low
        first, end = sorted(max(0, ledger.low + step) for step in chance.integers(-3, 9, 2).tolist())
        assert ledger.count_held(first, end) == len(plain.held & set(range(first, end)))
        end = ledger.low + int(chance.integers(0, 9))
        for last_held in (False, True):
            overtaken = ledger.overtaken(end, last_held=last_held)
            assert overtaken.tolist() == plain.overtaken(end, last_held=last_held)
            lost = plain.lost(overtaken.tolist(), now, timer, ledger.newest_request_at)
            assert ledger.lost(overtaken, now, timer).tolist() == lost
            probes = plain.probes(overtaken.tolist(), end, now, timer)
            assert ledger.probes(overtaken, end, now, timer).tolist() == probes
        now += 0.25 * chance.integers(3)


def test_a_record_that_c_code_has_moved_up_has_room_for_further_positions():
    ledger = SegmentLedger(4)
    for low in range(3, 100, 3):
        ledger.store(SimpleNamespace(low=low, high=low, newest=low - 1, newest_request_s=1.0))
        assert (ledger.low, ledger.high, ledger.newest, ledger.newest_request_at) == (low, low, low - 1, 1.0)
        ledger.record_requests(slice(low, low + 4), float(low))
        assert [ledger.requested_at(at) for at in range(low, low + 4)] == [low] * 4

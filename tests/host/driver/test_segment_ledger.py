import numpy as np
import pytest

from iswitch.driver.segment_ledger import REORDERING, SegmentLedger
from iswitch.driver.timer import RetransmissionTimer


def sent(segments, *, backlog=4, at=1.0):
    """A collective all of whose segments were sent at one time."""
    ledger = SegmentLedger(backlog)
    ledger.open(segments)
    ledger.next = segments
    ledger.sent_at[:] = at
    return ledger


def hold(ledger, *segments):
    for segment in segments:
        ledger.record_results(np.array([segment]), segment, segment + 1)
    ledger.advance()


def test_low_is_the_first_lacked_and_high_is_above_the_last_held():
    ledger = sent(10)
    hold(ledger, 0, 1, 4)
    assert (ledger.low, ledger.high, ledger.held, ledger.newest) == (2, 5, 3, 4)


def test_a_burst_in_order_is_recorded_as_one_slice():
    ledger = sent(10)
    assert ledger.record_results(slice(0, 6), 0, 6) == 0
    ledger.advance()
    assert (ledger.low, ledger.high, ledger.newest) == (6, 6, 5)


@pytest.mark.parametrize("later", range(5))
def test_a_segment_is_overtaken_after_three_later_results(later):
    ledger = sent(20)
    hold(ledger, *range(1, 1 + later))
    assert ledger.overtaken().tolist() == ([0] if later >= REORDERING else [])


def test_the_last_segment_overtakes_alone():
    ledger = sent(5)
    hold(ledger, 4)
    assert ledger.overtaken().tolist() == [0, 1, 2, 3]


def test_an_overtaken_segment_is_lost_after_a_round_trip_and_again_after_a_timeout():
    ledger, timer = sent(20), RetransmissionTimer()
    timer.add_delay(0.01)
    hold(ledger, 1, 2, 3)
    assert ledger.lost(1.0 + 0.009, timer).tolist() == []
    assert ledger.lost(1.0 + 0.011, timer).tolist() == [0]
    ledger.record_retransmissions(np.array([0]))
    ledger.sent_at[0] = 1.011
    assert ledger.lost(1.011 + timer.base_s + 0.001, timer).tolist() == []  # nothing that was sent later is here
    ledger.sent_at[4] = 1.02
    hold(ledger, 4)
    assert ledger.lost(1.011 + timer.base_s + 0.001, timer).tolist() == [0]


def test_a_retransmitted_segment_says_nothing_about_delays():
    ledger = sent(10)
    ledger.record_retransmissions(np.array([3]))
    hold(ledger, 3)
    assert ledger.newest == -1 and ledger.retransmissions == 1
    hold(ledger, 2)
    assert ledger.newest == 2


def test_probes_are_the_lowest_segment_until_there_is_a_result_then_the_last_too():
    ledger, timer = sent(10), RetransmissionTimer()
    timer.add_delay(0.01)
    assert ledger.probes(9.0, timer, has_results=False).tolist() == [0]
    hold(ledger, 0)
    assert ledger.probes(9.0, timer, has_results=True).tolist() == [1, 9]
    assert ledger.probes(1.001, timer, has_results=True).tolist() == []
    timer.record_loss()
    assert ledger.probes(9.0, timer, has_results=True).tolist() == [1, *range(2, 10)]


def test_results_beyond_the_collective_are_kept_for_the_next_one():
    ledger = sent(3, backlog=4)
    hold(ledger, 0, 1, 2)
    ledger.record_later_results(np.array([4, 5]))
    ledger.close()
    assert (ledger.low, ledger.high, ledger.next) == (0, 3, 0)
    assert ledger.lacked.tolist() == [True, False, False, True, True]

import pytest

from iswitch.driver.timer import RetransmissionTimer


def seen_timeouts(timer, count):
    seen = []
    for _ in range(count):
        seen.append(timer.timeout_s)
        timer.back_off()
    return seen


def test_first_guess_doubles_up_to_a_quarter_of_a_second():
    assert seen_timeouts(RetransmissionTimer(), 6) == [0.05, 0.1, 0.2, 0.25, 0.25, 0.25]


def test_back_off_ends_with_the_first_result():
    timer = RetransmissionTimer()
    timer.add_delay(0.001)
    before = timer.timeout_s
    assert seen_timeouts(timer, 3) == [before, 2 * before, 4 * before]
    timer.end_backoff()
    assert timer.timeout_s == before


@pytest.mark.parametrize("delay_s", [0.03, 0.0001, 0.6])
def test_steady_delay_ends_2_ms_below_the_timeout(delay_s):
    timer = RetransmissionTimer()
    for _ in range(200):
        timer.add_delay(0.02)
    for _ in range(200):
        timer.add_delay(delay_s)
    assert timer.timeout_s == pytest.approx(delay_s + 0.002)


def test_deviation_counts_four_times():
    timer = RetransmissionTimer()
    timer.add_delay(0.01)
    assert timer.timeout_s == pytest.approx(0.01 + 4 * 0.005)  # RFC 6298, 2.2


@pytest.mark.parametrize(
    ("lossy", "late", "most_s"), [(False, 0.75, 0.0521), (True, 0.75, 0.0521), (True, 0.25, 0.0081)]
)
def test_timeouts_of_other_workers_do_not_make_it_grow(lossy, late, most_s):
    """Some results are late by another worker's time-out, which is as long as this worker's."""
    timer = RetransmissionTimer()
    if lossy:
        timer.record_loss()
    for k in range(200):
        timer.add_delay(0.002 + (timer.timeout_s if 4 * late > k % 4 else 0))
        if k > 4:
            assert timer.timeout_s <= most_s


def test_wait_for_slow_workers_does_not_delay_what_follows():
    timer = RetransmissionTimer()
    for _ in range(50):
        timer.add_first_delay(0.1)
        timer.add_delay(0.001)
    assert timer.timeout_s == pytest.approx(0.003)
    assert timer.first_timeout_s == pytest.approx(0.102)
    timer.add_first_delay(0.002)
    for _ in range(15):
        timer.add_first_delay(0.1)
        assert timer.first_timeout_s <= 0.0521


def test_proof_of_loss_expires_after_256_collectives():
    timer = RetransmissionTimer()
    timer.record_loss()
    for _ in range(256):
        assert timer.lossy
        timer.add_first_delay(0.001)
    assert not timer.lossy


@pytest.mark.parametrize("measure", [RetransmissionTimer.add_delay, RetransmissionTimer.add_first_delay])
def test_far_outlier_is_capped(measure):
    timer = RetransmissionTimer(cap_s=0.5)
    measure(timer, 100.0)
    assert timer.timeout_s == 0.5
    assert timer.first_timeout_s <= 0.5

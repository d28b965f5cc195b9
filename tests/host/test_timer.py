import pytest
from iswitch.timer import RetransmissionTimer


def test_first_guess_doubles_up_to_the_cap():
    timer = RetransmissionTimer(first_s=0.05, cap_s=1.0)
    seen = []
    for _ in range(7):
        seen.append(timer.timeout_s)
        timer.back_off()
    assert seen == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    timer.progress()
    assert timer.timeout_s == 0.05


def test_steady_delay_ends_at_the_delay_itself_or_the_floor():
    timer = RetransmissionTimer()
    for _ in range(200):
        timer.sample(0.03)
    assert timer.timeout_s == pytest.approx(0.03)
    for _ in range(200):
        timer.sample(0.0001)
    assert timer.timeout_s == timer.floor_s


def test_deviation_counts_four_times():
    timer = RetransmissionTimer()
    timer.sample(0.1)
    assert timer.timeout_s == pytest.approx(0.1 + 4 * 0.05)  # RFC 6298, 2.2


def test_far_outlier_is_capped():
    timer = RetransmissionTimer()
    timer.sample(100.0)
    assert timer.timeout_s == timer.cap_s

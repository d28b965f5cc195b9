import pytest
from iswitch.timer import RetransmissionTimer


def test_first_guess_doubles_up_to_the_cap():
    timer = RetransmissionTimer(first_s=0.05, cap_s=1.0)
    seen = []
    for _ in range(7):
        seen.append(timer.timeout_s)
        timer.back_off()
    assert seen == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    timer.restart()
    assert timer.timeout_s == 0.05


def test_only_a_measured_delay_ends_the_doubling():
    timer = RetransmissionTimer()
    timer.sample(0.001)
    before = timer.timeout_s
    for _ in range(3):
        timer.back_off()
    assert timer.timeout_s == 8 * before
    timer.sample(0.001)
    assert timer.timeout_s <= before


def test_steady_delay_ends_a_floor_above_the_delay():
    timer = RetransmissionTimer()
    for _ in range(200):
        timer.sample(0.03)
    assert timer.timeout_s == pytest.approx(0.03 + timer.floor_s)
    for _ in range(200):
        timer.sample(0.0001)
    assert timer.timeout_s == pytest.approx(0.0001 + timer.floor_s)


def test_deviation_counts_four_times():
    timer = RetransmissionTimer()
    timer.sample(0.1)
    assert timer.timeout_s == pytest.approx(0.1 + 4 * 0.05)  # RFC 6298, 2.2


def test_far_outlier_is_capped():
    timer = RetransmissionTimer()
    timer.sample(100.0)
    assert timer.timeout_s == timer.cap_s

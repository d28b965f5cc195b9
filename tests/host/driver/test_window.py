import pytest

from iswitch.driver.window import SendWindow


def test_overflow_narrows_the_window_and_each_further_one_halves_it():
    window = SendWindow(64)
    seen = []
    for _ in range(5):
        window.record_results(64, retransmitted=36, resent=36)
        seen.append(window.size)
    assert seen == [8, 4, 2, 2, 2]


@pytest.mark.parametrize("most", [1, 2, 4, 64])
def test_a_window_is_never_larger_than_the_switchs(most):
    window = SendWindow(most)
    window.record_results(64, retransmitted=64, resent=64)
    assert window.size == min(most, max(2, min(8, most // 2)))


@pytest.mark.parametrize(
    ("retransmitted", "resent"), [(16, 4), (44, 16), (20, 15), (0, 0)], ids=["5 %", "20 %", "below a quarter", "none"]
)
def test_random_loss_leaves_the_window_alone(retransmitted, resent):
    window = SendWindow(64)
    for _ in range(10):
        window.record_results(64, retransmitted=retransmitted, resent=resent)
    assert window.size == 64


def test_the_full_window_is_tried_again_after_256_collectives():
    window = SendWindow(64)
    window.record_results(64, retransmitted=36, resent=36)
    for _ in range(255):
        window.end_collective()
        assert window.size == 8
    window.end_collective()
    assert window.size == 64


def test_results_of_short_collectives_are_judged_together():
    window = SendWindow(64)
    for _ in range(63):
        window.record_results(1, retransmitted=1, resent=1)
    assert window.size == 64
    window.record_results(1, retransmitted=1, resent=1)
    assert window.size == 8

import pytest

from iswitch.driver.window import SendWindow, in_flight_max


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


@pytest.mark.parametrize(
    ("retransmitted", "resent", "size"),
    [(16, 16, 8), (16, 15, 64), (21, 16, 8), (22, 16, 64), (24, 18, 8), (24, 17, 64)],
    ids=["a quarter", "fewer", "at most 4/3", "more", "three quarters", "less"],
)
def test_lost_bursts_are_a_quarter_of_the_results_and_three_quarters_of_those_retransmitted(
    retransmitted, resent, size
):
    window = SendWindow(64)
    window.record_results(64, retransmitted=retransmitted, resent=resent)
    assert window.size == size


def test_each_64_results_are_judged_by_themselves():
    window = SendWindow(64)
    window.record_results(64, retransmitted=60, resent=15)
    window.record_results(64, retransmitted=20, resent=16)
    assert window.size == 8
    window.record_results(63, retransmitted=63, resent=63)
    assert window.size == 8
    window.record_results(1, retransmitted=1, resent=1)
    assert window.size == 4


def test_a_window_that_narrows_again_stays_narrow_for_256_collectives_more():
    window = SendWindow(64)
    window.record_results(64, retransmitted=36, resent=36)
    for _ in range(100):
        window.end_collective()
    window.record_results(64, retransmitted=36, resent=36)
    for _ in range(255):
        window.end_collective()
        assert window.size == 4
    window.end_collective()
    assert window.size == 64


def test_a_window_that_does_not_narrow_stays():
    window = SendWindow(64, narrows=False)
    window.record_results(64, retransmitted=64, resent=64)
    assert window.size == 64


@pytest.mark.parametrize(
    ("elements", "buffer_bytes", "most"), [(64, 1128, 2), (64, 1127, 1), (64, 0, 1), (16, 1800, 10)]
)
def test_as_many_segments_are_in_flight_as_the_buffer_holds_twice(elements, buffer_bytes, most):
    """64 elements: a header of 22 bytes, 256 of elements and a tail of 4, twice; 16: twice 90."""
    assert in_flight_max(elements, buffer_bytes) == most

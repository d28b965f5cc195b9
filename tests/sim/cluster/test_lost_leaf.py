"""The loss of a leaf costs its silence, once."""

from sim.cluster.lost_leaf import ELEMENTS, STEPS_AFTER, STEPS_BEFORE, lose_a_leaf


def test_the_others_wait_once_for_the_silence_of_a_lost_leaf_and_go_on_without_its_workers():
    loss = lose_a_leaf(0.1)
    assert loss.sums == [4.0] * STEPS_BEFORE + [2.0] * STEPS_AFTER
    assert 0.1 <= loss.gap_s < 0.2
    assert loss.later_s <= 1.5 * loss.usual_s < 0.01, ELEMENTS

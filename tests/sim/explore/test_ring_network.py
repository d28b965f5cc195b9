"""Links with single kinds of faults: nothing happens there that the explorer's network cannot do.

In the normal run: N = 2 and 3, W = 1, one message under way on each link, three or four segments. Reordering on a link
needs room for two: few segments at N = 2, more in `make test-all`.
"""

import pytest

from sim.explore.ring import Explorer
from sim.explore.ring_network import DUPLICATE, LOSS, REORDER, LinkExplorer
from sim.explore.ring_switch import Scenario

ALL = frozenset({LOSS, DUPLICATE, REORDER})
TWO = Scenario(workers=2, window=1, segments=4, threshold=2)
THREE = Scenario(workers=3, window=1, segments=3, threshold=3)


def reached(explorer, states) -> set:
    return {(explorer.switch.cores[state.core], state.held) for state in states}


def compare(scenario: Scenario, faults: frozenset[str], room: int) -> tuple[set, set]:
    links, hostile = LinkExplorer(scenario, faults, room), Explorer(scenario)
    return reached(links.base, links.run()), reached(hostile, hostile.run())


@pytest.mark.parametrize(
    "faults", [frozenset(), {LOSS}, {DUPLICATE}, {REORDER}, ALL], ids=lambda faults: "+".join(sorted(faults)) or "none"
)
@pytest.mark.parametrize("threshold", [1, 2])
def test_two_workers_stay_within(faults, threshold):
    within, all_states = compare(TWO._replace(threshold=threshold, segments=3), frozenset(faults), 1)
    assert within <= all_states


@pytest.mark.parametrize("fault", [LOSS, DUPLICATE, REORDER])
def test_three_workers_stay_within(fault):
    within, all_states = compare(THREE, frozenset({fault}), 1)
    assert within <= all_states


def test_overtaking_stays_within():
    within, all_states = compare(TWO._replace(receipts=False), frozenset({REORDER}), 2)
    assert within <= all_states


def test_the_hostile_network_does_nothing_that_loss_cannot():
    within, all_states = compare(TWO._replace(threshold=1), frozenset({LOSS}), 1)
    assert within == all_states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "faults", "room"),
    [
        (TWO._replace(segments=3), {REORDER}, 2),
        (THREE._replace(threshold=2), {LOSS}, 1),
        (THREE._replace(threshold=2), {DUPLICATE}, 1),
        (THREE._replace(segments=4), {LOSS}, 1),
        (TWO._replace(leaves=1, threshold=1), {LOSS, DUPLICATE}, 1),
    ],
)
def test_larger_cases_stay_within(scenario, faults, room):
    within, all_states = compare(scenario, frozenset(faults), room)
    assert within <= all_states

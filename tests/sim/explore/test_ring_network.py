"""Links with single kinds of faults reach no state that the network that remembers everything does not reach.

In the normal run: N = 2 and 3, W = 1, one message under way on each link, three or four segments. Reordering on a link
needs room for two: few segments at N = 2, more in `make test-all`.
"""

from collections.abc import Iterable

import pytest

from sim.explore.ring import RingExplorer, RingState
from sim.explore.ring_network import DUPLICATE, LOSS, REORDER, LinkExplorer
from sim.explore.ring_switch import RingScenario

ALL = frozenset({LOSS, DUPLICATE, REORDER})
TWO = RingScenario(workers=2, window=1, segments=4, threshold=2)
THREE = RingScenario(workers=3, window=1, segments=3, threshold=3)


def decoded(explorer: RingExplorer, states: Iterable[RingState]) -> set:
    """Return states with the switch itself instead of its number."""
    return {(explorer.core(state), state.held) for state in states}


def compare(scenario: RingScenario, faults: frozenset[str], room: int) -> tuple[set, set]:
    links, hostile = LinkExplorer(scenario, faults, room), RingExplorer(scenario)
    within = {state.ring for state in links.run().states}
    return decoded(links.base, within), decoded(hostile, hostile.run().states)


@pytest.mark.parametrize(
    "faults", [frozenset(), {LOSS}, {DUPLICATE}, {REORDER}, ALL], ids=lambda faults: "+".join(sorted(faults)) or "none"
)
@pytest.mark.parametrize("threshold", [1, 2])
def test_two_workers_stay_within(faults, threshold):
    within, all_states = compare(TWO.replace(threshold=threshold, segments=3), frozenset(faults), 1)
    assert within <= all_states


@pytest.mark.parametrize("fault", [LOSS, DUPLICATE, REORDER])
def test_three_workers_stay_within(fault):
    within, all_states = compare(THREE, frozenset({fault}), 1)
    assert within <= all_states


def test_overtaking_stays_within():
    within, all_states = compare(TWO.replace(receipts=False), frozenset({REORDER}), 2)
    assert within <= all_states


def test_the_hostile_network_does_nothing_that_loss_cannot():
    within, all_states = compare(TWO.replace(threshold=1), frozenset({LOSS}), 1)
    assert within == all_states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "faults", "room"),
    [
        (TWO.replace(segments=3), {REORDER}, 2),
        (THREE.replace(threshold=2), {LOSS}, 1),
        (THREE.replace(threshold=2), {DUPLICATE}, 1),
        (THREE.replace(segments=4), {LOSS}, 1),
        (TWO.replace(leaves=1, threshold=1), {LOSS, DUPLICATE}, 1),
    ],
)
def test_larger_cases_stay_within(scenario, faults, room):
    within, all_states = compare(scenario, frozenset(faults), room)
    assert within <= all_states

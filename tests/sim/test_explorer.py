"""The ring in every state that small cases can reach, and the wrong rules that the explorer must find.

All faults at once: see the head of `sim/model/explorer.py`. Two laps of the ring and a lap more, over the end of seq.
Left to `make test-all` for time: N = 3, W = 2 with H < N; leaves with H < N at N = 3; SET_H with leaves.
"""

import pytest

from iswitch.wire import SlotState
from sim.model.aggregate.ring import Rules
from sim.model.explorer import Explorer, Scenario
from sim.model.search import Violation

SPOILED = frozenset({(0, 0), (1, 1), (0, 2), (1, 2), (2, 2)})
"""Quarantined contributions: one, another, and a segment's all three."""

RIGHT = {
    "two workers": (57, Scenario(workers=2, window=1, segments=4, threshold=2)),
    "two, H=1": (607, Scenario(workers=2, window=1, segments=4, threshold=1)),
    "two, H=1, leave": (2385, Scenario(workers=2, window=1, segments=4, threshold=1, leaves=1)),
    "two, SET_H": (None, Scenario(workers=2, window=1, segments=4, threshold=2, thresholds=(1, 2))),
    "three, SET_H": (10310, Scenario(workers=3, window=1, segments=3, threshold=3, thresholds=(2, 3))),
    "three workers": (223, Scenario(workers=3, window=1, segments=4, threshold=3)),
    "three, leave": (6661, Scenario(workers=3, window=1, segments=4, threshold=3, leaves=2)),
    "three, H=2": (8509, Scenario(workers=3, window=1, segments=4, threshold=2)),
    "three, H=2, quarantine": (648, Scenario(workers=3, window=1, segments=4, threshold=2, tainted=SPOILED)),
    "window 2": (629, Scenario(workers=2, window=2, segments=6, threshold=2)),
    "window 2, leave": (5197, Scenario(workers=2, window=2, segments=6, threshold=2, leaves=1)),
    "window 2, H=1": (20711, Scenario(workers=2, window=2, segments=6, threshold=1)),
    "three, window 2": (7057, Scenario(workers=3, window=2, segments=6, threshold=3)),
}
SLOW = {
    "three, H=1": (17281, Scenario(workers=3, window=1, segments=4, threshold=1)),
    "three, H=2, leave": (47725, Scenario(workers=3, window=1, segments=4, threshold=2, leaves=1)),
    "three, quarantine, leave": (None, Scenario(workers=3, window=1, segments=4, threshold=2, tainted=SPOILED, leaves=1)),
    "two, SET_H, leave": (None, Scenario(workers=2, window=1, segments=4, threshold=2, leaves=1, thresholds=(1, 2))),
    "window 2, H=1, leave": (None, Scenario(workers=2, window=2, segments=6, threshold=1, leaves=1)),
    "window 2, SET_H": (324702, Scenario(workers=2, window=2, segments=6, threshold=2, thresholds=(1, 2))),
    "three, window 2, H=2": (None, Scenario(workers=3, window=2, segments=5, threshold=2)),
}


def explore(states: int | None, scenario: Scenario) -> None:
    found = len(Explorer(scenario).run())
    assert states in (None, found)


@pytest.mark.parametrize("name", RIGHT)
def test_every_promise_holds_in_every_state(name):
    explore(*RIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_promise_holds_in_every_state_of_larger_cases(name):
    explore(*SLOW[name])


def complete_is_enough(ring, slot) -> bool:
    return slot.state != SlotState.COLLECTING


def anything_goes(ring, slot) -> bool:
    return True


def also_to_a_complete_slot(slot, bit) -> bool:
    return not slot.arrived & bit


def repeats_change_nothing(slot, threshold) -> bool:
    return False


def also_twice(slot, bit) -> bool:
    return slot.state == SlotState.COLLECTING


TWO = Scenario(workers=2, window=1, segments=4, threshold=2)
THREE = Scenario(workers=3, window=1, segments=4, threshold=3)

MUTANTS = {
    "W slots": (TWO._replace(slots=1), "an honest worker is told SLOT_HELD"),
    "W slots, overwritten when complete": (
        TWO._replace(slots=1, rules=Rules(may_overwrite=complete_is_enough)), "a worker waits for ever"),
    "W = 2 slots, overwritten when complete": (
        TWO._replace(window=2, segments=6, slots=2, rules=Rules(may_overwrite=complete_is_enough)),
        "a worker waits for ever"),
    "no receipts, H < N": (THREE._replace(threshold=2, receipts=False), "a worker waits for ever"),
    "a complete slot is added to": (
        THREE._replace(threshold=2, rules=Rules(may_add=also_to_a_complete_slot)), "a result changes"),
    "a worker is added twice": (TWO._replace(rules=Rules(may_add=also_twice)), "a worker is twice in a sum"),
    "H < N, overwritten when complete": (
        THREE._replace(threshold=2, rules=Rules(may_overwrite=complete_is_enough)), "an honest worker is told WINDOW"),
    "a repeat does not end a slot that SET_H made complete": (
        TWO._replace(thresholds=(1, 2), rules=Rules(repeat_completes=repeats_change_nothing)), "a worker waits for ever"),
    "H < N, overwritten always": (
        THREE._replace(threshold=2, rules=Rules(may_overwrite=anything_goes)), "an honest worker is told WINDOW"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name):
    scenario, promise = MUTANTS[name]
    with pytest.raises(Violation) as found:
        Explorer(scenario).run()
    assert found.value.promise == promise


@pytest.mark.parametrize("scenario", [TWO, THREE, TWO._replace(window=2, segments=6)])
def test_with_all_contributing_the_window_implies_the_rule_of_overwriting(scenario):
    Explorer(scenario._replace(rules=Rules(may_overwrite=anything_goes))).run()


@pytest.mark.parametrize("scenario", [TWO._replace(leaves=1), THREE._replace(leaves=2), TWO._replace(window=2, segments=6)])
def test_with_all_contributing_receipts_are_not_needed(scenario):
    Explorer(scenario._replace(receipts=False)).run()

"""The search that all explorers share, on counters that a reader can follow by hand."""

from typing import NamedTuple

import pytest

from sim.explore.ring_switch import RingScenario
from sim.explore.search import Continuation, Explorer, Scenario, Violation


class Counters(NamedTuple):
    """Two counters."""

    left: int = 0
    right: int = 0


class Step(NamedTuple):
    """One counter rises by one."""

    counter: str


class CountersExplorer(Explorer[Counters]):
    """Each counter may rise up to `most`."""

    def __init__(self, most, forbidden=None):
        self.most, self.forbidden = most, forbidden

    def start(self):
        return Counters()

    def events(self, state):
        return [Step(name) for name in Counters._fields if getattr(state, name) < self.most]

    def after(self, state, event):
        return state._replace(**{event.counter: getattr(state, event.counter) + 1})

    def check(self, state):
        if state == self.forbidden:
            raise Violation("a forbidden state is reached")


class Symmetric(CountersExplorer):
    """Which counter is which does not matter."""

    def canonical(self, state):
        return Counters(*sorted(state))


class Bounded(CountersExplorer):
    """Only states with few steps are covered."""

    def is_covered(self, state):
        return sum(state) <= 2


class Refusing(CountersExplorer):
    """The third step of a counter breaks a promise itself."""

    def after(self, state, event):
        if getattr(state, event.counter) == 2:
            raise Violation("a counter rises too far")
        return super().after(state, event)


def test_every_state_is_visited_once():
    reached = CountersExplorer(3).run()
    assert reached.states == {Counters(left, right) for left in range(4) for right in range(4)}
    assert (reached.count, reached.depth) == (16, 6)


def test_of_symmetric_states_one_is_visited():
    assert Symmetric(3).run().states == {Counters(left, right) for right in range(4) for left in range(right + 1)}


def test_states_that_are_not_covered_are_not_visited():
    assert Bounded(3).run().count == 6


@pytest.mark.parametrize("forbidden", [Counters(0, 0), Counters(2, 1), Counters(3, 3)])
def test_a_violation_has_a_shortest_trace(forbidden):
    explorer = CountersExplorer(3, forbidden)
    with pytest.raises(Violation, match="a forbidden state is reached") as found:
        explorer.run()
    state = explorer.start()
    for event in found.value.trace:
        state = explorer.after(state, event)
    assert state == forbidden
    assert len(found.value.trace) == sum(forbidden)


def test_a_violation_names_the_event_that_broke_the_promise():
    with pytest.raises(Violation) as found:
        Refusing(3).run()
    assert str(found.value).splitlines() == [
        "a counter rises too far",
        "  1. Step(counter='left')",
        "  2. Step(counter='left')",
        "  3. Step(counter='left')",
    ]


def test_a_scenario_is_replaced_field_by_field():
    scenario: Scenario = RingScenario(workers=2, window=1, segments=4, threshold=2)
    assert scenario.replace(threshold=1) == RingScenario(workers=2, window=1, segments=4, threshold=1)
    with pytest.raises(TypeError):
        scenario.replace(height=1)


def test_a_continuation_ends_where_it_is_final_or_stuck_and_remembers_it():
    steps = []

    def step(state):
        steps.append(state)
        return state._replace(left=min(state.left + 1, 4 if state.right else 2))

    continuation = Continuation(
        step, lambda state: "final" if state.left == 4 else None, lambda state: f"stuck at {state.left}"
    )
    assert continuation.follow(Counters(1, 1)) == "final"
    assert continuation.follow(Counters(0, 0)) == "stuck at 2"
    passed = len(steps)
    assert continuation.follow(Counters(1, 0)) == "stuck at 2"
    assert continuation.follow(Counters(3, 1)) == "final"
    assert len(steps) == passed

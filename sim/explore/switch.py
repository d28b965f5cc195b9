"""A switch under exploration: a function from a state and an event to a state and what the switch sends."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from sim.explore.search import Event, State, Violation

__all__ = ["ExploredSwitch"]

S = TypeVar("S", bound=State)
Sent = TypeVar("Sent")


class ExploredSwitch(ABC, Generic[S, Sent]):
    """The golden rules of a switch beside what was promised about them.

    Each state of the switch has a number, and the states of an explorer hold numbers only. Each step is computed, and
    its promises are checked, once; after that it is looked up.

    `states` lists every state met, by its number.
    """

    def __init__(self) -> None:
        self.states: list[S] = []
        self._numbers: dict[S, int] = {}
        self._steps: dict[tuple[int, type, Event], tuple[int, Sent]] = {}

    @abstractmethod
    def transition(self, state: S, event: Event) -> tuple[S, Sent]:
        """Return the switch after an event, and what it sends because of it. Raise `Violation` for a broken promise."""

    def number(self, state: S) -> int:
        """Return the number of a state, a new one if the state is new."""
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    def step(self, number: int, event: Event) -> tuple[int, Sent]:
        """Return `transition` by numbers. A violation names the event."""
        key = number, type(event), event  # named tuples of different types may be equal
        if key not in self._steps:
            try:
                state, sent = self.transition(self.states[number], event)
            except Violation as violation:
                violation.trace.append(event)
                raise
            self._steps[key] = self.number(state), sent
        return self._steps[key]

    def effective(self, number: int, events: Iterable[Event]) -> list[Event]:
        """Return those of the events that change the switch; of several with the same effect the first."""
        first: dict[int, Event] = {}
        for event in events:
            first.setdefault(self.step(number, event)[0], event)
        first.pop(number, None)
        return list(first.values())

"""Exhaustive search, stated once for every protocol rule.

A rule is explored in small cases, its *scenarios*. An `Explorer` says what a state is, which events are possible in it,
what each event does, and what every state promises. `Explorer.run` visits every state that these events can reach,
breadth first, so the first broken promise comes with a shortest list of events that leads to it.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, Self, TypeVar

__all__ = ["Continuation", "Event", "Explorer", "Reached", "Scenario", "State", "Violation"]

Event = Any
"""What may happen: a named tuple whose `repr` a reader understands in a trace."""


class State(Hashable, Protocol):
    """Everything that the future depends on: the switches, the workers, and what the network may still deliver.

    States are immutable and compared by content, for two equal states are one.
    """


S = TypeVar("S", bound=State)
V = TypeVar("V")


class Violation(Exception):
    """A promise that does not hold, and the events after which it does not.

    Parameters
    ----------
    promise : str
        What went wrong, as a sentence.
    """

    def __init__(self, promise: str) -> None:
        super().__init__(promise)
        self.promise = promise
        self.trace: list[Event] = []

    def __str__(self) -> str:
        return "\n".join([self.promise, *(f"{number:3}. {event}" for number, event in enumerate(self.trace, 1))])


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One case: how many actors there are, which faults may happen, and the rules under test.

    Tests replace a rule by a plausible wrong one and demand that the search finds the broken promise.
    """

    def replace(self, **changes: Any) -> Self:
        """Return the same scenario with some fields changed."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Reached(Generic[S]):
    """The outcome of a search in which every promise held.

    Parameters
    ----------
    states : frozenset
        Every state visited. Of states that differ by a symmetry there is one.
    depth : int
        Number of events on the longest of the shortest paths.
    """

    states: frozenset[S]
    depth: int

    @property
    def count(self) -> int:
        return len(self.states)


class Explorer(ABC, Generic[S]):
    """Search of one scenario. A subclass says what can happen and what is promised.

    The methods raise `Violation` where they see a broken promise, without the events that led there.
    """

    @abstractmethod
    def start(self) -> S:
        """Return the state in which the scenario begins."""

    @abstractmethod
    def events(self, state: S) -> Iterable[Event]:
        """Return the events that are possible in a state. Events without an effect may be left out."""

    @abstractmethod
    def after(self, state: S, event: Event) -> S:
        """Return the state after an event."""

    def check(self, state: S) -> None:
        """Check what a state promises, in particular that everything still ends well if all messages in flight are
        lost."""

    def canonical(self, state: S) -> S:
        """Return the one state that stands for all that differ from this one by a symmetry of the rules."""
        return state

    def is_covered(self, state: S) -> bool:
        """Return whether the scenario covers a state. Other states are neither checked nor explored further."""
        return True

    def run(self) -> Reached[S]:
        """Visit every state that can be reached, and check each.

        Raises
        ------
        Violation
            If a promise is broken. Its trace is a shortest list of events that leads from the start to it.
        """
        start = self.start()
        origin: dict[S, tuple[S, Event] | None] = {start: None}
        frontier, depth = [start], 0
        while True:
            found = []
            for state in frontier:
                try:
                    self.check(state)
                    for event in self.events(state):
                        after = self._checked_after(state, event)
                        if after not in origin and self.is_covered(after):
                            origin[after] = state, event
                            found.append(after)
                except Violation as violation:
                    violation.trace = [*self._path(origin, state), *violation.trace]
                    raise
            if not found:
                return Reached(frozenset(origin), depth)
            frontier, depth = found, depth + 1

    def _checked_after(self, state: S, event: Event) -> S:
        """Return the canonical state after an event. A violation names the event, if it does not name one yet."""
        try:
            return self.canonical(self.after(state, event))
        except Violation as violation:
            violation.trace = violation.trace or [event]
            raise

    @staticmethod
    def _path(origin: dict[S, tuple[S, Event] | None], state: S) -> list[Event]:
        events = []
        step = origin[state]
        while step:
            events.append(step[1])
            step = origin[step[0]]
        return events[::-1]


class Continuation(Generic[S, V]):
    """One fixed schedule of events from any state, and what it comes to.

    A promise of progress says that some fixed schedule of fresh messages ends well, whatever state it begins in. The
    schedule is a function from a state to the next one. So it ends either in a state that is final or in one that it
    no longer changes. The outcome is remembered for every state passed.

    Parameters
    ----------
    step : callable
        Returns the state after one round of the schedule.
    outcome : callable
        Returns the outcome of a final state, or None if the state is not final.
    stuck : callable
        Returns the outcome of a state that is not final and that a round does not change, or raises `Violation`.
    """

    def __init__(self, step: Callable[[S], S], outcome: Callable[[S], V | None], stuck: Callable[[S], V]) -> None:
        self.step, self.outcome, self.stuck = step, outcome, stuck
        self.known: dict[S, V] = {}

    def follow(self, state: S) -> V:
        """Return what the schedule comes to from a state."""
        passed: list[S] = []
        while (value := self.known.get(state)) is None:
            passed.append(state)
            value = self.outcome(state)
            if value is not None:
                break
            after = self.step(state)
            if after == state:
                value = self.stuck(state)
                break
            state = after
        self.known.update(dict.fromkeys(passed, value))
        return value

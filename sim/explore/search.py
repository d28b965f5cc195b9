"""Breadth-first search of a state space: all that can be reached, or the shortest way to a broken promise."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

__all__ = ["Violation", "put", "search"]

State = TypeVar("State", bound=Hashable)


class Violation(Exception):
    """A rule of the protocol is wrong: which promise breaks, and after which events."""

    def __init__(self, promise: str) -> None:
        super().__init__(promise)
        self.promise = promise
        self.trace: list[Any] = []

    def __str__(self) -> str:
        return "\n  ".join([self.promise, *map(str, self.trace)])


def put(row: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """The row with another value at an index."""
    return row[:index] + (value,) + row[index + 1 :]


def search(
    start: State, successors: Callable[[State], Iterable[tuple[Any, State]]], check: Callable[[State], None]
) -> set[State]:
    """All states reachable by `successors` (event, state), each checked. A Violation, from either function, gets the
    events that led to its state put before its own."""
    came: dict[State, tuple[State, Any] | None] = {start: None}
    frontier = [start]
    while frontier:
        following = []
        for state in frontier:
            try:
                check(state)
                for event, after in successors(state):
                    if after not in came:
                        came[after] = state, event
                        following.append(after)
            except Violation as violation:
                step = came[state]
                while step:
                    violation.trace.insert(0, step[1])
                    step = came[step[0]]
                raise
        frontier = following
    return set(came)

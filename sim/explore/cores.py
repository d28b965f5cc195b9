"""What a switch can be, by numbers: the explorers' states hold numbers, and each step of a switch is made, and checked,
once."""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from sim.explore.search import Violation

__all__ = ["Cores"]

Core = TypeVar("Core")


class Cores(ABC, Generic[Core]):
    """`cores`: all that were met, by their numbers."""

    def __init__(self) -> None:
        self.cores: list[Core] = []
        self.numbers: dict[Core, int] = {}
        self.moves: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @abstractmethod
    def perform(self, core: Core, event: Any) -> tuple[Any, ...]:
        """The core after a message or an action, and what it sent."""

    def intern(self, core: Core) -> int:
        if core not in self.numbers:
            self.numbers[core] = len(self.cores)
            self.cores.append(core)
        return self.numbers[core]

    def move(self, number: int, event: Any) -> tuple[Any, ...]:
        """`perform` by numbers."""
        key = number, type(event), event  # tuples of different types may be equal
        if key not in self.moves:
            try:
                core, *sent = self.perform(self.cores[number], event)
            except Violation as violation:
                violation.trace.append(event)
                raise
            self.moves[key] = self.intern(core), *sent
        return self.moves[key]

"""A refinement: in each state that a small job reaches, the gateware decides about each frame as the golden model."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

import hw.decide.claims
import hw.decide.lowest_missing
import hw.decide.ring
from iswitch.config import Config
from sim.bench.compiled import Compiled
from sim.bench.mutant import mutant
from sim.explore.search import Reached
from sim.refine.comparison import Comparison, Difference
from sim.refine.decider import Decider

__all__ = ["Counts", "Mutant", "Refinement"]


class Mutant(NamedTuple):
    """A seeded bug: in the source of `part`, `wrong` stands for `original`."""

    part: ModuleType
    original: str
    wrong: str


class Counts(NamedTuple):
    """How many states there are, how many pairs of a state and a frame, and how many of these the gateware can tell
    apart."""

    states: int
    pairs: int
    inputs: int


class ComparingExplorer(Protocol):
    """A search in whose states the gateware is compared with the model."""

    comparisons: tuple[Comparison, ...]

    def run(self) -> Reached[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """All pairs of a state and a frame in one small job.

    Parameters
    ----------
    name : str
        What the job is, in words.
    extent : str
        What its frames contain and what else happens, in words.
    case : object
        The job; its `config` is that of the switch.
    explorer : callable
        Makes the explorer of the case from the case and the compiled gateware.
    counts : Counts
        What a run counts.
    mutants : sequence of Mutant
        The bugs that it finds.
    """

    name: str
    extent: str
    case: Any
    explorer: Callable[[Any, Compiled], ComparingExplorer]
    counts: Counts
    mutants: tuple[Mutant, ...] = ()

    def run(self, wrong: Mutant | None = None) -> Counts:
        """Compare all pairs, and return how many there are. `wrong`: compare a mutant instead of the gateware.

        Raises
        ------
        Difference
            If gateware and model differ.
        """
        explorer = self.explorer(self.case, compiled(self.case.config(), wrong))
        states = explorer.run().count
        compared = explorer.comparisons
        for comparison in compared:
            comparison.flush()
        return Counts(states, sum(each.pairs for each in compared), sum(each.inputs for each in compared))

    def notices(self, wrong: Mutant) -> Difference | None:
        """Return what shows that a mutant differs from the model, or None if nothing does."""
        try:
            self.run(wrong)
        except Difference as difference:
            return difference
        return None


def compiled(config: Config, wrong: Mutant | None = None) -> Compiled:
    """Return the compiled gateware of a switch, or a mutant of it."""
    parts = {part: part for part in (hw.decide.ring, hw.decide.claims, hw.decide.lowest_missing)}
    if wrong:
        parts[wrong.part] = mutant(*wrong)
    ring, claims, lowest = parts.values()
    with patch.object(ring, "LowestMissing", lowest.LowestMissing):
        return Compiled(Decider(config, ring, claims))

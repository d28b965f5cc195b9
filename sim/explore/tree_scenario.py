"""What the explorer of trees varies: shape, faults, the rules under test, and the events that may happen."""

from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.decide.tree import RULES, Rules
from sim.explore.messages import UNKNOWN
from sim.explore.search import Scenario

__all__ = ["LeafReceipt", "MemberLeaves", "ParentResult", "SlotExpires", "TreeScenario", "Uplink"]


@dataclass(frozen=True)
class TreeScenario(Scenario):
    """One job on a tree of switches.

    Parameters
    ----------
    parents : tuple of int
        The switch above each switch. Switch 0 is the root, with -1.
    homes : tuple of int
        The switch of each worker.
    window, segments : int
        W, and how many segments are summed.
    threshold : int
        How many of the root's *members* complete a slot there, 0 for all.
    deadlines : tuple of int
        Switches whose slots may expire.
    leaves : int
        How many workers may leave.
    evicted : tuple of int
        Switches that their parent may evict.
    tainted : frozenset of (worker, segment)
        Contributions that are quarantined.
    silent : tuple of frozenset of int
        Sets of workers without whose contributions the others must make progress, given the receipts of these.
    receipts : bool
        False makes a mutant: no receipts are sent.
    rules : Rules
        The rules under test.
    answers : bool
        False makes a mutant: the root does not repeat its results to switches.
    reports : bool
        False makes a mutant: leaves send no receipts up.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    window: int = 1
    segments: int = 4
    threshold: int = 0
    deadlines: tuple[int, ...] = ()
    leaves: int = 0
    evicted: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    silent: tuple[frozenset[int], ...] = (frozenset(),)
    receipts: bool = True
    rules: Rules = RULES
    answers: bool = True
    reports: bool = True


class Uplink(NamedTuple):
    """A partial sum of `ranks` reaches the parent. No worker below the switch lacked a result below `low`."""

    switch: int
    segment: int
    ranks: int
    low: int


class LeafReceipt(NamedTuple):
    """A leaf's receipt reaches its parent. `wanted`: the segment whose result it requests, or UNKNOWN."""

    switch: int
    low: int
    wanted: int

    @property
    def segment(self) -> int:
        """The segment that the receipt names."""
        return self.low if self.wanted == UNKNOWN else self.wanted


class ParentResult(NamedTuple):
    """A result of its parent reaches a leaf."""

    switch: int
    segment: int
    ranks: int


class MemberLeaves(NamedTuple):
    """A switch leaves its parent, for no member is left below it, or its parent evicts it."""

    switch: int


class SlotExpires(NamedTuple):
    """The deadline of a collecting slot passes."""

    switch: int
    slot: int

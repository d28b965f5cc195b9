"""Bit errors of a sum tree, and its rebuild, under every order of requests. The rules are
`host/iswitch/golden/replay/rebuild.py`.

The tree has a few slots. For each slot, the sums contain some share of the slot's priority: all of it, nothing, or
after a bit error something else. A bit error is *visible* until a request that writes the sums gives them a right
parity. SAMPLE, UPDATE and REBUILD come in any order, from any number of clients, and bits flip at any time, up to
`flips` in all. A SAMPLE reads all sums.

Checked at each step: a SAMPLE that is served was drawn from the sums of the priorities. Checked in each state: if no
bit flips any more, a client that rebuilds the tree may sample it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.interface.tuples import replace_at
from iswitch.golden.replay.rebuild import RULES, RebuildRules, SumState
from sim.explore.search import Event, Explorer, Scenario, Violation

__all__ = ["BitFlips", "RebuildComes", "RebuildExplorer", "RebuildScenario", "SampleComes", "TreeState", "UpdateComes"]

FLIPPED = 8
"""What a bit error adds to a sum."""


@dataclass(frozen=True)
class RebuildScenario(Scenario):
    """A tree of `slots`, with at most `flips` bit errors, under `rules`."""

    slots: int = 3
    flips: int = 2
    rules: RebuildRules = RULES


class TreeState(NamedTuple):
    """`shares`: what the sums contain of each slot. `state`: what the switch knows. `visible`: some word of the sums
    has the wrong parity. `flips`: bit errors so far."""

    priorities: tuple[int, ...]
    shares: tuple[int, ...]
    state: SumState
    visible: bool = False
    flips: int = 0


class BitFlips(NamedTuple):
    """A bit error in what the sums contain of a slot."""

    slot: int


class SampleComes(NamedTuple):
    """A SAMPLE."""


class UpdateComes(NamedTuple):
    """An UPDATE, or an ADD, which sets the priority of a slot."""

    slot: int
    priority: int


class RebuildComes(NamedTuple):
    """A REBUILD of as many `slots` from `slot` on."""

    slot: int
    slots: int


class RebuildExplorer(Explorer[TreeState]):
    """Search of one `RebuildScenario`."""

    def __init__(self, scenario: RebuildScenario) -> None:
        self.scenario, self.rules = scenario, scenario.rules

    def start(self) -> TreeState:
        ones = (1,) * self.scenario.slots
        return TreeState(ones, ones, SumState(restored=self.scenario.slots))

    def events(self, state: TreeState) -> Iterator[Event]:
        slots = range(self.scenario.slots)
        yield SampleComes()
        if state.flips < self.scenario.flips and not state.visible:
            yield from map(BitFlips, slots)
        for slot in slots:
            yield from (UpdateComes(slot, priority) for priority in (1, 2))
            yield from (RebuildComes(slot, count) for count in range(1, self.scenario.slots + 1))

    def after(self, state: TreeState, event: Event) -> TreeState:
        match event:
            case BitFlips(slot):
                shares = replace_at(state.shares, slot, state.shares[slot] + FLIPPED)
                return state._replace(shares=shares, visible=True, flips=state.flips + 1)
            case SampleComes():
                return self.sample(state)
            case UpdateComes(slot, priority):
                return self.update(state, slot, priority)
            case RebuildComes(slot, count):
                return self.rebuild(state, slot, count)
        raise AssertionError(event)

    def found(self, state: TreeState) -> TreeState:
        """Return the state after a request has read and written the sums."""
        known = state.state._replace(corrupt=state.state.corrupt or state.visible)
        return state._replace(state=known, visible=False)

    def sample(self, state: TreeState) -> TreeState:
        if not self.rules.is_intact(state.state, self.scenario.slots):
            return state
        if state.visible:  # the SAMPLE has no effect
            return state._replace(state=state.state._replace(corrupt=True))
        if state.shares != state.priorities:
            raise Violation("a SAMPLE is drawn from wrong sums")
        return state

    def update(self, state: TreeState, slot: int, priority: int) -> TreeState:
        old, state = state.priorities[slot], state._replace(priorities=replace_at(state.priorities, slot, priority))
        if self.rules.is_early(state.state, slot):
            return state
        state = self.found(state)
        return state._replace(shares=replace_at(state.shares, slot, state.shares[slot] + priority - old))

    def rebuild(self, state: TreeState, slot: int, count: int) -> TreeState:
        if not self.rules.next_slots_allowed(state.state, slot, count, self.scenario.slots):
            return state
        if slot == 0:
            state = state._replace(shares=(0,) * self.scenario.slots, visible=False)
        state = self.found(state)
        shares = tuple(share + state.priorities[k] * (slot <= k < slot + count) for k, share in enumerate(state.shares))
        return state._replace(shares=shares, state=self.rules.restore(state.state, slot, count))

    def check(self, state: TreeState) -> None:
        """Check that a rebuild makes the tree right, slot by slot."""
        for slot in range(self.scenario.slots):
            state = self.rebuild(state, slot, 1)
        if state.shares != state.priorities or not self.rules.is_intact(state.state, self.scenario.slots):
            raise Violation("a tree is not right after it was rebuilt")

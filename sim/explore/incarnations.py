"""A ring that is emptied by a number: slots that belong to an older incarnation of the ring count as empty.

The golden model empties all slots at once, when a job is created or reset or adopts its parent's epoch. The gateware
has no time for that. Each slot carries the incarnation of the ring in which it was written, and only the slots of the
present one have content. There are as many incarnations as slots, so their numbers come again. Therefore each new
incarnation also writes the one slot that has its number: before an incarnation comes again, each slot has been written
in another one, or is written now.

Checked in each state: a slot has content if and only if it has been used since the ring was last emptied, as in the
golden model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.interface.tuples import replace_at
from sim.explore.messages import is_member
from sim.explore.search import Event, Explorer, Scenario, Violation

__all__ = ["IncarnationExplorer", "IncarnationScenario", "RingState", "StoredSlot", "slot_to_write"]


def slot_to_write(incarnation: int) -> int | None:
    """Return the slot that a new incarnation empties by a write."""
    return incarnation


@dataclass(frozen=True)
class IncarnationScenario(Scenario):
    """One ring, of any job.

    Parameters
    ----------
    slots : int
        The slots of the ring.
    incarnations : int
        How many incarnations are told apart; 0 for as many as there are slots.
    slot_to_write : callable
        The rule under test.
    is_stamped : bool
        False makes a mutant: a slot that is used keeps the incarnation that it has.
    """

    slots: int
    incarnations: int = 0
    slot_to_write: Callable[[int], int | None] = slot_to_write
    is_stamped: bool = True


class StoredSlot(NamedTuple):
    """A slot in the memory: in which incarnation it was written, and whether it was written with content."""

    incarnation: int = 0
    has_content: bool = False


class RingState(NamedTuple):
    """`used`: the set of the slots that have content in the golden model."""

    incarnation: int
    stored: tuple[StoredSlot, ...]
    used: int


class Use(NamedTuple):
    """A frame opens a slot, or changes it."""

    slot: int


class Renew(NamedTuple):
    """The ring is emptied."""


class IncarnationExplorer(Explorer[RingState]):
    """Search of one `IncarnationScenario`."""

    def __init__(self, scenario: IncarnationScenario) -> None:
        self.scenario = scenario

    def start(self) -> RingState:
        """Return the state after a reset of the switch, which writes all slots."""
        return RingState(0, (StoredSlot(),) * self.scenario.slots, 0)

    def events(self, state: RingState) -> Iterator[Event]:
        yield from map(Use, range(self.scenario.slots))
        yield Renew()

    def after(self, state: RingState, event: Event) -> RingState:
        s = self.scenario
        if isinstance(event, Use):
            before = state.stored[event.slot]
            slot = StoredSlot(state.incarnation if s.is_stamped else before.incarnation, True)
            return state._replace(stored=replace_at(state.stored, event.slot, slot), used=state.used | 1 << event.slot)
        incarnation = (state.incarnation + 1) % (s.incarnations or s.slots)
        stored, written = state.stored, s.slot_to_write(incarnation)
        if written is not None:
            stored = replace_at(stored, written, StoredSlot(incarnation))
        return RingState(incarnation, stored, 0)

    def check(self, state: RingState) -> None:
        for number, slot in enumerate(state.stored):
            has_content = slot.has_content and slot.incarnation == state.incarnation
            if has_content and not is_member(state.used, number):
                raise Violation("a slot gets its old content back")
            if is_member(state.used, number) and not has_content:
                raise Violation("a slot loses its content")

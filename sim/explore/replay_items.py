"""The limit on samples of an item under every order of requests.

The table is `host/iswitch/golden/replay/table.py` itself.

One item is in the table. SAMPLE, UPDATE and LIMIT come in any order, with any limit of `times` up to `largest`, and at
any time the item's count may become wrong by a bit error. Checked at each step: an item that was sampled as often as
its table allowed is never sampled again, whatever limit follows, and an item whose count has reached a lower limit is
sampled at most once more under that limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.config import Replay
from iswitch.golden.replay.table import Limits, Table
from sim.explore.search import Event, Explorer, Scenario, Violation

__all__ = ["CountFlips", "ItemExplorer", "ItemScenario", "ItemState", "LimitComes", "SampleComes", "UpdateComes"]


@dataclass(frozen=True)
class ItemScenario(Scenario):
    """Limits up to `largest`, and the `table` under test; a subclass makes a mutant."""

    largest: int = 3
    table: type[Table] = Table


class ItemState(NamedTuple):
    """The item's `priority` and `samples`, what its count says, and the limit of `times`.

    `right`: what the count would say without bit errors. `damaged`: it has a bit error; `flipped`: it has had one.
    `limited`: a LIMIT has set `times`. `retired`: the item was sampled as often as its table allowed then. `sampled`:
    how often it was sampled under the present limit, up to the limit. `reached`: its count had reached this limit when
    the limit came.
    """

    priority: int = 1
    samples: int = 0
    times: int = 0
    retired: bool = False
    sampled: int = 0
    reached: bool = False
    right: int = 0
    limited: bool = False
    damaged: bool = False
    flipped: bool = False


class CountFlips(NamedTuple):
    """A bit error after which the count says `samples`."""

    samples: int


class SampleComes(NamedTuple):
    """A SAMPLE of one item."""


class UpdateComes(NamedTuple):
    """An UPDATE that gives the item a priority above 0."""


class LimitComes(NamedTuple):
    """A LIMIT that sets `times`."""

    times: int


class ItemExplorer(Explorer[ItemState]):
    """Search of one `ItemScenario`."""

    def __init__(self, scenario: ItemScenario) -> None:
        self.scenario = scenario

    def start(self) -> ItemState:
        return ItemState()

    def events(self, state: ItemState) -> Iterator[Event]:
        yield UpdateComes()
        if state.priority:
            yield SampleComes()
        yield from map(LimitComes, range(self.scenario.largest + 1))
        if not state.flipped:
            yield from (CountFlips(state.samples ^ bit) for bit in (1, 2))

    def after(self, state: ItemState, event: Event) -> ItemState:
        table = self.scenario.table(Replay(capacity=16, sample_count_bits=2))
        table.add([state.priority])
        table.limits, table.times[0], table.limited = Limits(times=state.times), state.samples, state.limited
        table.damaged_counts = {0} if state.damaged else set()
        retired, sampled, reached, right = state.retired, state.sampled, state.reached, state.right
        match event:
            case CountFlips(samples):
                return state._replace(samples=samples, damaged=True, flipped=True)
            case UpdateComes():
                table.update(table.capacity, 1)
            case LimitComes(times):
                reached = bool(times) and right >= times
                table.limit(Limits(times=times))
                sampled = 0
            case SampleComes():
                if retired:
                    raise Violation("an item is sampled again although it was sampled as often as allowed")
                if state.times and sampled >= (1 if reached else state.times):
                    raise Violation("an item is sampled more often than the limit allows")
                table.count_samples(table.sample(0, 1, 0))
                sampled = min(sampled + 1, state.times)
                retired = bool(state.times) and (reached or right + 1 >= state.times)
                right = table.retired if retired else min(right + bool(state.times), table.retired)
        return ItemState(
            table.slots.tree.priorities[0],
            table.times[0],
            table.limits.times,
            retired,
            sampled,
            reached,
            right,
            table.limited,
            bool(table.damaged_counts),
            state.flipped,
        )

    def check(self, state: ItemState) -> None:
        """Check that no retired item has a priority."""
        if state.retired and state.priority:
            raise Violation("an item that was sampled as often as allowed has a priority above 0 again")

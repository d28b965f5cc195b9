"""When a table may be sampled: after a bit error, not before its sum tree was rebuilt from the priorities.

Section 4 of `docs/replay.md`. Everything here is a value and a function of values, so `sim/explore/replay_rebuild.py`
explores these very rules, and plausible wrong ones.
"""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["RULES", "RebuildRules", "SumState", "is_early", "is_intact", "next_slots_allowed", "restore"]


class SumState(NamedTuple):
    """What the switch knows of a sum tree. `corrupt`: a bit error was found since the last rebuild began. `restored`:
    slots whose priorities are in the sums."""

    restored: int
    corrupt: bool = False


def is_intact(state: SumState, capacity: int) -> bool:
    """Return whether the tree is complete, and no bit error was found."""
    return state.restored == capacity and not state.corrupt


def is_early(state: SumState, slot: int) -> bool:
    """A change of a priority that is not restored yet leaves the sums alone: the rebuild will add the new priority."""
    return slot >= state.restored


def next_slots_allowed(state: SumState, slot: int, count: int, capacity: int) -> bool:
    """A REBUILD begins with slot 0, or goes on where the one before it has ended. Return whether it does."""
    return slot in (0, state.restored) and slot + count <= capacity


def restore(state: SumState, slot: int, count: int) -> SumState:
    """Return the state after a REBUILD. One that begins empties the sums, and forgets the errors that were in them."""
    return state._replace(restored=count, corrupt=False) if slot == 0 else state._replace(restored=slot + count)


class RebuildRules(NamedTuple):
    """The rules of bit errors, which the explorer replaces by plausible wrong ones."""

    is_intact: Callable[[SumState, int], bool] = is_intact
    is_early: Callable[[SumState, int], bool] = is_early
    next_slots_allowed: Callable[[SumState, int, int, int], bool] = next_slots_allowed
    restore: Callable[[SumState, int, int], SumState] = restore


RULES = RebuildRules()

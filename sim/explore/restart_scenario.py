"""The cases of `restart.py`, and what may happen in them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.wire import MemberState
from sim.explore.restart_worker import StartedWorker, shows_live_member
from sim.explore.search import Scenario

__all__ = ["FallsSilent", "IsHeard", "Joins", "Leaves", "ReadsRow", "RestartScenario", "RestartState", "UsesLastLook"]


@dataclass(frozen=True)
class RestartScenario(Scenario):
    """One job that runs, and workers that start.

    Parameters
    ----------
    wanted : tuple of int
        The rank that each worker requests.
    world : int
        The job's size, before and after.
    alive : int
        The members of the running job that live, as a bit mask. All others are dead.
    left : int
        The members that have left the running job, as a bit mask.
    other_program : bool
        Whether the workers have another key than the running job.
    outage : bool
        Whether the switch may not hear members that live, for longer than `evict_us`.
    slow : tuple of int or None
        The workers whose answers get lost or come late, None for all. Each other one reads all rows at one moment.
    met_members : bool
        Whether the workers have been refused before, because a member was alive that has died since.
    shows_live_member : callable
        The rule under test: what the row of a member shows about its job.
    watches, permits_end, probes : bool
        False makes a mutant: a member that the switch has not heard counts as dead at once; a permit to send a Join
        does not end; a worker never requests the index that no job has.
    """

    wanted: tuple[int, ...]
    world: int = 2
    alive: int = 0
    left: int = 0
    other_program: bool = False
    outage: bool = False
    slow: tuple[int, ...] | None = None
    met_members: bool = False
    shows_live_member: Callable[[MemberState], bool] = shows_live_member
    watches: bool = True
    permits_end: bool = True
    probes: bool = True

    def is_slow(self, worker: int) -> bool:
        """Return whether answers to a worker get lost or come late."""
        return self.slow is None or worker in self.slow


class ReadsRow(NamedTuple):
    """A worker receives the next row of its look."""

    worker: int


class UsesLastLook(NamedTuple):
    """A worker goes on with the look that it has, because no other one is due."""

    worker: int


class Joins(NamedTuple):
    """The Join of a worker reaches the switch. `answered`: the answer reaches the worker."""

    worker: int
    answered: bool = True


class Leaves(NamedTuple):
    """A worker leaves. `heard`: its Leave reaches the switch."""

    worker: int
    heard: bool = True


class FallsSilent(NamedTuple):
    """The switch has not heard a member, which lives, for longer than `evict_us`."""

    member: int


class IsHeard(NamedTuple):
    """The switch hears a member that lives."""

    member: int


class RestartState(NamedTuple):
    """The switch, by the number of its state, and the workers."""

    switch: int
    workers: tuple[StartedWorker, ...]

"""The ring explored with links that carry messages, and single kinds of faults: the check of `explorer.py`'s network.

Each worker has a link to the switch and one back, first in, first out, with at most `room` messages under way each;
a worker does not repeat what is still under way, and the switch takes no message whose answer has no room. Faults:
`loss`: the next message of a link may vanish. `duplicate`: it may arrive and yet stay. `reorder`: any message of a
link may be the next, so that one may be overtaken for ever (late delivery).

Every (switch, workers) reached here must be among the states of `Explorer`, whose network can do more.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sim.explore.ring import Explorer, State, lowest_missing
from sim.explore.ring_switch import UNKNOWN, Scenario
from sim.explore.search import put, search

__all__ = ["LOSS", "DUPLICATE", "REORDER", "LinkExplorer", "LinkState"]

LOSS, DUPLICATE, REORDER = "loss", "duplicate", "reorder"

Link = tuple[Any, ...]


class LinkState(NamedTuple):
    """`up`: messages to the switch; `down`: segments whose results travel to each worker."""

    core: int
    held: tuple[int, ...]
    up: tuple[Link, ...]
    down: tuple[tuple[int, ...], ...]


class Got(NamedTuple):
    worker: int
    segment: int


class Lost(NamedTuple):
    worker: int
    segment: int


def without(link: tuple, at: int) -> tuple:
    return link[:at] + link[at + 1 :]


class LinkExplorer:
    """`faults` is a set of the kinds above. Switch and workers are those of an `Explorer`."""

    def __init__(self, scenario: Scenario, faults: frozenset[str], room: int = 1) -> None:
        self.scenario, self.faults, self.room = scenario, faults, room
        self.base = Explorer(scenario)

    def start(self) -> LinkState:
        core, held = self.base.start()
        return LinkState(core, held, ((),) * self.scenario.workers, ((),) * self.scenario.workers)

    def run(self) -> set[LinkState]:
        """All reachable states, or a Violation."""
        return search(
            self.start(), self.successors, lambda state: self.base.check_progress(State(state.core, state.held))
        )

    def order(self, link: tuple) -> tuple:
        """Where any message may be next, the order on the link is no part of the state."""
        return tuple(sorted(link, key=repr)) if REORDER in self.faults else link

    def takings(self, link: tuple) -> Iterator[tuple[Any, tuple]]:
        """A message that may be next and what may then be left on the link."""
        for at, message in enumerate(link):
            if at and REORDER not in self.faults:
                break
            yield message, without(link, at)
            if DUPLICATE in self.faults:
                yield message, link

    def successors(self, state: LinkState) -> Iterator[tuple[Any, LinkState]]:
        core = self.base.switch.cores[state.core]
        for action in self.base.actions(core):
            yield action, self.turn(state, self.base.switch.move(state.core, action)[0])
        for worker in range(self.scenario.workers):
            if core.ring.live >> worker & 1:
                yield from self.sends(state, worker)
                yield from self.losses(state, worker)
                yield from self.arrivals_up(state, worker)
                yield from self.arrivals_down(state, worker)

    def turn(self, state: LinkState, core: int) -> LinkState:
        """The switch is in another state, with what that means for who has left: as in `Explorer`."""
        return state._replace(core=core, held=self.base.turn(State(state.core, state.held), core).held)

    def sends(self, state: LinkState, worker: int) -> Iterator[tuple[Any, LinkState]]:
        held, link = state.held[worker], state.up[worker]
        low = lowest_missing(held)
        if len(link) < self.room:
            for message in (*self.base.contributions(worker, held, low), *self.base.receipts(worker, low)):
                if message not in link:
                    yield message, state._replace(up=put(state.up, worker, self.order((*link, message))))

    def losses(self, state: LinkState, worker: int) -> Iterator[tuple[Any, LinkState]]:
        up, down = state.up[worker], state.down[worker]
        if LOSS in self.faults and up:
            yield up[0], state._replace(up=put(state.up, worker, up[1:]))
        if LOSS in self.faults and down:
            yield Lost(worker, down[0]), state._replace(down=put(state.down, worker, down[1:]))

    def arrivals_up(self, state: LinkState, worker: int) -> Iterator[tuple[Any, LinkState]]:
        for message, rest in self.takings(state.up[worker]):
            core, segment, receivers, _ = self.base.switch.move(state.core, message)
            down = state.down
            for m in range(self.scenario.workers):
                if segment != UNKNOWN and receivers >> m & 1:
                    down = put(down, m, self.order((*down[m], segment)))
            if all(len(link) <= self.room for link in down):
                yield message, self.turn(state, core)._replace(up=put(state.up, worker, rest), down=down)

    def arrivals_down(self, state: LinkState, worker: int) -> Iterator[tuple[Any, LinkState]]:
        for segment, rest in self.takings(state.down[worker]):
            held = put(state.held, worker, state.held[worker] | 1 << segment)
            yield Got(worker, segment), state._replace(held=held, down=put(state.down, worker, rest))

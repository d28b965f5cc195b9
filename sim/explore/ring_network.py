"""The ring over links that carry messages, with single kinds of faults: a check of the network that remembers
everything.

Each worker has a link to the switch and one back. Links are first in, first out, and hold at most `room` messages. A
worker does not repeat what is still in flight, and the switch takes no message whose answer has no room.

Every (switch, workers) reached here must be among the states of `RingExplorer`, whose network can do more.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from iswitch.golden.interface.tuples import replace_at
from sim.explore.messages import UNKNOWN, Contribution, Receipt, is_member, lowest_missing
from sim.explore.ring import RingExplorer, RingState
from sim.explore.ring_switch import RingScenario
from sim.explore.search import Event, Explorer

__all__ = ["DUPLICATE", "LOSS", "REORDER", "LinkExplorer", "LinkState"]

LOSS, DUPLICATE, REORDER = "loss", "duplicate", "reorder"
"""Faults of a link: its next message may vanish; a message may arrive and stay; any message may be the next.

With `REORDER` a message may be overtaken forever, which is late delivery.
"""

Link = tuple[Any, ...]
Message = Contribution | Receipt


class LinkState(NamedTuple):
    """`ring`: switch and workers. `up`: per worker, messages to the switch. `down`: segments whose results travel to
    it."""

    ring: RingState
    up: tuple[Link, ...]
    down: tuple[tuple[int, ...], ...]


class Sent(NamedTuple):
    """A worker sends a message."""

    message: Message


class Lost(NamedTuple):
    """The next message on a worker's link vanishes, towards the switch (`up`) or from it."""

    worker: int
    up: bool


class Arrived(NamedTuple):
    """A message reaches the switch. `stays`: a duplicate of it remains on the link."""

    message: Message
    stays: bool


class ResultArrived(NamedTuple):
    """A result reaches a worker. `stays`: a duplicate of it remains on the link."""

    worker: int
    segment: int
    stays: bool


class LinkExplorer(Explorer[LinkState]):
    """Search of one `RingScenario` with links.

    Parameters
    ----------
    scenario : RingScenario
    faults : frozenset of str
        Any of LOSS, DUPLICATE, REORDER.
    room : int
        How many messages a link holds.
    """

    def __init__(self, scenario: RingScenario, faults: frozenset[str], room: int = 1) -> None:
        self.scenario, self.faults, self.room = scenario, faults, room
        self.base = RingExplorer(scenario)

    def start(self) -> LinkState:
        empty = ((),) * self.scenario.workers
        return LinkState(self.base.start(), empty, empty)

    def check(self, state: LinkState) -> None:
        self.base.check(state.ring)

    def events(self, state: LinkState) -> Iterator[Event]:
        core = self.base.core(state.ring)
        yield from self.base.operations(core)
        for worker in range(self.scenario.workers):
            if is_member(core.ring.live, worker):
                yield from (Sent(message) for message in self._sendable(state, worker))
                if LOSS in self.faults:
                    yield from (Lost(worker, up) for up in (True, False) if (state.up if up else state.down)[worker])
                for stays in (False, True) if DUPLICATE in self.faults else (False,):
                    yield from (
                        Arrived(message, stays)
                        for message in self._next(state.up[worker])
                        if self._has_room(state, message)
                    )
                    yield from (ResultArrived(worker, segment, stays) for segment in self._next(state.down[worker]))

    def _sendable(self, state: LinkState, worker: int) -> Iterator[Message]:
        """Return what a worker may send that is not in flight, if its link has room."""
        held, link = state.ring.held[worker], state.up[worker]
        if len(link) < self.room:
            low = lowest_missing(held)
            for message in chain[Message](self.base.contributions(worker, low, held), self.base.receipts(worker, low)):
                if message not in link:
                    yield message

    def _next(self, link: Link) -> Link:
        """Return the messages that may be the next to arrive."""
        return link if REORDER in self.faults else link[:1]

    def _has_room(self, state: LinkState, message: Message) -> bool:
        return all(len(link) <= self.room for link in self._answered(state, message).down)

    def after(self, state: LinkState, event: Event) -> LinkState:
        match event:
            case Sent(message):
                link = self._ordered((*state.up[message.worker], message))
                return state._replace(up=replace_at(state.up, message.worker, link))
            case Lost(worker, True):
                return state._replace(up=replace_at(state.up, worker, state.up[worker][1:]))
            case Lost(worker, False):
                return state._replace(down=replace_at(state.down, worker, state.down[worker][1:]))
            case Arrived(message, stays):
                after = self._answered(state, message)
                link = state.up[message.worker]
                return (
                    after if stays else after._replace(up=replace_at(state.up, message.worker, without(link, message)))
                )
            case ResultArrived(worker, segment, stays):
                after = state._replace(ring=self.base.hold(state.ring, worker, segment))
                link = state.down[worker]
                return after if stays else after._replace(down=replace_at(state.down, worker, without(link, segment)))
        return state._replace(ring=self.base.after(state.ring, event))

    def _answered(self, state: LinkState, message: Message) -> LinkState:
        """Return the state after the switch took a message and sent what it answers."""
        switch, sent = self.base.switch.step(state.ring.switch, message)
        down = state.down
        for m in range(self.scenario.workers if sent.segment != UNKNOWN else 0):
            if is_member(sent.receivers, m):
                down = replace_at(down, m, self._ordered((*down[m], sent.segment)))
        return state._replace(ring=self.base.moved(state.ring, switch), down=down)

    def _ordered(self, link: Link) -> Link:
        """Return the link as part of a state: where any message may be next, the order does not matter."""
        return tuple(sorted(link, key=repr)) if REORDER in self.faults else link


def without(link: Link, message: Any) -> Link:
    """Return the link without one copy of a message."""
    at = link.index(message)
    return link[:at] + link[at + 1 :]

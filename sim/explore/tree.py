"""Trees of switches under every order of messages: workers, switches and a hostile network on every link.

Each switch (`tree_switches.py`) runs `host/iswitch/golden/decide/tree.py` itself. The workers follow
`docs/protocol.md`. The network remembers everything (`messages.py`), so a state is the switches and what the workers
hold:

- A worker's messages, and the results that it may get from its switch, are those of `ring.py`.
- A leaf's uplink of a segment never changes (checked). It may have been sent with each `low` up to the one that the
  leaf knows now, so it can be delivered at any later time. The same holds for a receipt with each such `low`. This
  includes a few messages that were never sent, with a `low` that was skipped or was passed before: true nevertheless,
  and telling the parent less. (That no leaf is farther behind than a parent assumes is therefore checked when the leaf
  sends.)
- A result of the parent can be delivered at any later time to each leaf that was its member then.
- A parent refuses a member that left (MEMBER). A leaf whose last member leaves asks to leave until its parent agrees.

Checked at each step:

- No worker is in a sum twice, and no sum mixes laps of the ring.
- A partial sum and a result are what their ranks say, and never change. A result has enough members.
- An honest sender is never refused with WINDOW, and with H = N never with SLOT_HELD.
- A result never finds a leaf's slot held.

Checked in each state: if everything in flight is lost, fresh repeats and receipts of the *workers* bring every result
to every worker that is still connected to the root by members. No switch needs a timer.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import SlotState
from sim.explore.messages import (
    UNKNOWN,
    Contribution,
    Leave,
    Receipt,
    Result,
    contributions,
    is_member,
    known,
    lowest_missing,
    receipts,
)
from sim.explore.search import Continuation, Event, Explorer, Violation
from sim.explore.tree_scenario import LeafReceipt, MemberLeaves, ParentResult, SlotExpires, TreeScenario, Uplink
from sim.explore.tree_switches import SwitchTree, TreeCore

__all__ = ["TreeExplorer", "TreeState"]


class TreeState(NamedTuple):
    """`switches`: the number of each switch's state. `held`: per worker, the bit mask of the results that it holds."""

    switches: tuple[int, ...]
    held: tuple[int, ...]


class TreeExplorer(Explorer[TreeState]):
    """Search of one `TreeScenario`."""

    def __init__(self, scenario: TreeScenario) -> None:
        self.scenario, self.tree = scenario, SwitchTree(scenario)
        self._effective: dict[tuple[Any, ...], list[Event]] = {}
        self._progress = {silent: self._continuation(silent) for silent in scenario.silent}

    def start(self) -> TreeState:
        return TreeState(self.tree.start(), (0,) * len(self.scenario.homes))

    def core(self, state: TreeState, switch: int) -> TreeCore:
        """Return a switch in a state."""
        return self.tree.states[state.switches[switch]]

    # Membership between switches

    def is_child(self, state: TreeState, switch: int) -> bool:
        """Return whether a switch is a member of its parent."""
        parent = self.core(state, self.scenario.parents[switch])
        return is_member(parent.ring.live, self.tree.child_index[switch])

    def is_live(self, state: TreeState, worker: int) -> bool:
        """Return whether a worker is a member of its switch."""
        live = self.core(state, self.scenario.homes[worker]).ring.live
        return is_member(live, self.tree.worker_index[worker])

    def connected(self, state: TreeState) -> list[int]:
        """Return the workers that are members of the job: they have not left, nor has a switch above them."""
        cut = 0
        for c in self.tree.switches[1:]:  # a parent comes before its children
            if is_member(cut, self.scenario.parents[c]) or not self.is_child(state, c):
                cut |= 1 << c
        return [w for w, home in enumerate(self.scenario.homes) if not is_member(cut, home) and self.is_live(state, w)]

    # What may happen

    def events(self, state: TreeState) -> Iterator[Event]:
        yield from self.operations(state)
        for switch in self.tree.switches:
            for worker in self.tree.locals[switch]:
                if self.is_live(state, worker):
                    yield from self._worker_events(state, switch, worker)
            for child in self.tree.children[switch]:
                yield from self._link_events(state, switch, child)

    def operations(self, state: TreeState) -> Iterator[Event]:
        """Return what may happen at any time besides messages of the ring: departures, evictions, time."""
        s = self.scenario
        connected = self.connected(state)
        left = sum(not self.is_live(state, w) for w in self.tree.workers)
        if len(connected) > 1 and left < s.leaves:
            yield from (Leave(w) for w in connected)
        for switch in s.deadlines:
            slots = self.core(state, switch).ring.slots
            yield from (SlotExpires(switch, k) for k, slot in enumerate(slots) if slot.state == SlotState.COLLECTING)
        for c in self.tree.switches[1:]:
            is_empty = not self.core(state, c).ring.live
            if self.is_child(state, c) and (is_empty or c in s.evicted):
                yield MemberLeaves(c)

    def _worker_events(self, state: TreeState, switch: int, worker: int) -> Iterator[Event]:
        number, held = state.switches[switch], state.held[worker]
        deliverable = known(self.tree.states[number].results) & ~held
        for segment in range(self.scenario.segments):
            if is_member(deliverable, segment):
                yield Result(worker, segment)
        key = number, worker, lowest_missing(held)
        if key not in self._effective:
            self._effective[key] = self.tree.effective(number, self._messages(worker, lowest_missing(held)))
        yield from self._effective[key]

    def _link_events(self, state: TreeState, switch: int, child: int) -> Iterator[Event]:
        """Return the messages that may arrive on the link between a switch and a child, in both directions."""
        core, below = self.core(state, switch), self.core(state, child)
        deliverable = known(core.results)
        if self.is_child(state, child):
            number, low = state.switches[switch], self.tree.low(below)
            key = number, child, low, below.sent_up
            if key not in self._effective:
                self._effective[key] = self.tree.effective(number, self.sent_by_leaf(child, low, below.sent_up))
            yield from self._effective[key]
        else:
            deliverable = core.still_deliverable[self.tree.child_index[child]]
        for segment in range(self.scenario.segments if below.ring.live else 0):
            if is_member(deliverable, segment) and below.results[segment] == UNKNOWN:
                yield ParentResult(child, segment, core.results[segment])

    def contributions(self, worker: int, low: int, held: int = 0) -> Iterator[Contribution]:
        """Return what a worker that lacks `low` contributes: the segments of its window."""
        return contributions(worker, low, min(low + self.scenario.window, self.scenario.segments), held)

    def receipts(self, worker: int, low: int) -> Iterator[Receipt]:
        return receipts(worker, low, self.scenario.segments) if self.scenario.receipts else iter(())

    def _messages(self, worker: int, lowest: int) -> Iterator[Event]:
        """Return the messages that a worker may have sent up to now."""
        for low in range(lowest + 1):
            yield from self.contributions(worker, low)
            yield from self.receipts(worker, low)

    def sent_by_leaf(self, switch: int, low: int, sent_up: tuple[int, ...]) -> Iterator[Event]:
        """Return the messages that a leaf may have sent up to now, whose lowest lacking segment is `low`."""
        s = self.scenario
        for segment, ranks in enumerate(sent_up):
            if ranks != UNKNOWN:
                earliest = max(0, segment - self.tree.reach + 1)
                yield from (Uplink(switch, segment, ranks, k) for k in range(earliest, min(low, segment) + 1))
        if s.receipts and s.reports:
            for k in range(low + 1):
                yield LeafReceipt(switch, k, UNKNOWN)
                yield from (LeafReceipt(switch, k, wanted) for wanted in range(k, min(k + s.window + 1, s.segments)))

    # What it does

    def after(self, state: TreeState, event: Event) -> TreeState:
        if isinstance(event, Result):
            return self.hold(state, event.worker, event.segment)
        switch = self.tree.place(event)
        return self.moved(state, switch, self.tree.step(state.switches[switch], event)[0])

    def moved(self, state: TreeState, switch: int, number: int) -> TreeState:
        """Return the state with one switch in another one."""
        return state._replace(switches=replace_at(state.switches, switch, number))

    def hold(self, state: TreeState, worker: int, segment: int) -> TreeState:
        """Return the state after a worker received a result."""
        return state._replace(held=replace_at(state.held, worker, state.held[worker] | 1 << segment))

    # What is promised

    def check(self, state: TreeState) -> None:
        """Check that the workers' fresh messages alone bring all results, on a network that is empty now.

        One fixed order of messages, without losses, is tried.
        """
        for continuation in self._progress.values():
            continuation.follow(state)

    def _continuation(self, silent: frozenset[int]) -> Continuation[TreeState, bool]:
        return Continuation(lambda state: self._round(state, silent), self._is_over, self._stuck)

    def _is_over(self, state: TreeState) -> bool | None:
        every = (1 << self.scenario.segments) - 1
        return all(state.held[worker] == every for worker in self.connected(state)) or None

    @staticmethod
    def _stuck(state: TreeState) -> bool:
        raise Violation("a worker waits forever")

    def _round(self, state: TreeState, silent: frozenset[int]) -> TreeState:
        """Return the state after every connected worker repeated its messages once."""
        connected = self.connected(state)
        for c in self.tree.switches[:0:-1]:  # a worker that left repeats its Leave, and its switch passes that on
            if not self.core(state, c).ring.live and self.is_child(state, c):
                state = self._deliver(state, MemberLeaves(c))
        for worker in connected:
            held = state.held[worker]
            low = lowest_missing(held)
            contributed = () if worker in silent else self.contributions(worker, low, held)
            for event in (*contributed, *self.receipts(worker, low)):
                state = self._deliver(state, event)
        return state

    def _deliver(self, state: TreeState, event: Event) -> TreeState:
        """Return the state after a message arrived and everything that it causes arrived, too."""
        switch = self.tree.place(event)
        number, sent = self.tree.step(state.switches[switch], event)
        state = self.moved(state, switch, number)
        if sent.up and self.is_child(state, switch):
            state = self._deliver(state, sent.up)
        if sent.segment == UNKNOWN:
            return state
        ranks = self.tree.states[number].results[sent.segment]
        for child in self.tree.children[switch]:
            if is_member(sent.receivers, self.tree.child_index[child]) and self.core(state, child).ring.live:
                state = self._deliver(state, ParentResult(child, sent.segment, ranks))
        for worker in self.tree.locals[switch]:
            if is_member(sent.receivers, self.tree.worker_index[worker]):
                state = self.hold(state, worker, sent.segment)
        return state

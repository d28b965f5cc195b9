"""Every state that a tree of switches, its workers and a hostile network can reach, in small cases: is the protocol
right?

Each switch (`explorer_tree_switches.py`) runs `sim/model/decide/tree.py` itself, workers follow `docs/protocol.md`
as in `explorer.py`. **The network remembers everything** here too, on every link: what may have been sent by now may
arrive now, again and again, in any order, or never. So the network is no part of the state, which is the switches and
what the workers hold:

- A worker's messages, and the results it may get from its switch, are those of `explorer.py`.
- A leaf's uplink of a segment says the same ever after (checked), and it may have been sent with each `low` up to the
worst that the leaf
  knows now: it is deliverable for ever once the segment was sent up. So is a receipt with each such `low`. This allows
  a few that were never sent, with a `low` that was skipped or was passed before: true all the same, and telling the
  parent less. (That no leaf is farther behind than a parent believes is therefore checked when it sends.)
- A result of the parent is deliverable for ever to each leaf that was its member then.
- A parent refuses whoever has left (MEMBER). A leaf whose last member leaves asks to leave until it is let go.

Checked at each step: nobody is in a sum twice, no sum mixes laps; a partial sum and a result is what its ranks say, the
same for ever; a result has enough in it; no honest sender is told WINDOW, nor SLOT_HELD with H = N; a result never
finds a leaf's slot held. Checked in each state: if all that is under way is lost, the *workers'* fresh repeats and
receipts suffice to bring every result to every worker that has not left, nor has a switch above it: no switch needs a
timer.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from iswitch.wire import SlotState
from sim.explore.ring import Result, lowest_missing
from sim.explore.ring_switch import UNKNOWN, Contribution, Leave, Receipt
from sim.explore.search import Violation, put, search
from sim.explore.tree_switches import Core, Down, Event, Expire, Part, Report, Scenario, SwitchTree, Uplink, known

__all__ = ["Explorer", "State"]


class State(NamedTuple):
    """`cores` index `SwitchTree.cores`. `held`: bit mask of the results that each worker holds."""

    cores: tuple[int, ...]
    held: tuple[int, ...]


class Explorer:
    """Breadth-first search of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.tree = scenario, SwitchTree(scenario)
        self.effects: dict[tuple[Any, ...], list[tuple[Event, int]]] = {}
        self.good: dict[frozenset[int], set[State]] = {}

    def start(self) -> State:
        return State(self.tree.start(), (0,) * len(self.scenario.homes))

    # What may arrive

    def contributions(self, worker: int, held: int, low: int) -> Iterator[Contribution]:
        """What a worker sends that lacks `low`: anything of its window whose result it does not hold."""
        for segment in range(low, min(low + self.scenario.window, self.scenario.segments)):
            if not held >> segment & 1:
                yield Contribution(worker, segment, low)

    def receipts(self, worker: int, low: int) -> Iterator[Receipt]:
        if self.scenario.receipts:
            yield Receipt(worker, low, UNKNOWN)
            if low < self.scenario.segments:
                yield Receipt(worker, low, low)

    def ever_sent(self, worker: int, lowest: int) -> Iterator[Event]:
        for low in range(lowest + 1):
            yield from self.contributions(worker, 0, low)
            yield from self.receipts(worker, low)

    def ever_sent_up(self, switch: int, worst: int, up: tuple[int, ...]) -> Iterator[Event]:
        s = self.scenario
        for segment, ranks in enumerate(up):
            if ranks != UNKNOWN:
                yield from (
                    Uplink(switch, segment, ranks, low)
                    for low in range(max(0, segment - self.tree.reach + 1), min(worst, segment) + 1)
                )
        if s.receipts and s.reports:
            for low in range(worst + 1):
                yield Report(switch, low, UNKNOWN)
                yield from (Report(switch, low, wanted) for wanted in range(low, min(low + s.window + 1, s.segments)))

    def arrivals(self, number: int, worker: int, lowest: int) -> list[tuple[Event, int]]:
        """A worker's messages up to this `low`, with the core after each that changes it."""
        key = number, worker, lowest
        if key not in self.effects:
            self.effects[key] = self.changes(number, self.ever_sent(worker, lowest))
        return self.effects[key]

    def arrivals_up(self, number: int, child: int, below: Core) -> list[tuple[Event, int]]:
        key = number, child, self.tree.worst(below), below.up
        if key not in self.effects:
            self.effects[key] = self.changes(number, self.ever_sent_up(*key[1:]))
        return self.effects[key]

    def changes(self, number: int, events: Iterator[Event]) -> list[tuple[Event, int]]:
        moved: dict[int, Event] = {}
        for event in events:
            moved.setdefault(self.tree.move(number, event)[0], event)
        return [(event, after) for after, event in moved.items() if after != number]

    # The search

    def cut(self, state: State) -> int:
        """Bit mask of the switches that have left, or whose parents have."""
        gone = 0
        for c in self.tree.switches[1:]:  # a parent comes before its children
            parent = self.scenario.parents[c]
            if gone >> parent & 1 or not self.tree.cores[state.cores[parent]].ring.live >> self.tree.seat[c] & 1:
                gone |= 1 << c
        return gone

    def alive(self, state: State) -> list[int]:
        """Workers that have not left and whose switches have not."""
        gone = self.cut(state)
        return [
            w
            for w, home in enumerate(self.scenario.homes)
            if not gone >> home & 1 and self.tree.cores[state.cores[home]].ring.live >> self.tree.place[w] & 1
        ]

    def actions(self, state: State) -> Iterator[tuple[int, Event]]:
        """What may happen at any time that is no message of the ring, and where."""
        s = self.scenario
        lives = [
            sum(
                self.tree.cores[number].ring.live >> len(self.tree.children[k]) & 1 << m
                for m in range(len(self.tree.locals[k]))
            ).bit_count()
            for k, number in enumerate(state.cores)
        ]
        if len(self.alive(state)) > 1 and len(self.tree.workers) - sum(lives) < s.leaves:
            yield from ((s.homes[w], Leave(w)) for w in self.alive(state))
        for switch in s.deadlines:
            slots = self.tree.cores[state.cores[switch]].ring.slots
            yield from (
                (switch, Expire(switch, k)) for k, slot in enumerate(slots) if slot.state == SlotState.COLLECTING
            )
        for c in self.tree.switches[1:]:
            asks = not self.tree.cores[state.cores[c]].ring.live
            member = self.tree.cores[state.cores[s.parents[c]]].ring.live >> self.tree.seat[c] & 1
            if member and (asks or c in s.evicted):
                yield s.parents[c], Part(c)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        for switch, event in self.actions(state):
            yield event, self.at(state, switch, self.tree.move(state.cores[switch], event)[0])
        for switch, number in enumerate(state.cores):
            core = self.tree.cores[number]
            for worker in self.tree.locals[switch]:
                if core.ring.live >> self.tree.place[worker] & 1:
                    held = state.held[worker]
                    fresh = known(core.truth) & ~held
                    for segment in range(self.scenario.segments):
                        if fresh >> segment & 1:
                            yield Result(worker, segment), self.receive(state, worker, segment)
                    for event, after in self.arrivals(number, worker, lowest_missing(held)):
                        yield event, self.at(state, switch, after)
            for child in self.tree.children[switch]:
                below, member = self.tree.cores[state.cores[child]], self.tree.seat[child]
                told = known(core.truth)
                if core.ring.live >> member & 1:
                    for event, after in self.arrivals_up(number, child, below):
                        yield event, self.at(state, switch, after)
                else:
                    told = core.told[member]
                for segment in range(self.scenario.segments if below.ring.live else 0):
                    if told >> segment & 1 and below.truth[segment] == UNKNOWN:
                        event = Down(child, segment, core.truth[segment])
                        after = self.tree.move(state.cores[child], event)[0]
                        if after != state.cores[child]:
                            yield event, self.at(state, child, after)

    def at(self, state: State, switch: int, number: int) -> State:
        return state._replace(cores=put(state.cores, switch, number))

    def receive(self, state: State, worker: int, segment: int) -> State:
        return state._replace(held=put(state.held, worker, state.held[worker] | 1 << segment))

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, the workers' fresh messages alone reach the goal. One fixed order without
        losses."""
        for silent in self.scenario.silent:
            self.reach_goal(state, silent)

    def reach_goal(self, state: State, silent: frozenset[int]) -> None:
        """`good` remembers the states passed, from which it was reached."""
        good, passed, every = self.good.setdefault(silent, set()), [], (1 << self.scenario.segments) - 1
        while state not in good:
            passed.append(state)
            alive = self.alive(state)
            if all(state.held[worker] == every for worker in alive):
                break
            for c in self.tree.switches[:0:-1]:  # a departed worker repeats its Leave, and its switch's follows
                parent = self.scenario.parents[c]
                if (
                    not self.tree.cores[state.cores[c]].ring.live
                    and self.tree.cores[state.cores[parent]].ring.live >> self.tree.seat[c] & 1
                ):
                    state = self.deliver(state, parent, Part(c))
            for worker in alive:
                held, home = state.held[worker], self.scenario.homes[worker]
                low = lowest_missing(held)
                for event in (
                    *(() if worker in silent else self.contributions(worker, held, low)),
                    *self.receipts(worker, low),
                ):
                    state = self.deliver(state, home, event)
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        good.update(passed)

    def deliver(self, state: State, switch: int, event: Event) -> State:
        """A message arrives, and all that it causes."""
        number, sent = self.tree.move(state.cores[switch], event)
        state = self.at(state, switch, number)
        if sent.up:
            parent = self.scenario.parents[switch]
            if self.tree.cores[state.cores[parent]].ring.live >> self.tree.seat[switch] & 1:
                state = self.deliver(state, parent, sent.up)
        core = self.tree.cores[number]
        for child in self.tree.children[switch] if sent.segment != UNKNOWN else ():
            if sent.receivers >> self.tree.seat[child] & 1 and self.tree.cores[state.cores[child]].ring.live:
                state = self.deliver(state, child, Down(child, sent.segment, core.truth[sent.segment]))
        for worker in self.tree.locals[switch] if sent.segment != UNKNOWN else ():
            if sent.receivers >> self.tree.place[worker] & 1:
                state = self.receive(state, worker, sent.segment)
        return state

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

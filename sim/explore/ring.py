"""Every state that workers, the ring and a hostile network can reach, in small cases: is the protocol right?

The switch (`ring_switch.py`) is `sim/model/decide/ring.py` itself, workers follow `docs/protocol.md`.

**The network remembers everything.** Whatever a worker may have sent by now may arrive now, again and again, in any
order, or never. This is more than any loss, duplication, reordering and delay can do, so a rule that holds here holds
under all of them at once. It also makes the network no part of the state:

- A result once sent is deliverable to each live member for ever after.
- A worker whose lowest missing segment is `low` may at each earlier `low` have sent a receipt, and a contribution to
  each segment of its window then. This allows a few messages that it may never have sent: with a `low` that it skipped,
  which are true all the same, and for a segment whose result it holds by now, which meet a complete slot or a later
  lap.
- The switch refuses whoever has left (MEMBER), so a worker's messages end with its membership. Whoever joins again has
a new token and
  begins at the segment that the switch names; `start` says which.

`sim/explore/ring_network.py` explores networks with queues and single kinds of faults, and the tests compare.

Checked at each step: nobody is in a sum twice, no sum mixes laps, a result is what its `members` say, the same for all
and for ever, with enough in it; an honest worker is never told WINDOW, and with H = N never SLOT_HELD; who is live is
waited for from its first segment on. Checked in each state: if the network loses all that is under way, fresh repeats
and receipts sent by timer suffice to bring every result to every live worker, even if all but H of them never
contribute again (with a deadline: all but one), and whoever waits to join is let in. The same if one worker, any, is
dead: the others' messages then show that they wait for it, and that is what it is evicted for.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from iswitch.wire import SlotState
from sim.explore.ring_switch import (
    UNKNOWN,
    Contribution,
    Core,
    Event,
    Force,
    Join,
    Leave,
    Overdue,
    Receipt,
    RingSwitch,
    Scenario,
    SetThreshold,
)
from sim.explore.search import Violation, search

__all__ = ["Explorer", "Result", "State", "lowest_missing"]


class Result(NamedTuple):
    worker: int
    segment: int


class State(NamedTuple):
    """`core` indexes `RingSwitch.cores`. `held`: bit mask of the results that each worker holds."""

    core: int
    held: tuple[int, ...]


def lowest_missing(held: int) -> int:
    return (~held & held + 1).bit_length() - 1


class Explorer:
    """Breadth-first search of one scenario. `switch` makes mutants."""

    def __init__(self, scenario: Scenario, switch: type[RingSwitch] = RingSwitch) -> None:
        self.scenario, self.switch = scenario, switch(scenario)
        self.effects: dict[tuple[int, int, int], list[tuple[Event, int]]] = {}
        self.good: dict[tuple[tuple[int, ...], int], set[State]] = {}

    def start(self) -> State:
        return State(self.switch.start(), (0,) * self.scenario.workers)

    # The workers

    def contributions(self, worker: int, held: int, low: int) -> Iterator[Contribution]:
        """What a worker sends that lacks `low`: anything of its window, up to the end of the collective, whose result
        it does not hold."""
        s = self.scenario
        end = min([s.segments, low + s.window] + [last + 1 for last in s.boundaries if last >= low and not s.eager])
        for segment in range(low, end):
            if not held >> segment & 1:
                yield Contribution(worker, segment, low)

    def receipts(self, worker: int, low: int) -> Iterator[Receipt]:
        if self.scenario.receipts:
            yield Receipt(worker, low, UNKNOWN)
            if low < self.scenario.segments:
                yield Receipt(worker, low, low)

    def receive(self, state: State, worker: int, segment: int) -> State:
        held = state.held[worker] | 1 << segment
        return state._replace(held=state.held[:worker] + (held,) + state.held[worker + 1 :])

    # The search

    def actions(self, core: Core) -> Iterator[Event]:
        """What may happen at any time that is no message of the ring."""
        s, ring = self.scenario, core.ring
        if s.workers - ring.live.bit_count() < min(s.leaves, s.workers - (not s.joins)):
            yield from (Leave(m) for m in range(s.workers) if ring.live >> m & 1)
        yield from (Leave(m) for m in range(s.workers) if ring.joining >> m & 1)
        if s.joins and ring.live:
            yield from (Join(m) for m in range(s.workers) if not (ring.live | ring.joining) >> m & 1)
        yield from (SetThreshold(h) for h in s.thresholds if h != ring.threshold)
        collecting = [slot for slot in ring.slots if slot.state == SlotState.COLLECTING]
        if s.forces:
            yield from (
                Force(self.switch.segment(slot)) for slot in collecting if s.any_forced or not slot.requires_all
            )
        if s.deadline:
            yield from (Overdue(self.switch.segment(slot)) for slot in collecting if not slot.opened_us)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        core = self.switch.cores[state.core]
        for action in self.actions(core):
            yield action, self.turn(state, self.switch.move(state.core, action)[0])
        for worker, held in enumerate(state.held):
            if not core.ring.live >> worker & 1:
                continue
            for segment, members in enumerate(core.truth):
                if members != UNKNOWN and not held >> segment & 1:
                    yield Result(worker, segment), self.receive(state, worker, segment)
            for event, after in self.arrivals(state.core, worker, lowest_missing(held)):
                yield event, self.turn(state, after)

    def turn(self, state: State, core: int) -> State:
        """The switch is in another state. Who has become a member by that begins as one; who is none holds nothing."""
        before, after = self.switch.cores[state.core], self.switch.cores[core]
        if before.ring.live == after.ring.live:
            return state._replace(core=core)
        new = after.ring.live & ~before.ring.live
        held = tuple(
            (1 << after.start[m]) - 1 if new >> m & 1 else old if after.ring.live >> m & 1 else 0
            for m, old in enumerate(state.held)
        )
        return State(core, held)

    def arrivals(self, number: int, worker: int, lowest: int) -> list[tuple[Event, int]]:
        """Messages that a worker may have sent up to this `low`, with the core after each that changes it."""
        key = number, worker, lowest
        if key not in self.effects:
            events = [
                event
                for low in range(self.switch.cores[number].start[worker], lowest + 1)
                for event in (*self.contributions(worker, 0, low), *self.receipts(worker, low))
            ]
            moved = {self.switch.move(number, event)[0]: event for event in reversed(events)}
            self.effects[key] = [(event, after) for after, event in moved.items() if after != number]
        return self.effects[key]

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, fresh messages alone reach the goal, also if no more than H workers ever
        contribute again, with a deadline no more than one, and the others only receive and acknowledge. One fixed order
        without losses is tried.

        With quarantine everybody contributes: a tainted contribution does not count towards H. To a segment that waits
        for all they all do, and somebody who is no newcomer always does.
        """
        s, ring = self.scenario, self.switch.cores[state.core].ring
        alive = [m for m in range(s.workers) if ring.live >> m & 1]
        enough = 1 if s.deadline else ring.threshold
        knowing = ring.live & ~ring.admitted
        for quiet in combinations(alive, 0 if s.tainted else max(0, len(alive) - enough)):
            if not knowing or any(knowing >> m & 1 for m in alive if m not in quiet):
                self.reach_goal(state, quiet)
        for dead in alive if s.leaves else ():
            self.reach_goal(state, (), dead)

    def reach_goal(self, state: State, quiet: tuple[int, ...], dead: int = UNKNOWN) -> None:
        """`good` remembers the states passed, from which it was reached."""
        s = self.scenario
        good, passed, every = self.good.setdefault((quiet, dead), set()), [], (1 << s.segments) - 1
        while state not in good:
            passed.append(state)
            core = self.switch.cores[state.core]
            live = [m for m in range(s.workers) if core.ring.live >> m & 1 and m != dead]
            if all(state.held[m] == every for m in live):  # also if nobody is
                break
            if s.deadline:
                for event in list(self.actions(core)):
                    state = (
                        self.turn(state, self.switch.move(state.core, event)[0])
                        if isinstance(event, Overdue)
                        else state
                    )
            for worker in live:
                state, waits = self.fresh(state, worker, worker not in quiet)
                if dead != UNKNOWN and waits >> dead & 1:
                    state, dead = self.turn(state, self.switch.move(state.core, Leave(dead))[0]), UNKNOWN
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        good.update(passed)

    def fresh(self, state: State, worker: int, busy: bool) -> tuple[State, int]:
        """A worker repeats all that it may send; the network delivers all that this causes. Also for whom it has been
        waiting."""
        held = state.held[worker]
        low = lowest_missing(held)
        contributions = [
            event
            for event in self.contributions(worker, held, low)
            if busy or self.switch.is_whole(self.switch.cores[state.core], event.segment)
        ]
        waits = 0
        for event in (*contributions, *self.receipts(worker, low)):
            core, segment, receivers, waited = self.switch.move(state.core, event)
            state, waits = self.turn(state, core), waits | waited
            if segment != UNKNOWN:
                for m in range(self.scenario.workers):
                    state = self.receive(state, m, segment) if receivers >> m & 1 else state
        return state, waits

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

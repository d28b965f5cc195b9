"""The ring of slots under every order of messages: workers, one switch and a hostile network, in small cases.

The switch (`ring_switch.py`) is `host/iswitch/golden/decide/ring.py` itself. The workers follow `docs/protocol.md`. The
network remembers everything (`messages.py`); `ring_network.py` explores networks with queues and single kinds of
faults, and the tests compare the two.

Checked at each step:

- No worker is in a sum twice, and no sum mixes laps of the ring.
- A result is what its `members` say, has enough members, and never changes.
- An honest worker is never refused with WINDOW, and with H = N never with SLOT_HELD.
- A slot waits for each live member from the member's first segment on.
- No sum mixes contributions of workers that are at different positions, and no such worker gets the others' results.

Checked in each state, if the network loses everything in flight:

- Fresh repeats and receipts, sent by timer, bring every result to every live worker, even if all but H workers never
  contribute again (with a deadline: all but one). Every worker that waits to join is admitted.
- If workers are at different positions and a sum needs all of them, every worker learns of the others' position.
- The same holds if any one worker is dead: the messages of the others show that they wait for it, and for that the
  switch evicts it.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import SlotState
from sim.explore.messages import (
    UNKNOWN,
    Contribution,
    Leave,
    Receipt,
    Result,
    SetThreshold,
    contributions,
    is_member,
    lowest_missing,
    receipts,
)
from sim.explore.ring_switch import DeadlinePasses, ForceSegment, Join, RingCore, RingScenario, RingSwitch
from sim.explore.search import Continuation, Event, Explorer, Violation

__all__ = ["RingExplorer", "RingState"]


class RingState(NamedTuple):
    """`switch`: number of the switch's state. `held`: per worker, the bit mask of the results that it holds. `told`: in
    a continuation, the workers that know that another one is at another position."""

    switch: int
    held: tuple[int, ...]
    told: int = 0


class RingExplorer(Explorer[RingState]):
    """Search of one `RingScenario`. Another class for `switch` makes a mutant."""

    def __init__(self, scenario: RingScenario, switch: type[RingSwitch] = RingSwitch) -> None:
        self.scenario, self.switch = scenario, switch(scenario)
        self._effective: dict[tuple[int, int, int], list[Event]] = {}
        self._progress: dict[tuple[tuple[int, ...], int], Continuation[RingState, bool]] = {}

    def start(self) -> RingState:
        return RingState(self.switch.start(), (0,) * self.scenario.workers)

    def core(self, state: RingState) -> RingCore:
        """Return the switch in a state."""
        return self.switch.states[state.switch]

    # What may happen

    def events(self, state: RingState) -> Iterator[Event]:
        core = self.core(state)
        yield from self.operations(core)
        for worker, held in enumerate(state.held):
            if is_member(core.ring.live, worker):
                for segment, result in enumerate(core.results):
                    if result != UNKNOWN and not is_member(held, segment) and self.accepts(state, worker, segment):
                        yield Result(worker, segment)
                yield from self._messages(state.switch, worker, lowest_missing(held))

    def operations(self, core: RingCore) -> Iterator[Event]:
        """Return what may happen at any time besides messages of the ring: departures, joins, settings, time."""
        s, ring = self.scenario, core.ring
        workers = range(s.workers)
        absent = s.workers - ring.live.bit_count()
        if absent < min(s.leaves, s.workers - (not s.joins)):
            yield from (Leave(m) for m in workers if is_member(ring.live, m))
        yield from (Leave(m) for m in workers if is_member(ring.joining, m))
        if s.joins and ring.live:
            yield from (Join(m) for m in workers if not is_member(ring.live | ring.joining, m))
        yield from (SetThreshold(h) for h in s.thresholds if h != ring.threshold)
        collecting = [slot for slot in ring.slots if slot.state == SlotState.COLLECTING]
        if s.forces:
            yield from (
                ForceSegment(self.switch.segment(slot)) for slot in collecting if s.any_forced or not slot.requires_all
            )
        if s.deadline:
            yield from (DeadlinePasses(self.switch.segment(slot)) for slot in collecting if not slot.opened_us)

    def contributions(self, worker: int, low: int, held: int = 0) -> Iterator[Contribution]:
        """Return what a worker that lacks `low` contributes: its window, but nothing beyond the collective's end."""
        s = self.scenario
        ends = [last + 1 for last in s.boundaries if last >= low and not s.eager]
        return contributions(worker, low, min([s.segments, low + s.window, *ends]), held)

    def receipts(self, worker: int, low: int) -> Iterator[Receipt]:
        return receipts(worker, low, self.scenario.segments) if self.scenario.receipts else iter(())

    def _messages(self, switch: int, worker: int, lowest: int) -> list[Event]:
        """Return the messages that a worker may have sent up to now and that change the switch."""
        key = switch, worker, lowest
        if key not in self._effective:
            first = self.switch.states[switch].first_segment[worker]
            self._effective[key] = self.switch.effective(
                switch,
                (
                    event
                    for low in range(first, lowest + 1)
                    for event in (*self.contributions(worker, low), *self.receipts(worker, low))
                ),
            )
        return self._effective[key]

    # What it does

    def after(self, state: RingState, event: Event) -> RingState:
        if isinstance(event, Result):
            return self.hold(state, event.worker, event.segment)
        return self.moved(state, self.switch.step(state.switch, event)[0])

    def accepts(self, state: RingState, worker: int, segment: int) -> bool:
        """Return whether a worker accepts a result, which names the collective of its contributors."""
        members = self.core(state).results[segment] & (1 << self.scenario.workers) - 1
        return not members or self.switch.collective(lowest_missing(~members)) == self.switch.collective(worker)

    def hold(self, state: RingState, worker: int, segment: int) -> RingState:
        """Return the state after a worker received a result."""
        return state._replace(held=replace_at(state.held, worker, state.held[worker] | 1 << segment))

    def moved(self, state: RingState, switch: int) -> RingState:
        """Return the state with the switch in another one.

        A worker that the step made a member begins as one; a worker that is no member holds nothing.
        """
        before, after = self.core(state), self.switch.states[switch]
        if before.ring.live == after.ring.live:
            return state._replace(switch=switch)
        admitted = after.ring.live & ~before.ring.live
        held = tuple(
            (1 << after.first_segment[m]) - 1 if is_member(admitted, m) else old if is_member(after.ring.live, m) else 0
            for m, old in enumerate(state.held)
        )
        return state._replace(switch=switch, held=held)

    # What is promised

    def check(self, state: RingState) -> None:
        """Check that fresh messages alone reach the goal, on a network that is empty now.

        It must also be reached if only H workers (with a deadline: one) ever contribute again and the others only
        receive and acknowledge, and if one worker is dead. One fixed order of messages, without losses, is tried.

        With quarantine everyone contributes, for a tainted contribution does not count towards H. Everyone contributes
        to a segment that requires all, and some worker that was not admitted last always does.

        If workers are at different positions and a sum need not have all of them, one may finish before it meets the
        other. Then only safety is promised.
        """
        if self.scenario.misaligned and not self.switch.all_contribute:
            return
        s, ring = self.scenario, self.core(state).ring
        live = [m for m in range(s.workers) if is_member(ring.live, m)]
        enough = 1 if s.deadline else ring.threshold
        settled = ring.live & ~ring.admitted
        for quiet in combinations(live, 0 if s.tainted else max(0, len(live) - enough)):
            if not settled or any(is_member(settled, m) for m in live if m not in quiet):
                self._continuation(quiet, UNKNOWN).follow(state)
        for dead in live if s.leaves else ():
            self._continuation((), dead).follow(state)

    def _continuation(self, quiet: tuple[int, ...], dead: int) -> Continuation[RingState, bool]:
        if (quiet, dead) not in self._progress:
            self._progress[quiet, dead] = Continuation(
                lambda state: self._round(state, quiet, dead), lambda state: self._is_over(state, dead), self._stuck
            )
        return self._progress[quiet, dead]

    def _living(self, state: RingState, dead: int) -> list[int]:
        live = self.core(state).ring.live
        return [m for m in range(self.scenario.workers) if is_member(live, m) and m != dead]

    def _is_over(self, state: RingState, dead: int) -> bool | None:
        every = (1 << self.scenario.segments) - 1
        living = self._living(state, dead)
        return all(state.held[m] == every or is_member(state.told, m) for m in living) or None

    @staticmethod
    def _stuck(state: RingState) -> bool:
        raise Violation("a worker waits forever")

    def _round(self, state: RingState, quiet: tuple[int, ...], dead: int) -> RingState:
        """Return the state after every living worker repeated its messages once. The dead one is evicted if awaited."""
        if self.scenario.deadline:
            for event in list(self.operations(self.core(state))):
                state = self.after(state, event) if isinstance(event, DeadlinePasses) else state
        for worker in self._living(state, dead):
            state, waits_for = self._repeat(state, worker, worker not in quiet)
            if dead != UNKNOWN and is_member(waits_for & self.core(state).ring.live, dead):
                state = self.after(state, Leave(dead))
        return state

    def _repeat(self, state: RingState, worker: int, contributes: bool) -> tuple[RingState, int]:
        """Return the state after a worker repeated all that it may send and the network delivered what that caused.

        Also return the members for which the worker is seen to wait.
        """
        held = state.held[worker]
        low = lowest_missing(held)
        core = self.core(state)
        repeated = [
            event
            for event in self.contributions(worker, low, held)
            if contributes or self.switch.requires_all(core, event.segment)
        ]
        waits_for = 0
        for event in (*repeated, *self.receipts(worker, low)):
            switch, sent = self.switch.step(state.switch, event)
            state, waits_for = self.moved(state, switch), waits_for | sent.waits_for
            state = state._replace(told=state.told | sent.told << worker)
            for m in range(self.scenario.workers if sent.segment != UNKNOWN else 0):
                if not is_member(sent.receivers, m):
                    continue
                if self.accepts(state, m, sent.segment):
                    state = self.hold(state, m, sent.segment)
                else:
                    state = state._replace(told=state.told | 1 << m)
        return state, waits_for

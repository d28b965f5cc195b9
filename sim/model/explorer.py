"""Every state that workers, the ring and a hostile network can reach, in small cases: is the protocol right?

The ring is `sim/model/aggregate/ring.py` itself, workers follow `docs/protocol.md`. A payload is one bit that names
its worker and segment; the accumulators are sets of such bits, driven by the same `Work` as the gateware's.

**The network remembers everything.** Whatever a worker may have sent by now may arrive now, again and again, in any
order, or never. This is more than any loss, duplication, reordering and delay can do, so a rule that holds here holds
under all of them at once. It also makes the network no part of the state:

- A result once sent is deliverable to each live member for ever after.
- A worker whose lowest missing segment is `low` may at each earlier `low` have sent a receipt, and a contribution to
  each segment of its window then. This allows a few messages that it may never have sent: with a `low` that it skipped,
  which are true all the same, and for a segment whose result it holds by now, which meet a complete slot or a later lap.
- The switch refuses whoever has left (MEMBER), so a worker's messages end with its membership.

`sim/model/explorer_network.py` explores networks with queues and single kinds of faults, and the tests compare.

Checked at each step: nobody is in a sum twice, no sum mixes laps, a result is what its `members` say, the same for all
and for ever, with enough in it; an honest worker is never told WINDOW, and with H = N never SLOT_HELD. Checked in
each state: if the network loses all that is under way, fresh repeats and receipts sent by timer suffice to bring every
result to every live worker, even if all but H of them never contribute again.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState
from sim.model.aggregate import ring as rules_of
from sim.model.aggregate.ring import RULES, Ring, Rules, Slot, Work
from sim.model.search import Violation, search

__all__ = ["Contribution", "Core", "Explorer", "Receipt", "Scenario", "State"]

SERIAL = 1 << 32
UNKNOWN = -1

Event = tuple[Any, ...]


class Scenario(NamedTuple):
    """What is explored. `leaves`: how many workers may leave. `thresholds`: values that SET_H may set at any time.
    `tainted`: (worker, segment) pairs to be quarantined. The last three make mutants."""

    workers: int
    window: int
    segments: int
    threshold: int
    leaves: int = 0
    thresholds: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    rules: Rules = RULES
    receipts: bool = True
    slots: int = 0


class Contribution(NamedTuple):
    """`segment` counts from 0; the sender lacked nothing below `low`."""

    worker: int
    segment: int
    low: int


class Receipt(NamedTuple):
    """`wanted` is a segment whose result is asked for, or -1."""

    worker: int
    low: int
    wanted: int


class Leave(NamedTuple):
    worker: int


class SetThreshold(NamedTuple):
    threshold: int


class Result(NamedTuple):
    worker: int
    segment: int


class Core(NamedTuple):
    """The switch: ring, accumulators (bit `segment * workers + worker` for each payload in the sum), and, for the
    checks, the members of each result so far."""

    ring: Ring
    memory: tuple[int, ...]
    truth: tuple[int, ...]


class State(NamedTuple):
    """`core` indexes `Explorer.cores`. `held`: bit mask of the results that each worker holds."""

    core: int
    held: tuple[int, ...]


class ShortRing(Ring):
    """Mutant: as many slots as the window. (`_replace` keeps the class.)"""

    @property
    def window(self) -> int:
        return len(self.slots)


def lowest_missing(held: int) -> int:
    return (~held & held + 1).bit_length() - 1


class Explorer:
    """Breadth-first search of one scenario. First seq is the last multiple of 2W before 2^32, so that seq wraps."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.first_seq = SERIAL - 2 * scenario.window
        self.cores: list[Core] = []
        self.numbers: dict[Core, int] = {}
        self.moves: dict[tuple[int, type, Event], tuple[int, int, int]] = {}
        self.effects: dict[tuple[int, int, int], list[tuple[Event, int]]] = {}
        self.good: dict[tuple[int, ...], set[State]] = {}
        self.strict = (scenario.threshold == scenario.workers and not scenario.thresholds)

    def intern(self, core: Core) -> int:
        if core not in self.numbers:
            self.numbers[core] = len(self.cores)
            self.cores.append(core)
        return self.numbers[core]

    def start(self) -> State:
        s = self.scenario
        live = (1 << s.workers) - 1
        ring = rules_of.new_ring(self.first_seq, s.window, s.workers, live, s.threshold)
        if s.slots:
            slots = tuple(Slot((self.first_seq + k - s.slots) % SERIAL) for k in range(s.slots))
            ring = ShortRing(slots, ring.have, live, s.threshold)
        core = Core(ring, (0,) * len(ring.slots), (UNKNOWN,) * s.segments)
        return State(self.intern(core), (0,) * s.workers)

    # The switch

    def move(self, number: int, event: Event) -> tuple[int, int, int]:
        """The core after a message or an action, and a result that it sent: segment (or -1) and set of receivers."""
        key = number, type(event), event  # tuples of different types may be equal
        if key not in self.moves:
            try:
                core, segment, receivers = self.perform(self.cores[number], event)
            except Violation as violation:
                violation.trace.append(event)
                raise
            self.moves[key] = self.intern(core), segment, receivers
        return self.moves[key]

    def perform(self, core: Core, event: Event) -> tuple[Core, int, int]:
        s, ring = self.scenario, core.ring
        works: list[Work] = []
        if isinstance(event, Leave):
            ring, works = rules_of.leave(ring, event.worker)
        elif isinstance(event, SetThreshold):
            ring = ring._replace(threshold=event.threshold)
        elif isinstance(event, (Contribution, Receipt)) and ring.live >> event.worker & 1:
            if isinstance(event, Contribution):
                step = rules_of.contribute(
                    ring, member=event.worker, seq=self.seq(event.segment), behind=event.segment - event.low,
                    tainted=(event.worker, event.segment) in s.tainted, rules=s.rules)
            else:
                asked = event.low if event.wanted == UNKNOWN else event.wanted
                step = rules_of.receipt(ring, member=event.worker, seq=self.seq(asked), behind=asked - event.low,
                                        want=event.wanted != UNKNOWN)
            if step.outcome == Outcome.WINDOW or self.strict and step.outcome == Outcome.SLOT_HELD:
                raise Violation(f"an honest worker is told {step.outcome.name}")
            ring, works = step.ring, [step.work] if step.work else []
        core = core._replace(ring=ring)
        segment, receivers = UNKNOWN, 0
        for work in works:
            core = self.execute(core, work, event)
            sends = work.emit or work.operation == Operation.RESEND
            segment = self.segment(core.ring.slots[work.slot]) if sends else UNKNOWN
            receivers = core.ring.live if work.emit else 1 << work.member
        return core, segment, receivers

    def execute(self, core: Core, work: Work, event: Event) -> Core:
        """The accumulators obey; what leaves is compared with the header that goes with it."""
        s, slot, content = self.scenario, core.ring.slots[work.slot], core.memory[work.slot]
        segment = self.segment(slot)
        if work.operation != Operation.RESEND:
            bit = 1 << event.segment * s.workers + event.worker if isinstance(event, Contribution) else 0
            bit = bit if work.operation == Operation.CONTRIBUTE else 0
            content = 0 if work.first else content
            if content & bit:
                raise Violation("a worker is twice in a sum")
            content |= bit
            core = core._replace(memory=core.memory[:work.slot] + (content,) + core.memory[work.slot + 1:])
            if not work.emit:
                return core
        if content != slot.members << segment * s.workers:
            raise Violation("a sum is not that of its members' payloads")
        waiting = core.ring.live & ~slot.arrived
        if work.emit and slot.members.bit_count() < core.ring.threshold and waiting:
            raise Violation("a slot completes with too few workers")
        if self.strict and not s.leaves and not s.tainted and slot.members != (1 << s.workers) - 1:
            raise Violation("H = N, but a result lacks somebody")
        if core.truth[segment] not in (UNKNOWN, slot.members):
            raise Violation("a result changes")
        if slot.state != SlotState.COMPLETE:
            raise Violation("a result leaves an open slot")
        return core._replace(truth=core.truth[:segment] + (slot.members,) + core.truth[segment + 1:])

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, slot: Slot) -> int:
        return (slot.seq - self.first_seq) % SERIAL

    # The workers

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

    def receive(self, state: State, worker: int, segment: int) -> State:
        held = state.held[worker] | 1 << segment
        return state._replace(held=state.held[:worker] + (held,) + state.held[worker + 1:])

    # The search

    def actions(self, core: Core) -> Iterator[Event]:
        """What may happen at any time that is no message of the ring."""
        s, ring = self.scenario, core.ring
        if s.workers - ring.live.bit_count() < min(s.leaves, s.workers - 1):
            yield from (Leave(m) for m in range(s.workers) if ring.live >> m & 1)
        yield from (SetThreshold(h) for h in s.thresholds if h != ring.threshold)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        core = self.cores[state.core]
        for action in self.actions(core):
            yield action, state._replace(core=self.move(state.core, action)[0])
        for worker, held in enumerate(state.held):
            if not core.ring.live >> worker & 1:
                continue
            for segment, members in enumerate(core.truth):
                if members != UNKNOWN and not held >> segment & 1:
                    yield Result(worker, segment), self.receive(state, worker, segment)
            for event, after in self.arrivals(state.core, worker, lowest_missing(held)):
                yield event, state._replace(core=after)

    def arrivals(self, number: int, worker: int, lowest: int) -> list[tuple[Event, int]]:
        """Messages that a worker may have sent up to this `low`, with the core after each that changes it."""
        key = number, worker, lowest
        if key not in self.effects:
            events = [event for low in range(lowest + 1)
                      for event in (*self.contributions(worker, 0, low), *self.receipts(worker, low))]
            moved = {self.move(number, event)[0]: event for event in reversed(events)}
            self.effects[key] = [(event, after) for after, event in moved.items() if after != number]
        return self.effects[key]

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, fresh messages alone reach the goal, also if no more than H workers ever
        contribute again and the others only receive and acknowledge. One fixed order without losses is tried.

        With quarantine everybody contributes: a tainted contribution does not count towards H.
        """
        s, ring = self.scenario, self.cores[state.core].ring
        alive = [m for m in range(s.workers) if ring.live >> m & 1]
        everybody = s.tainted or len(alive) <= ring.threshold
        for busy in combinations(alive, len(alive) if everybody else ring.threshold):
            self.reach_goal(state, busy)

    def reach_goal(self, state: State, busy: tuple[int, ...]) -> None:
        """`good` remembers the states passed, from which it was reached."""
        good, passed, every = self.good.setdefault(busy, set()), [], (1 << self.scenario.segments) - 1
        while state not in good:
            passed.append(state)
            ring = self.cores[state.core].ring
            if all(held == every for m, held in enumerate(state.held) if ring.live >> m & 1):
                break
            for worker in range(self.scenario.workers):
                if ring.live >> worker & 1:
                    state = self.fresh(state, worker, worker in busy)
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        good.update(passed)

    def fresh(self, state: State, worker: int, busy: bool) -> State:
        """A worker repeats all that it may send; the network delivers all that this causes."""
        held = state.held[worker]
        low = lowest_missing(held)
        for event in (*(self.contributions(worker, held, low) if busy else ()), *self.receipts(worker, low)):
            core, segment, receivers = self.move(state.core, event)
            state = state._replace(core=core)
            if segment != UNKNOWN:
                for m in range(self.scenario.workers):
                    state = self.receive(state, m, segment) if receivers >> m & 1 else state
        return state

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

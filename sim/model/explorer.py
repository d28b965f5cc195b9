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
- The switch refuses whoever has left (MEMBER), so a worker's messages end with its membership. Whoever joins again has a new token and
  begins at the segment that the switch names; `start` says which.

`sim/model/explorer_network.py` explores networks with queues and single kinds of faults, and the tests compare.

Checked at each step: nobody is in a sum twice, no sum mixes laps, a result is what its `members` say, the same for all
and for ever, with enough in it; an honest worker is never told WINDOW, and with H = N never SLOT_HELD; who is live is waited for
from its first segment on. Checked in each state: if the network loses all that is under way, fresh repeats and receipts sent by timer
suffice to bring every result to every live worker, even if all but H of them never contribute again (with a deadline: all but one),
and whoever waits to join is let in. The same if one worker, any, is dead: the others' messages then show that they wait for it, and that is
what it is evicted for.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState
from sim.model.aggregate import ring as rules_of
from sim.model.aggregate.ring import RULES, Ring, Rules, Slot, Work
from sim.model.search import Violation, search

__all__ = ["SERIAL", "UNKNOWN", "Contribution", "Core", "Explorer", "Leave", "Receipt", "Result", "Scenario", "State", "lowest_missing"]

SERIAL = 1 << 32
UNKNOWN = -1

Event = tuple[Any, ...]


class Scenario(NamedTuple):
    """What is explored. `leaves`: how many workers may be gone at a time, by their own will or evicted, rightly or not. `joins`: those who
    are gone may join again. `boundaries`: last segments of collectives. `thresholds`: values that SET_H may set at any time. `tainted`:
    (worker, segment) pairs to be quarantined. `whole`: segments that wait for all. `forces`: open slots may be forced at any time.
    `deadline`: slots may become overdue at any time. The last five make mutants: `eager` workers do not wait at a boundary, `any_forced`
    forces also slots that wait for all."""

    workers: int
    window: int
    segments: int
    threshold: int
    leaves: int = 0
    thresholds: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    joins: bool = False
    boundaries: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    forces: bool = False
    deadline: bool = False
    rules: Rules = RULES
    receipts: bool = True
    slots: int = 0
    eager: bool = False
    any_forced: bool = False


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


class Join(NamedTuple):
    """The confirmation of one who is not a member of a running job."""

    worker: int


class SetThreshold(NamedTuple):
    threshold: int


class Force(NamedTuple):
    segment: int


class Overdue(NamedTuple):
    """Time passes: the slot of this segment has been open for too long."""

    segment: int


class Result(NamedTuple):
    worker: int
    segment: int


class Core(NamedTuple):
    """The switch: ring, accumulators (bit `segment * workers + worker` for each payload in the sum), and, for the
    checks, of each result so far its members with bit `workers` for `change`, and each worker's first segment."""

    ring: Ring
    memory: tuple[int, ...]
    truth: tuple[int, ...]
    start: tuple[int, ...]


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
        self.moves: dict[tuple[int, type, Event], tuple[int, int, int, int]] = {}
        self.effects: dict[tuple[int, int, int], list[tuple[Event, int]]] = {}
        self.good: dict[tuple[tuple[int, ...], int], set[State]] = {}
        self.strict = scenario.threshold == scenario.workers and not (scenario.thresholds or scenario.forces or scenario.deadline)

    def intern(self, core: Core) -> int:
        if core not in self.numbers:
            self.numbers[core] = len(self.cores)
            self.cores.append(core)
        return self.numbers[core]

    def start(self) -> State:
        s = self.scenario
        live = (1 << s.workers) - 1
        ring = rules_of.new_ring(self.first_seq, s.window, s.workers, live, s.threshold, int(s.deadline))
        if s.slots:
            slots = tuple(Slot((self.first_seq + k - s.slots) % SERIAL) for k in range(s.slots))
            ring = ShortRing(slots, ring.have, live, s.threshold)
        core = Core(ring, (0,) * len(ring.slots), (UNKNOWN,) * s.segments, (0,) * s.workers)
        return State(self.intern(core), (0,) * s.workers)

    # The switch

    def move(self, number: int, event: Event) -> tuple[int, int, int, int]:
        """The core after a message or an action; a result that it sent: segment (or -1) and set of receivers; and for whom its sender has
        been waiting."""
        key = number, type(event), event  # tuples of different types may be equal
        if key not in self.moves:
            try:
                core, segment, receivers, waits = self.perform(self.cores[number], event)
            except Violation as violation:
                violation.trace.append(event)
                raise
            self.moves[key] = self.intern(core), segment, receivers, waits
        return self.moves[key]

    def perform(self, core: Core, event: Event) -> tuple[Core, int, int, int]:
        s, ring, waits = self.scenario, core.ring, 0
        works: list[Work] = []
        if isinstance(event, Leave):
            ring, works = rules_of.leave(ring, event.worker, s.rules)
        elif isinstance(event, Join):
            ring = ring._replace(joining=ring.joining | 1 << event.worker)
        elif isinstance(event, SetThreshold):
            ring = ring._replace(threshold=event.threshold)
        elif isinstance(event, Force):
            ring, work = rules_of.force(ring, self.seq(event.segment) % len(ring.slots), s.rules)
            works = [work]
        elif isinstance(event, Overdue):
            index = self.seq(event.segment) % len(ring.slots)
            ring = rules_of.put(ring, index, ring.slots[index]._replace(opened_us=-1))
        elif isinstance(event, (Contribution, Receipt)) and ring.live >> event.worker & 1:
            if isinstance(event, Contribution):
                step = rules_of.contribute(
                    ring, member=event.worker, seq=self.seq(event.segment), behind=event.segment - event.low,
                    boundary=event.segment in s.boundaries, whole=self.is_whole(core, event.segment),
                    tainted=(event.worker, event.segment) in s.tainted, rules=s.rules)
            else:
                asked = event.low if event.wanted == UNKNOWN else event.wanted
                step = rules_of.receipt(ring, member=event.worker, seq=self.seq(asked), behind=asked - event.low,
                                        want=event.wanted != UNKNOWN)
            if step.outcome == Outcome.WINDOW or self.strict and step.outcome == Outcome.SLOT_HELD:
                raise Violation(f"an honest worker is told {step.outcome.name}")
            ring, works, waits = step.ring, [step.work] if step.work else [], step.waits
        new = ring.live & ~core.ring.live
        core = core._replace(ring=ring, start=tuple(
            self.segment(Slot(ring.have[m])) if new >> m & 1 else start for m, start in enumerate(core.start)))
        segment, receivers = UNKNOWN, 0
        for work in works:
            core = self.execute(core, work, event)
            sends = work.emit or work.operation == Operation.RESEND
            segment = self.segment(core.ring.slots[work.slot]) if sends else UNKNOWN
            receivers = work.receivers
        return core, segment, receivers, waits

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
        taking_part = sum(1 << m for m, start in enumerate(core.start) if core.ring.live >> m & 1 and start <= segment)
        waiting = taking_part & ~slot.arrived
        forced = isinstance(event, Force) or slot.opened_us and not slot.whole
        if work.emit and slot.members.bit_count() < core.ring.threshold and waiting and not forced:
            raise Violation("a slot completes with too few workers")
        if work.emit and slot.whole and waiting and not forced:
            raise Violation("a slot that waits for all completes without somebody")
        if work.emit and taking_part & ~slot.expected:
            raise Violation("a slot does not wait for a member")
        if work.emit and segment in s.boundaries and core.ring.joining:
            raise Violation("a newcomer is not let in")
        if self.strict and not s.leaves and not s.tainted and slot.members != (1 << s.workers) - 1:
            raise Violation("H = N, but a result lacks somebody")
        fact = slot.members | slot.change << s.workers
        if core.truth[segment] not in (UNKNOWN, fact):
            raise Violation("a result changes")
        if slot.state != SlotState.COMPLETE:
            raise Violation("a result leaves an open slot")
        return core._replace(truth=core.truth[:segment] + (fact,) + core.truth[segment + 1:])

    def is_whole(self, core: Core, segment: int) -> bool:
        """The collective after a change waits for all. Whoever sends for it holds the result that says so."""
        last = max((end for end in self.scenario.boundaries if end < segment), default=UNKNOWN)
        change = last != UNKNOWN and core.truth[last] >> self.scenario.workers == 1
        return segment in self.scenario.whole or change

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, slot: Slot) -> int:
        return (slot.seq - self.first_seq) % SERIAL

    # The workers

    def contributions(self, worker: int, held: int, low: int) -> Iterator[Contribution]:
        """What a worker sends that lacks `low`: anything of its window, up to the end of the collective, whose result it does not hold."""
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
        return state._replace(held=state.held[:worker] + (held,) + state.held[worker + 1:])

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
            yield from (Force(self.segment(slot)) for slot in collecting if s.any_forced or not slot.whole)
        if s.deadline:
            yield from (Overdue(self.segment(slot)) for slot in collecting if not slot.opened_us)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        core = self.cores[state.core]
        for action in self.actions(core):
            yield action, self.turn(state, self.move(state.core, action)[0])
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
        before, after = self.cores[state.core], self.cores[core]
        if before.ring.live == after.ring.live:
            return state._replace(core=core)
        new = after.ring.live & ~before.ring.live
        held = tuple((1 << after.start[m]) - 1 if new >> m & 1 else old if after.ring.live >> m & 1 else 0
                     for m, old in enumerate(state.held))
        return State(core, held)

    def arrivals(self, number: int, worker: int, lowest: int) -> list[tuple[Event, int]]:
        """Messages that a worker may have sent up to this `low`, with the core after each that changes it."""
        key = number, worker, lowest
        if key not in self.effects:
            events = [event for low in range(self.cores[number].start[worker], lowest + 1)
                      for event in (*self.contributions(worker, 0, low), *self.receipts(worker, low))]
            moved = {self.move(number, event)[0]: event for event in reversed(events)}
            self.effects[key] = [(event, after) for after, event in moved.items() if after != number]
        return self.effects[key]

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, fresh messages alone reach the goal, also if no more than H workers ever
        contribute again, with a deadline no more than one, and the others only receive and acknowledge. One fixed order without losses
        is tried.

        With quarantine everybody contributes: a tainted contribution does not count towards H. To a segment that waits for all they all do,
        and somebody who is no newcomer always does.
        """
        s, ring = self.scenario, self.cores[state.core].ring
        alive = [m for m in range(s.workers) if ring.live >> m & 1]
        enough = 1 if s.deadline else ring.threshold
        knowing = ring.live & ~ring.newcomers
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
            core = self.cores[state.core]
            live = [m for m in range(s.workers) if core.ring.live >> m & 1 and m != dead]
            if all(state.held[m] == every for m in live):  # also if nobody is
                break
            if s.deadline:
                for event in list(self.actions(core)):
                    state = self.turn(state, self.move(state.core, event)[0]) if isinstance(event, Overdue) else state
            for worker in live:
                state, waits = self.fresh(state, worker, worker not in quiet)
                if dead != UNKNOWN and waits >> dead & 1:
                    state, dead = self.turn(state, self.move(state.core, Leave(dead))[0]), UNKNOWN
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        good.update(passed)

    def fresh(self, state: State, worker: int, busy: bool) -> tuple[State, int]:
        """A worker repeats all that it may send; the network delivers all that this causes. Also for whom it has been waiting."""
        held = state.held[worker]
        low = lowest_missing(held)
        contributions = [event for event in self.contributions(worker, held, low)
                         if busy or self.is_whole(self.cores[state.core], event.segment)]
        waits = 0
        for event in (*contributions, *self.receipts(worker, low)):
            core, segment, receivers, waited = self.move(state.core, event)
            state, waits = self.turn(state, core), waits | waited
            if segment != UNKNOWN:
                for m in range(self.scenario.workers):
                    state = self.receive(state, m, segment) if receivers >> m & 1 else state
        return state, waits

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

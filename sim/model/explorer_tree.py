"""Every state that a tree of switches, its workers and a hostile network can reach, in small cases: is the protocol right?

Each switch runs `sim/model/aggregate/tree.py` itself, workers follow `docs/protocol.md` as in `explorer.py`. **The network remembers
everything** here too, on every link: what may have been sent by now may arrive now, again and again, in any order, or never. So the
network is no part of the state, which is the switches and what the workers hold:

- A worker's messages, and the results it may get from its switch, are those of `explorer.py`.
- A leaf's uplink of a segment says the same ever after (checked), and it may have been sent with each `low` up to the worst that the leaf
  knows now: it is deliverable for ever once the segment was sent up. So is a receipt with each such `low`. This allows a few that were
  never sent, with a `low` that was skipped or was passed before: true all the same, and telling the parent less. (That no leaf is farther
  behind than a parent believes is therefore checked when it sends.)
- A result of the parent is deliverable for ever to each leaf that was its member then.
- A parent refuses whoever has left (MEMBER). A leaf whose last member leaves asks to leave until it is let go.

Checked at each step: nobody is in a sum twice, no sum mixes laps; a partial sum and a result is what its ranks say, the same for ever;
a result has enough in it; no honest sender is told WINDOW, nor SLOT_HELD with H = N; a result never finds a leaf's slot held. Checked in
each state: if all that is under way is lost, the *workers'* fresh repeats and receipts suffice to bring every result to every worker
that has not left, nor has a switch above it: no switch needs a timer.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState
from sim.model.aggregate import ring as flat
from sim.model.aggregate import tree
from sim.model.aggregate.ring import Ring, Slot, Work
from sim.model.aggregate.tree import RULES, Rules
from sim.model.explorer import SERIAL, UNKNOWN, Contribution, Leave, Receipt, Result, lowest_missing
from sim.model.search import Violation, put, search

__all__ = ["Core", "Explorer", "Scenario", "State"]

Event = Any
"""One of the tuples below."""


class Scenario(NamedTuple):
    """`parents`: the switch above each switch; switch 0 is the root, with -1. `homes`: each worker's switch.

    `threshold`: how many of the root's *members* make a result, 0 for all. `deadlines`: switches whose slots may expire. `leaves`: how many
    workers may leave. `evicted`: switches that their parent may evict. `tainted`: (worker, segment) pairs to be quarantined. `silent`:
    sets of workers without whose contributions the others must get on, given their receipts. The last four make mutants; `answers`: the
    root repeats its results to switches, `reports`: leaves send receipts up.
    """

    parents: tuple[int, ...]
    homes: tuple[int, ...]
    window: int = 1
    segments: int = 4
    threshold: int = 0
    deadlines: tuple[int, ...] = ()
    leaves: int = 0
    evicted: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    silent: tuple[frozenset[int], ...] = (frozenset(),)
    receipts: bool = True
    rules: Rules = RULES
    answers: bool = True
    reports: bool = True


class Uplink(NamedTuple):
    """`ranks` are in the partial sum; nobody below the switch lacked anything below `low`."""

    switch: int
    segment: int
    ranks: int
    low: int


class Report(NamedTuple):
    """A leaf's receipt."""

    switch: int
    low: int
    wanted: int


class Down(NamedTuple):
    """A result of its parent reaches a leaf."""

    switch: int
    segment: int
    ranks: int


class Part(NamedTuple):
    """A switch leaves its parent, having nobody below, or is evicted."""

    switch: int


class Expire(NamedTuple):
    """The deadline of a collecting slot is over."""

    switch: int
    slot: int


class Core(NamedTuple):
    """One switch: ring, accumulators (bit `segment * workers + worker` for each payload in the sum). For the checks and the network: the
    ranks in each segment as sent up and in its result, and of members that have left the results (bit mask) that they may still get."""

    ring: Ring
    memory: tuple[int, ...]
    up: tuple[int, ...]
    truth: tuple[int, ...]
    told: tuple[int, ...]


class State(NamedTuple):
    """`cores` index `Explorer.cores`. `held`: bit mask of the results that each worker holds."""

    cores: tuple[int, ...]
    held: tuple[int, ...]


class Sent(NamedTuple):
    """What a step made a switch send: a message to the parent, a result (segment or -1) to a set of members."""

    up: Event | None
    segment: int
    receivers: int


def known(marks: tuple[int, ...]) -> int:
    """Bit mask of what is not UNKNOWN."""
    return sum(1 << segment for segment, mark in enumerate(marks) if mark != UNKNOWN)


class Explorer:
    """Breadth-first search of one scenario. First seq is the last multiple of 2W before 2^32, so that seq wraps.

    A switch's members are its switches, then its workers.
    """

    def __init__(self, scenario: Scenario) -> None:
        s = self.scenario = scenario
        self.first_seq = SERIAL - 2 * s.window
        self.workers, self.switches = range(len(s.homes)), range(len(s.parents))
        self.children = [[c for c in self.switches if s.parents[c] == k] for k in self.switches]
        self.locals = [[w for w in self.workers if s.homes[w] == k] for k in self.switches]
        self.seat = [self.children[s.parents[c]].index(c) if c else UNKNOWN for c in self.switches]
        self.place = [len(self.children[k]) + self.locals[k].index(w) for w, k in enumerate(s.homes)]
        self.strict = not s.threshold and not s.deadlines
        longest = s.rules.reach(flat.new_ring(0, s.window, 0, 0, 0)) or s.window
        self.reach = s.window if self.strict else longest  # with H = N nobody, switches too, is a window behind what it sends
        self.cores: list[Core] = []
        self.numbers: dict[Core, int] = {}
        self.moves: dict[tuple[int, int, type, Event], tuple[int, Sent]] = {}
        self.effects: dict[tuple[Any, ...], list[tuple[Event, int]]] = {}
        self.good: dict[frozenset[int], set[State]] = {}

    def intern(self, core: Core) -> int:
        if core not in self.numbers:
            self.numbers[core] = len(self.cores)
            self.cores.append(core)
        return self.numbers[core]

    def start(self) -> State:
        s, cores = self.scenario, []
        for k in self.switches:
            members = len(self.children[k]) + len(self.locals[k])
            threshold = s.threshold if s.threshold and not k else len(self.workers)
            ring = flat.new_ring(self.first_seq, s.window, members, (1 << members) - 1, threshold)
            cores.append(self.intern(Core(ring, (0,) * len(ring.slots), *((UNKNOWN,) * s.segments,) * 2, (0,) * members)))
        return State(tuple(cores), (0,) * len(self.workers))

    # A switch

    def move(self, switch: int, number: int, event: Event) -> tuple[int, Sent]:
        """The core after a message or an action, and what it sent."""
        key = switch, number, type(event), event  # tuples of different types may be equal
        if key not in self.moves:
            try:
                core, sent = self.perform(switch, self.cores[number], event)
            except Violation as violation:
                violation.trace.append(event)
                raise
            self.moves[key] = self.intern(core), sent
        return self.moves[key]

    def perform(self, switch: int, core: Core, event: Event) -> tuple[Core, Sent]:
        """Members that have left are not asked for here: `deliver` and `successors` know them."""
        s, leaf, ring = self.scenario, switch != 0, core.ring
        works: list[Work] = []
        up: Event | None = None
        outcome = None
        if isinstance(event, (Leave, Part)):
            member = self.place[event.worker] if isinstance(event, Leave) else self.seat[event.switch]
            core = core._replace(told=put(core.told, member, known(core.truth)))
            if ring.live == 1 << member:  # the job ends here; what may still be under way says what the last one held
                ring = ring._replace(live=0, have=(ring.have[member],) * len(ring.have))
            else:
                ring, works = tree.leave(ring, member, leaf=leaf)
        elif isinstance(event, Expire):
            ring, work = flat.force(ring, event.slot)
            ring, works = tree.close(ring, work, leaf), [work]
        elif isinstance(event, Down):
            step = tree.install(ring, seq=self.seq(event.segment), ranks=event.ranks, rules=s.rules)
            if step.outcome in (Outcome.SLOT_HELD, Outcome.WINDOW):
                raise Violation(f"a result from above is {step.outcome.name}")
            ring, works = step.ring, [step.work] if step.work else []
        elif isinstance(event, (Contribution, Uplink)):
            worker = isinstance(event, Contribution)
            step = tree.contribute(
                ring, leaf=leaf, member=self.member(event), ranks=self.ranks(event), seq=self.seq(event.segment),
                behind=event.segment - event.low,
                tainted=1 << event.worker if worker and (event.worker, event.segment) in s.tainted else 0,
                uplink=not worker, rules=s.rules)
            ring, works, outcome = step.ring, [step.work] if step.work else [], step.outcome
            report = tree.sign_of_life(step, leaf=leaf, rules=s.rules)
            if report and s.receipts and s.reports:
                up = Report(switch, self.segment(report.seq), UNKNOWN)
        else:
            asked = event.low if event.wanted == UNKNOWN else event.wanted
            step, report = tree.receipt(ring, leaf=leaf, member=self.member(event), seq=self.seq(asked), behind=asked - event.low,
                                        want=event.wanted != UNKNOWN, rules=s.rules)
            ring, works, outcome = step.ring, [step.work] if step.work else [], step.outcome
            if report and s.reports:
                wanted = self.segment(report.seq)
                up = Report(switch, wanted - report.behind, wanted if report.want else UNKNOWN)
        if outcome == Outcome.WINDOW or self.strict and outcome == Outcome.SLOT_HELD:
            raise Violation(f"an honest sender is told {outcome.name}")
        core = core._replace(ring=ring)
        segment, receivers = UNKNOWN, 0
        for work in works:
            core = self.execute(switch, core, work, event)
            slot = core.ring.slots[work.slot]
            if slot.state == SlotState.SENT_UP and work.emit:
                up = self.uplink(switch, core, self.segment(slot))
            elif work.emit:
                segment, receivers = self.segment(slot), core.ring.live
            elif work.operation == Operation.RESEND and (s.answers or work.receivers >> len(self.children[switch])):
                segment, receivers = self.segment(slot), work.receivers
        return core, Sent(up, segment, receivers)

    def execute(self, switch: int, core: Core, work: Work, event: Event) -> Core:
        """The accumulators obey; what leaves is compared with the header that goes with it."""
        slot, content = core.ring.slots[work.slot], core.memory[work.slot]
        segment = self.segment(slot)
        if work.operation in (Operation.CONTRIBUTE, Operation.FORCE, Operation.INSTALL_DOWN):
            content = 0 if work.first else content
            adds = work.operation in (Operation.CONTRIBUTE, Operation.INSTALL_DOWN)
            terms = self.payload(self.ranks(event), event.segment) if adds else 0
            if content & terms:
                raise Violation("a worker is twice in a sum")
            content |= terms
            core = core._replace(memory=put(core.memory, work.slot, content))
            if not work.emit:
                return core
        ranks = tree.names(core.ring, work.slot).ranks
        if content != self.payload(ranks, segment):
            raise Violation("a sum is not that of its ranks' payloads")
        if slot.state == SlotState.SENT_UP:
            if core.up[segment] not in (UNKNOWN, ranks):
                raise Violation("a partial sum changes")
            if segment - self.worst(core) >= self.reach:
                raise Violation("an honest switch is too far behind")
            return core._replace(up=put(core.up, segment, ranks))
        if slot.state != SlotState.COMPLETE:
            raise Violation("a result leaves an open slot")
        if core.truth[segment] not in (UNKNOWN, ranks):
            raise Violation("a result changes")
        if not switch:
            self.check_result(core.ring, slot, ranks)
        return core._replace(truth=put(core.truth, segment, ranks))

    def check_result(self, ring: Ring, slot: Slot, ranks: int) -> None:
        s = self.scenario
        if not s.deadlines and ring.live & ~slot.arrived and slot.members.bit_count() < ring.threshold:
            raise Violation("a slot completes with too few workers")
        if self.strict and not s.leaves and not s.evicted and not s.tainted and ranks != (1 << len(self.workers)) - 1:
            raise Violation("H = N, but a result lacks somebody")

    def member(self, event: Event) -> int:
        return self.place[event.worker] if isinstance(event, (Contribution, Receipt)) else self.seat[event.switch]

    def ranks(self, event: Event) -> int:
        """Whose payloads a message carries into the sum."""
        if isinstance(event, Contribution):
            return 0 if (event.worker, event.segment) in self.scenario.tainted else 1 << event.worker
        return event.ranks

    def payload(self, ranks: int, segment: int) -> int:
        return ranks << segment * len(self.workers)

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, slot: Slot | int) -> int:
        return ((slot if isinstance(slot, int) else slot.seq) - self.first_seq) % SERIAL

    def uplink(self, switch: int, core: Core, segment: int) -> Uplink:
        return Uplink(switch, segment, core.up[segment], self.worst(core))

    def worst(self, core: Core) -> int:
        """The `low` that a leaf may say to have."""
        return self.segment(self.scenario.rules.lowest(core.ring) if core.ring.live else core.ring.have[0])

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
                yield from (Uplink(switch, segment, ranks, low) for low in range(max(0, segment - self.reach + 1), min(worst, segment) + 1))
        if s.receipts and s.reports:
            for low in range(worst + 1):
                yield Report(switch, low, UNKNOWN)
                yield from (Report(switch, low, wanted) for wanted in range(low, min(low + s.window + 1, s.segments)))

    def arrivals(self, switch: int, number: int, worker: int, lowest: int) -> list[tuple[Event, int]]:
        """A worker's messages up to this `low`, with the core after each that changes it."""
        key = switch, number, worker, lowest
        if key not in self.effects:
            self.effects[key] = self.changes(switch, number, self.ever_sent(worker, lowest))
        return self.effects[key]

    def arrivals_up(self, switch: int, number: int, child: int, below: Core) -> list[tuple[Event, int]]:
        key = switch, number, child, self.worst(below), below.up
        if key not in self.effects:
            self.effects[key] = self.changes(switch, number, self.ever_sent_up(*key[2:]))
        return self.effects[key]

    def changes(self, switch: int, number: int, events: Iterator[Event]) -> list[tuple[Event, int]]:
        moved: dict[int, Event] = {}
        for event in events:
            moved.setdefault(self.move(switch, number, event)[0], event)
        return [(event, after) for after, event in moved.items() if after != number]

    # The search

    def cut(self, state: State) -> int:
        """Bit mask of the switches that have left, or whose parents have."""
        gone = 0
        for c in self.switches[1:]:  # a parent comes before its children
            parent = self.scenario.parents[c]
            if gone >> parent & 1 or not self.cores[state.cores[parent]].ring.live >> self.seat[c] & 1:
                gone |= 1 << c
        return gone

    def alive(self, state: State) -> list[int]:
        """Workers that have not left and whose switches have not."""
        gone = self.cut(state)
        return [w for w, home in enumerate(self.scenario.homes)
                if not gone >> home & 1 and self.cores[state.cores[home]].ring.live >> self.place[w] & 1]

    def actions(self, state: State) -> Iterator[tuple[int, Event]]:
        """What may happen at any time that is no message of the ring, and where."""
        s = self.scenario
        lives = [sum(self.cores[number].ring.live >> len(self.children[k]) & 1 << m
                     for m in range(len(self.locals[k]))).bit_count() for k, number in enumerate(state.cores)]
        if len(self.alive(state)) > 1 and len(self.workers) - sum(lives) < s.leaves:
            yield from ((s.homes[w], Leave(w)) for w in self.alive(state))
        for switch in s.deadlines:
            slots = self.cores[state.cores[switch]].ring.slots
            yield from ((switch, Expire(switch, k)) for k, slot in enumerate(slots) if slot.state == SlotState.COLLECTING)
        for c in self.switches[1:]:
            asks = not self.cores[state.cores[c]].ring.live
            member = self.cores[state.cores[s.parents[c]]].ring.live >> self.seat[c] & 1
            if member and (asks or c in s.evicted):
                yield s.parents[c], Part(c)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        for switch, event in self.actions(state):
            yield event, self.at(state, switch, self.move(switch, state.cores[switch], event)[0])
        for switch, number in enumerate(state.cores):
            core = self.cores[number]
            for worker in self.locals[switch]:
                if core.ring.live >> self.place[worker] & 1:
                    held = state.held[worker]
                    fresh = known(core.truth) & ~held
                    for segment in range(self.scenario.segments):
                        if fresh >> segment & 1:
                            yield Result(worker, segment), self.receive(state, worker, segment)
                    for event, after in self.arrivals(switch, number, worker, lowest_missing(held)):
                        yield event, self.at(state, switch, after)
            for child in self.children[switch]:
                below, member = self.cores[state.cores[child]], self.seat[child]
                told = known(core.truth)
                if core.ring.live >> member & 1:
                    for event, after in self.arrivals_up(switch, number, child, below):
                        yield event, self.at(state, switch, after)
                else:
                    told = core.told[member]
                for segment in range(self.scenario.segments if below.ring.live else 0):
                    if told >> segment & 1 and below.truth[segment] == UNKNOWN:
                        event = Down(child, segment, core.truth[segment])
                        after = self.move(child, state.cores[child], event)[0]
                        if after != state.cores[child]:
                            yield event, self.at(state, child, after)

    def at(self, state: State, switch: int, number: int) -> State:
        return state._replace(cores=put(state.cores, switch, number))

    def receive(self, state: State, worker: int, segment: int) -> State:
        return state._replace(held=put(state.held, worker, state.held[worker] | 1 << segment))

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, the workers' fresh messages alone reach the goal. One fixed order without losses."""
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
            for c in self.switches[:0:-1]:  # a departed worker repeats its Leave, and its switch's follows
                parent = self.scenario.parents[c]
                if not self.cores[state.cores[c]].ring.live and self.cores[state.cores[parent]].ring.live >> self.seat[c] & 1:
                    state = self.deliver(state, parent, Part(c))
            for worker in alive:
                held, home = state.held[worker], self.scenario.homes[worker]
                low = lowest_missing(held)
                for event in (*(() if worker in silent else self.contributions(worker, held, low)), *self.receipts(worker, low)):
                    state = self.deliver(state, home, event)
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        good.update(passed)

    def deliver(self, state: State, switch: int, event: Event) -> State:
        """A message arrives, and all that it causes."""
        number, sent = self.move(switch, state.cores[switch], event)
        state = self.at(state, switch, number)
        if sent.up:
            parent = self.scenario.parents[switch]
            if self.cores[state.cores[parent]].ring.live >> self.seat[switch] & 1:
                state = self.deliver(state, parent, sent.up)
        core = self.cores[number]
        for child in self.children[switch] if sent.segment != UNKNOWN else ():
            if sent.receivers >> self.seat[child] & 1 and self.cores[state.cores[child]].ring.live:
                state = self.deliver(state, child, Down(child, sent.segment, core.truth[sent.segment]))
        for worker in self.locals[switch] if sent.segment != UNKNOWN else ():
            if sent.receivers >> self.place[worker] & 1:
                state = self.receive(state, worker, sent.segment)
        return state

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

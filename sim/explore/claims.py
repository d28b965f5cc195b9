"""Every state of an asynchronous job in small cases: claims, grants and refusals, and the ring under them.

The switch (`claims_switch.py`) is `sim/model/decide/claims.py` and `ring.py`; workers
(`claims_worker.py`) follow `docs/protocol.md`. A worker computes a vector with the weights of some version
(the number of updates in them), claims an update for it, sends it if granted, computes another if refused, and applies
the updates in their order. How long it computes is open: a vector that is claimed now may have been computed with any
weights since the worker was free to compute. `pipelined`: it computes the next vector while the last one waits, is sent
or is summed; otherwise only after it has applied the sum with the last one.

**The network remembers everything**, as in `explorer.py`: all claims, contributions and receipts that a worker may have
sent, all grants, refusals and results that the switch has, may arrive now, again and again, or never. A few are allowed
that were never sent: a granted vector's claim with other weights. With `lies` any worker may claim any vector with
weights newer than it has, of updates that are not complete or do not exist; where progress is checked it has come to
its senses. After a RESET a worker does and says nothing that counts until it learns of it; what was sent before has
another epoch, on both sides. HALT is no event of its own: it is a network that delivers no contributions for a while,
all else goes on.

Checked at each step: a vector is granted once, at age S at most, to a live member, in a set of no less than min(H,
live); it is sent to its update only; a sum holds exactly those granted, less those quarantined or gone; a result never
changes, so all who have applied u updates have the same weights; no honest worker is told WINDOW, nor UNHELD where it
has said what it holds; a grant is forgotten only when its update is complete. Checked in each state: if the network
loses all that is under way, fresh messages, repeated by timer, bring every result to every live worker, and each live
worker into an update again, if updates enough remain; and if one is silent and that stops the others, the switch can
tell whom they wait for, and evict it.

Workers are interchangeable and all rules are symmetric in them, so of states that differ by a permutation only one is
explored.
"""

from collections.abc import Iterator
from typing import NamedTuple

from iswitch.wire import SlotState, Type
from sim.explore.claims_switch import Claim, ClaimsSwitch, Core, Enter, Event, Force, Knock, Reset, Scenario, grants_to
from sim.explore.claims_symmetry import renumber
from sim.explore.claims_worker import HABITS, ClaimsWorkers, Granted, Habits, Refused, Worker
from sim.explore.ring import Result, lowest_missing
from sim.explore.ring_switch import UNKNOWN, Leave, Receipt, SetThreshold
from sim.explore.search import Violation, put, search
from sim.model.decide import claims as claims_of

__all__ = ["ClaimsExplorer", "State"]


class Compute(NamedTuple):
    """A worker's event: a vector is ready and claimed."""

    worker: int
    version: int


class Learn(NamedTuple):
    """A NOTICE or an ACK tells a worker of the job's epoch."""

    worker: int


class State(NamedTuple):
    """`core` indexes `ClaimsSwitch.cores`."""

    core: int
    workers: tuple[Worker, ...]


class ClaimsExplorer:
    """Breadth-first search of one scenario. `enough`: so many updates at most go to others before a worker's turn
    comes."""

    def __init__(self, scenario: Scenario, habits: Habits = HABITS) -> None:
        self.scenario = scenario
        self.switch, self.workers = ClaimsSwitch(scenario), ClaimsWorkers(scenario, habits)
        self.enough = scenario.workers * (scenario.staleness + 1 if scenario.pipelined else 1)
        self.effects: dict[tuple[int, int, Worker], list[tuple[Event, int]]] = {}
        self.renumbered: dict[tuple[int, tuple[int, ...]], int] = {}
        self.outlook: list[list[dict[State, int]]] = [[{} for _ in range(scenario.workers)] for few in (False, True)]
        self.named: list[set[State]] = [set() for _ in range(scenario.workers)]
        self.waits = 0

    def start(self) -> State:
        return State(self.switch.start(), (Worker(),) * self.scenario.workers)

    # The workers

    def hear(self, state: State, worker: int, event: Event) -> State:
        """A message of the switch arrives."""
        return self.think(state, worker, self.workers.hear(state.workers[worker], event))

    def learn(self, state: State, worker: int) -> State:
        """If it does not know the job's epoch, it does now."""
        mind, epoch = state.workers[worker], self.switch.cores[state.core].epoch
        return state if mind.epoch == epoch else self.think(state, worker, self.workers.habits.learn(mind, epoch))

    def compute(self, state: State, worker: int, version: int) -> State:
        return self.think(state, worker, self.workers.compute(state.workers[worker], version))

    def think(self, state: State, worker: int, mind: Worker) -> State:
        return state if mind is state.workers[worker] else state._replace(workers=put(state.workers, worker, mind))

    # The search

    def actions(self, core: Core) -> Iterator[Event]:
        """What may happen at any time that is no message of a worker."""
        s, live = self.scenario, core.ring.live
        everybody = range(s.workers)
        gone = s.workers - live.bit_count()
        if gone + core.joined < s.leaves and live.bit_count() > 1:
            yield from (Leave(m) for m in everybody if live >> m & 1)
        if core.joined < s.joins and not core.ring.joining and len(core.granted) < s.updates:
            yield from (Knock(m) for m in everybody if not live >> m & 1)
        yield from self.entries(core)
        yield from (SetThreshold(h) for h in s.thresholds if h != core.ring.threshold)
        if core.epoch < s.resets:
            yield Reset()
        if s.fbcasts:
            yield from (
                Force(k)
                for k, slot in enumerate(core.ring.slots)
                if slot.state == SlotState.COLLECTING and not slot.requires_all
            )

    def entries(self, core: Core) -> Iterator[Event]:
        if self.scenario.rules.admit(core.claims, core.ring) != core.ring:
            yield Enter(core.ring.joining.bit_length() - 1)

    def act(self, state: State, event: Event) -> State:
        number = self.switch.move(state.core, event)[0]
        workers = state.workers
        if isinstance(event, Leave):
            workers = put(workers, event.worker, Worker())
        if isinstance(event, Enter):
            first = len(self.switch.cores[state.core].granted)
            epoch = self.switch.cores[state.core].epoch
            workers = put(
                workers, event.worker, Worker(held=(1 << first * self.scenario.segments) - 1, first=first, epoch=epoch)
            )
        return State(number, workers)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        for event, after in self.steps(state):
            yield event, self.canonical(after)

    def steps(self, state: State) -> Iterator[tuple[Event, State]]:
        core = self.switch.cores[state.core]
        for event in self.actions(core):
            yield event, self.act(state, event)
        for m, mind in enumerate(state.workers):
            if not core.ring.live >> m & 1:
                continue
            if mind.epoch != core.epoch:
                yield Learn(m), self.learn(state, m)
                if not self.scenario.epochs:
                    yield from (
                        (event, state._replace(core=number)) for event, number in self.arrivals(state.core, m, mind)
                    )
                continue
            for version in (*self.workers.versions(mind), *self.workers.lies(mind)):
                yield Compute(m, version), self.compute(state, m, version)
            for event in self.deliveries(core, m):
                after = self.hear(state, m, event)
                if after is not state:
                    yield event, after
            for event, number in self.arrivals(state.core, m, mind):
                yield event, state._replace(core=number)

    def deliveries(self, core: Core, worker: int) -> Iterator[Event]:
        """All that the switch has sent to a worker, or to the one before it at its index."""
        yield from (Result(worker, segment) for segment, members in enumerate(core.truth) if members != UNKNOWN)
        yield from (Granted(worker, update) for update, row in enumerate(core.granted) if row[worker])
        yield from (
            Refused(worker, k) for k in range(core.refused[worker].bit_length()) if core.refused[worker] >> k & 1
        )

    def arrivals(self, number: int, worker: int, mind: Worker) -> list[tuple[Event, int]]:
        """The messages of a worker that change the core, with the core after each."""
        key = number, worker, mind
        if key not in self.effects:
            moved: dict[int, Event] = {}
            for event in self.workers.messages(worker, mind):
                moved.setdefault(self.switch.move(number, event)[0], event)
            self.effects[key] = [(event, after) for after, event in moved.items() if after != number]
        return self.effects[key]

    # Symmetry

    def canonical(self, state: State) -> State:
        """Workers numbered anew so that what they know rises. (States that differ by the order of equals stay
        apart.)"""
        order = tuple(sorted(range(self.scenario.workers), key=state.workers.__getitem__))
        if order == tuple(range(self.scenario.workers)):
            return state
        key = state.core, order
        if key not in self.renumbered:
            self.renumbered[key] = self.switch.intern(renumber(self.switch.cores[state.core], order))
        return State(self.renumbered[key], tuple(state.workers[m] for m in order))

    # Progress

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, fresh messages alone bring all results to all. Each worker begins the
        rounds once, with all others busy and with only as many as a grant needs, while the rest sends what it was
        granted and receives. Who begins gets into an update again if `enough` are to come. If a worker is silent for
        ever and that stops the others, the switch learns whom they wait for. No losses are tried."""
        core = self.switch.cores[state.core]
        alive = [m for m in range(self.scenario.workers) if core.ring.live >> m & 1]
        for few in (False, True):
            for first in alive:
                ends = self.destiny(state, first, few)
                if len(core.granted) + self.enough <= self.scenario.updates and ends == grants_to(core, first):
                    raise Violation("a worker is kept out for ever")
        for silent in alive:
            self.without(state, silent)

    def is_over(self, state: State, but: int = 0) -> bool:
        """Nobody who is live, those in the set `but` aside, lacks anything, or a RESET."""
        core = self.switch.cores[state.core]
        return not core.ring.joining and all(
            lowest_missing(mind.held) == self.workers.total and mind.epoch == core.epoch
            for m, mind in enumerate(state.workers)
            if core.ring.live & ~but & 1 << m
        )

    def destiny(self, state: State, first: int, few: bool) -> int:
        """How many updates worker `first` has been granted when all is over."""
        passed, known = [], self.outlook[few][first]
        while state not in known:
            passed.append(state)
            core = self.switch.cores[state.core]
            if self.is_over(state):
                known[state] = grants_to(core, first)
                break
            order = [
                m
                for k in range(self.scenario.workers)
                if core.ring.live >> (m := (first + k) % self.scenario.workers) & 1
            ]
            for place, m in enumerate(order):
                state = self.turn(state, m, not few or place < core.ring.threshold)
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        known.update(dict.fromkeys(passed, known[state]))
        return known[state]

    def without(self, state: State, silent: int) -> None:
        """All but one take turns until all is over or nothing more happens. A newcomer's repeated Join lets it in, or
        tells for whom it waits."""
        passed: list[State] = []
        while state not in self.named[silent] and not self.is_over(state, 1 << silent):
            passed.append(state)
            core = self.switch.cores[state.core]
            self.waits = claims_of.behind(core.claims, core.ring) if core.ring.joining else 0
            for event in self.entries(core):
                state = self.act(state, event)
            for m in range(self.scenario.workers):
                if m != silent and self.switch.cores[state.core].ring.live >> m & 1:
                    state = self.turn(state, m, True)
            if state == passed[-1]:
                if not self.waits >> silent & 1:
                    raise Violation("a silent worker stops the others, and nobody can tell which")
                break
        self.named[silent].update(passed)

    def turn(self, state: State, worker: int, busy: bool) -> State:
        """A live worker does all that it may, without a new vector if it is not `busy`, and lies no more; the network
        delivers all that this causes."""
        for event in self.entries(self.switch.cores[state.core]):
            state = self.act(state, event)
        state = self.learn(state, worker)
        for receipt in self.workers.receipts(worker, (lowest_missing(state.workers[worker].held),)):
            state = self.deliver(state, receipt)
        versions = self.workers.versions(state.workers[worker])
        if busy and versions:
            state = self.compute(state, worker, versions[-1])
        mind = state.workers[worker]
        if mind.waits:
            honest = self.workers.honest(mind)
            state = self.think(state, worker, honest)
            if self.workers.habits.tells:
                state = self.deliver(state, Receipt(worker, lowest_missing(mind.held), UNKNOWN))
            state = self.deliver(state, Claim(worker, len(honest.vectors), honest.vectors[-1].version))
        mind = state.workers[worker]
        for contribution in self.workers.contributions(worker, mind, (lowest_missing(mind.held),)):
            state = self.deliver(state, contribution)
        return state

    def deliver(self, state: State, event: Event) -> State:
        """A message arrives, and whatever the switch sends because of it arrives too."""
        number, sent = self.switch.move(state.core, event)
        self.waits |= sent.waits
        state = state._replace(core=number)
        for m in range(self.scenario.workers):
            if state.workers[m].epoch != self.switch.cores[number].epoch:
                continue
            for segment, receivers in sent.results:
                state = self.hear(state, m, Result(m, segment)) if receivers >> m & 1 else state
            answer = sent.answer
            if answer and answer.receivers >> m & 1:
                if answer.type == Type.REFUSE:
                    state = self.hear(state, m, Refused(m, answer.seq))
                elif answer.members >> m & 1:
                    state = self.hear(state, m, Granted(m, self.switch.segment(answer.seq) // self.scenario.segments))
        return state

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

"""Every state of an asynchronous job in small cases: claims, grants and refusals, and the ring under them.

The switch is `sim/model/aggregate/claims.py` and `ring.py`; workers follow `docs/async.md`. A worker computes a vector
with the weights of some version (the number of updates in them), claims an update for it, sends it if granted, computes
another if refused, and applies the updates in their order. How long it computes is open: a vector that is claimed now may
have been computed with any weights since the worker was free to compute. `pipelined`: it computes the next vector while
the last one waits, is sent or is summed; otherwise only after it has applied the sum with the last one.

**The network remembers everything**, as in `explorer.py`: all claims, contributions and receipts that a worker may have
sent, all grants, refusals and results that the switch has, may arrive now, again and again, or never. A few are allowed that
were never sent: a granted vector's claim with other weights. A vector is known by its worker and k; accumulators are sets
of (segment, worker).

Checked at each step: a vector is granted once, at age S at most, to a live member, in a set of no less than min(H, live);
it is sent to its update only; a sum holds exactly those granted, less those quarantined or gone; a result never changes, so all who
have applied u updates have the same weights; no honest worker is told WINDOW; a grant is forgotten only when its update is
complete. Checked in each state: if the network loses all that is under way, fresh messages, repeated by timer, bring every
result to every live worker, and each live worker into an update again, if updates enough remain; and if one is silent and that
stops the others, the switch can tell whom they wait for, and evict it.

Workers are interchangeable and all rules are symmetric in them, so of states that differ by a permutation only one is
explored.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from iswitch.wire import Operation, Outcome, SlotState, Type
from sim.model.aggregate import claims as claims_of
from sim.model.aggregate import ring as ring_of
from sim.model.aggregate.claims import Answer, Claims, Verdict
from sim.model.aggregate.ring import Ring, Work
from sim.model.explorer import UNKNOWN, Leave, Receipt, Result, SetThreshold, lowest_missing
from sim.model.search import Violation, search

__all__ = ["ClaimsExplorer", "Rules", "Scenario", "State", "Vector", "Worker"]

SERIAL = 1 << 32
UNANSWERED, REFUSED = -1, -2

Event = tuple[Any, ...]


class Vector(NamedTuple):
    """`version`: how many updates were in the weights it was computed with, forgotten when it matters no longer to the
    worker. `update`: which it was granted, if any."""

    version: int
    update: int = UNANSWERED


class Worker(NamedTuple):
    """`held`: bit mask of results. `vectors`: those claimed; the first has k = 1. `first`: the update at which it joined."""

    held: int = 0
    vectors: tuple[Vector, ...] = ()
    first: int = 0

    @property
    def waits(self) -> bool:
        return bool(self.vectors) and self.vectors[-1].update == UNANSWERED


def takes_grant(worker: Worker, update: int) -> bool:
    """A GRANT that names the worker is for its claim if the update is newer than any it knows to be its own."""
    return worker.waits and update >= worker.first and all(update > vector.update for vector in worker.vectors)


def takes_refusal(worker: Worker, k: int) -> bool:
    return worker.waits and k == len(worker.vectors)


def may_claim(worker: Worker) -> bool:
    """One claim at a time: whoever claimed again before the answer could have been granted what it gave up."""
    return not worker.waits


class Rules(NamedTuple):
    """The rules the tests replace by plausible wrong ones: the switch's, then the workers'."""

    claim: Callable[..., Verdict] = claims_of.claim
    leave: Callable[[Claims, int], Claims] = claims_of.leave
    admit: Callable[[Claims, Ring], Ring] = claims_of.admit
    granted: Callable[[Claims, int], int | None] = claims_of.granted
    wanted: Callable[[Claims, int], int | None] = claims_of.granted
    takes_grant: Callable[[Worker, int], bool] = takes_grant
    takes_refusal: Callable[[Worker, int], bool] = takes_refusal
    may_claim: Callable[[Worker], bool] = may_claim


class Scenario(NamedTuple):
    """What is explored: until `updates` are granted. `leaves`: how many workers may leave; `joins`: how many may come in
    their places. `thresholds`: values that SET_H may set at any time. `tainted`: (segment, k) of contributions to be
    quarantined, whoever sends them. `whole`: False makes a mutant."""

    workers: int
    staleness: int
    threshold: int
    updates: int
    segments: int = 1
    window: int = 1
    pipelined: bool = False
    leaves: int = 0
    joins: int = 0
    thresholds: tuple[int, ...] = ()
    tainted: frozenset[tuple[int, int]] = frozenset()
    rules: Rules = Rules()
    whole: bool = True


class Claim(NamedTuple):
    worker: int
    k: int
    version: int


class Contribution(NamedTuple):
    """`segment` counts from 0 over all updates; the sender lacked nothing below `low`. `k`: of which vector."""

    worker: int
    segment: int
    low: int
    k: int


class Knock(NamedTuple):
    """A newcomer's Join is confirmed; it gets in at the next boundary."""

    worker: int


class Enter(NamedTuple):
    worker: int


class Compute(NamedTuple):
    """A worker's event: a vector is ready and claimed."""

    worker: int
    version: int


class Granted(NamedTuple):
    worker: int
    update: int


class Refused(NamedTuple):
    worker: int
    k: int


class Core(NamedTuple):
    """The switch: ring, claims, accumulators (masks of workers), how many have joined. For the checks: members of
    each result; for each update granted, the vectors k (0: none, negative: its worker has left since); the version of
    each worker's waiting vector; masks of the k that were refused."""

    ring: Ring
    claims: Claims
    memory: tuple[int, ...]
    joined: int
    truth: tuple[int, ...]
    granted: tuple[tuple[int, ...], ...]
    versions: tuple[int, ...]
    refused: tuple[int, ...]


class State(NamedTuple):
    """`core` indexes `ClaimsExplorer.cores`."""

    core: int
    workers: tuple[Worker, ...]


class Sent(NamedTuple):
    """What the switch sends because of an event: results, as (segment, receivers), and at most one answer to a claim. `waits`: whom it
    learns that somebody waits for."""

    results: tuple[tuple[int, int], ...] = ()
    answer: Answer | None = None
    waits: int = 0


def put(row: tuple, index: int, value: Any) -> tuple:
    return row[:index] + (value,) + row[index + 1:]


class ClaimsExplorer:
    """Breadth-first search of one scenario. First seq is the last multiple of 2W before 2^32, so that seq wraps."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rules = scenario.rules
        self.total = scenario.updates * scenario.segments
        self.first_seq = SERIAL - 2 * scenario.window
        self.enough = scenario.workers * (scenario.staleness + 1 if scenario.pipelined else 1)
        self.cores: list[Core] = []
        self.numbers: dict[Core, int] = {}
        self.moves: dict[tuple[int, type, Event], tuple[int, Sent]] = {}
        self.effects: dict[tuple[int, int, Worker], list[tuple[Event, int]]] = {}
        self.renumbered: dict[tuple[int, tuple[int, ...]], int] = {}
        self.named: list[set[State]] = [set() for _ in range(scenario.workers)]
        self.waits = 0
        self.outlook: list[list[dict[State, int]]] = [[{} for _ in range(scenario.workers)] for few in (False, True)]

    def intern(self, core: Core) -> int:
        if core not in self.numbers:
            self.numbers[core] = len(self.cores)
            self.cores.append(core)
        return self.numbers[core]

    def start(self) -> State:
        s = self.scenario
        n = s.workers
        ring = ring_of.new_ring(self.first_seq, s.window, n, (1 << n) - 1, s.threshold)
        claims = claims_of.new_claims(self.first_seq, segments=s.segments, staleness=s.staleness, members=n)
        core = Core(ring, claims, (0,) * 2 * s.window, 0, (UNKNOWN,) * self.total, (), (UNKNOWN,) * n, (0,) * n)
        return State(self.intern(core), (Worker(),) * n)

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, seq: int) -> int:
        return (seq - self.first_seq) % SERIAL

    def base(self, update: int) -> int:
        return self.seq(update * self.scenario.segments)

    # The switch

    def move(self, number: int, event: Event) -> tuple[int, Sent]:
        """The core after a message or an action, and what it sent."""
        key = number, type(event), event  # tuples of different types may be equal
        if key not in self.moves:
            try:
                core, sent = self.perform(self.cores[number], event)
            except Violation as violation:
                violation.trace.append(event)
                raise
            self.moves[key] = self.intern(core), sent
        return self.moves[key]

    def perform(self, core: Core, event: Event) -> tuple[Core, Sent]:
        if isinstance(event, Leave):
            return self.depart(core, event)
        if isinstance(event, SetThreshold):
            return core._replace(ring=core.ring._replace(threshold=event.threshold)), Sent()
        if isinstance(event, Knock):
            return core._replace(ring=core.ring._replace(joining=1 << event.worker)), Sent()
        if isinstance(event, Enter):
            return self.enter(core, event.worker), Sent()
        if isinstance(event, Claim):
            return self.claim(core, event)
        if isinstance(event, Contribution):
            return self.contribute(core, event)
        assert isinstance(event, Receipt)
        asked = event.low if event.wanted == UNKNOWN else event.wanted
        step = ring_of.receipt(core.ring, member=event.worker, seq=self.seq(asked), behind=asked - event.low,
                               want=event.wanted != UNKNOWN, granted=self.rules.wanted(core.claims, self.seq(asked)))
        return self.execute(core, step, event)

    def depart(self, core: Core, event: Leave) -> tuple[Core, Sent]:
        ring, works = ring_of.leave(core.ring, event.worker)
        granted = tuple(put(row, event.worker, -abs(row[event.worker])) for row in core.granted)
        core = core._replace(ring=ring, claims=self.rules.leave(core.claims, event.worker), granted=granted,
                             versions=put(core.versions, event.worker, UNKNOWN))
        results = []
        for work in works:
            core, result = self.accumulate(core, work, event)
            results.append(result)
        return core, Sent(tuple(results))

    def enter(self, core: Core, worker: int) -> Core:
        return core._replace(ring=self.rules.admit(core.claims, core.ring), joined=core.joined + 1,
                             refused=put(core.refused, worker, 0))

    def claim(self, core: Core, event: Claim) -> tuple[Core, Sent]:
        before = core.claims
        if len(core.granted) == self.scenario.updates and event.k > before.claimants[event.worker].k:
            return core, Sent()  # here the exploration ends
        verdict = self.rules.claim(before, core.ring, member=event.worker, k=event.k, weights=self.base(event.version))
        if verdict.outcome == Outcome.WINDOW:
            raise Violation("an honest worker is told WINDOW")
        core, answer = core._replace(claims=verdict.claims), verdict.answer
        if verdict.outcome == Outcome.CONTROL:
            core = core._replace(versions=put(core.versions, event.worker, event.version))
        if answer and answer.type == Type.REFUSE:
            core = core._replace(refused=put(core.refused, event.worker, core.refused[event.worker] | 1 << answer.seq))
        if verdict.claims.base != before.base:
            core = self.check_grant(core)
        return core, Sent(answer=answer, waits=verdict.waits)

    def check_grant(self, core: Core) -> Core:
        """The update granted just now."""
        s, update, members = self.scenario, len(core.granted), core.claims.grants[-1].members
        row = tuple(core.claims.claimants[m].k if members >> m & 1 else 0 for m in range(s.workers))
        if members & ~core.ring.live:
            raise Violation("an update is granted to somebody who left")
        for m, k in enumerate(row):
            if k and core.versions[m] == UNKNOWN or any(k and k == earlier[m] for earlier in core.granted):
                raise Violation("a vector is granted twice")
            if k and update - core.versions[m] > s.staleness:
                raise Violation("a vector older than S is granted")
        if members.bit_count() < claims_of.quorum(core.ring):
            raise Violation("an update is granted to too few")
        forgotten = max(0, update - s.staleness) * s.segments
        if UNKNOWN in core.truth[:forgotten]:
            raise Violation("more than S + 1 updates are under way")
        versions = tuple(UNKNOWN if k else version for k, version in zip(row, core.versions))
        return core._replace(granted=(*core.granted, row), versions=versions)

    def contribute(self, core: Core, event: Contribution) -> tuple[Core, Sent]:
        if abs(core.granted[event.segment // self.scenario.segments][event.worker]) != event.k:
            raise Violation("a vector is sent to an update that it was not granted")
        seq = self.seq(event.segment)
        step = ring_of.contribute(core.ring, member=event.worker, seq=seq, behind=event.segment - event.low, whole=self.scenario.whole,
                                  tainted=(event.segment, event.k) in self.scenario.tainted,
                                  granted=self.rules.granted(core.claims, seq) or 0)
        return self.execute(core, step, event)

    def execute(self, core: Core, step: ring_of.Step, event: Event) -> tuple[Core, Sent]:
        if step.outcome == Outcome.WINDOW:
            raise Violation("an honest worker is told WINDOW")
        core = core._replace(ring=step.ring)
        if not step.work:
            return core, Sent(waits=step.waits)
        core, result = self.accumulate(core, step.work, event)
        sends = step.work.emit or step.work.operation == Operation.RESEND
        return core, Sent((result,) if sends else (), waits=step.waits)

    def accumulate(self, core: Core, work: Work, event: Event) -> tuple[Core, tuple[int, int]]:
        """The accumulators obey. Returns also (segment, receivers) of a result, which is compared with the grant."""
        slot, content = core.ring.slots[work.slot], core.memory[work.slot]
        segment, n = self.segment(slot.seq), self.scenario.workers
        if work.operation != Operation.RESEND:
            content = 0 if work.first else content
            if work.operation == Operation.CONTRIBUTE and isinstance(event, Contribution):
                bit = 1 << segment * n + event.worker
                if content & bit:
                    raise Violation("a worker is twice in a sum")
                content |= bit
            core = core._replace(memory=put(core.memory, work.slot, content))
        result = segment, work.receivers
        if not work.emit and work.operation != Operation.RESEND:
            return core, result
        row = tuple(0 if (segment, abs(k)) in self.scenario.tainted else k
                    for k in core.granted[segment // self.scenario.segments])
        if content != slot.members << segment * n or slot.state != SlotState.COMPLETE:
            raise Violation("a sum is not that of its members' vectors")
        if any(slot.members >> m & 1 and not k or k > 0 and not slot.members >> m & 1 for m, k in enumerate(row)):
            raise Violation("a sum is not that of those granted")
        if core.truth[segment] not in (UNKNOWN, slot.members):
            raise Violation("a result changes")
        return core._replace(truth=put(core.truth, segment, slot.members)), result

    # The workers

    def applied(self, worker: Worker) -> int:
        return lowest_missing(worker.held) // self.scenario.segments

    def versions(self, worker: Worker) -> range:
        """Of the vectors that may be ready now. A vector older than one that was refused is not worth a claim."""
        applied = self.applied(worker)
        if not self.rules.may_claim(worker) or applied >= self.scenario.updates:
            return range(0)
        if not worker.vectors:
            return range(worker.first, applied + 1)
        last = worker.vectors[-1]
        if last.update == REFUSED:
            return range(last.version + 1, applied + 1)
        return range(last.version if self.scenario.pipelined else last.update + 1, applied + 1)

    def contributions(self, worker: int, mind: Worker, lows: Iterable[int]) -> Iterator[Contribution]:
        """What a worker with these grants may have sent while it lacked one of `lows`."""
        for low in lows:
            for k, vector in enumerate(mind.vectors, 1):
                first = vector.update * self.scenario.segments
                for segment in range(max(low, first), min(low + self.scenario.window, first + self.scenario.segments)):
                    if vector.update >= 0:
                        yield Contribution(worker, segment, low, k)

    def receipts(self, worker: int, lows: Iterable[int]) -> Iterator[Receipt]:
        for low in lows:
            yield Receipt(worker, low, UNKNOWN)
            if low < self.total:
                yield Receipt(worker, low, low)

    def messages(self, worker: int, mind: Worker) -> Iterator[Event]:
        """All that this incarnation of a worker may have sent by now."""
        lows = range(mind.first * self.scenario.segments, lowest_missing(mind.held) + 1)
        for k, vector in enumerate(mind.vectors, 1):
            known = vector.version != UNKNOWN
            yield from (Claim(worker, k, v) for v in ((vector.version,) if known else range(self.applied(mind) + 1)))
        yield from self.contributions(worker, mind, lows)
        yield from self.receipts(worker, lows)

    def hear(self, state: State, worker: int, event: Event) -> State:
        """A message of the switch arrives."""
        mind = state.workers[worker]
        if isinstance(event, Result):
            mind = mind._replace(held=mind.held | 1 << event.segment)
        elif isinstance(event, Granted) and self.rules.takes_grant(mind, event.update):
            version = mind.vectors[-1].version if self.scenario.pipelined else UNKNOWN
            mind = mind._replace(vectors=(*mind.vectors[:-1], Vector(version, event.update)))
        elif isinstance(event, Refused) and self.rules.takes_refusal(mind, event.k):
            mind = mind._replace(vectors=(*mind.vectors[:-1], mind.vectors[-1]._replace(update=REFUSED)))
        return state if mind is state.workers[worker] else state._replace(workers=put(state.workers, worker, mind))

    def compute(self, state: State, worker: int, version: int) -> State:
        mind = state.workers[worker]
        old = tuple(vector if vector.update < 0 else vector._replace(version=UNKNOWN) for vector in mind.vectors)
        return state._replace(workers=put(state.workers, worker, mind._replace(vectors=(*old, Vector(version)))))

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

    def entries(self, core: Core) -> Iterator[Event]:
        if self.rules.admit(core.claims, core.ring) != core.ring:
            yield Enter(core.ring.joining.bit_length() - 1)

    def act(self, state: State, event: Event) -> State:
        number = self.move(state.core, event)[0]
        workers = state.workers
        if isinstance(event, Leave):
            workers = put(workers, event.worker, Worker())
        if isinstance(event, Enter):
            first = len(self.cores[state.core].granted)
            workers = put(workers, event.worker, Worker(held=(1 << first * self.scenario.segments) - 1, first=first))
        return State(number, workers)

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        for event, after in self.steps(state):
            yield event, self.canonical(after)

    def steps(self, state: State) -> Iterator[tuple[Event, State]]:
        core = self.cores[state.core]
        for event in self.actions(core):
            yield event, self.act(state, event)
        for m, mind in enumerate(state.workers):
            if not core.ring.live >> m & 1:
                continue
            for version in self.versions(mind):
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
        yield from (Refused(worker, k) for k in range(core.refused[worker].bit_length()) if core.refused[worker] >> k & 1)

    def arrivals(self, number: int, worker: int, mind: Worker) -> list[tuple[Event, int]]:
        """The messages of a worker that change the core, with the core after each."""
        key = number, worker, mind
        if key not in self.effects:
            moved: dict[int, Event] = {}
            for event in self.messages(worker, mind):
                moved.setdefault(self.move(number, event)[0], event)
            self.effects[key] = [(event, after) for after, event in moved.items() if after != number]
        return self.effects[key]

    # Symmetry

    def canonical(self, state: State) -> State:
        """Workers numbered anew so that what they know rises. (States that differ by the order of equals stay apart.)"""
        order = tuple(sorted(range(self.scenario.workers), key=state.workers.__getitem__))
        if order == tuple(range(self.scenario.workers)):
            return state
        key = state.core, order
        if key not in self.renumbered:
            self.renumbered[key] = self.intern(renumber(self.cores[state.core], order))
        return State(self.renumbered[key], tuple(state.workers[m] for m in order))

    # Progress

    def check_progress(self, state: State) -> None:
        """From here, with an empty network, fresh messages alone bring all results to all. Each worker begins the rounds once,
        with all others busy and with only as many as a grant needs, while the rest sends what it was granted and receives.
        Who begins gets into an update again if `enough` are to come. If a worker is silent for ever and that stops the
        others, the switch learns whom they wait for. No losses are tried."""
        core = self.cores[state.core]
        alive = [m for m in range(self.scenario.workers) if core.ring.live >> m & 1]
        for few in (False, True):
            for first in alive:
                ends = self.destiny(state, first, few)
                if len(core.granted) + self.enough <= self.scenario.updates and ends == grants_to(core, first):
                    raise Violation("a worker is kept out for ever")
        for silent in alive:
            self.without(state, silent)

    def is_over(self, state: State, but: int = 0) -> bool:
        """Nobody who is live, those in the set `but` aside, lacks anything."""
        ring = self.cores[state.core].ring
        return not ring.joining and all(lowest_missing(mind.held) == self.total
                                        for m, mind in enumerate(state.workers) if ring.live & ~but & 1 << m)

    def destiny(self, state: State, first: int, few: bool) -> int:
        """How many updates worker `first` has been granted when all is over."""
        passed, known = [], self.outlook[few][first]
        while state not in known:
            passed.append(state)
            core = self.cores[state.core]
            if self.is_over(state):
                known[state] = grants_to(core, first)
                break
            order = [m for k in range(self.scenario.workers)
                     if core.ring.live >> (m := (first + k) % self.scenario.workers) & 1]
            for place, m in enumerate(order):
                state = self.turn(state, m, not few or place < core.ring.threshold)
            if state == passed[-1]:
                raise Violation("a worker waits for ever")
        known.update(dict.fromkeys(passed, known[state]))
        return known[state]

    def without(self, state: State, silent: int) -> None:
        """All but one take turns until all is over or nothing more happens. A newcomer's repeated Join lets it in, or tells for
        whom it waits."""
        passed: list[State] = []
        while state not in self.named[silent] and not self.is_over(state, 1 << silent):
            passed.append(state)
            core = self.cores[state.core]
            self.waits = claims_of.behind(core.claims, core.ring) if core.ring.joining else 0
            for event in self.entries(core):
                state = self.act(state, event)
            for m in range(self.scenario.workers):
                if m != silent and self.cores[state.core].ring.live >> m & 1:
                    state = self.turn(state, m, True)
            if state == passed[-1]:
                if not self.waits >> silent & 1:
                    raise Violation("a silent worker stops the others, and nobody can tell which")
                break
        self.named[silent].update(passed)

    def turn(self, state: State, worker: int, busy: bool) -> State:
        """A live worker does all that it may, without a new vector if it is not `busy`; the network delivers all that this
        causes."""
        for event in self.entries(self.cores[state.core]):
            state = self.act(state, event)
        for receipt in self.receipts(worker, (lowest_missing(state.workers[worker].held),)):
            state = self.deliver(state, receipt)
        versions = self.versions(state.workers[worker])
        if busy and versions:
            state = self.compute(state, worker, versions[-1])
        mind = state.workers[worker]
        if mind.waits:
            state = self.deliver(state, Claim(worker, len(mind.vectors), mind.vectors[-1].version))
        mind = state.workers[worker]
        for contribution in self.contributions(worker, mind, (lowest_missing(mind.held),)):
            state = self.deliver(state, contribution)
        return state

    def deliver(self, state: State, event: Event) -> State:
        """A message arrives, and whatever the switch sends because of it arrives too."""
        number, sent = self.move(state.core, event)
        self.waits |= sent.waits
        state = state._replace(core=number)
        for m in range(self.scenario.workers):
            for segment, receivers in sent.results:
                state = self.hear(state, m, Result(m, segment)) if receivers >> m & 1 else state
            answer = sent.answer
            if answer and answer.receivers >> m & 1:
                if answer.type == Type.REFUSE:
                    state = self.hear(state, m, Refused(m, answer.seq))
                elif answer.members >> m & 1:
                    state = self.hear(state, m, Granted(m, self.segment(answer.seq) // self.scenario.segments))
        return state

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)


def grants_to(core: Core, worker: int) -> int:
    return sum(row[worker] != 0 for row in core.granted)


def renumber(core: Core, order: tuple[int, ...]) -> Core:
    """The same core if worker `order[k]` had been worker k."""
    n = len(order)

    def moved(mask: int) -> int:
        return sum((mask >> m & 1) << k for k, m in enumerate(order))

    def moved_row(row: tuple) -> tuple:
        return tuple(row[m] for m in order)

    def moved_sum(content: int) -> int:
        segment = max(0, content.bit_length() - 1) // n
        return moved(content >> segment * n) << segment * n

    ring, claims = core.ring, core.claims
    slots = tuple(slot._replace(arrived=moved(slot.arrived), members=moved(slot.members), expected=moved(slot.expected))
                  for slot in ring.slots)
    grants = tuple(grant._replace(members=moved(grant.members)) for grant in claims.grants)
    return core._replace(
        ring=ring._replace(slots=slots, have=moved_row(ring.have), live=moved(ring.live),
                           joining=moved(ring.joining)),
        claims=claims._replace(grants=grants, claimants=moved_row(claims.claimants)),
        memory=tuple(map(moved_sum, core.memory)),
        truth=tuple(members if members == UNKNOWN else moved(members) for members in core.truth),
        granted=tuple(map(moved_row, core.granted)), versions=moved_row(core.versions), refused=moved_row(core.refused))

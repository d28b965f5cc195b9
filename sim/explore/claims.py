"""Asynchronous jobs under every order of messages: claims, grants and refusals, and the ring under them.

The switch (`claims_switch.py`) is `host/iswitch/golden/decide/claims.py` and `ring.py`. The workers
(`claims_worker.py`) follow `docs/protocol.md`: a worker computes a vector with the weights of some version (the number
of updates in them), claims an update for it, and contributes the vector if it is granted. If it is refused, the worker
computes another one. It applies updates in their order. How long a computation takes is open: a vector that is claimed
now may have been computed with any weights since the worker was free to compute.

The network remembers everything, as `messages.py` says, grants and refusals included. A few messages are possible that
were never sent: a granted vector's claim with other weights. With `lies` a worker may claim any vector with weights
newer than it has, also those of updates that are not complete or do not exist; where progress is checked it is honest.
After a RESET a worker's messages have another epoch until it learns of the RESET, and so do the switch's earlier ones.
HALT needs no event: it is a network that delivers no contributions for a while.

Checked at each step:

- A vector is granted once, at age S at most, to a live member, in a set of at least min(H, live) members.
- A vector is contributed to its update only. A sum holds exactly the granted vectors, less those quarantined or left.
- A result never changes, so all workers that have applied u updates have the same weights.
- An honest worker is never refused with WINDOW, nor with UNHELD if the switch has its receipt.
- A grant is forgotten only when its update is complete.

Checked in each state, if the network loses everything in flight:

- Fresh messages, repeated by timer, bring every result to every live worker, and each live worker gets into an update
  again if enough updates remain.
- If one worker is silent and that stops the others, the switch has recorded which member they wait for, and can evict
it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from iswitch.golden.decide import claims as golden
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import SlotState, Type
from sim.explore.claims_scenario import (
    AdmitJoining,
    Claim,
    ClaimsScenario,
    Compute,
    ForceSlot,
    Granted,
    JoinConfirmed,
    LearnEpoch,
    Refused,
    Reset,
)
from sim.explore.claims_switch import ClaimsCore, ClaimsSent, ClaimsSwitch, grants_to
from sim.explore.claims_symmetry import renumber
from sim.explore.claims_worker import CORRECT, ClaimsWorkers, Worker, WorkerRules
from sim.explore.messages import UNKNOWN, Leave, Receipt, Result, SetThreshold, is_member, lowest_missing
from sim.explore.search import Continuation, Event, Explorer, Violation

__all__ = ["ClaimsExplorer", "ClaimsState"]


class ClaimsState(NamedTuple):
    """`switch`: number of the switch's state. `workers`: what each worker knows."""

    switch: int
    workers: tuple[Worker, ...]


class ClaimsExplorer(Explorer[ClaimsState]):
    """Search of one `ClaimsScenario`."""

    def __init__(self, scenario: ClaimsScenario, rules: WorkerRules = CORRECT) -> None:
        self.scenario = scenario
        self.switch, self.workers = ClaimsSwitch(scenario), ClaimsWorkers(scenario, rules)
        self._effective: dict[tuple[int, int, Worker], list[Event]] = {}
        self._renumbered: dict[tuple[int, tuple[int, ...]], int] = {}
        everyone = range(scenario.workers)
        self._schedules = {(first, few): self._all_work(first, few) for first in everyone for few in (False, True)}
        self._without = [self._all_but(silent) for silent in everyone]
        self._waits_for = 0

    def start(self) -> ClaimsState:
        return ClaimsState(self.switch.start(), (Worker(),) * self.scenario.workers)

    def core(self, state: ClaimsState) -> ClaimsCore:
        """Return the switch in a state."""
        return self.switch.states[state.switch]

    # What may happen

    def events(self, state: ClaimsState) -> Iterator[Event]:
        core = self.core(state)
        yield from self._operations(core)
        for m, worker in enumerate(state.workers):
            if not is_member(core.ring.live, m):
                continue
            if worker.epoch != core.epoch:
                yield LearnEpoch(m)
                if self.scenario.epochs:
                    continue
            else:
                for version in (*self.workers.versions(worker), *self.workers.lies(worker)):
                    yield Compute(m, version)
                yield from self._deliverable(core, m)
            yield from self._messages(state.switch, m, worker)

    def _operations(self, core: ClaimsCore) -> Iterator[Event]:
        """Return what may happen at any time besides messages of workers and of the switch."""
        s, live = self.scenario, core.ring.live
        everyone = range(s.workers)
        absent = s.workers - live.bit_count()
        if absent + core.joined < s.leaves and live.bit_count() > 1:
            yield from (Leave(m) for m in everyone if is_member(live, m))
        if core.joined < s.joins and not core.ring.joining and len(core.granted) < s.updates:
            yield from (JoinConfirmed(m) for m in everyone if not is_member(live, m))
        yield from self._admissions(core)
        yield from (SetThreshold(h) for h in s.thresholds if h != core.ring.threshold)
        if core.epoch < s.resets:
            yield Reset()
        if s.fbcasts:
            for k, slot in enumerate(core.ring.slots):
                if slot.state == SlotState.COLLECTING and not slot.requires_all:
                    yield ForceSlot(k)

    def _admissions(self, core: ClaimsCore) -> Iterator[Event]:
        if self.scenario.rules.admit(core.claims, core.ring) != core.ring:
            yield AdmitJoining(core.ring.joining.bit_length() - 1)

    def _deliverable(self, core: ClaimsCore, m: int) -> Iterator[Event]:
        """Return all that the switch has sent to a worker, or to the one before it at its index."""
        yield from (Result(m, segment) for segment, members in enumerate(core.results) if members != UNKNOWN)
        yield from (Granted(m, update) for update, vectors in enumerate(core.granted) if vectors[m])
        refused = core.refused[m]
        yield from (Refused(m, k) for k in range(refused.bit_length()) if is_member(refused, k))

    def _messages(self, switch: int, m: int, worker: Worker) -> list[Event]:
        """Return the messages that a worker may have sent up to now and that change the switch."""
        key = switch, m, worker
        if key not in self._effective:
            self._effective[key] = self.switch.effective(switch, self.workers.messages(m, worker))
        return self._effective[key]

    # What it does

    def after(self, state: ClaimsState, event: Event) -> ClaimsState:
        match event:
            case LearnEpoch(m):
                return self._learned(state, m)
            case Compute(m, version):
                return self._knowing(state, m, self.workers.compute(state.workers[m], version))
            case Result() | Granted() | Refused():
                return self._received(state, event)
        moved = state._replace(switch=self.switch.step(state.switch, event)[0])
        match event:
            case Leave(m):
                return self._knowing(moved, m, Worker())
            case AdmitJoining(m):
                core = self.core(state)
                first = len(core.granted)
                held = (1 << first * self.scenario.segments) - 1
                return self._knowing(moved, m, Worker(held=held, first=first, epoch=core.epoch))
        return moved

    def _received(self, state: ClaimsState, event: Result | Granted | Refused) -> ClaimsState:
        return self._knowing(state, event.worker, self.workers.receive(state.workers[event.worker], event))

    def _learned(self, state: ClaimsState, m: int) -> ClaimsState:
        """Return the state in which a worker knows the job's epoch."""
        worker, epoch = state.workers[m], self.core(state).epoch
        if worker.epoch == epoch:
            return state
        return self._knowing(state, m, self.workers.rules.learn_epoch(worker, epoch))

    @staticmethod
    def _knowing(state: ClaimsState, m: int, worker: Worker) -> ClaimsState:
        if worker is state.workers[m]:
            return state
        return state._replace(workers=replace_at(state.workers, m, worker))

    # Symmetry

    def canonical(self, state: ClaimsState) -> ClaimsState:
        """Return the state with the workers numbered so that what they know rises.

        States that differ by the order of equal workers stay apart.
        """
        order = tuple(sorted(range(self.scenario.workers), key=state.workers.__getitem__))
        if order == tuple(range(self.scenario.workers)):
            return state
        key = state.switch, order
        if key not in self._renumbered:
            self._renumbered[key] = self.switch.number(renumber(self.core(state), order))
        return ClaimsState(self._renumbered[key], tuple(state.workers[m] for m in order))

    # What is promised

    def check(self, state: ClaimsState) -> None:
        """Check that fresh messages alone bring all results to all workers, on a network that is empty now.

        Each worker starts the rounds once, with all others contributing, and with only as many as a grant needs while
        the rest sends what it was granted and receives. The worker that starts must get into an update again, if
        `enough` updates remain. No losses are tried.
        """
        core = self.core(state)
        live = [m for m in range(self.scenario.workers) if is_member(core.ring.live, m)]
        for few in (False, True):
            for first in live:
                grants = self._schedules[first, few].follow(state)
                remain = self.scenario.updates - len(core.granted)
                if self.enough <= remain and grants == grants_to(core, first):
                    raise Violation("a worker is never granted an update")
        for silent in live:
            self._without[silent].follow(state)

    @property
    def enough(self) -> int:
        """The most updates that are granted to others before a worker's turn comes."""
        s = self.scenario
        return s.workers * (s.staleness + 1 if s.pipelined else 1)

    def _is_over(self, state: ClaimsState, except_for: int = UNKNOWN) -> bool:
        """Return whether no live worker, one aside, lacks a result or the news of a RESET."""
        core = self.core(state)
        return not core.ring.joining and all(
            lowest_missing(worker.held) == self.workers.total and worker.epoch == core.epoch
            for m, worker in enumerate(state.workers)
            if is_member(core.ring.live, m) and m != except_for
        )

    def _all_work(self, first: int, few: bool) -> Continuation[ClaimsState, int]:
        """Return the schedule in which worker `first` starts each round. Its outcome: how many grants that one gets."""

        def step(state: ClaimsState) -> ClaimsState:
            core, n = self.core(state), self.scenario.workers
            order = [m for k in range(n) if is_member(core.ring.live, m := (first + k) % n)]
            for place, m in enumerate(order):
                state = self._turn(state, m, computes=not few or place < core.ring.threshold)
            return state

        def outcome(state: ClaimsState) -> int | None:
            return grants_to(self.core(state), first) if self._is_over(state) else None

        def stuck(state: ClaimsState) -> int:
            raise Violation("a worker waits forever")

        return Continuation(step, outcome, stuck)

    def _all_but(self, silent: int) -> Continuation[ClaimsState, bool]:
        """Return the schedule in which all but one take turns, until all is over or the switch knows the silent one.

        A joining worker's repeated Join admits it, or shows for which members it waits.
        """

        def step(state: ClaimsState) -> ClaimsState:
            core = self.core(state)
            self._waits_for = golden.members_behind(core.claims, core.ring) if core.ring.joining else 0
            for event in self._admissions(core):
                state = self.after(state, event)
            for m in range(self.scenario.workers):
                if m != silent and is_member(self.core(state).ring.live, m):
                    state = self._turn(state, m, computes=True)
            return state

        def stuck(state: ClaimsState) -> bool:
            if not is_member(self._waits_for, silent):
                raise Violation("a silent worker stops the others and cannot be identified")
            return True

        return Continuation(step, lambda state: self._is_over(state, silent) or None, stuck)

    def _turn(self, state: ClaimsState, m: int, computes: bool) -> ClaimsState:
        """Return the state after a live worker did all that it may, honestly, and the network delivered the answers.

        Unless it `computes`, it claims no new vector.
        """
        for event in self._admissions(self.core(state)):
            state = self.after(state, event)
        state = self._learned(state, m)
        for receipt in self.workers.receipts(m, lowest_missing(state.workers[m].held)):
            state = self._deliver(state, receipt)
        versions = self.workers.versions(state.workers[m])
        if computes and versions:
            state = self.after(state, Compute(m, versions[-1]))
        worker = state.workers[m]
        if worker.waits:
            honest = self.workers.honest(worker)
            state = self._knowing(state, m, honest)
            if self.workers.rules.acknowledges:
                state = self._deliver(state, Receipt(m, lowest_missing(worker.held), UNKNOWN))
            state = self._deliver(state, Claim(m, len(honest.vectors), honest.vectors[-1].version))
        worker = state.workers[m]
        for contribution in self.workers.contributions(m, worker, (lowest_missing(worker.held),)):
            state = self._deliver(state, contribution)
        return state

    def _deliver(self, state: ClaimsState, event: Event) -> ClaimsState:
        """Return the state after a message arrived and whatever the switch sends because of it arrived, too."""
        number, sent = self.switch.step(state.switch, event)
        self._waits_for |= sent.waits_for
        state = state._replace(switch=number)
        for m in range(self.scenario.workers):
            if state.workers[m].epoch == self.switch.states[number].epoch:
                for message in self._messages_to(m, sent):
                    state = self._received(state, message)
        return state

    def _messages_to(self, m: int, sent: ClaimsSent) -> Iterator[Result | Granted | Refused]:
        """Return what of the switch's messages goes to a worker."""
        for segment, receivers in sent.results:
            if is_member(receivers, m):
                yield Result(m, segment)
        answer = sent.answer
        if answer and is_member(answer.receivers, m):
            if answer.type == Type.REFUSE:
                yield Refused(m, answer.seq)
            elif is_member(answer.members, m):
                yield Granted(m, self.switch.numbers.segment(answer.seq) // self.scenario.segments)

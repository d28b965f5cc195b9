"""The Join handshake under every order of messages.

The switch is `host/iswitch/golden/decide/join.py` and `command.py`.

The network remembers everything: any Join, Leave, END or acknowledgement ever sent may arrive now, again and again, or
never. Actors are incarnations of workers, each with its own nonce and token. An actor may crash, leave, or move to
another address, and its packets remain in the network. An operator may end the job, and a copy of its END may arrive
later. In an outage, the switch hears a member so seldom that its entry is stale, although it lives.

Checked at each step: a message changes nothing if the job has ended, or a member has left, moved or been replaced,
since it was sent. An actor that receives *running* is live, at its index. A Join of the job's own program takes the
place of one member at most, and only if there is no free index for it.

Checked in each state: if everything in flight is lost and crashed actors have been silent for long, fresh Joins alone
fill as many indices as the scenario says, or the job runs with a live member, which evicts the dead ones. If as many
actors as the job needs repeat their Joins, the job runs in the end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.config import Config
from iswitch.golden.decide import command, join
from iswitch.golden.decide.job import NO_JOB, EntryState, Job, Verdict
from iswitch.golden.decide.random import Offer
from iswitch.golden.interface.message import Request, Settings, Source
from iswitch.golden.interface.tuples import replace_at
from iswitch.wire import NO_MEMBER, SILENCE_TICK_US, SILENCE_TICKS_MAX, Action, Format, JobState, Reason
from sim.explore.search import Event, Explorer, Scenario, Violation

__all__ = ["CRASHES", "LEAVES", "MOVES", "STAYS", "Actor", "JoinExplorer", "JoinScenario", "JoinState"]

STAYS, CRASHES, LEAVES, MOVES = "stays", "crashes", "leaves", "moves"
"""What an actor may do."""

CONFIG = Config(members=4, window=1, elements=8)
NOW_US = SILENCE_TICKS_MAX * SILENCE_TICK_US
"""The time at which everything happens. A member that was last heard in tick 0 is stale."""
FIRST_CHALLENGE = 5
JoinRule = Callable[[Config, Job, Request, Source, Offer, int], Verdict]


class Actor(NamedTuple):
    """One incarnation of a worker.

    `address` identifies the machine. `wanted`: the index that it requests. `after`: the actor that must have
    crashed or left before this one starts. `key`: of its program.
    """

    address: int
    wanted: int = NO_MEMBER
    fate: str = STAYS
    after: int | None = None
    key: int = 0


@dataclass(frozen=True)
class JoinScenario(Scenario):
    """One job that forms, or runs already.

    Parameters
    ----------
    actors : tuple of Actor
    world : int
        The job's size.
    seats : int
        How many actors must become live.
    challenges : int
        States in which the challenge has changed more often are not covered.
    operator : bool
        Whether an operator may end the job.
    running : int
        So many actors, the first ones, are the members of a running job at the start; 0 if there is no job.
    outage : bool
        Whether the switch may not hear members that live, for longer than `evict_us`.
    join : callable
        The rule under test.
    """

    actors: tuple[Actor, ...]
    world: int = 2
    seats: int = 2
    challenges: int = 2
    operator: bool = False
    running: int = 0
    outage: bool = False
    join: JoinRule = join.join


class Knowledge(NamedTuple):
    """What an actor has recorded: the challenge, and whether it has received *running*.

    `address`: where it is now. `departed`: it crashed or left.
    """

    address: int
    challenge: int = 0
    running: bool = False
    departed: bool = False


class JoinArrives(NamedTuple):
    """An actor's Join reaches the switch. `generation`: that of the state in which it was sent."""

    actor: int
    address: int
    challenge: int
    generation: int


class AckArrives(NamedTuple):
    """The acknowledgement of a Join reaches its actor. `running`: the actor is a live member of a running job."""

    actor: int
    challenge: int
    running: bool


class Crashes(NamedTuple):
    """An actor crashes."""

    actor: int


class FallsSilent(NamedTuple):
    """The switch has not heard an actor, which has departed or is cut off, for so long that its entry is stale."""

    actor: int


class SendsLeave(NamedTuple):
    """An actor leaves and sends a Leave for its index."""

    actor: int


class Moves(NamedTuple):
    """An actor that has received *running* continues at another address, and sends its Join from there."""

    actor: int


class SendsEnd(NamedTuple):
    """The operator, which has asked for the challenge, sends an END."""


class EndArrives(NamedTuple):
    """An END reaches the switch."""

    challenge: int
    generation: int


class LeaveArrives(NamedTuple):
    """A Leave reaches the switch."""

    actor: int
    address: int
    member: int


class JoinState(NamedTuple):
    """The job, what the actors know, and what was sent by now.

    `generation` counts ends of the job, and members that left, moved or were replaced; the switch does not know it.
    """

    job: Job
    actors: tuple[Knowledge, ...]
    sent: frozenset[Event]
    generation: int = 0


class JoinExplorer(Explorer[JoinState]):
    """Search of one `JoinScenario`."""

    def __init__(self, scenario: JoinScenario) -> None:
        self.scenario, self.actors = scenario, scenario.actors
        self.settings = Settings(scenario.world, scenario.world, Format.INT32, 0, 8, 0, 0, 0)

    def start(self) -> JoinState:
        knowledge = tuple(Knowledge(actor.address) for actor in self.actors)
        state = JoinState(NO_JOB._replace(challenge=FIRST_CHALLENGE), knowledge, frozenset())
        for actor in range(self.scenario.running):
            state = self._insist(state, actor)
            state = self._knowing(state, actor, state.actors[actor]._replace(running=True))
        if self.scenario.running:
            job = state.job._replace(state=JobState.RUNNING)
            state = JoinState(job, state.actors, frozenset())
        return state

    def is_covered(self, state: JoinState) -> bool:
        return state.generation <= self.scenario.challenges

    # What may happen

    def events(self, state: JoinState) -> Iterator[Event]:
        for number, (actor, knowledge) in enumerate(zip(self.actors, state.actors)):
            if not self._has_started(state, number):
                continue
            if not knowledge.challenge:
                yield AckArrives(number, state.job.challenge, False)  # the answer to a Join without a challenge
            if actor.fate == CRASHES and not knowledge.departed:
                yield Crashes(number)
            if (knowledge.departed or self.scenario.outage) and self._index(state.job, number) is not None:
                yield FallsSilent(number)
            if actor.fate == LEAVES and knowledge.running and not knowledge.departed:
                yield SendsLeave(number)
            if actor.fate == MOVES and knowledge.running and knowledge.address == actor.address:
                yield Moves(number)
        if self.scenario.operator and not any(isinstance(event, EndArrives) for event in state.sent):
            yield SendsEnd()
        yield from sorted(state.sent, key=repr)

    def _has_started(self, state: JoinState, actor: int) -> bool:
        after = self.actors[actor].after
        return after is None or state.actors[after].departed

    @staticmethod
    def _index(job: Job, actor: int) -> int | None:
        """Return the index at which an actor is a member, or None."""
        entries = enumerate(job.entries)
        return next((k for k, entry in entries if entry.state == EntryState.LIVE and entry.nonce == actor + 1), None)

    # What it does

    def after(self, state: JoinState, event: Event) -> JoinState:
        match event:
            case JoinArrives():
                return self._join(state, event)[0]
            case AckArrives():
                return self._acknowledge(state, event)
            case LeaveArrives():
                return self._leave(state, event)
            case FallsSilent(actor):
                index = self._index(state.job, actor)
                return state if index is None else self._with_silent(state, index)
            case SendsEnd():
                end = EndArrives(state.job.challenge, state.generation)
                return state._replace(sent=state.sent | {end})
            case EndArrives(challenge, generation):
                request = Request(Action.END, 0, NO_MEMBER, 0, 0, 0, 99, self.settings, challenge=challenge)
                return self._with_job(state, command.execute_by_key(state.job, request, 0).job, generation)
            case Moves(actor):
                moved = state.actors[actor]._replace(address=state.actors[actor].address + 10)
                return self._sending_join(self._knowing(state, actor, moved), actor)
        knowledge = state.actors[event.actor]
        departed = self._knowing(state, event.actor, knowledge._replace(departed=True))
        index = self._index(state.job, event.actor)
        if isinstance(event, Crashes) or index is None:
            return departed
        return departed._replace(sent=departed.sent | {LeaveArrives(event.actor, knowledge.address, index)})

    @staticmethod
    def _with_silent(state: JoinState, index: int) -> JoinState:
        return state._replace(job=state.job._replace(last_heard=replace_at(state.job.last_heard, index, 0)))

    @staticmethod
    def _source(address: int) -> Source:
        return Source(0, bytes([address] * 6), address, 1)

    def _request(self, actor: int, action: Action, member: int, challenge: int = 0, number: int = 0) -> Request:
        key = self.actors[actor].key
        return Request(action, 0, member, actor + 1, number, key, actor + 1, self.settings, challenge=challenge)

    def _with_job(self, state: JoinState, job: Job, generation: int | None) -> JoinState:
        """Return the state with another job, after a message that was sent in the state of a generation."""
        before, after = (
            (x.state, tuple((e.state, e.nonce, e.source) for e in x.entries), x.live, x.ring.joining)
            for x in (state.job, job)
        )
        if before != after and generation is not None and generation < state.generation:
            raise Violation("a message from before an end, a departure, a move or a replacement changes the job")
        owners = [(entry.nonce, entry.source) for entry in state.job.entries if entry.state == EntryState.LIVE]
        remaining = {(entry.nonce, entry.source) for entry in job.entries if entry.state == EntryState.LIVE}
        gone = any(owner not in remaining for owner in owners)
        return state._replace(job=job, generation=state.generation + gone)

    def _join(self, state: JoinState, sent: JoinArrives) -> tuple[JoinState, AckArrives, Reason]:
        """Return the state after a Join arrived, its acknowledgement in flight, and the switch's reason."""
        request = self._request(sent.actor, Action.JOIN, self.actors[sent.actor].wanted, sent.challenge)
        source = self._source(sent.address)
        verdict = self.scenario.join(CONFIG, state.job, request, source, Offer(0, 0), NOW_US)
        self._check_places(state.job, verdict.job, request)
        state = self._with_job(state, verdict.job, sent.generation)
        job, index = verdict.job, verdict.entry_index
        live = index is not None and bool(job.live >> index & 1)
        ack = AckArrives(sent.actor, job.challenge, live and job.state == JobState.RUNNING)
        return state._replace(sent=state.sent | {ack}), ack, verdict.reason

    @staticmethod
    def _check_places(before: Job, after: Job, request: Request) -> None:
        """Check what the members of a running job lose by a Join of their own program."""
        if before.state != JobState.RUNNING or request.key != before.key:
            return
        if (before.live & ~after.live).bit_count() > 1:
            raise Violation("a Join of a job's own program ends the job of several members")
        free = [k for k, entry in enumerate(before.entries) if entry.state != EntryState.LIVE]
        if before.live & ~after.live and (free if request.member == NO_MEMBER else request.member in free):
            raise Violation("a Join takes a member's place although an index is free")

    def _acknowledge(self, state: JoinState, ack: AckArrives) -> JoinState:
        """Return the state after an acknowledgement: the last one counts, until one is *running*."""
        knowledge = state.actors[ack.actor]
        if knowledge.departed or knowledge.running:
            return state
        index = self._index(state.job, ack.actor)
        if ack.running and index is None and not self.scenario.operator:
            raise Violation("a worker receives running and is not a member")
        known = self._knowing(state, ack.actor, knowledge._replace(challenge=ack.challenge, running=ack.running))
        return known if ack.running else self._sending_join(known, ack.actor)

    @staticmethod
    def _sending_join(state: JoinState, actor: int) -> JoinState:
        knowledge = state.actors[actor]
        join = actor, knowledge.address, knowledge.challenge
        if any(isinstance(event, JoinArrives) and event[:3] == join for event in state.sent):
            return state
        return state._replace(sent=state.sent | {JoinArrives(*join, state.generation)})

    def _leave(self, state: JoinState, leave: LeaveArrives) -> JoinState:
        request = self._request(leave.actor, Action.LEAVE, leave.member, number=1)
        verdict = command.execute(CONFIG, state.job, request, self._source(leave.address))
        return self._with_job(state, verdict.job, None)

    @staticmethod
    def _knowing(state: JoinState, actor: int, knowledge: Knowledge) -> JoinState:
        return state._replace(actors=replace_at(state.actors, actor, knowledge))

    # What is promised

    def check(self, state: JoinState) -> None:
        """Check that repeated Joins fill the indices, with everything in flight lost. Actors repeat their Leaves."""
        for leave in sorted(event for event in state.sent if isinstance(event, LeaveArrives)):
            state = self._leave(state, leave)
        waiting = [
            k for k, knowledge in enumerate(state.actors) if self._has_started(state, k) and not knowledge.departed
        ]
        for actor, knowledge in enumerate(state.actors):
            index = self._index(state.job, actor)
            if knowledge.departed and index is not None:
                state = self._with_silent(state, index)
        for _ in range(2 * len(self.actors) + 2):
            if self._goes_on(state, waiting):
                return
            for actor in waiting:
                state = self._insist(state, actor)
        members = [actor for actor in waiting if self._index(state.job, actor) is not None]
        alike = [actor for actor in waiting if self.actors[actor].key == state.job.key]
        seats = min(self.scenario.seats, len(alike)) or bool(waiting)
        if len(members) < seats and not self._goes_on(state, waiting):
            raise Violation("an index stays free forever")
        if len(alike) >= self.scenario.world == self.scenario.seats and not self._goes_on(state, waiting):
            raise Violation("workers that could form a job wait forever")

    def _goes_on(self, state: JoinState, waiting: list[int]) -> bool:
        """Return whether the job runs and has a live member that is alive: that one evicts the dead members, and the
        job admits the others at a boundary."""
        indices = [self._index(state.job, actor) for actor in waiting]
        live = any(index is not None and state.job.live >> index & 1 for index in indices)
        return state.job.state == JobState.RUNNING and live

    def _insist(self, state: JoinState, actor: int) -> JoinState:
        """Return the state after an actor's Join, repeated with each new challenge."""
        for _ in range(4):
            knowledge = state.actors[actor]
            join = JoinArrives(actor, knowledge.address, knowledge.challenge, state.generation)
            state, ack, reason = self._join(state, join)
            state = self._knowing(state, actor, state.actors[actor]._replace(challenge=ack.challenge))
            if reason != Reason.CHALLENGE:
                break
        return state

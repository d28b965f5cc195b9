"""The Join handshake under every order of messages. The switch is `sim/model/decide/join.py` and `command.py`.

The network remembers everything: any Join, Leave or acknowledgement ever sent may arrive now, again and again, or
never. Actors are incarnations of workers, each with its own nonce. An actor may crash or leave, and its packets remain
in the network.

Checked at each step: an actor that becomes live has itself received the token of its entry, so a delayed Join makes no
dead actor a member. An actor that receives *running* is live, at its index.

Checked in each state: if everything in flight is lost, fresh Joins alone fill as many indices as the scenario says,
unless a crashed actor had confirmed before; that needs a RESET.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from iswitch.config import Config
from iswitch.wire import NO_MEMBER, Action, Format, JobState, Reason
from sim.explore.search import Event, Explorer, Scenario, Violation
from sim.model.decide import command, join
from sim.model.decide.job import NO_JOB, EntryState, Job, Verdict
from sim.model.decide.random import Offer
from sim.model.interface.message import Request, Settings, Source
from sim.model.interface.tuples import replace_at

__all__ = ["CRASHES", "LEAVES", "STAYS", "Actor", "JoinExplorer", "JoinScenario", "JoinState"]

STAYS, CRASHES, LEAVES = "stays", "crashes", "leaves"
"""What an actor may do."""

CONFIG = Config(members=4, window=1, elements=8)
JoinRule = Callable[[Config, Job, Request, Source, Offer, int], Verdict]


class Actor(NamedTuple):
    """One incarnation of a worker.

    `address` identifies the machine. `wanted`: the index that it requests. `after`: the actor that must have
    crashed or left before this one starts.
    """

    address: int
    wanted: int = NO_MEMBER
    fate: str = STAYS
    after: int | None = None


@dataclass(frozen=True)
class JoinScenario(Scenario):
    """One job that forms.

    Parameters
    ----------
    actors : tuple of Actor
    world : int
        The job's size.
    seats : int
        How many actors must become live.
    tokens : int
        States in which the switch has granted more tokens are not covered.
    join : callable
        The rule under test.
    """

    actors: tuple[Actor, ...]
    world: int = 2
    seats: int = 2
    tokens: int = 4
    join: JoinRule = join.join


class Knowledge(NamedTuple):
    """What an actor has recorded: its token, if any, and whether it has received *running*.

    `departed`: it crashed or left.
    """

    token: int = 0
    running: bool = False
    departed: bool = False


class JoinArrives(NamedTuple):
    """An actor's Join reaches the switch; with a token it is the confirmation."""

    actor: int
    token: int


class AckArrives(NamedTuple):
    """The acknowledgement of a Join reaches its actor."""

    actor: int
    token: int
    running: bool


class Crashes(NamedTuple):
    """An actor crashes."""

    actor: int


class SendsLeave(NamedTuple):
    """An actor leaves and sends a Leave for its index."""

    actor: int


class LeaveArrives(NamedTuple):
    """A Leave reaches the switch."""

    actor: int
    member: int
    token: int


class JoinState(NamedTuple):
    """The job, what the actors know, and what was sent by now.

    `acks`: acknowledgements. `confirmations`: Joins with a token, as (actor, token). `leaves`: Leaves. `tokens`: how
    many were granted.
    """

    job: Job
    actors: tuple[Knowledge, ...]
    acks: frozenset[AckArrives]
    confirmations: frozenset[tuple[int, int]]
    leaves: frozenset[LeaveArrives]
    tokens: int


class JoinExplorer(Explorer[JoinState]):
    """Search of one `JoinScenario`."""

    def __init__(self, scenario: JoinScenario) -> None:
        self.scenario, self.actors = scenario, scenario.actors
        self.settings = Settings(scenario.world, scenario.world, Format.INT32, 0, 8, 0, 0, 0)

    def start(self) -> JoinState:
        nothing: frozenset = frozenset()
        return JoinState(NO_JOB, (Knowledge(),) * len(self.actors), nothing, nothing, nothing, 0)

    def is_covered(self, state: JoinState) -> bool:
        return state.tokens <= self.scenario.tokens

    # What may happen

    def events(self, state: JoinState) -> Iterator[Event]:
        for number, (actor, knowledge) in enumerate(zip(self.actors, state.actors)):
            if not self._has_started(state, number):
                continue
            yield JoinArrives(number, 0)
            yield from (JoinArrives(*sent) for sent in sorted(state.confirmations) if sent[0] == number)
            if actor.fate == CRASHES and not knowledge.departed:
                yield Crashes(number)
            if actor.fate == LEAVES and knowledge.running and not knowledge.departed:
                yield SendsLeave(number)
        yield from sorted(state.acks)
        yield from sorted(state.leaves)

    def _has_started(self, state: JoinState, actor: int) -> bool:
        after = self.actors[actor].after
        return after is None or state.actors[after].departed

    # What it does

    def after(self, state: JoinState, event: Event) -> JoinState:
        match event:
            case JoinArrives(actor, token):
                return self._join(state, actor, token)[0]
            case AckArrives():
                return self._acknowledge(state, event)
            case LeaveArrives():
                return self._leave(state, event)
        knowledge = state.actors[event.actor]
        departed = self._knowing(state, event.actor, knowledge._replace(departed=True))
        if isinstance(event, Crashes):
            return departed
        index = next(k for k, entry in enumerate(state.job.entries) if entry.nonce == event.actor + 1)
        return departed._replace(leaves=departed.leaves | {LeaveArrives(event.actor, index, knowledge.token)})

    def _source(self, actor: int) -> Source:
        address = self.actors[actor].address
        return Source(0, bytes([address] * 6), address, 1)

    def _request(self, actor: int, action: Action, token: int, member: int, number: int = 0) -> Request:
        return Request(action, 0, member, token, number, 0, actor + 1, self.settings)

    def _join(self, state: JoinState, actor: int, token: int) -> tuple[JoinState, Verdict]:
        """Return the state after a Join arrived, its acknowledgement in flight, and the switch's verdict."""
        request = self._request(actor, Action.JOIN, token, self.actors[actor].wanted)
        offer = Offer(0, 0, state.tokens + 1)
        verdict = self.scenario.join(CONFIG, state.job, request, self._source(actor), offer, 0)
        for index, entry in enumerate(verdict.job.entries):
            before = state.job.entries[index].state if state.job.entries else EntryState.FREE
            if entry.state == EntryState.LIVE != before and (entry.nonce - 1, entry.token) not in state.confirmations:
                raise Violation("a member is live that never received its token")
        state = state._replace(job=verdict.job, tokens=state.tokens + verdict.accepts_offer)
        if verdict.reason == Reason.DONE:
            state = state._replace(acks=state.acks | {self._ack(actor, verdict)})
        return state, verdict

    def _ack(self, actor: int, verdict: Verdict) -> AckArrives:
        running = verdict.job.state == JobState.RUNNING and verdict.job.live.bit_count() == self.scenario.world
        return AckArrives(actor, verdict.token, running)

    def _acknowledge(self, state: JoinState, ack: AckArrives) -> JoinState:
        """Return the state after an acknowledgement: the last one counts, until one is *running*."""
        knowledge = state.actors[ack.actor]
        if knowledge.departed or knowledge.running:
            return state
        state = self._knowing(state, ack.actor, Knowledge(ack.token, ack.running))
        is_live = any(
            entry.state == EntryState.LIVE and entry.nonce == ack.actor + 1 and entry.token == ack.token
            for entry in state.job.entries
        )
        if ack.running and not is_live:
            raise Violation("a worker receives running and is not a member")
        return state._replace(confirmations=state.confirmations | {(ack.actor, ack.token)})

    def _leave(self, state: JoinState, leave: LeaveArrives) -> JoinState:
        request = self._request(leave.actor, Action.LEAVE, leave.token, leave.member, 1)
        verdict = command.execute(CONFIG, state.job, request, self._source(leave.actor))
        return state._replace(job=verdict.job)

    @staticmethod
    def _knowing(state: JoinState, actor: int, knowledge: Knowledge) -> JoinState:
        return state._replace(actors=replace_at(state.actors, actor, knowledge))

    # What is promised

    def check(self, state: JoinState) -> None:
        """Check that repeated Joins fill the indices, with everything in flight lost. Actors repeat their Leaves."""
        departed = [k + 1 for k, knowledge in enumerate(state.actors) if knowledge.departed]
        for leave in sorted(state.leaves):
            state = self._leave(state, leave)
        if any(entry.state == EntryState.LIVE and entry.nonce in departed for entry in state.job.entries):
            return
        if state.job.state == JobState.RUNNING and state.leaves:
            return  # an actor left a running job, which admits new members at a boundary only; there is none here
        refused: set[int] = set()
        for _ in range(2 * len(self.actors) + 2):
            for actor in range(len(self.actors)):
                if self._has_started(state, actor) and not state.actors[actor].departed:
                    state, is_seated = self._insist(state, actor)
                    refused = refused - {actor} if is_seated else refused | {actor}
        waiting = [
            k for k, knowledge in enumerate(state.actors) if self._has_started(state, k) and not knowledge.departed
        ]
        live = state.job.live.bit_count()
        if live < min(self.scenario.seats, len(waiting)):
            raise Violation("an index stays free forever")
        if len(waiting) - len(refused) != live:
            raise Violation("a worker that is not live was not refused")

    def _insist(self, state: JoinState, actor: int) -> tuple[JoinState, bool]:
        """Return the state after an actor's Join, and whether it was accepted.

        With TOKEN the actor starts over without a token. It confirms a new token at once.
        """
        for _ in range(3):
            token = state.actors[actor].token
            state, verdict = self._join(state, actor, token)
            if verdict.reason == Reason.TOKEN:
                state = self._knowing(state, actor, Knowledge())
            elif verdict.reason == Reason.DONE:
                state = self._acknowledge(state, self._ack(actor, verdict))
                if verdict.token == token:
                    break
        return state, verdict.reason == Reason.DONE

"""Every state of the Join handshake in small cases. The switch is `sim/model/decide/membership.py` itself.

As in `explorer.py` the network remembers everything: any Join, Leave or acknowledgement ever sent may arrive now, again
and again, or never. Actors are incarnations, each with its own nonce; one may crash or leave, and its packets haunt on.

Checked at each step: who becomes live has itself received the token of its entry (a delayed Join resurrects nobody),
and who was told that the job runs is live, at its index. Checked in each state: if all that is under way is lost, fresh
Joins alone fill as many seats as the scenario says, unless a crashed one had confirmed before: that needs a RESET.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from iswitch.config import Config
from iswitch.wire import NO_MEMBER, Action, Format, JobState, Reason
from sim.explore.search import Violation, search
from sim.model.decide import membership
from sim.model.decide.membership import NO_JOB, EntryState, Job, Request, Settings, Source, Verdict
from sim.model.decide.random import Offer

__all__ = ["CRASHES", "LEAVES", "STAYS", "Actor", "JoinExplorer"]

STAYS, CRASHES, LEAVES = "stays", "crashes", "leaves"


class Actor(NamedTuple):
    """One incarnation. `address` tells machines apart; `after`: the actor that must be gone before this one starts."""

    address: int
    wanted: int = NO_MEMBER
    fate: str = STAYS
    after: int | None = None


class Mind(NamedTuple):
    """What an actor knows: its token, if any, and whether it was told that the job runs. `gone`: crashed or left."""

    token: int = 0
    running: bool = False
    gone: bool = False


class Grant(NamedTuple):
    """An acknowledgement of a Join that may still arrive."""

    actor: int
    token: int
    running: bool


class State(NamedTuple):
    """`sent`: Joins with a token, as (actor, token), and Leaves, that somebody has sent by now. `tokens`: how many
    were drawn."""

    job: Job
    minds: tuple[Mind, ...]
    grants: frozenset[Grant]
    sent: frozenset[tuple[int, int]]
    left: frozenset[tuple[int, int, int]]
    tokens: int


Join = Callable[[Config, Job, Request, Source, Offer, int], Verdict]


class JoinExplorer:
    """`seats`: how many actors must get in. `tokens`: no state in which more have been granted is explored."""

    def __init__(
        self,
        actors: tuple[Actor, ...],
        *,
        world: int = 2,
        seats: int = 2,
        tokens: int = 4,
        join: Join = membership.join,
    ) -> None:
        self.actors, self.world, self.seats, self.tokens, self.join = actors, world, seats, tokens, join
        self.config = Config(members=4, window=1, elements=8)
        self.settings = Settings(world, world, Format.INT32, 0, 8, 0, 0, 0)

    def start(self) -> State:
        return State(NO_JOB, (Mind(),) * len(self.actors), frozenset(), frozenset(), frozenset(), 0)

    def started(self, state: State, actor: int) -> bool:
        after = self.actors[actor].after
        return after is None or state.minds[after].gone

    def source(self, actor: int) -> Source:
        return Source(0, bytes([self.actors[actor].address] * 6), self.actors[actor].address, 1)

    def request(self, actor: int, action: Action, token: int, member: int, number: int = 0) -> Request:
        return Request(action, 0, member, token, number, 0, actor + 1, self.settings)

    def ask(self, state: State, actor: int, token: int, wanted: int) -> tuple[State, Verdict]:
        """A Join arrives; its acknowledgement is now under way."""
        offer = Offer(0, 0, state.tokens + 1)
        verdict = self.join(
            self.config, state.job, self.request(actor, Action.JOIN, token, wanted), self.source(actor), offer, 0
        )
        for index, entry in enumerate(verdict.job.entries):
            before = state.job.entries[index].state if state.job.entries else EntryState.FREE
            if entry.state == EntryState.LIVE != before and (entry.nonce - 1, entry.token) not in state.sent:
                raise Violation("somebody is live who never received its token")
        state = state._replace(job=verdict.job, tokens=state.tokens + verdict.fresh)
        if verdict.reason == Reason.DONE:
            running = verdict.job.state == JobState.RUNNING and verdict.job.live.bit_count() == self.world
            state = state._replace(grants=state.grants | {Grant(actor, verdict.token, running)})
        return state, verdict

    def hear(self, state: State, grant: Grant) -> State:
        """An acknowledgement arrives: the last one heard counts, until one says that the job runs."""
        mind = state.minds[grant.actor]
        if mind.gone or mind.running:
            return state
        state = self.think(state, grant.actor, Mind(grant.token, grant.running))
        if grant.running and not any(
            entry.state == EntryState.LIVE and entry.nonce == grant.actor + 1 and entry.token == grant.token
            for entry in state.job.entries
        ):
            raise Violation("somebody is told that the job runs and is not in it")
        return state._replace(sent=state.sent | {(grant.actor, grant.token)})

    def think(self, state: State, actor: int, mind: Mind) -> State:
        return state._replace(minds=state.minds[:actor] + (mind,) + state.minds[actor + 1 :])

    def successors(self, state: State) -> Iterator[tuple[Any, State]]:
        for actor, (who, mind) in enumerate(zip(self.actors, state.minds)):
            if not self.started(state, actor):
                continue
            for token in (0, *(token for sender, token in sorted(state.sent) if sender == actor)):
                after = self.ask(state, actor, token, who.wanted)[0]
                if after.tokens <= self.tokens:
                    yield ("join", actor, token), after
            if who.fate == CRASHES and not mind.gone:
                yield ("crash", actor), self.think(state, actor, mind._replace(gone=True))
            if who.fate == LEAVES and mind.running and not mind.gone:
                index = next(k for k, entry in enumerate(state.job.entries) if entry.nonce == actor + 1)
                after = self.think(state, actor, mind._replace(gone=True))
                yield ("leave", actor), after._replace(left=state.left | {(actor, index, mind.token)})
        for grant in sorted(state.grants):
            yield grant, self.hear(state, grant)
        for actor, index, token in sorted(state.left):
            yield ("left", actor), self.part(state, actor, index, token)

    def part(self, state: State, actor: int, index: int, token: int) -> State:
        verdict = membership.act(
            self.config, state.job, self.request(actor, Action.LEAVE, token, index, 1), self.source(actor)
        )
        return state._replace(job=verdict.job)

    def check_progress(self, state: State) -> None:
        """With everything under way lost, actors repeat their Joins; those that leave send their Leave again."""
        gone = [k + 1 for k, mind in enumerate(state.minds) if mind.gone]
        for actor, index, token in sorted(state.left):
            state = self.part(state, actor, index, token)
        if any(entry.state == EntryState.LIVE and entry.nonce in gone for entry in state.job.entries):
            return
        if state.job.state == JobState.RUNNING and state.left:
            return  # somebody left a job that runs, and such a job takes no newcomers
        refused: set[int] = set()
        for _ in range(2 * len(self.actors) + 2):
            for actor, who in enumerate(self.actors):
                if self.started(state, actor) and not state.minds[actor].gone:
                    state, seated = self.insist(state, actor, who)
                    refused = refused - {actor} if seated else refused | {actor}
        alive = [k for k, mind in enumerate(state.minds) if self.started(state, k) and not mind.gone]
        if state.job.live.bit_count() < min(self.seats, len(alive)):
            raise Violation("a seat stays empty for ever")
        if len(alive) - len(refused) != state.job.live.bit_count():
            raise Violation("somebody who is not live was not told")

    def insist(self, state: State, actor: int, who: Actor) -> tuple[State, bool]:
        """A worker's Join with what it knows, and what it makes of the answer: with TOKEN it starts over, and a fresh
        token it confirms at once."""
        for _ in range(3):
            token = state.minds[actor].token
            state, verdict = self.ask(state, actor, token, who.wanted)
            if verdict.reason == Reason.TOKEN:
                state = self.think(state, actor, Mind())
            elif verdict.reason == Reason.DONE:
                running = verdict.job.state == JobState.RUNNING and verdict.job.live.bit_count() == self.world
                state = self.hear(state, Grant(actor, verdict.token, running))
                if verdict.token == token:
                    break
        return state, verdict.reason == Reason.DONE

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

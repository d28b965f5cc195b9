"""The sessions of the replay service under every order of messages. The switch is `dispatcher.py` and `session.py`.

The clients follow `docs/replay.md`. Each opens a session with a nonce of its own, then has a plan of ordered requests,
of which at most `cached_answers` may be in flight: ADD is executed at once, WRITE is refused and yet takes its number,
SAMPLE waits while the gate is shut, which may open and shut at any time. A client may give up a SAMPLE that it has
sent: SKIP. It sends CLOSE when everything else is answered. A client that is answered SESSION, or OLD for a request
that was never answered, has lost its session and sends nothing more. A session may have been silent for too long at any
time; then it may be given to another client. The switch may be reset; it then knows no client, and numbers start over.
Bits may flip in the rows of sessions and in cached answers.

**The network remembers everything**: every request that a client has sent, and every answer to it, may arrive now,
again and again, or never. So no client needs to crash: one that does not move is as good as dead, and its frames remain
in the network. How long OPEN remains may be bounded:

- WITHIN: none arrives once the session that it opened is another client's, which takes 10 s.
- WAITING: it arrives as long as its client has no answer and repeats it.
- ALWAYS: it arrives at any time, also when its client has given up, or has had a session and lost or closed it.

An OPEN carries the latest challenge that its client was told.

Checked at each step, besides what the switch checks: an answer that a client takes for a request's is that of the
request's own execution, as it was sent or as SKIP. No client abandons a session that it holds. No client that has
closed its session has one again.

Checked in each state: if everything in flight is lost and the gate is open, each client that sends again what is not
answered gets an answer to every request, or learns that its session is lost.
"""

from collections.abc import Iterator
from typing import NamedTuple

from iswitch.golden.interface.tuples import replace_at
from iswitch.golden.replay.session import SERIAL
from iswitch.wire.replay import WAITS, Kind, ReplayOutcome
from sim.explore.replay_scenario import (
    ALWAYS,
    NO_CHALLENGE,
    WAITING,
    ClientState,
    GateMoves,
    GivesUp,
    SendsNext,
    SessionFallsSilent,
    SessionScenario,
    SwitchResets,
)
from sim.explore.replay_switch import (
    EXECUTED,
    SKIPPED,
    UNKNOWN,
    AnswerFlips,
    ReplayAnswer,
    RequestArrives,
    RowFlips,
    SessionsCore,
    SessionsSwitch,
    execution_mark,
)
from sim.explore.search import Event, Explorer, Violation

__all__ = ["SessionExplorer", "SessionState"]


class SessionState(NamedTuple):
    """`switch`: number of the switch's state. `answers`: those that still matter to a client."""

    switch: int
    clients: tuple[ClientState, ...]
    answers: frozenset[ReplayAnswer]


class SessionExplorer(Explorer[SessionState]):
    """Search of one `SessionScenario`."""

    def __init__(self, scenario: SessionScenario) -> None:
        self.scenario, self.plans, self.rules = scenario, scenario.plans, scenario.clients
        self.switch = SessionsSwitch(scenario.dispatcher(scenario.cached_answers, scenario.rules))
        self.is_gated = any(Kind.SAMPLE in plan for plan in scenario.plans)
        self._succeeds: set[tuple[int, int, ClientState]] = set()

    def start(self) -> SessionState:
        s = self.scenario
        switch = self.switch.start(sessions=s.sessions, clients=len(self.plans), first=s.first)
        clients = tuple(ClientState((UNKNOWN,) * len(plan)) for plan in self.plans)
        return SessionState(switch, clients, frozenset())

    def core(self, state: SessionState) -> SessionsCore:
        """Return the switch in a state."""
        return self.switch.states[state.switch]

    def is_covered(self, state: SessionState) -> bool:
        return len(self.core(state).opens) <= self.scenario.opens

    # What may happen

    def events(self, state: SessionState) -> Iterator[Event]:
        core = self.core(state)
        if self.is_gated:
            yield GateMoves()
        if core.resets < self.scenario.resets:
            yield SwitchResets()
        if core.flips < self.scenario.flips:
            yield from core.flippable()
        yield from map(SessionFallsSilent, core.active())
        for number, client in enumerate(state.clients):
            yield from self._requests(core, number, client)
            if self._may_send(number, client):
                yield SendsNext(number)
            yield from self._skippable(number, client)
        yield from sorted(state.answers)

    def _requests(self, core: SessionsCore, number: int, client: ClientState) -> Iterator[RequestArrives]:
        """Return what a client may have sent up to now and that may arrive now."""
        if self._open_may_arrive(core, number, client):
            # Challenges only rise, so an OPEN with an older one than these is as good as one with none.
            for challenge in sorted({NO_CHALLENGE, client.challenge}):
                yield RequestArrives(number, Kind.OPEN, challenge=challenge)
        for k in range(client.sent):
            yield self._request(number, client, k, EXECUTED)
            if client.skipped >> k & 1:
                yield self._request(number, client, k, SKIPPED)

    def _request(self, number: int, client: ClientState, k: int, form: int) -> RequestArrives:
        kind = Kind.SKIP if form == SKIPPED and not self.rules.reuses else self.plans[number][k]
        return RequestArrives(number, kind, k, form, client.session or 0, (client.base + k) % SERIAL)

    def _open_may_arrive(self, core: SessionsCore, number: int, client: ClientState) -> bool:
        if self.scenario.delays == ALWAYS:
            return True
        never_lost = core.holds(number) or number not in core.opens
        return client.session is None and (never_lost or self.scenario.delays == WAITING)

    def _may_send(self, number: int, client: ClientState) -> bool:
        plan, window = self.plans[number], self.rules.window or self.scenario.cached_answers
        if client.session is None or client.lost or client.sent == len(plan) or client.sent >= client.low + window:
            return False
        return plan[client.sent] != Kind.CLOSE or client.low == client.sent or self.rules.closes_early

    def _skippable(self, number: int, client: ClientState) -> Iterator[GivesUp]:
        for k in range(client.sent if self.scenario.skips and not client.lost else 0):
            is_sample = self.plans[number][k] == Kind.SAMPLE
            if is_sample and client.answered[k] == UNKNOWN and not client.skipped >> k & 1:
                yield GivesUp(number, k)

    # What it does

    def after(self, state: SessionState, event: Event) -> SessionState:
        """Return the state after an event, without answers that no longer matter."""
        after = self._after(state, event)
        answers = (answer for answer in after.answers if self._matters(after.clients[answer.client], answer))
        return after._replace(answers=frozenset(answers))

    def _after(self, state: SessionState, event: Event) -> SessionState:
        core = self.core(state)
        match event:
            case GateMoves():
                return state._replace(switch=self.switch.number(core._replace(gate=not core.gate)))
            case SwitchResets():
                return state._replace(switch=self.switch.reset(state.switch))
            case RowFlips() | AnswerFlips():
                return state._replace(switch=self.switch.number(core.flipped(event)))
            case SessionFallsSilent(session):
                return state._replace(switch=self.switch.number(core.silenced(session)))
            case RequestArrives():
                switch, answers = self.switch.step(state.switch, event)
                self._check_given(core, self.switch.states[switch], event)
                return state._replace(switch=switch, answers=state.answers.union(answers))
        client = state.clients[event.client]
        match event:
            case SendsNext():
                client = client._replace(sent=client.sent + 1)
            case GivesUp(_, number):
                client = client._replace(skipped=client.skipped | 1 << number)
            case ReplayAnswer():
                client = self._receive(core, client, event)
        return state._replace(clients=replace_at(state.clients, event.client, client))

    def _receive(self, core: SessionsCore, client: ClientState, answer: ReplayAnswer) -> ClientState:
        """Return the client after an answer."""
        if answer.kind == Kind.OPEN:
            if answer.outcome == ReplayOutcome.CHALLENGE and client.session is None:
                known = -1 if client.challenge == NO_CHALLENGE else client.challenge
                return client._replace(challenge=max(known, answer.challenge))
            is_first = client.session is None and answer.outcome == ReplayOutcome.DONE
            return client._replace(session=answer.session, base=answer.next) if is_first else client
        if client.lost or answer.session != client.session:
            return client
        if answer.outcome == ReplayOutcome.SESSION or self._is_old(client, answer):
            self._check_lost(core, client, answer.client)
            return client._replace(lost=True)
        number = client.low if self.rules.ignores_seq else (answer.seq - client.base) % SERIAL
        if not self._is_final(answer) or number >= client.sent or client.answered[number] != UNKNOWN:
            return client
        skipped = bool(client.skipped >> number & 1)
        if answer.kind != self.plans[answer.client][number] and not (skipped and answer.kind == Kind.SKIP):
            return client
        is_skip = answer.kind == Kind.SKIP or skipped and (self.rules.reuses or self.rules.assumes_skipped)
        form = SKIPPED if is_skip else EXECUTED
        was_executed = (number, form) in core.executed[answer.client]
        if not was_executed or answer.mark != execution_mark(answer.client, number, form):
            raise Violation("an answer is mistaken for that of another execution")
        return client._replace(answered=replace_at(client.answered, number, form))

    def _check_given(self, before: SessionsCore, after: SessionsCore, event: RequestArrives) -> None:
        """Check that no late OPEN gives a session to a client that has closed its own."""
        executed = len(before.executed[event.client])
        if len(after.opens) > len(before.opens) and Kind.CLOSE in self.plans[event.client][:executed]:
            raise Violation("a client that has closed its session has one again")

    def _check_lost(self, core: SessionsCore, client: ClientState, number: int) -> None:
        """Check that a client that takes its session for lost has lost it or an answer, and nothing else."""
        if core.holds(number) and core.opens.count(number) == 1 and number not in core.erased:
            raise Violation("a client abandons a session that it holds")
        executed = len(core.executed[number])
        if Kind.CLOSE in self.plans[number][:executed] and client.low < executed - 1:
            raise Violation("a client loses an answer by its own CLOSE")

    def _is_old(self, client: ClientState, answer: ReplayAnswer) -> bool:
        """Return whether an answer says OLD for a request whose answer its client lacks."""
        number = (answer.seq - client.base) % SERIAL
        is_open = self.rules.gives_up_early or number < len(client.answered) and client.answered[number] == UNKNOWN
        return answer.outcome == ReplayOutcome.OLD and is_open and not self.rules.ignores_old

    def _is_final(self, answer: ReplayAnswer) -> bool:
        return (
            answer.outcome in (ReplayOutcome.DONE, ReplayOutcome.RANGE)
            or self.rules.accepts_waits
            and answer.outcome in WAITS
        )

    def _matters(self, client: ClientState, answer: ReplayAnswer) -> bool:
        """Return whether an answer may still change what its client knows."""
        if answer.kind == Kind.OPEN:
            is_news = answer.outcome == ReplayOutcome.CHALLENGE and answer.challenge != client.challenge
            return client.session is None and (answer.outcome == ReplayOutcome.DONE or is_news)
        if client.lost:
            return False
        number, total = (answer.seq - client.base) % SERIAL, len(client.answered)
        is_open = number < total and client.answered[number] == UNKNOWN
        is_open = is_open or self.rules.ignores_seq and client.low < total
        return (
            answer.outcome == ReplayOutcome.SESSION
            or self._is_old(client, answer)
            or self._is_final(answer)
            and is_open
        )

    # What is promised

    def check(self, state: SessionState) -> None:
        """Check that each client can finish its plan on a network that is empty now and loses nothing."""
        for number, client in enumerate(state.clients):
            key = state.switch, number, client
            if key not in self._succeeds:
                self._finish(self.switch.number(self.core(state)._replace(gate=True)), number, client)
                self._succeeds.add(key)

    def _finish(self, switch: int, number: int, client: ClientState) -> None:
        """Let one client carry out the rest of its plan. The others fall silent if it needs a session."""

        def exchange(ask: RequestArrives) -> bool:
            """Send a request, receive its answers, and return whether one of them says DONE."""
            nonlocal switch, client
            switch, answers = self.switch.step(switch, ask)
            for answer in answers:
                client = self._receive(self.switch.states[switch], client, answer)
            return any(answer.outcome == ReplayOutcome.DONE for answer in answers)

        if client.session is None:
            for falls_silent in (False, True):
                if falls_silent:
                    core = self.switch.states[switch]
                    switch = self.switch.number(core.silenced(*core.active()))
                for _ in range(2):  # the first answer may tell the challenge
                    if client.session is None:
                        exchange(RequestArrives(number, Kind.OPEN, challenge=client.challenge))
            if client.session is None:
                raise Violation("no client is given a session although all are silent")
        while not client.lost and client.low < len(client.answered):
            low = client.low
            while self._may_send(number, client):
                client = client._replace(sent=client.sent + 1)
            for k in range(low, client.sent):
                exchange(self._request(number, client, k, SKIPPED if client.skipped >> k & 1 else EXECUTED))
            if client.low == low and not client.lost:
                raise Violation("a request is never answered")

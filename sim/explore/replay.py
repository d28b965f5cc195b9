"""Every state of the sessions of the replay service in small cases. The switch (`replay_switch.py`) is
`dispatcher.py` and `session.py` themselves.

Clients follow `docs/replay.md`. Each opens a session with a nonce of its own, then has a plan of ordered requests, of
which it may have `kept` under way: ADD is carried out at once, WRITE is refused and yet takes its number, SAMPLE waits
while the gate is shut, which may open and shut at any time. A client may give up a SAMPLE that it has sent: SKIP. It
sends CLOSE when all else is answered. Who is told SESSION, or OLD of a request that was never answered, has lost its
session, and says no more. A session may have been silent for too long at any time, and then its place may go to
another. The switch may be reset, and then knows nobody, and gives numbers anew from where it once began.

**The network remembers everything**, as in `sim/explore/ring.py`: every request that anybody has sent, and every
answer to it, may arrive now, again and again, or never. So nobody need crash: who does not move is as good as dead, and
its frames haunt on. How long that lasts may be bounded for OPEN. WITHIN: none comes once the session that it opened is
another's, which takes 10 s. WAITING: it comes as long as its client, which has heard nothing, sends it. ALWAYS: at any
time, and so opens a session that its client has given up, or has had and lost.

Checked at each step, beside what the switch checks: an answer that is taken for a request's is that of its own
execution, as what it was sent or as SKIP, and nobody gives up a session that nobody took. Checked in each state: if all
that is under way is lost and the gate is open, each client, sending what is not answered again, hears of every request,
or that its session is lost.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from iswitch.wire.replay import WAITS, Fate, Kind
from sim.explore.replay_switch import CARRIED_OUT, SKIPPED, UNKNOWN, Answer, Ask, Core, SessionsSwitch, Toy, mark
from sim.explore.search import Violation, put, search
from sim.model.replay.session import RULES, SERIAL, Rules

__all__ = ["ALWAYS", "WAITING", "WITHIN", "Habits", "Mind", "Scenario", "SessionExplorer", "State"]

WITHIN, WAITING, ALWAYS = "within", "waiting", "always"


class Habits(NamedTuple):
    """The clients' rules, which the tests replace by plausible wrong ones. `window`: requests under way, if not `kept`.
    `takes_waits`: what must wait counts as done. `closes_early`: while others are unanswered. `reuses`: another SAMPLE
    instead of the SKIP. `believes`: what is answered after a SKIP was skipped, whatever the answer's kind. `any_seq`:
    an answer is for the oldest request that lacks one. `deaf`: to OLD. `any_old`: of a request that was answered, it
    says too that the session is lost."""

    window: int = 0
    takes_waits: bool = False
    closes_early: bool = False
    reuses: bool = False
    believes: bool = False
    any_seq: bool = False
    deaf: bool = False
    any_old: bool = False


class Scenario(NamedTuple):
    """`plans`: kinds of each client's requests. `delays`: of OPENs. `opens`: no state in which more sessions have been
    given is explored. `first`: number of the first request that the switch ever expects. `resets`: how often it forgets
    all; OPEN only WITHIN."""

    plans: tuple[tuple[Kind, ...], ...]
    sessions: int = 1
    kept: int = 1
    skips: bool = False
    delays: str = WITHIN
    opens: int = 4
    first: int = 0
    resets: int = 0
    rules: Rules = RULES
    habits: Habits = Habits()
    toy: type[Toy] = Toy


class Mind(NamedTuple):
    """What a client knows. `base`: number of its first request. `sent`, and of these `skipped`, a bit mask. `known`: of
    each request of the plan."""

    known: tuple[int, ...]
    session: int | None = None
    base: int = 0
    sent: int = 0
    skipped: int = 0
    lost: bool = False

    @property
    def low(self) -> int:
        """The oldest request that is not answered."""
        return next((k for k, known in enumerate(self.known) if known == UNKNOWN), len(self.known))


class State(NamedTuple):
    """`core` indexes `SessionsSwitch.cores`. `answers`: those that somebody may still make something of."""

    core: int
    minds: tuple[Mind, ...]
    answers: frozenset[Answer]


class SessionExplorer:
    """Breadth-first search of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.plans, self.habits = scenario, scenario.plans, scenario.habits
        self.switch = SessionsSwitch(scenario.toy(scenario.kept, scenario.rules))
        self.gated = any(Kind.SAMPLE in plan for plan in scenario.plans)
        self.fine: set[tuple[int, int, Mind]] = set()

    def start(self) -> State:
        scenario = self.scenario
        core = self.switch.start(sessions=scenario.sessions, clients=len(self.plans), first=scenario.first)
        return State(core, tuple(Mind((UNKNOWN,) * len(plan)) for plan in self.plans), frozenset())

    # The clients

    def ask(self, client: int, mind: Mind, number: int, form: int) -> Ask:
        kind = Kind.SKIP if form == SKIPPED and not self.habits.reuses else self.plans[client][number]
        return Ask(client, kind, number, form, mind.session or 0, (mind.base + number) % SERIAL)

    def opens(self, core: Core, client: int, mind: Mind) -> bool:
        """Its OPEN may come now."""
        within = core.holds(client) or client not in core.opens
        return {WITHIN: within and mind.session is None, WAITING: mind.session is None, ALWAYS: True}[
            self.scenario.delays
        ]

    def asks(self, core: Core, client: int, mind: Mind) -> Iterator[Ask]:
        """All of what a client may have sent by now that may come now."""
        if self.opens(core, client, mind):
            yield Ask(client, Kind.OPEN)
        for number in range(mind.sent):
            yield self.ask(client, mind, number, CARRIED_OUT)
            if mind.skipped >> number & 1:
                yield self.ask(client, mind, number, SKIPPED)

    def may_send(self, client: int, mind: Mind) -> bool:
        plan, window = self.plans[client], self.habits.window or self.scenario.kept
        if mind.session is None or mind.lost or mind.sent == len(plan) or mind.sent >= mind.low + window:
            return False
        return plan[mind.sent] != Kind.CLOSE or mind.low == mind.sent or self.habits.closes_early

    def skips(self, client: int, mind: Mind) -> Iterator[Mind]:
        for number in range(mind.sent if self.scenario.skips and not mind.lost else 0):
            if (
                self.plans[client][number] == Kind.SAMPLE
                and mind.known[number] == UNKNOWN
                and not mind.skipped >> number & 1
            ):
                yield mind._replace(skipped=mind.skipped | 1 << number)

    def hear(self, core: Core, mind: Mind, answer: Answer) -> Mind:
        """What its client makes of an answer."""
        if answer.kind == Kind.OPEN:
            fresh = mind.session is None and answer.reason == Fate.DONE
            return mind._replace(session=answer.session, base=answer.next) if fresh else mind
        if mind.lost or answer.session != mind.session:
            return mind
        if answer.reason == Fate.SESSION or self.is_old(mind, answer):
            if core.holds(answer.client) and core.opens.count(answer.client) == 1:
                raise Violation("a client gives up a session that it has")
            carried_out = len(core.executed[answer.client])
            if Kind.CLOSE in self.plans[answer.client][:carried_out] and mind.low < carried_out - 1:
                raise Violation("a client loses an answer by its own CLOSE")
            return mind._replace(lost=True)
        number = mind.low if self.habits.any_seq else (answer.seq - mind.base) % SERIAL
        if not self.is_final(answer) or number >= mind.sent or mind.known[number] != UNKNOWN:
            return mind
        skipped = bool(mind.skipped >> number & 1)
        if answer.kind != self.plans[answer.client][number] and not (skipped and answer.kind == Kind.SKIP):
            return mind
        form = (
            SKIPPED
            if answer.kind == Kind.SKIP or skipped and (self.habits.reuses or self.habits.believes)
            else CARRIED_OUT
        )
        if (number, form) not in core.executed[answer.client] or answer.mark != mark(answer.client, number, form):
            raise Violation("an answer is taken for that of another execution")
        return mind._replace(known=put(mind.known, number, form))

    def is_old(self, mind: Mind, answer: Answer) -> bool:
        """Says so of a request of which its client knows nothing."""
        number = (answer.seq - mind.base) % SERIAL
        fresh = self.habits.any_old or number < len(mind.known) and mind.known[number] == UNKNOWN
        return answer.reason == Fate.OLD and fresh and not self.habits.deaf

    def is_final(self, answer: Answer) -> bool:
        return answer.reason in (Fate.DONE, Fate.RANGE) or self.habits.takes_waits and answer.reason in WAITS

    def matters(self, mind: Mind, answer: Answer) -> bool:
        """Its client may still make something of it."""
        if answer.kind == Kind.OPEN:
            return mind.session is None and answer.reason == Fate.DONE
        number = (answer.seq - mind.base) % SERIAL
        fresh = (
            number < len(mind.known)
            and mind.known[number] == UNKNOWN
            or self.habits.any_seq
            and mind.low < len(mind.known)
        )
        return not mind.lost and (
            answer.reason == Fate.SESSION or self.is_old(mind, answer) or self.is_final(answer) and fresh
        )

    # The search

    def successors(self, state: State) -> Iterator[tuple[Any, State]]:
        for event, after in self.steps(state):
            if len(self.switch.cores[after.core].opens) <= self.scenario.opens:
                answers = frozenset(
                    answer for answer in after.answers if self.matters(after.minds[answer.client], answer)
                )
                yield event, after._replace(answers=answers)

    def steps(self, state: State) -> Iterator[tuple[Any, State]]:
        core = self.switch.cores[state.core]
        if self.gated:
            yield "the gate moves", state._replace(core=self.switch.intern(core._replace(gate=not core.gate)))
        if core.resets < self.scenario.resets:
            yield "the switch is reset", state._replace(core=self.switch.reset(state.core))
        for k in core.audible():
            yield f"session {k} is silent", state._replace(core=self.switch.intern(core.hushed(k)))
        for client, mind in enumerate(state.minds):
            for ask in self.asks(core, client, mind):
                number, answers = self.switch.move(state.core, ask)
                yield ask, state._replace(core=number, answers=state.answers.union(answers))
            if self.may_send(client, mind):
                yield (
                    f"client {client} sends {mind.sent}",
                    state._replace(minds=put(state.minds, client, mind._replace(sent=mind.sent + 1))),
                )
            for after in self.skips(client, mind):
                yield (
                    f"client {client} gives up, now {after.skipped:#b}",
                    state._replace(minds=put(state.minds, client, after)),
                )
        for answer in sorted(state.answers):
            mind = self.hear(core, state.minds[answer.client], answer)
            yield answer, state._replace(minds=put(state.minds, answer.client, mind))

    # Progress

    def check_progress(self, state: State) -> None:
        for client, mind in enumerate(state.minds):
            key = state.core, client, mind
            if key not in self.fine:
                self.go_on(self.switch.intern(self.switch.cores[state.core]._replace(gate=True)), client, mind)
                self.fine.add(key)

    def go_on(self, number: int, client: int, mind: Mind) -> None:
        """One client carries out what is left of its plan, on a network without faults; the others fall silent if it
        needs a place."""

        def exchange(ask: Ask) -> list[Answer]:
            nonlocal number, mind
            number, answers = self.switch.move(number, ask)
            for answer in answers:
                mind = self.hear(self.switch.cores[number], mind, answer)
            return list(answers)

        if mind.session is None:
            if not any(answer.reason == Fate.DONE for answer in exchange(Ask(client, Kind.OPEN))):
                core = self.switch.cores[number]
                number = self.switch.intern(core.hushed(*core.audible()))
                exchange(Ask(client, Kind.OPEN))
            if mind.session is None:
                raise Violation("nobody gets a place although all are silent")
        while not mind.lost and mind.low < len(mind.known):
            low = mind.low
            while self.may_send(client, mind):
                mind = mind._replace(sent=mind.sent + 1)
            for k in range(low, mind.sent):
                exchange(self.ask(client, mind, k, SKIPPED if mind.skipped >> k & 1 else CARRIED_OUT))
            if mind.low == low and not mind.lost:
                raise Violation("a request is never answered")

    def run(self) -> set[State]:
        """All reachable states, or a Violation."""
        return search(self.start(), self.successors, self.check_progress)

"""The switch of `explorer.py`: the dispatcher itself before requests that do nothing but leave a mark, as a state that
requests move.

Checked at each step: requests are carried out under their own client's session, each once, in the client's order,
without gaps. Nobody who was heard loses a place.
"""

from typing import NamedTuple

import numpy as np

from iswitch.config import Replay
from iswitch.wire.replay import REPLAY_HEADER, SESSION_SILENT_US, STATUS, Fate, Kind
from sim.explore.cores import Cores
from sim.explore.search import Violation, put
from sim.model.decide.membership import Source
from sim.model.replay import frames
from sim.model.replay.dispatcher import Dispatcher, Effect, Sent
from sim.model.replay.frames import Request
from sim.model.replay.session import RULES, SERIAL, Place, Rules

__all__ = ["CARRIED_OUT", "SKIPPED", "UNKNOWN", "Answer", "Ask", "Core", "SessionsSwitch", "Toy", "mark"]

UNKNOWN, CARRIED_OUT, SKIPPED = range(3)
"""What a client knows of a request, and in what form it was carried out."""

NOW_US = 0
SILENT_SINCE_US = NOW_US - SESSION_SILENT_US

Executed = tuple[tuple[tuple[int, int], ...], ...]
"""Of each client number and form of what was carried out, in order."""


class Ask(NamedTuple):
    """A request, `number` from 0 in its client's plan."""

    client: int
    kind: Kind
    number: int = 0
    form: int = CARRIED_OUT
    session: int = 0
    seq: int = 0


class Answer(NamedTuple):
    """What a client may hear. `mark`: of the execution."""

    client: int
    kind: int
    session: int
    seq: int
    reason: int
    next: int
    mark: int


class Core(NamedTuple):
    """`opens`: whom sessions were given, in order. `resets`: how often the switch has forgotten all."""

    places: tuple[Place, ...]
    executed: Executed
    gate: bool = False
    opens: tuple[int, ...] = ()
    resets: int = 0

    def holds(self, client: int) -> bool:
        """The client's nonce has a session."""
        return any(place.open and place.nonce == client + 1 for place in self.places)

    def hushed(self, *sessions: int) -> "Core":
        """After the time in which nothing came from these."""
        return self._replace(
            places=tuple(
                place._replace(heard_us=SILENT_SINCE_US) if k in sessions else place
                for k, place in enumerate(self.places)
            )
        )

    def audible(self) -> list[int]:
        """Open sessions that have not been silent."""
        return [k for k, place in enumerate(self.places) if place.open and place.heard_us == NOW_US]


def mark(client: int, number: int, form: int) -> int:
    """Of an execution; not 0."""
    return client << 8 | number << 2 | form


class Toy(Dispatcher):
    """WRITE is refused (RANGE) and takes its number, SAMPLE waits while the gate is shut. The body of an ordered
    request says whose it is and what; faults are always answered."""

    def __init__(self, kept: int, rules: Rules = RULES) -> None:
        super().__init__(Replay(kept=kept))
        self.rules = rules
        self.executed: Executed = ()
        self.gate = False

    def malformed(self, asked: Request) -> Fate | None:
        return None

    def complain(self, asked: Request, fate: Fate, source: Source, now_us: int) -> Sent:
        return [(source, frames.fault(asked, fate))]

    def waits(self, asked: Request) -> Fate | None:
        return Fate.ITEMS if asked.kind == Kind.SAMPLE and not self.gate else None

    def effect(self, asked: Request) -> Effect:
        client, number, form = asked.body
        if self.places[asked.session].nonce != client + 1:
            raise Violation("a request is carried out under somebody else's session")
        if number != len(self.executed[client]):
            raise Violation(
                "a request is carried out " + ("twice" if number < len(self.executed[client]) else "before its turn")
            )
        self.executed = put(self.executed, client, (*self.executed[client], (number, form)))
        return Effect(Fate.RANGE if asked.kind == Kind.WRITE else Fate.DONE, done=mark(client, number, form))

    def show(self, asked: Request, source: Source) -> tuple[Fate, Sent]:
        return Fate.DONE, [self.told(asked, source)]

    def status(self, asked: Request, place: Place, effect: Effect) -> bytes:
        return frames.status(reason=effect.fate, next=place.next, done=effect.done)

    def settle(self, asked: Request, effect: Effect) -> None:
        """Nothing: a toy keeps no more than was executed."""


class SessionsSwitch(Cores[Core]):
    """One that serves sessions."""

    def __init__(self, toy: Toy) -> None:
        super().__init__()
        self.toy = toy

    def start(self, *, sessions: int, clients: int, first: int) -> int:
        unused = Place(next=(first - self.toy.config.kept) % SERIAL)
        return self.intern(Core((unused,) * sessions, ((),) * clients))

    def reset(self, number: int) -> int:
        """As at the start; what was carried out before has been."""
        core = self.cores[number]
        return self.intern(core._replace(places=self.cores[0].places, resets=core.resets + 1))

    def perform(self, core: Core, ask: Ask) -> tuple[Core, tuple[Answer, ...]]:
        """The switch after a request, and its answers."""
        toy, nonce = self.toy, ask.client + 1
        toy.places, toy.executed, toy.gate = list(core.places), core.executed, core.gate
        body = nonce.to_bytes(8, "little") if ask.kind == Kind.OPEN else bytes([ask.client, ask.number, ask.form])
        request = Request(ask.kind, ask.session, 0, ask.seq, 0, 0, 0, nonce, body)
        fate, sent = toy.handle(request, Source(0, b"", ask.client, 0), NOW_US)
        given = (ask.client,) if ask.kind == Kind.OPEN and fate == Fate.DONE and not core.holds(ask.client) else ()
        after = core._replace(places=tuple(toy.places), executed=toy.executed, opens=core.opens + given)
        if ask.kind == Kind.OPEN and fate == Fate.DONE and not after.holds(ask.client):
            raise Violation("a client is given somebody else's session")
        if any(place.nonce != core.places[k].nonce for k, place in enumerate(after.places) if k in core.audible()):
            raise Violation("somebody who was heard loses the place")
        return after, tuple(heard(source.ip, payload) for source, payload in sent)


def heard(client: int, payload: bytes) -> Answer:
    header = np.frombuffer(payload, REPLAY_HEADER, 1)[0]
    status = np.frombuffer(payload, STATUS, 1, REPLAY_HEADER.itemsize)[0]
    return Answer(
        client,
        *(int(header[name]) for name in ("kind", "session", "seq")),
        *(int(status[name]) for name in ("reason", "next", "done")),
    )

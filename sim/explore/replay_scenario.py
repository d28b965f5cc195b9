"""What the explorer of replay sessions varies: plans, faults, the rules under test, and the events that may happen."""

from dataclasses import dataclass
from typing import NamedTuple

from iswitch.golden.replay.session import RULES, SERIAL, Rules
from iswitch.wire.replay import Kind
from sim.explore.replay_switch import UNKNOWN, ToyDispatcher
from sim.explore.search import Scenario

__all__ = [
    "ALWAYS",
    "NO_CHALLENGE",
    "WAITING",
    "WITHIN",
    "ClientRules",
    "ClientState",
    "GateMoves",
    "GivesUp",
    "SendsNext",
    "SessionFallsSilent",
    "SessionScenario",
    "SwitchResets",
]

WITHIN, WAITING, ALWAYS = "within", "waiting", "always"
"""How long an OPEN remains in the network; `replay.py` says what they mean."""


class ClientRules(NamedTuple):
    """Wrong rules that a client may follow; by default none.

    `window`: this many requests in flight instead of `cached_answers`. `accepts_waits`: a request that must wait counts
    as done. `closes_early`: CLOSE while other requests are unanswered. `reuses`: another SAMPLE instead of the SKIP.
    `assumes_skipped`: what is answered after a SKIP was skipped, whatever the answer's kind. `ignores_seq`: an answer
    is for the oldest request that lacks one. `ignores_old`: OLD is no answer. `gives_up_early`: OLD for a request that
    was answered also means that the session is lost.
    """

    window: int = 0
    accepts_waits: bool = False
    closes_early: bool = False
    reuses: bool = False
    assumes_skipped: bool = False
    ignores_seq: bool = False
    ignores_old: bool = False
    gives_up_early: bool = False


CORRECT_CLIENTS = ClientRules()


@dataclass(frozen=True)
class SessionScenario(Scenario):
    """Some clients of one replay service.

    Parameters
    ----------
    plans : tuple of tuple of Kind
        The kinds of each client's requests.
    sessions, cached_answers : int
        How many sessions there are, and how many answers of each are cached.
    skips : bool
        Whether clients may give up a SAMPLE.
    delays : str
        How long OPEN remains in the network: WITHIN, WAITING or ALWAYS.
    opens : int
        States in which more sessions have been given are not covered.
    first : int
        Number of the first request that the switch ever expects.
    resets : int
        How often the switch may forget everything; with OPEN only WITHIN.
    flips : int
        Bit errors that may happen in rows of sessions and in cached answers.
    rules : Rules
        The switch's rules under test.
    clients : ClientRules
        The clients' rules under test.
    dispatcher : type
        The switch; a subclass makes a mutant.
    """

    plans: tuple[tuple[Kind, ...], ...]
    sessions: int = 1
    cached_answers: int = 1
    skips: bool = False
    delays: str = WITHIN
    opens: int = 4
    first: int = 0
    resets: int = 0
    flips: int = 0
    rules: Rules = RULES
    clients: ClientRules = CORRECT_CLIENTS
    dispatcher: type[ToyDispatcher] = ToyDispatcher


NO_CHALLENGE = SERIAL - 1
"""What a client sends before it was told a challenge."""


class ClientState(NamedTuple):
    """What a client knows.

    `answered`: of each request of the plan UNKNOWN, EXECUTED or SKIPPED. `base`: number of its first request. `sent`:
    how many requests it has sent, and of these `skipped`, a bit mask. `challenge`: the latest that it was told.
    """

    answered: tuple[int, ...]
    session: int | None = None
    base: int = 0
    sent: int = 0
    skipped: int = 0
    lost: bool = False
    challenge: int = NO_CHALLENGE

    @property
    def low(self) -> int:
        """The oldest request that is not answered."""
        return next((k for k, form in enumerate(self.answered) if form == UNKNOWN), len(self.answered))


class GateMoves(NamedTuple):
    """The gate for SAMPLE opens or shuts."""


class SwitchResets(NamedTuple):
    """The switch forgets every session."""


class SessionFallsSilent(NamedTuple):
    """Nothing has come from the client of a session for so long that the session may be given away."""

    session: int


class SendsNext(NamedTuple):
    """A client sends the next request of its plan."""

    client: int


class GivesUp(NamedTuple):
    """A client gives up a SAMPLE that it has sent, and sends SKIP instead."""

    client: int
    number: int

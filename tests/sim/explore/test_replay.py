"""The sessions' rules in every state that small cases can reach, and the wrong rules that the explorer must find."""

import pytest

from iswitch.golden.interface.message import Source
from iswitch.golden.replay import frames
from iswitch.golden.replay.dispatcher import Sent
from iswitch.golden.replay.frames import CachedAnswer, Request
from iswitch.golden.replay.session import RULES, SERIAL, Rules, Session
from iswitch.wire.replay import Kind, ReplayOutcome
from sim.explore.replay import SessionExplorer
from sim.explore.replay_scenario import ALWAYS, WAITING, ClientRules, SessionScenario
from sim.explore.replay_switch import ToyDispatcher
from sim.explore.search import Violation

ADD, WRITE, SAMPLE, CLOSE = Kind.ADD, Kind.WRITE, Kind.SAMPLE, Kind.CLOSE

BY_CHANCE = RULES._replace(accepts=lambda challenge, current: True)
"""The challenge of a late OPEN may be right by chance, after a restart of the switch. The other rules hold even
then."""

ALONE = SessionScenario(((ADD, WRITE, SAMPLE, ADD, CLOSE),), cached_answers=2)
GIVES_UP = SessionScenario(((SAMPLE, SAMPLE, ADD),), cached_answers=2, skips=True)
IN_TURN = SessionScenario(((ADD, CLOSE), (ADD, CLOSE)))
TWO = SessionScenario(((ADD, WRITE, ADD), (ADD, ADD)), cached_answers=2)
SAMPLERS = SessionScenario(((SAMPLE, ADD), (SAMPLE,)), cached_answers=2, skips=True)
SIDE_BY_SIDE = SessionScenario(((ADD,), (ADD,), (ADD,)), sessions=2)
WRAPPING = SessionScenario(((ADD, ADD, SAMPLE, ADD, CLOSE),), cached_answers=2, skips=True, first=SERIAL - 2)
BUSY = SessionScenario(((SAMPLE, WRITE, CLOSE), (SAMPLE, ADD)), cached_answers=2, skips=True)
RESET = TWO.replace(resets=1)
LATE = SessionScenario(((ADD, ADD), (ADD,)), cached_answers=2, delays=WAITING, rules=BY_CHANCE)
GHOSTS = SessionScenario(((ADD, CLOSE), (ADD, CLOSE)), delays=ALWAYS)
GHOSTS_OF_TWO = SessionScenario(((ADD, ADD), (ADD,)), cached_answers=2, delays=ALWAYS, rules=BY_CHANCE)
GHOSTS_OF_FOUR = SessionScenario(((ADD, ADD, ADD, ADD), (ADD,)), cached_answers=4, delays=ALWAYS, rules=BY_CHANCE)
GHOSTS_OF_SAMPLERS = SessionScenario(
    ((SAMPLE, ADD), (ADD,)), cached_answers=2, skips=True, delays=ALWAYS, rules=BY_CHANCE
)
FLIPS = TWO.replace(flips=1)
FLIPS_OF_GHOSTS = GHOSTS_OF_TWO.replace(flips=1)
FLIPS_OF_ONE = GIVES_UP.replace(flips=1)


def explore(scenario: SessionScenario) -> int:
    return SessionExplorer(scenario).run().count


RIGHT = [
    (ALONE, 246),
    (GIVES_UP, 494),
    (IN_TURN, 1609),
    (TWO, 5179),
    (SAMPLERS, 14034),
    (SIDE_BY_SIDE, 40539),
    (WRAPPING, 870),
    (RESET, 30508),
    (WRAPPING.replace(resets=2), 10670),
    (GHOSTS, 7301),
    pytest.param(BUSY, 100622, marks=pytest.mark.slow),
    pytest.param(SAMPLERS.replace(resets=1), None, marks=pytest.mark.slow),
    (FLIPS_OF_ONE, 19998),
    pytest.param(FLIPS, 81537, marks=pytest.mark.slow),
    pytest.param(FLIPS_OF_GHOSTS, 262737, marks=pytest.mark.slow),
]
"""Scenarios with their number of states, where it is known."""


@pytest.mark.parametrize(("scenario", "states"), RIGHT, ids=[f"scenario{number}" for number in range(len(RIGHT))])
def test_the_rules_hold(scenario, states):
    assert explore(scenario) == states or states is None


def further(by: int) -> Rules:
    """Return rules by which a new session's numbers start `by` further than its former client's ended."""
    return BY_CHANCE._replace(
        open_session=lambda session, *about: RULES.open_session(session, *about)._replace(
            next=(session.next + by) % SERIAL
        )
    )


@pytest.mark.parametrize(
    "scenario",
    [
        LATE,
        GHOSTS_OF_TWO,
        pytest.param(GHOSTS_OF_FOUR, marks=pytest.mark.slow),
        pytest.param(GHOSTS_OF_SAMPLERS, marks=pytest.mark.slow),
    ],
)
def test_a_session_that_is_opened_again_by_an_old_open_needs_other_numbers(scenario):
    """A client gets a session back that was another client's meanwhile, and its earlier requests might be next.

    With `cached_answers` numbers between, none of them is. Since two sessions were opened meanwhile, half of that is
    enough, but nothing less."""
    for by in {0, scenario.cached_answers // 2 - 1}:
        with pytest.raises(Violation, match=r"^a request is executed out of order"):
            explore(scenario.replace(rules=further(by)))
    assert explore(scenario.replace(rules=further(scenario.cached_answers // 2))) > 1000
    assert explore(scenario) > 1000


def executes_repeats(session: Session, seq: int) -> ReplayOutcome | None:
    outcome = RULES.check_order(session, seq)
    return None if outcome == ReplayOutcome.REPEATED else outcome


def executes_what_is_ahead(session: Session, seq: int) -> ReplayOutcome | None:
    outcome = RULES.check_order(session, seq)
    return None if outcome == ReplayOutcome.AHEAD else outcome


def compares_as_numbers(session: Session, seq: int) -> ReplayOutcome | None:
    if session.next - len(session.cached) <= seq < session.next:
        return ReplayOutcome.REPEATED
    return None if seq == session.next else ReplayOutcome.OLD if seq < session.next else ReplayOutcome.AHEAD


def asks_no_token(sessions, index, token):
    return sessions[index] if sessions[index].open else None


def trusts_rows(sessions, index, token):
    sound = [session._replace(corrupt=False) for session in sessions]
    return RULES.find_session(sound, index, token) and sessions[index]


def continues_as_the_row_says(session, *about):
    return RULES.open_session(session._replace(corrupt=False), *about)


def finds_corrupt_rows(sessions, nonce):
    return RULES.find_nonce([session._replace(corrupt=False) for session in sessions], nonce)


def sends_corrupt_answers(session: Session, seq: int) -> ReplayOutcome | None:
    cached = tuple(answer._replace(corrupt=False) for answer in session.cached)
    return RULES.check_order(session._replace(cached=cached), seq)


def executes_anew_without_an_answer(session: Session, seq: int) -> ReplayOutcome | None:
    back = (session.next - seq) % SERIAL
    lost = 1 <= back <= len(session.cached) and session.cached[-back].corrupt
    return None if lost else RULES.check_order(session, seq)


def closes_nothing(session: Session) -> Session:
    return session


def takes_any(sessions, now_us):
    return next((k for k, session in enumerate(sessions) if not session.open), 0)


def gives_no_silent(sessions, now_us):
    return next((k for k, session in enumerate(sessions) if not session.open), None)


def hands_over_as_it_is(session, nonce, source, now_us, cached_answers):
    return session._replace(open=True, nonce=nonce, heard_us=now_us, source=source)


class IsSilentAboutTheOld(ToyDispatcher):
    """A dispatcher that does not answer OLD."""

    def handle(self, request: Request, source: Source, now_us: int) -> tuple[ReplayOutcome, Sent]:
        outcome, sent = super().handle(request, source, now_us)
        return outcome, [] if outcome == ReplayOutcome.OLD else sent


class TakesNoNumber(ToyDispatcher):
    """A dispatcher that answers requests of one kind and does not count them."""

    kind = Kind.SKIP

    def execute_next(self, request: Request, source: Source) -> tuple[ReplayOutcome, Sent]:
        outcome, sent = super().execute_next(request, source)
        if request.kind == self.kind:
            session = self.sessions[request.session]
            self.sessions[request.session] = session._replace(
                next=(session.next - 1) % SERIAL, cached=session.cached[:-1]
            )
        return outcome, sent


class RefusesForNothing(TakesNoNumber):
    """A dispatcher for which a refused request (RANGE) takes no number."""

    kind = Kind.WRITE


class WaitsForNothing(ToyDispatcher):
    """A dispatcher for which a request that must wait takes its number."""

    def handle(self, request: Request, source: Source, now_us: int) -> tuple[ReplayOutcome, Sent]:
        outcome, sent = super().handle(request, source, now_us)
        if outcome == ReplayOutcome.ITEMS:
            self.sessions[request.session] = RULES.advance(self.sessions[request.session])
        return outcome, sent


class RepeatsItsKind(ToyDispatcher):
    """A dispatcher whose cached answer has the kind of the retransmission."""

    def handle(self, request: Request, source: Source, now_us: int) -> tuple[ReplayOutcome, Sent]:
        outcome, sent = super().handle(request, source, now_us)
        if outcome == ReplayOutcome.REPEATED:
            cached = self.sessions[request.session].cached[
                -((self.sessions[request.session].next - request.seq) % SERIAL)
            ]
            sent = [
                (source, payload) for payload in frames.answers(request, CachedAnswer(request.kind, 0, cached.status))
            ]
        return outcome, sent


PROMISES = {
    "numbers start over at OPEN": (
        GHOSTS_OF_TWO.replace(
            rules=BY_CHANCE._replace(
                open_session=lambda session, *about: RULES.open_session(session, *about)._replace(next=0)
            )
        ),
        "a request is executed twice",
    ),
    "a session changes its client and keeps the cached answers": (
        GHOSTS_OF_TWO.replace(rules=BY_CHANCE._replace(open_session=hands_over_as_it_is)),
        "an answer is mistaken for that of another execution",
    ),
    "an OPEN needs no challenge": (
        GHOSTS.replace(rules=BY_CHANCE),
        "a client that has closed its session has one again",
    ),
    "the challenge stays when a session is given": (
        GHOSTS.replace(rules=RULES._replace(next_challenge=lambda challenge: challenge)),
        "a client that has closed its session has one again",
    ),
    "the challenge is wrong for every client": (
        IN_TURN.replace(rules=RULES._replace(accepts=lambda challenge, current: False)),
        "no client is given a session although all are silent",
    ),
    "an old request is not answered": (LATE.replace(dispatcher=IsSilentAboutTheOld), "a request is never answered"),
    "retransmissions are executed": (
        ALONE.replace(rules=RULES._replace(check_order=executes_repeats)),
        "a request is executed twice",
    ),
    "a request ahead of its turn is executed": (
        ALONE.replace(rules=RULES._replace(check_order=executes_what_is_ahead)),
        "a request is executed out of order",
    ),
    "serial numbers are compared as numbers": (
        WRAPPING.replace(rules=RULES._replace(check_order=compares_as_numbers)),
        "a request is never answered",
    ),
    "tokens are not checked": (
        RESET.replace(rules=RULES._replace(find_session=asks_no_token)),
        "a request is executed in another client's session",
    ),
    "a session with a bit error in its row is used": (
        FLIPS.replace(rules=RULES._replace(find_session=trusts_rows)),
        "a request is executed",
    ),
    "numbers go on as a row with a bit error says": (
        FLIPS_OF_GHOSTS.replace(rules=BY_CHANCE._replace(open_session=continues_as_the_row_says)),
        "a request is executed",
    ),
    "an OPEN finds a row with a bit error": (
        FLIPS.replace(rules=RULES._replace(find_nonce=finds_corrupt_rows)),
        "a client is given another client's session",
    ),
    "a cached answer with a bit error is sent": (
        FLIPS.replace(rules=RULES._replace(check_order=sends_corrupt_answers)),
        "an answer is mistaken for that of another execution",
    ),
    "a request whose answer is lost is executed again": (
        FLIPS.replace(rules=RULES._replace(check_order=executes_anew_without_an_answer)),
        "a request is executed twice",
    ),
    "too few answers are kept": (
        TWO.replace(
            rules=RULES._replace(keep_answer=lambda session, answer, most: RULES.keep_answer(session, answer, most - 1))
        ),
        "a client abandons a session that it holds",
    ),
    "another nonce is taken for the same": (
        TWO.replace(rules=RULES._replace(find_nonce=lambda sessions, nonce: 0 if sessions[0].open else None)),
        "a client is given another client's session",
    ),
    "an active client's session is given away": (
        TWO.replace(rules=RULES._replace(choose_index=takes_any)),
        "a client that was not silent loses its session",
    ),
    "a silent client's session is never given away": (
        TWO.replace(rules=RULES._replace(choose_index=gives_no_silent)),
        "no client is given a session although all are silent",
    ),
    "CLOSE does not free the session": (
        IN_TURN.replace(rules=RULES._replace(close_session=closes_nothing, choose_index=gives_no_silent)),
        "no client is given a session although all are silent",
    ),
    "a refused request takes no number": (ALONE.replace(dispatcher=RefusesForNothing), "a request is never answered"),
    "a request that waits takes its number": (ALONE.replace(dispatcher=WaitsForNothing), "a request is never answered"),
    "a retransmission is answered with its own kind": (
        GIVES_UP.replace(dispatcher=RepeatsItsKind),
        "an answer is mistaken for that of another execution",
    ),
    "SKIP takes no number": (GIVES_UP.replace(dispatcher=TakesNoNumber), "a request is never answered"),
    "a client has more requests in flight than answers are kept": (
        TWO.replace(clients=ClientRules(window=3)),
        "a client abandons a session that it holds",
    ),
    "a client ignores OLD": (LATE.replace(clients=ClientRules(ignores_old=True)), "a request is never answered"),
    "a client accepts OLD for an answered request": (
        ALONE.replace(clients=ClientRules(gives_up_early=True)),
        "a client abandons a session that it holds",
    ),
    "a client takes a wait for the final answer": (
        ALONE.replace(clients=ClientRules(accepts_waits=True)),
        "an answer is mistaken for that of another execution",
    ),
    "a client closes while something is unanswered": (
        ALONE.replace(clients=ClientRules(closes_early=True)),
        "a client loses an answer by its own CLOSE",
    ),
    "a client uses a number again": (
        GIVES_UP.replace(clients=ClientRules(reuses=True)),
        "an answer is mistaken for that of another execution",
    ),
    "a client assumes that a SKIP skipped": (
        GIVES_UP.replace(clients=ClientRules(assumes_skipped=True)),
        "an answer is mistaken for that of another execution",
    ),
    "a client ignores seq": (
        ALONE.replace(clients=ClientRules(ignores_seq=True)),
        "an answer is mistaken for that of another execution",
    ),
}


@pytest.mark.parametrize("name", PROMISES)
def test_a_wrong_rule_is_found(name):
    scenario, promise = PROMISES[name]
    with pytest.raises(Violation, match=promise):
        explore(scenario)

"""Results that wait for room at a port in every state of small cases, and wrong rules that the explorer must find."""

import pytest

from iswitch.golden.egress.waiting_results import visit
from sim.bench.mutant import broken_promise
from sim.explore.waiting_results import WaitingExplorer, WaitingScenario

TWO = WaitingScenario()


@pytest.mark.parametrize(
    ("scenario", "states"),
    [(TWO, 2718), (TWO.replace(results=3, resends=0), 3018), (TWO.replace(members=3, resends=0), 3269)],
    ids=["two", "three results", "three members"],
)
def test_no_recipient_is_forgotten_and_no_header_meets_other_sums(scenario, states):
    assert WaitingExplorer(scenario).run().count == states


def replaced(row, refused, writes):
    """Replace the row, and do not merge the recipients."""
    return refused if refused.writes == writes else row


def emptied(row, writes, ready):
    """Erase the row, although the result goes only to recipients behind ports with room."""
    return None, visit(row, writes, ready)[1]


def kept_when_void(row, writes, ready):
    """Make the result again, whatever the slot holds now."""
    return visit(row, row.writes, ready)


WRONG = {
    "a result is made although the slot was written": (
        TWO.replace(may_make=lambda row, writes: True),
        "has the sums of",
    ),
    "neither visit nor making compares the writes": (
        TWO.replace(visit=kept_when_void, may_make=lambda row, writes: True),
        "has the sums of",
    ),
    "only contributions that complete a slot count as writes": (
        TWO.replace(counts=lambda completes: int(completes)),
        "has the sums of",
    ),
    "only contributions that open a slot count as writes": (
        TWO.replace(counts=lambda completes: int(not completes)),
        "is forgotten",
    ),
    "a second refusal replaces the recipients": (TWO.replace(note=replaced), "is forgotten"),
    "a visit erases the recipients without room": (TWO.replace(visit=emptied), "is forgotten"),
}


@pytest.mark.parametrize(("scenario", "promise"), WRONG.values(), ids=WRONG)
def test_wrong_rule_is_found(scenario, promise):
    assert promise in broken_promise(WaitingExplorer(scenario).run)

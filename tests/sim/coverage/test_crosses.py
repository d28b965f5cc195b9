"""Which crosses of outcome, size and state of a job occur, and the rules about those that cannot."""

from collections import Counter
from pathlib import Path

import pytest

from iswitch.wire import Outcome
from sim.bench.designs import TWO_PORTS
from sim.coverage import crosses
from sim.coverage.crosses import Cross, gaps, kept, recorded, rule_of, size_of, summary, table
from sim.coverage.directed import directed
from sim.coverage.load import SWITCHES

ROOT = Path(__file__).parents[3]
BY_PORTS = {config.ports: config for config in SWITCHES}
PAGE = ROOT / "docs" / "verification.md"


def forbidden(found: Counter[Cross]) -> list[Cross]:
    """Crosses that have occurred although a rule says that no frame reaches them."""
    return [cross for cross in found if rule_of(cross, BY_PORTS[cross.ports])]


def test_nothing_has_occurred_that_the_protocol_forbids():
    assert forbidden(kept()) == []


def test_directed_frames_meet_what_the_protocol_allows_beside_the_golden_model():
    found: Counter[Cross] = Counter()
    with recorded(found):
        directed(TWO_PORTS)
    assert forbidden(found) == []
    assert {cross.state for cross in found} == set(crosses.STATES)
    assert {cross.outcome for cross in found} >= set(Outcome) - {Outcome.REPLAY, Outcome.CORRUPT}
    assert set(found) <= set(kept())


@pytest.mark.mutant
def test_a_rule_that_forbids_what_occurs_is_noticed(monkeypatch):
    wrong = crosses.Rule(lambda x, c: x.outcome == Outcome.ADDED and x.state == "leaf", "wrong")
    monkeypatch.setattr(crosses, "IMPOSSIBLE", (*crosses.IMPOSSIBLE, wrong))
    assert {cross.state for cross in forbidden(kept())} == {"leaf"}


@pytest.mark.mutant
def test_a_cross_that_no_load_reaches_is_a_gap():
    found = kept()
    missing = Cross(Outcome.ADDED, "full", "running", SWITCHES[0].ports)
    assert found[missing] and missing not in gaps(found)
    del found[missing]
    assert missing in gaps(found)


@pytest.mark.parametrize(
    ("length", "size"),
    [
        (60, "minimum"),
        (64, "minimum"),
        (65, "one word"),
        (72, "one word"),
        (73, "middle"),
        (312, "middle"),
        (313, "full"),
    ],
)
def test_sizes_are_those_of_the_page(length, size):
    """Of a switch with words of 8 bytes and segments of 64 elements: 64 + 4 * 64 = 320 bytes."""
    assert size_of(bytes(length), TWO_PORTS) == size


def test_the_docs_show_the_crosses():
    """If this fails: `python -m sim.coverage.crosses --show docs/crosses.json` prints the tables."""
    page = PAGE.read_text(encoding="utf-8")
    assert summary(kept()) in page
    assert table(kept()) in page

"""Bit errors of a sum tree in every state, and the wrong rules that the explorer must find."""

import pytest

from iswitch.golden.replay.rebuild import RULES
from sim.explore.replay_rebuild import RebuildExplorer, RebuildScenario
from sim.explore.search import Violation

SAMPLE = "a SAMPLE is drawn from wrong sums"
REBUILT = "a tree is not right after it was rebuilt"


def explore(scenario: RebuildScenario) -> int:
    return RebuildExplorer(scenario).run().count


def test_no_sample_is_drawn_from_wrong_sums_and_a_rebuild_makes_them_right():
    assert explore(RebuildScenario()) > 500


WRONG = {
    "a change of a priority that is not restored yet changes the sums": (
        {"is_early": lambda state, slot: False},
        SAMPLE,
    ),
    "the slot that is restored next counts as restored": (
        {"is_early": lambda state, slot: slot > state.restored},
        SAMPLE,
    ),
    "a tree is sampled before it is complete": ({"is_intact": lambda state, capacity: not state.corrupt}, SAMPLE),
    "a bit error is forgotten when its word was written": (
        {"is_intact": lambda state, capacity: state.restored == capacity},
        SAMPLE,
    ),
    "a REBUILD may restore any slots": (
        {"next_slots_allowed": lambda state, slot, count, capacity: slot + count <= capacity},
        SAMPLE,
    ),
    "each REBUILD forgets the errors that were found": (
        {"restore": lambda state, slot, count: state._replace(restored=slot + count, corrupt=False)},
        SAMPLE,
    ),
    "no REBUILD forgets the errors that were found": (
        {"restore": lambda state, slot, count: state._replace(restored=slot + count)},
        REBUILT,
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_found(wrong):
    rules, promise = WRONG[wrong]
    with pytest.raises(Violation, match=promise):
        explore(RebuildScenario(rules=RULES._replace(**rules)))

"""A ring that is emptied by a number, in every state that small rings can reach, and the wrong rules that are found."""

import pytest

from sim.bench.mutant import broken_promise
from sim.explore.incarnations import IncarnationExplorer, IncarnationScenario

RIGHT = {"two slots": (14, IncarnationScenario(slots=2)), "four slots": (548, IncarnationScenario(slots=4))}

WRONG = {
    "no slot is written": ("a slot gets its old content back", {"slot_to_write": lambda incarnation: None}),
    "always the first slot is written": ("a slot gets its old content back", {"slot_to_write": lambda incarnation: 0}),
    "only even slots are written": ("a slot gets its old content back", {"slot_to_write": lambda number: number & ~1}),
    "fewer incarnations than slots": ("a slot gets its old content back", {"incarnations": 2}),
    "a used slot is not stamped": ("a slot loses its content", {"is_stamped": False}),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_new_incarnation_empties_every_slot_and_nothing_else_does(case):
    count, scenario = RIGHT[case]
    assert IncarnationExplorer(scenario).run().count == count


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_is_found(rule):
    promise, changes = WRONG[rule]
    scenario = IncarnationScenario(slots=4).replace(**changes)
    assert broken_promise(IncarnationExplorer(scenario).run) == promise

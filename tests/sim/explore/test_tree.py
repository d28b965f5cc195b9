"""Trees of switches in every state that small cases can reach, and the wrong rules that the explorer must find.

All faults at once on every link: see the head of `sim/explore/tree.py`. Left to `make test-all` for time:
departures at W = 2, in trees of four workers with deadlines or evictions, and with H < N.
"""

import random

import pytest

from iswitch.golden.decide import slot as flat
from iswitch.golden.decide.tree import Rules
from iswitch.golden.interface.serial import ahead
from iswitch.wire import SlotState
from sim.explore.messages import UNKNOWN, Leave, Result, is_member, lowest_missing
from sim.explore.search import Violation
from sim.explore.tree import TreeExplorer
from sim.explore.tree_scenario import ParentResult, TreeScenario, Uplink

NOBODY = frozenset()
SPOILED = frozenset({(0, 0), (1, 1), (0, 2), (1, 2), (2, 2)})
"""Quarantined contributions: one, another, and a segment's all three."""

TWO = TreeScenario(parents=(-1, 0, 0), homes=(1, 2))
"""Two leaves with a worker each."""
PAIR = TreeScenario(parents=(-1, 0), homes=(1, 1, 0))
"""A leaf with two workers, and a worker at the root."""
QUAD = TreeScenario(parents=(-1, 0, 0), homes=(1, 1, 2, 2))
"""Two leaves with two workers each."""
CHAIN = TreeScenario(parents=(-1, 0, 1), homes=(2, 2))
"""A root, a switch in the middle and a leaf."""
LINE = CHAIN.replace(homes=(2, 1, 0))
"""The same with a worker at each."""
BRANCH = TreeScenario(parents=(-1, 0, 1, 1), homes=(2, 3, 0))
"""A worker at the root; under a switch in the middle two leaves with a worker each."""

EARLY = {"threshold": 1, "segments": 3}
"""The root completes with the first of its members."""

RIGHT = {
    "two leaves": (222, TWO),
    "two leaves, leave": (1796, TWO.replace(leaves=1)),
    "two leaves, leave, evicted": (3098, TWO.replace(leaves=1, evicted=(1,))),
    "two leaves, window 2": (7582, TWO.replace(window=2, segments=6)),
    "two leaves, deadlines": (19948, TWO.replace(deadlines=(0, 1), segments=3)),
    "pair": (303, PAIR),
    "pair, leaves": (18273, PAIR.replace(leaves=2)),
    "pair, leave, evicted": (10373, PAIR.replace(leaves=1, evicted=(1,))),
    "pair, quarantine, leave": (3719, PAIR.replace(leaves=1, tainted=SPOILED)),
    "pair, window 2": (13168, PAIR.replace(window=2, segments=6)),
    "pair, deadline at the leaf": (16572, PAIR.replace(deadlines=(1,))),
    "pair, early": (14458, PAIR.replace(**EARLY, silent=(NOBODY, {0, 1}, {2}))),
    "four": (1594, QUAD),
    "four, leave": (17283, QUAD.replace(leaves=1, segments=3)),
    "chain, leave": (1174, CHAIN.replace(leaves=1)),
    "line": (541, LINE),
    "branch": (997, BRANCH),
}
SLOW = {
    "two leaves, early": (None, TWO.replace(threshold=1, silent=(NOBODY, {0}, {1}))),
    "two leaves, early, leave": (None, TWO.replace(**EARLY, leaves=1)),
    "two leaves, window 2, leave": (78516, TWO.replace(window=2, segments=6, leaves=1)),
    "pair, deadline at the leaf, leave": (None, PAIR.replace(deadlines=(1,), leaves=1, segments=3)),
    "pair, window 2, leave": (None, PAIR.replace(window=2, segments=5, leaves=1)),
    "four, leaves": (118149, QUAD.replace(leaves=2, segments=3)),
    "four, leave, evicted": (52841, QUAD.replace(leaves=1, evicted=(1,), segments=3)),
    "four, deadline at a leaf": (None, QUAD.replace(deadlines=(1,), segments=3)),
    "line, leave": (None, LINE.replace(leaves=1)),
    "branch, leave": (None, BRANCH.replace(leaves=1, segments=3)),
}


def explore(states: int | None, scenario: TreeScenario) -> None:
    scenario = scenario.replace(silent=tuple(map(frozenset, scenario.silent)))
    found = TreeExplorer(scenario).run().count
    assert states in (None, found)


@pytest.mark.parametrize("name", RIGHT)
def test_every_promise_holds_in_every_state(name):
    explore(*RIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_promise_holds_in_every_state_of_larger_cases(name):
    explore(*SLOW[name])


def complete_is_enough(ring, slot) -> bool:
    return slot.state in (SlotState.EMPTY, SlotState.COMPLETE)


def sent_up_too(ring, slot) -> bool:
    return slot.state == SlotState.SENT_UP or flat.may_overwrite(ring, slot)


def adds_to_what_was_sent_up(slot, bit) -> bool:
    return slot.state in (SlotState.COLLECTING, SlotState.SENT_UP) and not slot.arrived & bit


def repeats_to_what_was_sent_up(slot, bit) -> bool:
    return slot.state == SlotState.SENT_UP or flat.may_add(slot, bit)


def only_before_it_closes(slot) -> bool:
    return slot.state == SlotState.COLLECTING


def only_after_it_closed(slot) -> bool:
    return slot.state == SlotState.SENT_UP


def never(slot) -> bool:
    return False


def best(ring) -> int:
    lives = [acknowledged for m, acknowledged in enumerate(ring.acknowledged) if ring.live >> m & 1]
    return max(lives, key=lambda acknowledged: ahead(acknowledged, lives[0]))


def a_window(ring) -> int:
    return ring.window


MUTANTS = {
    "a leaf reuses a slot before the worst of its members has the result": (
        PAIR.replace(deadlines=(1,), rules=Rules(ring=flat.Rules(may_overwrite=complete_is_enough))),
        "a worker waits forever",
    ),
    "a leaf reports what the fastest of its members holds": (
        PAIR.replace(threshold=1, rules=Rules(lowest_acknowledged=best)),
        "a leaf refuses its parent's result with SLOT_HELD",
    ),
    "a leaf sends no receipts": (
        TWO.replace(**EARLY, reports=False, silent=(frozenset({0}),)),
        "a worker waits forever",
    ),
    "a leaf adds a late contribution to what it sent up": (
        PAIR.replace(deadlines=(1,), rules=Rules(ring=flat.Rules(may_add=adds_to_what_was_sent_up))),
        "a partial sum changes",
    ),
    "a leaf adds a repeat to what it sent up": (
        TWO.replace(rules=Rules(ring=flat.Rules(may_add=repeats_to_what_was_sent_up))),
        "a worker is in a sum twice",
    ),
    "a leaf does not send up again": (TWO.replace(rules=Rules(repeats_uplink=never)), "a worker waits forever"),
    "a leaf installs no result in a slot that it sent up": (
        TWO.replace(rules=Rules(may_install=only_before_it_closes)),
        "a worker waits forever",
    ),
    "a leaf installs results only in slots that it sent up": (
        PAIR.replace(**EARLY, silent=(frozenset({0, 1}),), rules=Rules(may_install=only_after_it_closed)),
        "a worker waits forever",
    ),
    "the root does not answer repeats": (TWO.replace(answers=False), "a worker waits forever"),
    "a switch may be no farther behind than a worker": (
        PAIR.replace(deadlines=(1,), rules=Rules(behind_limit=a_window)),
        "an honest switch is too far behind",
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name):
    scenario, promise = MUTANTS[name]
    with pytest.raises(Violation) as found:
        TreeExplorer(scenario).run()
    assert found.value.promise == promise


@pytest.mark.parametrize("scenario", [TWO, PAIR, LINE, TWO.replace(window=2, segments=6)])
def test_with_all_contributing_no_receipts_are_needed(scenario):
    TreeExplorer(scenario.replace(receipts=False)).run()


@pytest.mark.parametrize("scenario", [TWO, PAIR.replace(leaves=1), TWO.replace(window=2, segments=6)])
def test_with_all_contributing_no_switch_is_a_window_behind_what_it_sends_up(scenario):
    TreeExplorer(scenario.replace(rules=Rules(behind_limit=a_window))).run()


@pytest.mark.parametrize(
    "scenario", [PAIR.replace(deadlines=(1,), segments=3), PAIR.replace(**EARLY), TWO.replace(leaves=1, evicted=(1,))]
)
def test_no_message_makes_a_leaf_reuse_a_slot_that_it_sent_up(scenario):
    """A worker that could open the next lap holds the result of this one, which the leaf sent."""
    wrong = scenario.replace(rules=Rules(ring=flat.Rules(may_overwrite=sent_up_too)))
    assert TreeExplorer(wrong).run().count == TreeExplorer(scenario).run().count


class Links:
    """A tree whose links carry messages, for the check of the explorer's network: what was sent is delivered now or
    later, once or twice, or never. Every state passed must be one that the explorer found."""

    def __init__(self, scenario, seed):
        self.base, self.random = TreeExplorer(scenario), random.Random(seed)
        self.state, self.bag = self.base.start(), []

    def step(self):
        """Something is sent by some worker; or something arrives, or is lost."""
        base, state = self.base, self.state
        kind = self.random.random()
        if kind < 0.4 and len(self.bag) < 12 or not self.bag:
            worker = self.random.choice(base.connected(state))
            held = state.held[worker]
            low = lowest_missing(held)
            self.bag.append(self.random.choice([*base.contributions(worker, low, held), *base.receipts(worker, low)]))
        elif kind > 0.99 and (operations := list(base.operations(state))):
            self.arrive(self.random.choice(operations))
        else:
            at = self.random.randrange(len(self.bag))
            event = self.bag[at] if self.random.random() < 0.2 else self.bag.pop(at)
            if self.random.random() < 0.9:
                self.arrive(event)

    def arrive(self, event):
        base, tree, state = self.base, self.base.tree, self.state
        if isinstance(event, Result):
            if base.is_live(state, event.worker):
                self.state = base.hold(state, event.worker, event.segment)
            return
        switch = tree.place(event)
        live = base.core(state, switch).ring.live
        is_message = not isinstance(event, (ParentResult, Leave)) and hasattr(event, "low")
        if not live or is_message and not is_member(live, tree.member(event)):
            return
        number, sent = tree.step(state.switches[switch], event)
        self.state = base.moved(state, switch, number)
        if sent.up:
            self.bag.append(sent.up)
        if sent.segment != UNKNOWN:
            ranks = tree.states[number].results[sent.segment]
            self.bag += [
                ParentResult(child, sent.segment, ranks)
                for child in tree.children[switch]
                if is_member(sent.receivers, tree.child_index[child])
            ]
            self.bag += [
                Result(w, sent.segment) for w in tree.locals[switch] if is_member(sent.receivers, tree.worker_index[w])
            ]


def decoded(explorer, state):
    return tuple(explorer.tree.states[k] for k in state.switches), state.held


def states(explorer):
    return {decoded(explorer, state) for state in explorer.run().states}


def walk(scenario):
    passed = set()
    for seed in range(50):
        links = Links(scenario, seed)
        for _ in range(300):
            links.step()
            passed.add(decoded(links.base, links.state))
    return passed


@pytest.mark.parametrize(
    "scenario", [TWO.replace(leaves=1), PAIR.replace(leaves=1), PAIR.replace(deadlines=(1,)), LINE]
)
def test_links_with_messages_stay_within_what_the_explorer_found(scenario):
    passed = walk(scenario)
    assert passed <= states(TreeExplorer(scenario))
    assert len(passed) > 300


class Forgetful(TreeExplorer):
    """Mutant: an uplink arrives while its segment is the next one of the slowest member, or never."""

    def sent_by_leaf(self, switch, low, sent_up):
        return (
            event
            for event in super().sent_by_leaf(switch, low, sent_up)
            if not isinstance(event, Uplink) or event.segment == low
        )


def test_links_with_messages_notice_an_explorer_that_forgets():
    scenario = PAIR.replace(deadlines=(1,))
    assert not walk(scenario) <= states(Forgetful(scenario))

"""Trees of switches in every state that small cases can reach, and the wrong rules that the explorer must find.

All faults at once on every link: see the head of `sim/explore/tree.py`. Left to `make test-all` for time:
departures at W = 2, in trees of four workers with deadlines or evictions, and with H < N.
"""

import random

import pytest

from iswitch.wire import SlotState
from sim.explore.ring import Result, lowest_missing
from sim.explore.ring_switch import UNKNOWN, Leave
from sim.explore.search import Violation
from sim.explore.tree import Explorer
from sim.explore.tree_switches import Down, Scenario
from sim.model.decide import ring as flat
from sim.model.decide.ring import forward
from sim.model.decide.tree import Rules

NOBODY = frozenset()
SPOILED = frozenset({(0, 0), (1, 1), (0, 2), (1, 2), (2, 2)})
"""Quarantined contributions: one, another, and a segment's all three."""

TWO = Scenario(parents=(-1, 0, 0), homes=(1, 2))
"""Two leaves with a worker each."""
PAIR = Scenario(parents=(-1, 0), homes=(1, 1, 0))
"""A leaf with two workers, and a worker at the root."""
QUAD = Scenario(parents=(-1, 0, 0), homes=(1, 1, 2, 2))
"""Two leaves with two workers each."""
CHAIN = Scenario(parents=(-1, 0, 1), homes=(2, 2))
"""A root, a switch in the middle and a leaf."""
LINE = CHAIN._replace(homes=(2, 1, 0))
"""The same with a worker at each."""
BRANCH = Scenario(parents=(-1, 0, 1, 1), homes=(2, 3, 0))
"""A worker at the root; under a switch in the middle two leaves with a worker each."""

EARLY = {"threshold": 1, "segments": 3}
"""The root completes with the first of its members."""

RIGHT = {
    "two leaves": (222, TWO),
    "two leaves, leave": (1796, TWO._replace(leaves=1)),
    "two leaves, leave, evicted": (3098, TWO._replace(leaves=1, evicted=(1,))),
    "two leaves, window 2": (7582, TWO._replace(window=2, segments=6)),
    "two leaves, deadlines": (19948, TWO._replace(deadlines=(0, 1), segments=3)),
    "pair": (303, PAIR),
    "pair, leaves": (18273, PAIR._replace(leaves=2)),
    "pair, leave, evicted": (10373, PAIR._replace(leaves=1, evicted=(1,))),
    "pair, quarantine, leave": (3719, PAIR._replace(leaves=1, tainted=SPOILED)),
    "pair, window 2": (13168, PAIR._replace(window=2, segments=6)),
    "pair, deadline at the leaf": (16572, PAIR._replace(deadlines=(1,))),
    "pair, early": (14458, PAIR._replace(**EARLY, silent=(NOBODY, {0, 1}, {2}))),
    "four": (1594, QUAD),
    "four, leave": (17283, QUAD._replace(leaves=1, segments=3)),
    "chain, leave": (1174, CHAIN._replace(leaves=1)),
    "line": (541, LINE),
    "branch": (997, BRANCH),
}
SLOW = {
    "two leaves, early": (None, TWO._replace(threshold=1, silent=(NOBODY, {0}, {1}))),
    "two leaves, early, leave": (None, TWO._replace(**EARLY, leaves=1)),
    "two leaves, window 2, leave": (78516, TWO._replace(window=2, segments=6, leaves=1)),
    "pair, deadline at the leaf, leave": (None, PAIR._replace(deadlines=(1,), leaves=1, segments=3)),
    "pair, window 2, leave": (None, PAIR._replace(window=2, segments=5, leaves=1)),
    "four, leaves": (118149, QUAD._replace(leaves=2, segments=3)),
    "four, leave, evicted": (52841, QUAD._replace(leaves=1, evicted=(1,), segments=3)),
    "four, deadline at a leaf": (None, QUAD._replace(deadlines=(1,), segments=3)),
    "line, leave": (None, LINE._replace(leaves=1)),
    "branch, leave": (None, BRANCH._replace(leaves=1, segments=3)),
}


def explore(states: int | None, scenario: Scenario) -> None:
    scenario = scenario._replace(silent=tuple(map(frozenset, scenario.silent)))
    found = len(Explorer(scenario).run())
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


def also_to_what_was_sent_up(slot, bit) -> bool:
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
    return max(lives, key=lambda acknowledged: forward(acknowledged, lives[0]))


def a_window(ring) -> int:
    return ring.window


MUTANTS = {
    "a leaf reuses a slot before the worst of its members has the result": (
        PAIR._replace(deadlines=(1,), rules=Rules(ring=flat.Rules(may_overwrite=complete_is_enough))),
        "a worker waits for ever",
    ),
    "a leaf tells what the best of its members holds": (
        PAIR._replace(threshold=1, rules=Rules(lowest=best)),
        "a result from above is SLOT_HELD",
    ),
    "a leaf tells nothing but by uplinks": (
        TWO._replace(**EARLY, reports=False, silent=(frozenset({0}),)),
        "a worker waits for ever",
    ),
    "a leaf adds who is late to what it sent up": (
        PAIR._replace(deadlines=(1,), rules=Rules(ring=flat.Rules(may_add=also_to_what_was_sent_up))),
        "a partial sum changes",
    ),
    "a leaf adds a repeat to what it sent up": (
        TWO._replace(rules=Rules(ring=flat.Rules(may_add=repeats_to_what_was_sent_up))),
        "a worker is twice in a sum",
    ),
    "a leaf does not send up again": (TWO._replace(rules=Rules(sends_again=never)), "a worker waits for ever"),
    "a leaf takes no result for what it sent up": (
        TWO._replace(rules=Rules(may_install=only_before_it_closes)),
        "a worker waits for ever",
    ),
    "a leaf takes a result only for what it sent up": (
        PAIR._replace(**EARLY, silent=(frozenset({0, 1}),), rules=Rules(may_install=only_after_it_closed)),
        "a worker waits for ever",
    ),
    "the root does not answer repeats": (TWO._replace(answers=False), "a worker waits for ever"),
    "a switch may be no farther behind than a worker": (
        PAIR._replace(deadlines=(1,), rules=Rules(reach=a_window)),
        "an honest switch is too far behind",
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name):
    scenario, promise = MUTANTS[name]
    with pytest.raises(Violation) as found:
        Explorer(scenario).run()
    assert found.value.promise == promise


@pytest.mark.parametrize("scenario", [TWO, PAIR, LINE, TWO._replace(window=2, segments=6)])
def test_with_all_contributing_no_receipts_are_needed(scenario):
    Explorer(scenario._replace(receipts=False)).run()


@pytest.mark.parametrize("scenario", [TWO, PAIR._replace(leaves=1), TWO._replace(window=2, segments=6)])
def test_with_all_contributing_no_switch_is_a_window_behind_what_it_sends_up(scenario):
    Explorer(scenario._replace(rules=Rules(reach=a_window))).run()


@pytest.mark.parametrize(
    "scenario",
    [PAIR._replace(deadlines=(1,), segments=3), PAIR._replace(**EARLY), TWO._replace(leaves=1, evicted=(1,))],
)
def test_nobody_asks_a_leaf_to_reuse_a_slot_that_it_sent_up(scenario):
    """Whoever could open the next lap holds the result of this one, and got it from the leaf."""
    wrong = scenario._replace(rules=Rules(ring=flat.Rules(may_overwrite=sent_up_too)))
    assert len(Explorer(wrong).run()) == len(Explorer(scenario).run())


class Links:
    """A tree whose links carry messages, for the check of the explorer's network: what was sent is delivered now or
    later, once or twice, or never. Every state passed must be one that the explorer found."""

    def __init__(self, scenario, seed):
        self.base, self.random = Explorer(scenario), random.Random(seed)
        self.state, self.bag = self.base.start(), []

    def step(self):
        """Something is sent, by a worker whose turn it is; or something arrives, or is lost."""
        base, state = self.base, self.state
        kind = self.random.random()
        if kind < 0.4 and len(self.bag) < 12 or not self.bag:
            worker = self.random.choice(base.alive(state))
            held, home = state.held[worker], base.scenario.homes[worker]
            low = lowest_missing(held)
            self.bag.append(
                (home, self.random.choice([*base.contributions(worker, held, low), *base.receipts(worker, low)]))
            )
        elif kind > 0.99 and (actions := list(base.actions(state))):
            self.arrive(*self.random.choice(actions))
        else:
            at = self.random.randrange(len(self.bag))
            switch, event = self.bag[at] if self.random.random() < 0.2 else self.bag.pop(at)
            if self.random.random() < 0.9:
                self.arrive(switch, event)

    def arrive(self, switch, event):
        base, tree, state = self.base, self.base.tree, self.state
        if isinstance(event, Result):
            core = tree.cores[state.cores[switch]]
            if core.ring.live >> tree.place[event.worker] & 1:
                self.state = base.receive(state, event.worker, event.segment)
            return
        live = tree.cores[state.cores[switch]].ring.live
        if (
            not live
            or not isinstance(event, (Down, Leave))
            and hasattr(event, "low")
            and not live >> tree.member(event) & 1
        ):
            return
        number, sent = tree.move(state.cores[switch], event)
        self.state = base.at(state, switch, number)
        if sent.up:
            self.bag.append((base.scenario.parents[switch], sent.up))
        if sent.segment != UNKNOWN:
            ranks = tree.cores[number].truth[sent.segment]
            self.bag += [
                (child, Down(child, sent.segment, ranks))
                for child in tree.children[switch]
                if sent.receivers >> tree.seat[child] & 1
            ]
            self.bag += [
                (switch, Result(w, sent.segment)) for w in tree.locals[switch] if sent.receivers >> tree.place[w] & 1
            ]


def states(explorer):
    return {(tuple(explorer.tree.cores[k] for k in state.cores), state.held) for state in explorer.run()}


def walk(scenario):
    passed = set()
    for seed in range(50):
        links = Links(scenario, seed)
        for _ in range(300):
            links.step()
            passed.add((tuple(links.base.tree.cores[k] for k in links.state.cores), links.state.held))
    return passed


@pytest.mark.parametrize(
    "scenario", [TWO._replace(leaves=1), PAIR._replace(leaves=1), PAIR._replace(deadlines=(1,)), LINE]
)
def test_links_with_messages_stay_within_what_the_explorer_found(scenario):
    passed = walk(scenario)
    assert passed <= states(Explorer(scenario))
    assert len(passed) > 300


class Forgetful(Explorer):
    """Mutant: an uplink arrives while its segment is the worst's next, or never."""

    def ever_sent_up(self, switch, worst, up):
        return (
            event
            for event in super().ever_sent_up(switch, worst, up)
            if not hasattr(event, "segment") or event.segment == worst
        )


def test_links_with_messages_notice_an_explorer_that_forgets():
    scenario = PAIR._replace(deadlines=(1,))
    assert not walk(scenario) <= states(Forgetful(scenario))

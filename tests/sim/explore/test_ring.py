"""The ring in every state that small cases can reach, and the wrong rules that the explorer must find.

All faults at once: see the head of `sim/explore/ring.py`. Two laps of the ring and a lap more, over the end of seq.
Left to `make test-all` for time: N = 3, W = 2 with H < N; leaves with H < N at N = 3; SET_H with leaves.
"""

import pytest

from iswitch.golden.decide.slot import Rules
from iswitch.wire import SlotState
from sim.bench.mutant import broken_promise
from sim.explore.ring import RingExplorer
from sim.explore.ring_switch import RingScenario, RingSwitch
from sim.explore.search import Violation

SPOILED = frozenset({(0, 0), (1, 1), (0, 2), (1, 2), (2, 2)})
"""Quarantined contributions: one, another, and a segment's all three."""

RIGHT = {
    "two workers": (57, RingScenario(workers=2, window=1, segments=4, threshold=2)),
    "two, H=1": (607, RingScenario(workers=2, window=1, segments=4, threshold=1)),
    "two, H=1, leave": (1577, RingScenario(workers=2, window=1, segments=4, threshold=1, leaves=1)),
    "two, SET_H": (4506, RingScenario(workers=2, window=1, segments=4, threshold=2, thresholds=(1, 2))),
    "three, SET_H": (10310, RingScenario(workers=3, window=1, segments=3, threshold=3, thresholds=(2, 3))),
    "three workers": (223, RingScenario(workers=3, window=1, segments=4, threshold=3)),
    "three, leave": (4303, RingScenario(workers=3, window=1, segments=4, threshold=3, leaves=2)),
    "three, H=2": (8509, RingScenario(workers=3, window=1, segments=4, threshold=2)),
    "three, H=2, quarantine": (648, RingScenario(workers=3, window=1, segments=4, threshold=2, tainted=SPOILED)),
    "window 2": (629, RingScenario(workers=2, window=2, segments=6, threshold=2)),
    "window 2, leave": (3417, RingScenario(workers=2, window=2, segments=6, threshold=2, leaves=1)),
    "window 2, H=1": (20711, RingScenario(workers=2, window=2, segments=6, threshold=1)),
    "three, window 2": (7057, RingScenario(workers=3, window=2, segments=6, threshold=3)),
}
ENDS = {"workers": 2, "window": 1, "segments": 4, "joins": True, "boundaries": frozenset({1, 3})}
RIGHT |= {
    "join": (1731, RingScenario(**ENDS, threshold=2, leaves=1)),
    "join, boundaries everywhere": (
        10649,
        RingScenario(**ENDS | {"boundaries": frozenset(range(4))}, threshold=2, leaves=1),
    ),
    "join, H=1": (3569, RingScenario(**ENDS, threshold=1, leaves=1)),
    "join, all may leave": (1986, RingScenario(**ENDS, threshold=2, leaves=2)),
    "join, window 2": (
        27423,
        RingScenario(workers=2, window=2, segments=6, threshold=2, leaves=1, joins=True, boundaries=frozenset({2, 5})),
    ),
    "join, three": (20131, RingScenario(**ENDS | {"workers": 3}, threshold=3, leaves=1)),
    "forced": (2253, RingScenario(workers=2, window=1, segments=4, threshold=2, forces=True)),
    "deadline": (3785, RingScenario(workers=2, window=1, segments=4, threshold=2, deadline=True)),
    "deadline, one waits for all": (
        1457,
        RingScenario(workers=2, window=1, segments=4, threshold=2, deadline=True, requires_all=frozenset({1})),
    ),
    "deadline, join": (27449, RingScenario(**ENDS, threshold=2, leaves=1, deadline=True)),
}
ASKEW = {"workers": 2, "window": 1, "segments": 4, "misaligned": frozenset({1})}
"""Two workers at different positions."""
RIGHT |= {
    "positions differ": (5, RingScenario(**ASKEW, threshold=2)),
    "positions differ, leave": (47, RingScenario(**ASKEW, threshold=2, leaves=1)),
    "positions differ, H=1": (13, RingScenario(**ASKEW, threshold=1)),
    "positions differ, three": (9, RingScenario(**ASKEW | {"workers": 3}, threshold=3)),
    "positions differ, three, H=2": (55, RingScenario(**ASKEW | {"workers": 3, "segments": 3}, threshold=2)),
    "positions differ, SET_H": (66, RingScenario(**ASKEW, threshold=2, thresholds=(1, 2))),
    "positions differ, deadline": (41, RingScenario(**ASKEW, threshold=2, deadline=True)),
}
SLOW = {
    "three, H=1": (17281, RingScenario(workers=3, window=1, segments=4, threshold=1)),
    "three, H=2, leave": (34198, RingScenario(workers=3, window=1, segments=4, threshold=2, leaves=1)),
    "three, quarantine, leave": (
        3148,
        RingScenario(workers=3, window=1, segments=4, threshold=2, tainted=SPOILED, leaves=1),
    ),
    "two, SET_H, leave": (
        12902,
        RingScenario(workers=2, window=1, segments=4, threshold=2, leaves=1, thresholds=(1, 2)),
    ),
    "window 2, H=1, leave": (43445, RingScenario(workers=2, window=2, segments=6, threshold=1, leaves=1)),
    "window 2, SET_H": (324702, RingScenario(workers=2, window=2, segments=6, threshold=2, thresholds=(1, 2))),
    "join, window 2, H=1": (
        71645,
        RingScenario(workers=2, window=2, segments=6, threshold=1, leaves=1, joins=True, boundaries=frozenset({2, 5})),
    ),
    "join, window 2, boundaries": (
        77565,
        RingScenario(
            workers=2, window=2, segments=6, threshold=2, leaves=1, joins=True, boundaries=frozenset({1, 3, 5})
        ),
    ),
    "join, window 2, forced": (
        807751,
        RingScenario(
            workers=2,
            window=2,
            segments=6,
            threshold=2,
            leaves=1,
            joins=True,
            forces=True,
            boundaries=frozenset({2, 5}),
        ),
    ),
    "join, three, two may leave": (209104, RingScenario(**ENDS | {"workers": 3}, threshold=3, leaves=2)),
    "deadline, three": (344965, RingScenario(workers=3, window=1, segments=4, threshold=3, deadline=True)),
    "deadline, window 2": (152349, RingScenario(workers=2, window=2, segments=5, threshold=2, deadline=True)),
    "three, window 2, H=2": (471109, RingScenario(workers=3, window=2, segments=5, threshold=2)),
}


@pytest.mark.parametrize("name", [*RIGHT, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_every_promise_holds_in_every_state(name):
    states, scenario = (RIGHT | SLOW)[name]
    assert RingExplorer(scenario).run().count == states


def complete_is_enough(ring, slot) -> bool:
    return slot.state != SlotState.COLLECTING


def always(ring, slot) -> bool:
    return True


def adds_to_a_complete_slot(slot, bit) -> bool:
    return not slot.arrived & bit


def repeats_change_nothing(slot, threshold, overdue) -> bool:
    return False


def adds_twice(slot, bit) -> bool:
    return slot.state == SlotState.COLLECTING


def at_any_result(ring, slot) -> int:
    return ring.joining


def every_live_member(ring, seq) -> int:
    return ring.live


def any_collective(slot, collective, digest) -> bool:
    return True


def forgets_the_rival(slot, collective) -> int:
    return 0


def same_unless_complete(slot, collective, digest) -> bool:
    return slot.state == SlotState.COMPLETE or (slot.collective, slot.digest) == (collective, digest)


class Careless(RingSwitch):
    """Workers that do not wait for all in the collective after a change."""

    def requires_all(self, state, segment) -> bool:
        return False


TWO = RingScenario(workers=2, window=1, segments=4, threshold=2)
THREE = RingScenario(workers=3, window=1, segments=4, threshold=3)

ELASTIC = RingScenario(workers=2, window=2, segments=6, threshold=2, leaves=1, joins=True, boundaries=frozenset({2, 5}))

MUTANTS = {
    "collectives are not compared": (
        RingScenario(**ASKEW, threshold=2, rules=Rules(same_collective=any_collective)),
        "a sum adds two collectives",
    ),
    "only the later worker learns of the other's collective": (
        RingScenario(**ASKEW, threshold=2, rules=Rules(rival_of=forgets_the_rival)),
        "a worker waits forever",
    ),
    "a complete slot answers any collective": (
        RingScenario(**ASKEW, threshold=1, rules=Rules(same_collective=same_unless_complete)),
        "a contribution is answered with the result of another collective",
    ),
    "W slots": (TWO.replace(slots=1), "an honest worker is refused with SLOT_HELD"),
    "W slots, overwritten when complete": (
        TWO.replace(slots=1, rules=Rules(may_overwrite=complete_is_enough)),
        "a worker waits forever",
    ),
    "W = 2 slots, overwritten when complete": (
        TWO.replace(window=2, segments=6, slots=2, rules=Rules(may_overwrite=complete_is_enough)),
        "a worker waits forever",
    ),
    "no receipts, H < N": (THREE.replace(threshold=2, receipts=False), "a worker waits forever"),
    "a complete slot is added to": (
        THREE.replace(threshold=2, rules=Rules(may_add=adds_to_a_complete_slot)),
        "a result changes",
    ),
    "a worker is added twice": (TWO.replace(rules=Rules(may_add=adds_twice)), "a worker is in a sum twice"),
    "H < N, overwritten when complete": (
        THREE.replace(threshold=2, rules=Rules(may_overwrite=complete_is_enough)),
        "an honest worker is refused with WINDOW",
    ),
    "a retransmission does not complete a slot that has enough since SET_H": (
        TWO.replace(thresholds=(1, 2), rules=Rules(repeat_completes=repeats_change_nothing)),
        "a worker waits forever",
    ),
    "deadline, no receipts": (TWO.replace(deadline=True, receipts=False), "a worker waits forever"),
    "a retransmission does not complete a slot whose deadline passed": (
        TWO.replace(deadline=True, rules=Rules(repeat_completes=repeats_change_nothing)),
        "a worker waits forever",
    ),
    "joining members are admitted at any result": (
        ELASTIC.replace(rules=Rules(admits=at_any_result)),
        "a slot does not wait for a member",
    ),
    "a slot before the boundary waits for admitted members": (
        ELASTIC.replace(rules=Rules(expected_members=every_live_member)),
        "a worker waits forever",
    ),
    "workers continue before they hold every result up to the boundary": (
        ELASTIC.replace(eager=True),
        "a worker waits forever",
    ),
    "the collective after a change is forced": (
        ELASTIC.replace(forces=True, any_forced=True),
        "an honest worker is refused with WINDOW",
    ),
    "H < N, overwritten always": (
        THREE.replace(threshold=2, rules=Rules(may_overwrite=always)),
        "an honest worker is refused with WINDOW",
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name):
    scenario, promise = MUTANTS[name]
    assert broken_promise(RingExplorer(scenario).run) == promise


class Blind(RingSwitch):
    """A switch that does not see for whom a retransmission waits, so no member is ever evicted."""

    def transition(self, state, event):
        state, sent = super().transition(state, event)
        return state, sent._replace(waits_for=0)


@pytest.mark.parametrize("threshold", [1, 2])
def test_a_dead_worker_is_evicted_because_others_wait_for_it(threshold):
    scenario = RingScenario(workers=2, window=1, segments=4, threshold=threshold, leaves=1)
    RingExplorer(scenario).run()
    with pytest.raises(Violation, match="a worker waits forever"):
        RingExplorer(scenario, Blind).run()


def test_the_collective_after_a_change_must_wait_for_all():
    with pytest.raises(Violation, match="an honest worker is refused with WINDOW"):
        RingExplorer(ELASTIC.replace(threshold=1), Careless).run()


@pytest.mark.parametrize("scenario", [TWO, THREE, TWO.replace(window=2, segments=6)])
def test_with_all_contributing_the_window_implies_the_rule_of_overwriting(scenario):
    RingExplorer(scenario.replace(rules=Rules(may_overwrite=always))).run()


@pytest.mark.parametrize(
    "scenario", [TWO.replace(leaves=1), THREE.replace(leaves=2), TWO.replace(window=2, segments=6)]
)
def test_with_all_contributing_receipts_are_not_needed(scenario):
    RingExplorer(scenario.replace(receipts=False)).run()


def test_the_trace_of_a_violation_leads_to_it_event_by_event():
    scenario, promise = MUTANTS["a worker is added twice"]
    explorer = RingExplorer(scenario)
    with pytest.raises(Violation) as found:
        explorer.run()
    *events, last = found.value.trace
    state = explorer.start()
    for event in events:
        state = explorer.after(state, event)
    with pytest.raises(Violation, match=promise):
        explorer.after(state, last)

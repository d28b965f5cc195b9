"""Asynchronous jobs in every state that small cases can reach, and the wrong rules that the explorer must find.

All faults at once: see the head of `sim/explore/claims.py`. More updates than grants are kept where S is 0 or 1,
as a rule; seq wraps. Larger cases are left to `make test-all` for time.
"""

import pytest

from iswitch.golden.decide import claims as claims_of
from iswitch.golden.decide.claims import Claimant
from iswitch.wire import Outcome
from sim.bench.mutant import broken_promise
from sim.explore.claims import ClaimsExplorer
from sim.explore.claims_scenario import ClaimsRules, ClaimsScenario, reset_claims
from sim.explore.claims_switch import ClaimsSwitch
from sim.explore.claims_symmetry import renumber
from sim.explore.claims_worker import Worker, WorkerRules
from sim.explore.search import Violation

TWO = ClaimsScenario(workers=2, staleness=1, threshold=1, updates=3)
THREE = ClaimsScenario(workers=3, staleness=0, threshold=2, updates=3)
AHEAD = TWO.replace(pipelined=True)
RESET = TWO.replace(resets=1)

SPOILED = frozenset({(0, 1), (1, 1), (1, 2)})
"""Quarantined contributions: segment 0 of first vectors, segment 1 of first and second vectors."""

RIGHT = {
    "two, S=0": (1769, TWO.replace(staleness=0)),
    "two": (981, TWO),
    "two, S=2": (2332, TWO.replace(staleness=2, updates=4)),
    "two, S=0, H=2": (79, TWO.replace(staleness=0, threshold=2)),
    "two, H=2": (79, TWO.replace(threshold=2)),
    "two, S=2, H=2": (109, TWO.replace(staleness=2, threshold=2, updates=4)),
    "M=2, W=1": (1877, TWO.replace(segments=2)),
    "M=1, W=2": (1531, TWO.replace(window=2)),
    "M=2, W=2": (8851, TWO.replace(segments=2, window=2)),
    "M=2, W=2, H=2": (320, TWO.replace(segments=2, window=2, threshold=2)),
    "M=3, W=2, H=2": (575, TWO.replace(segments=3, window=2, threshold=2)),
    "leave": (1846, TWO.replace(leaves=1)),
    "leave, M=2": (4030, TWO.replace(segments=2, leaves=1)),
    "leave, M=2, W=2, H=2": (1387, TWO.replace(segments=2, window=2, threshold=2, leaves=1)),
    "leave and join": (6380, TWO.replace(leaves=1, joins=1)),
    "leave and join, M=2, H=2": (1514, TWO.replace(segments=2, threshold=2, leaves=1, joins=1)),
    "quarantine": (2091, TWO.replace(tainted=SPOILED)),
    "quarantine, leave, M=2, H=2": (467, TWO.replace(segments=2, threshold=2, leaves=1, tainted=SPOILED)),
    "SET_H": (3698, TWO.replace(threshold=2, thresholds=(1, 2))),
    "SET_H, leave": (1416, TWO.replace(updates=2, threshold=2, thresholds=(1, 2), leaves=1)),
    "ahead, S=0, H=2": (1556, AHEAD.replace(staleness=0, threshold=2)),
    "ahead": (12352, AHEAD),
    "ahead, H=2": (2177, AHEAD.replace(threshold=2)),
    "ahead, S=2, H=2": (6765, AHEAD.replace(staleness=2, threshold=2, updates=4)),
    "ahead, leave, H=2": (4679, AHEAD.replace(threshold=2, leaves=1)),
    "lies, S=0": (2898, TWO.replace(staleness=0, lies=True)),
    "lies": (1673, TWO.replace(lies=True)),
    "lies, leave, H=2": (343, TWO.replace(threshold=2, lies=True, leaves=1)),
    "lies, leave, S=0": (929, TWO.replace(staleness=0, updates=2, lies=True, leaves=1)),
    "lies, M=2, H=2": (182, TWO.replace(staleness=0, segments=2, lies=True, threshold=2)),
    "RESET": (4148, RESET),
    "RESET, H=2": (428, RESET.replace(threshold=2)),
    "RESET, S=0": (1667, RESET.replace(staleness=0, updates=2)),
    "RESET, leave and join": (5184, RESET.replace(updates=2, leaves=1, joins=1)),
    "RESET, M=2, W=2, H=2": (2820, RESET.replace(segments=2, window=2, threshold=2, updates=2)),
    "RESET, SET_H": (4516, RESET.replace(updates=2, thresholds=(1, 2))),
    "RESET, lies": (2781, RESET.replace(lies=True, updates=2, staleness=0)),
    "two RESETs": (3162, RESET.replace(resets=2, updates=2)),
    "RESET, ahead, H=2": (7142, RESET.replace(pipelined=True, threshold=2)),
    "FBCAST": (981, TWO.replace(fbcasts=True)),
    "three": (7648, THREE),
    "three, S=1": (4132, THREE.replace(staleness=1)),
    "three, H=3, S=1": (249, THREE.replace(threshold=3, staleness=1)),
    "three, leave": (3096, THREE.replace(updates=2, leaves=1)),
    "three, leave, H=3": (807, THREE.replace(threshold=3, leaves=1)),
    "three, SET_H": (3000, THREE.replace(updates=2, thresholds=(2, 3))),
}
SLOW = {
    "M=3, W=2, leave": (28364, TWO.replace(segments=3, window=2, leaves=1)),
    "SET_H, leave, U=3": (7150, TWO.replace(threshold=2, thresholds=(1, 2), leaves=1)),
    "S=0, U=4": (7619, TWO.replace(staleness=0, updates=4)),
    "ahead, S=0": (14697, AHEAD.replace(staleness=0)),
    "ahead, M=2": (24930, AHEAD.replace(segments=2)),
    "ahead, U=4": (116244, AHEAD.replace(updates=4)),
    "ahead, S=2, U=4": (68517, AHEAD.replace(staleness=2, updates=4)),
    "ahead, H=2, U=5": (36602, AHEAD.replace(threshold=2, updates=5)),
    "ahead, leave": (17817, AHEAD.replace(leaves=1)),
    "ahead, leave and join, H=2": (14888, AHEAD.replace(threshold=2, leaves=1, joins=1)),
    "three, S=1, U=4": (17131, THREE.replace(staleness=1, updates=4)),
    "three, H=1, S=1": (33551, THREE.replace(threshold=1, staleness=1)),
    "three, leaves": (5187, THREE.replace(updates=2, leaves=2)),
    "three, S=1, leave": (11091, THREE.replace(staleness=1, leaves=1)),
    "three, leave and join": (7172, THREE.replace(updates=2, leaves=1, joins=1)),
    "three, M=2": (2468, THREE.replace(updates=2, segments=2)),
    "three, M=2, S=1, U=3": (7492, THREE.replace(staleness=1, segments=2)),
    "lies, leave and join": (9828, TWO.replace(lies=True, leaves=1, joins=1)),
    "lies, M=2, W=2": (14457, TWO.replace(lies=True, segments=2, window=2)),
    "lies, ahead": (22940, AHEAD.replace(lies=True)),
    "lies, ahead, S=0": (29142, AHEAD.replace(staleness=0, lies=True)),
    "lies, three, S=0": (12697, TWO.replace(workers=3, staleness=0, updates=2, lies=True)),
    "lies, three": (75396, TWO.replace(workers=3, lies=True)),
    "RESET, leave and join, U=3": (22920, RESET.replace(leaves=1, joins=1)),
    "RESET, ahead": (53269, RESET.replace(pipelined=True)),
    "RESET, three": (10636, RESET.replace(workers=3, staleness=0, threshold=2, updates=2)),
    "three, ahead": (8820, THREE.replace(updates=2, staleness=1, pipelined=True)),
}


@pytest.mark.parametrize("name", [*RIGHT, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_every_promise_holds_in_every_state(name):
    states, scenario = (RIGHT | SLOW)[name]
    assert ClaimsExplorer(scenario).run().count == states


# Wrong rules of the switch


def any_age(claims, ring, *, weights, **rest):
    return claims_of.claim(
        claims, ring._replace(acknowledged=(claims.base,) * len(ring.acknowledged)), weights=claims.base, **rest
    )


def a_repeat_is_a_new_claim(claims, ring, *, member, k, **rest):
    if not claims.claimants[member].waiting and k == claims.claimants[member].k:
        claims = claims_of.leave(claims, member)._replace(grants=claims.grants)
    return claims_of.claim(claims, ring, member=member, k=k, **rest)


def weights_are_not_checked(claims, ring, *, member, **rest):
    """An earlier rule: all weights that exist are accepted, also those of updates that are not complete."""
    acknowledged = ring.acknowledged[:member] + (claims.base,) + ring.acknowledged[member + 1 :]
    return claims_of.claim(claims, ring._replace(acknowledged=acknowledged), member=member, **rest)


def only_what_it_held_before(claims, ring, *, member, weights, **rest):
    if weights == ring.acknowledged[member] and claims.grants:
        return claims_of.Verdict(claims, Outcome.UNHELD)
    return claims_of.claim(claims, ring, member=member, weights=weights, **rest)


def ks_outlast_a_reset(claims, first_seq):
    return reset_claims(claims, first_seq)._replace(claimants=claims.claimants)


def grants_outlast_a_reset(claims, first_seq):
    return reset_claims(claims, first_seq)._replace(grants=claims.grants)


def the_base_outlasts_a_reset(claims, first_seq):
    return reset_claims(claims, first_seq)._replace(base=claims.base)


def an_older_claim_is_a_new_one(claims, ring, *, member, k, **rest):
    if k < claims.claimants[member].k:
        claims = claims_of.leave(claims, member)._replace(grants=claims.grants)
    return claims_of.claim(claims, ring, member=member, k=k, **rest)


def no_kept_answer(claims, ring, **rest):
    verdict = claims_of.claim(claims, ring, **rest)
    return (
        verdict
        if verdict.claims.base != claims.base or verdict.outcome == Outcome.REFUSED
        else verdict._replace(answer=None)
    )


def refused_claims_count_towards_h(claims, ring, **rest):
    verdict = claims_of.claim(claims, ring, **rest)
    enough = claims_of.waiting_members(claims).bit_count() + 1 >= claims_of.quorum(ring)
    if verdict.outcome == Outcome.REFUSED and claims_of.waiting_members(claims) and enough:
        return claims_of.grant(verdict, ring)
    return verdict


def as_many_as_there_were(claims, ring, **rest):
    return claims_of.claim(claims, ring._replace(live=(1 << len(claims.claimants)) - 1), **rest)


def waits_for_nobody(claims, ring, **rest):
    return claims_of.claim(claims, ring, **rest)._replace(waits_for=0)


def a_repeat_grants_nothing(claims, ring, *, member, k, **rest):
    if claims.claimants[member] == Claimant(k, True):
        return claims_of.Verdict(claims, Outcome.DUPLICATE)
    return claims_of.claim(claims, ring, member=member, k=k, **rest)


def a_refusal_is_remembered_as_the_last_answer(claims, ring, *, member, k, **rest):
    """The retransmission of a refused claim gets no answer."""
    verdict = claims_of.claim(claims, ring, member=member, k=k, **rest)
    if verdict.outcome == Outcome.REFUSED:
        return verdict._replace(claims=claims_of.with_claimant(claims, member, Claimant(k)))
    return verdict


def stays_granted(claims, member):
    return claims_of.leave(claims, member)._replace(grants=claims.grants)


def still_waits(claims, member):
    return claims_of.leave(claims, member)._replace(claimants=claims.claimants)


def keeps_its_number(claims, member):
    """The next member at the index would have to continue from that k."""
    k = claims.claimants[member].k
    return claims_of.with_claimant(claims_of.leave(claims, member), member, Claimant(k))


def at_once(claims, ring):
    acknowledged = tuple(claims.base if ring.joining >> m & 1 else known for m, known in enumerate(ring.acknowledged))
    return ring._replace(live=ring.live | ring.joining, joining=0, acknowledged=acknowledged)


def all_members(claims, seq):
    return (1 << len(claims.claimants)) - 1


def of_s_grants(claims, seq):
    return claims_of.granted_members(claims._replace(grants=claims.grants[-claims.staleness :]), seq)


def if_anybody_is_left(claims, seq):
    return claims_of.granted_members(claims, seq) or None


def to_nobody(claims, seq):
    return None


# Wrong rules of the workers


def any_grant(worker, update):
    return worker.waits


def any_refusal(worker, k):
    return worker.waits


def at_any_time(worker):
    return len(worker.vectors) < 2 or not worker.waits


def any_grant_of_this_index(worker, update):
    return worker.waits and all(update > vector.update for vector in worker.vectors)


def keeps_its_vectors(worker, epoch):
    return worker._replace(held=0, epoch=epoch)


def keeps_its_results(worker, epoch):
    return Worker(held=worker.held, epoch=epoch)


BOTH = TWO.replace(threshold=2)
UNIDENTIFIED = "a silent worker stops the others and cannot be identified"

LYING = TWO.replace(staleness=0, lies=True)
MUTANTS = {
    "weights are not checked": (
        LYING.replace(rules=ClaimsRules(claim=weights_are_not_checked)),
        "more than S + 1 updates are in flight",
    ),
    "weights are not checked, S=1": (
        AHEAD.replace(lies=True, rules=ClaimsRules(claim=weights_are_not_checked)),
        "more than S + 1 updates are in flight",
    ),
    "weights that a worker has just acknowledged are rejected": (
        TWO.replace(rules=ClaimsRules(claim=only_what_it_held_before)),
        "the switch rejects weights whose receipt it has",
    ),
    "messages from before a RESET count": (RESET.replace(epochs=False), "a worker waits forever"),
    "a RESET leaves the last k": (
        RESET.replace(rules=ClaimsRules(reset=ks_outlast_a_reset)),
        "a worker is never granted an update",
    ),
    "a RESET leaves grants": (
        RESET.replace(rules=ClaimsRules(reset=grants_outlast_a_reset)),
        "an honest worker is refused with WINDOW",
    ),
    "a RESET leaves the base": (
        RESET.replace(rules=ClaimsRules(reset=the_base_outlasts_a_reset)),
        "a worker waits forever",
    ),
    "FBCAST ends a slot of an update": (BOTH.replace(fbcasts=True, requires_all=False), "a sum differs from its grant"),
    "claims of any age": (TWO.replace(rules=ClaimsRules(claim=any_age)), "a vector older than S is granted"),
    "a repeated claim is a new one": (
        TWO.replace(staleness=2, rules=ClaimsRules(claim=a_repeat_is_a_new_claim)),
        "a vector is granted twice",
    ),
    "an older claim is a new one": (
        TWO.replace(rules=ClaimsRules(claim=an_older_claim_is_a_new_one)),
        "a vector is granted twice",
    ),
    "a repeated claim gets no answer": (TWO.replace(rules=ClaimsRules(claim=no_kept_answer)), "a worker waits forever"),
    "a refused claim that comes again gets no answer": (
        TWO.replace(staleness=0, rules=ClaimsRules(claim=a_refusal_is_remembered_as_the_last_answer)),
        "a worker is never granted an update",
    ),
    "refused claims count towards H": (
        BOTH.replace(workers=3, staleness=0, rules=ClaimsRules(claim=refused_claims_count_towards_h)),
        "an update is granted to too few members",
    ),
    "H is not limited to the live members": (
        BOTH.replace(leaves=1, rules=ClaimsRules(claim=as_many_as_there_were)),
        "a worker waits forever",
    ),
    "a repeat grants nothing after a leave": (
        BOTH.replace(leaves=1, rules=ClaimsRules(claim=a_repeat_grants_nothing)),
        UNIDENTIFIED,
    ),
    "a repeat grants nothing after SET_H": (
        BOTH.replace(thresholds=(1,), rules=ClaimsRules(claim=a_repeat_grants_nothing)),
        UNIDENTIFIED,
    ),
    "only S grants are kept": (
        TWO.replace(rules=ClaimsRules(granted_for_contribution=of_s_grants)),
        "an honest worker is refused with WINDOW",
    ),
    "all live members are expected": (
        TWO.replace(rules=ClaimsRules(granted_for_contribution=all_members)),
        "a worker waits forever",
    ),
    "a slot ends with H": (BOTH.replace(thresholds=(1, 2), requires_all=False), "a sum differs from its grant"),
    "a member that left stays in its grants": (
        TWO.replace(leaves=1, rules=ClaimsRules(leave=stays_granted)),
        "a worker waits forever",
    ),
    "the claim of a member that left still waits": (
        BOTH.replace(leaves=1, rules=ClaimsRules(leave=still_waits)),
        "an update is granted to a member that left",
    ),
    "an update that all its members left is never completed": (
        TWO.replace(leaves=1, rules=ClaimsRules(granted_for_receipt=if_anybody_is_left)),
        "a worker waits forever",
    ),
    "a claim that waits for H does not show for whom": (
        BOTH.replace(rules=ClaimsRules(claim=waits_for_nobody)),
        UNIDENTIFIED,
    ),
    "a receipt that wants a granted segment does not show for whom it waits": (
        TWO.replace(rules=ClaimsRules(granted_for_receipt=to_nobody)),
        UNIDENTIFIED,
    ),
    "a new member inherits k": (
        TWO.replace(leaves=1, joins=1, rules=ClaimsRules(leave=keeps_its_number)),
        UNIDENTIFIED,
    ),
    "a joining member is admitted between boundaries": (
        TWO.replace(staleness=0, leaves=1, joins=1, rules=ClaimsRules(admit=at_once)),
        "more than S + 1 updates are in flight",
    ),
}
WORKER_MUTANTS = {
    "a worker keeps its vectors after a RESET": (
        RESET,
        WorkerRules(learn_epoch=keeps_its_vectors),
        "a vector is sent to an update that was not granted to it",
    ),
    "a worker keeps its results after a RESET": (
        RESET,
        WorkerRules(learn_epoch=keeps_its_results),
        "a worker waits forever",
    ),
    "a worker claims before it acknowledges what it holds": (
        TWO.replace(staleness=0),
        WorkerRules(acknowledges=False),
        "a worker is never granted an update",
    ),
    "a new member accepts grants of the former one at its index": (
        TWO.replace(leaves=1, joins=1),
        WorkerRules(accepts_grant=any_grant_of_this_index),
        "a worker waits forever",
    ),
    "a worker accepts any grant that names it": (
        TWO,
        WorkerRules(accepts_grant=any_grant),
        "a vector is sent to an update that was not granted to it",
    ),
    "a worker accepts any refusal": (
        TWO.replace(staleness=0),
        WorkerRules(accepts_refusal=any_refusal),
        "a worker waits forever",
    ),
    "a worker claims again before the answer": (TWO, WorkerRules(may_claim=at_any_time), "a worker waits forever"),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name):
    scenario, promise = MUTANTS[name]
    assert broken_promise(ClaimsExplorer(scenario).run) == promise


@pytest.mark.mutant
@pytest.mark.parametrize("name", WORKER_MUTANTS)
def test_mutant_worker_is_found(name):
    scenario, rules, promise = WORKER_MUTANTS[name]
    assert broken_promise(ClaimsExplorer(scenario, rules).run) == promise


class Forgetful(ClaimsSwitch):
    """A switch that does not check what is forgotten."""

    def check_forgotten(self, state):
        pass


class Afterwards(ClaimsExplorer):
    """A search that checks progress only once a member has left."""

    def check(self, state):
        if self.core(state).ring.live.bit_count() < self.scenario.workers:
            super().check(state)


@pytest.mark.parametrize("explorer", [ClaimsExplorer, Afterwards])
def test_unchecked_weights_let_one_worker_stop_the_job_forever_even_if_it_leaves(explorer):
    scenario = LYING.replace(workers=3, leaves=1, rules=ClaimsRules(claim=weights_are_not_checked))
    search = explorer(scenario)
    search.switch = Forgetful(scenario)
    with pytest.raises(Violation, match="a worker waits forever"):
        search.run()


class EveryNumbering(ClaimsExplorer):
    def canonical(self, state):
        return state


@pytest.mark.parametrize(
    "scenario", [TWO, TWO.replace(leaves=1, joins=1, updates=2), AHEAD.replace(threshold=2, leaves=1, updates=2)]
)
def test_the_numbering_of_workers_hides_no_state(scenario):
    def one_of_both(explorer, state):
        core, workers = explorer.core(state), state.workers
        return min((core, workers), (renumber(core, (1, 0)), workers[::-1]), key=repr)

    every, one = EveryNumbering(scenario), ClaimsExplorer(scenario)
    assert {one_of_both(every, state) for state in every.run().states} == {
        one_of_both(one, state) for state in one.run().states
    }

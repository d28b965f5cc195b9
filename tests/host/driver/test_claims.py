"""A member's vectors wait, are claimed and are granted. `test_stream.py` tests the whole protocol."""

import numpy as np
import pytest

from iswitch.driver.claims import PIPELINE_DEPTH, Claims, Vector
from iswitch.driver.membership import Membership
from iswitch.driver.timer import RetransmissionTimer
from iswitch.wire import Format, Mode, Type, version_type
from sim.bench.scripted_transport import Script

SEGMENTS = 3
MEMBERSHIP = Membership(
    job=1, key=0, world=2, threshold=2, format=Format.INT32, fraction=0, elements=4, mode=Mode.QUARANTINE,
    nonce=1, wanted=0, member=0, token=77, job_token=88, epoch=9, window=4, segments=SEGMENTS, staleness=1,
)  # fmt: skip


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def claims(script):
    return Claims(
        script,
        MEMBERSHIP,
        RetransmissionTimer(cap_s=0.05),
        segments=SEGMENTS,
        longest_wait_s=0.15,
        seq_of=lambda update: 100 + SEGMENTS * update,
    )


def vector(version):
    return Vector(np.zeros(5, np.int32), np.zeros(2, np.int32), version, 4)


def test_a_claim_names_the_weights_by_their_seq(claims, script):
    claims.submit(vector(2))
    (claim,) = script.sent
    assert claim["version_type"] == version_type(Type.CLAIM)
    assert (claim["seq"], claim["members"], claim["token"], claim["epoch"]) == (1, 106, 77, 9)


def test_a_claim_is_repeated_at_growing_intervals(claims, script):
    begun = script.time
    claims.submit(vector(0))
    times = []
    while len(times) < 5:
        script.time = claims.due_at
        times.append(script.time)
        claims.send(script.time)
    assert np.diff([begun, *times]).round(6).tolist() == [0.05, 0.1, 0.15, 0.15, 0.15]
    assert {int(claim["seq"]) for claim in script.sent} == {1}


def test_vectors_are_claimed_one_at_a_time(claims, script):
    claims.submit(vector(0))
    claims.submit(vector(0))
    assert claims.pending == PIPELINE_DEPTH and [int(claim["seq"]) for claim in script.sent] == [1]
    with pytest.raises(ValueError, match="pipeline must be below 2"):
        claims.submit(vector(0))
    assert claims.handle_grant(0)
    claims.send(script.time)
    assert [int(claim["seq"]) for claim in script.sent] == [1, 2]
    assert claims.complete(0) == []
    assert [vector.update for vector in claims.complete(1)] == [0]
    assert claims.pending == 1 and claims.granted_to(0) is None


def test_claims_are_numbered_from_1_on_modulo_2_to_the_32(claims, script):
    numbers = []
    for last in (0, 2**32 - 2, 2**32 - 1):
        claims._number = last
        claims.submit(vector(0))
        numbers.append(int(script.sent[-1]["seq"]))
        assert claims.handle_refusal(numbers[-1])
        claims.refused_version = -1
    assert numbers == [1, 2**32 - 1, 0]


def test_the_vector_that_waits_since_a_refusal_is_claimed_before_a_new_one(claims, script):
    """The refusal has come while nothing called `send`."""
    first, second, third = (vector(version) for version in range(3))
    claims.submit(first)
    claims.submit(second)
    assert claims.handle_refusal(1)
    claims.submit(third)
    assert claims.handle_grant(0) and claims.granted == [second]
    claims.send(script.time)
    assert claims.handle_grant(SEGMENTS) and claims.granted == [second, third]


def test_the_age_of_a_vector_is_counted_from_its_weights_to_its_own_update(claims):
    waiting = vector(2)
    assert waiting.update == -1
    claims.submit(waiting)
    assert claims.handle_grant(5 * SEGMENTS)
    assert claims.ages == {3: 1} and waiting.update == 5


def test_a_vector_with_weights_from_before_this_members_admission_is_dropped_at_once(claims, script):
    claims.submit(vector(-1))
    assert claims.refused == 1 and not claims.pending and not script.sent
    claims.submit(vector(0))
    assert claims.pending == 1


def test_only_a_later_update_is_granted(claims, script):
    claims.submit(vector(0))
    assert not claims.handle_grant(1)  # not the begin of an update
    assert not claims.handle_grant(-SEGMENTS)  # before this member's first
    assert claims.handle_grant(SEGMENTS) and claims.ages == {1: 1}
    claims.submit(vector(0))
    claims.send(script.time)
    assert not claims.handle_grant(SEGMENTS) and not claims.handle_grant(0)
    assert claims.handle_grant(2 * SEGMENTS)
    assert [granted.update for granted in claims.granted] == [1, 2]


def test_a_refusal_drops_the_vector_and_a_waiting_one_with_no_newer_weights(claims):
    claims.submit(vector(0))
    claims.submit(vector(0))
    assert not claims.handle_refusal(9)  # of another claim
    assert claims.handle_refusal(1) and claims.refused == 2 and claims.pending == 0
    claims.submit(vector(0))
    assert claims.refused == 3 and claims.pending == 0
    claims.submit(vector(1))
    assert claims.refused == 3 and claims.pending == 1


def test_without_a_vector_nothing_is_due(claims, script):
    assert claims.due_at == np.inf
    claims.send(script.time)
    assert claims.due_at == np.inf and not script.sent
    assert not claims.handle_grant(0) and not claims.handle_refusal(0)
    claims.submit(vector(0))
    assert claims.due_at < np.inf and claims.handle_grant(0)
    claims.send(script.time)
    assert claims.due_at == np.inf

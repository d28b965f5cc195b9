"""What a membership says before the switch has granted it."""

import dataclasses

import pytest

from iswitch.driver.membership import Membership
from iswitch.wire import NO_MEMBER, Format, Mode

REQUEST = Membership(
    job=1,
    key=5,
    world=2,
    threshold=2,
    format=Format.WINDOW64,
    fraction=44,
    elements=4,
    mode=Mode.QUARANTINE,
    nonce=1,
    wanted=0,
    token=7,
    job_token=8,
)


def test_a_request_that_says_nothing_else_is_for_a_synchronous_job_without_deadline_or_eviction():
    assert (REQUEST.segments, REQUEST.staleness, REQUEST.deadline_us, REQUEST.evict_us) == (0, 0, 0, 0)


def test_a_request_has_no_place_in_any_incarnation_of_the_job():
    """So nothing may be in flight, whatever the rank that the worker requests."""
    assert (REQUEST.member, REQUEST.epoch, REQUEST.window, REQUEST.first_seq) == (NO_MEMBER, 0, 0, 0)


@pytest.mark.parametrize("field", dataclasses.fields(Membership), ids=lambda field: field.name)
def test_a_membership_does_not_change(field):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(REQUEST, field.name, 0)


@pytest.mark.parametrize("name", ["token", "job_token"])
def test_a_token_has_no_default(name):
    """A host that knows the tokens could forge the worker's frames, or the switch's results."""
    fields = dataclasses.asdict(REQUEST)
    del fields[name]
    with pytest.raises(TypeError, match=f"'{name}'"):
        Membership(**fields)

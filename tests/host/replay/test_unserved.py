"""Errors for requests that the switch did not execute."""

import pytest

from iswitch.replay.errors import NotServedError, SessionLostError
from iswitch.replay.messages import Status
from iswitch.replay.request import Request
from iswitch.replay.unserved import unserved_error
from iswitch.wire.replay import WAITS, Kind, ReplayOutcome

STATUS = Status(*[0] * 18)._replace(ticket=5, filled=3, adds=9)


def cancelled(outcome, ticket=0, status=STATUS):
    request = Request(Kind.SAMPLE, table=1, count=4, ticket=ticket)
    request.outcome, request.status = outcome, status
    return unserved_error(request, address="the switch", wait_s=2.0), request


@pytest.mark.parametrize("outcome", sorted(WAITS))
def test_a_cancelled_request_is_an_error_with_its_reason(outcome):
    error, request = cancelled(outcome, ticket=7)
    assert isinstance(error, NotServedError) and error.outcome == outcome and request.reported
    assert str(error).startswith("SAMPLE to table 1 at the switch was not executed, because ")
    assert ", for 2 s. It was cancelled: " in str(error)


def test_the_numbers_are_those_of_the_table():
    assert "the table is at ticket 5, and the request has ticket 7" in str(cancelled(ReplayOutcome.TICKET, ticket=7)[0])
    assert "the table has 3, and 9 were ever added" in str(cancelled(ReplayOutcome.ITEMS)[0])


def test_a_ticket_that_has_passed_says_so():
    assert ", and that ticket has passed. It was cancelled" in str(cancelled(ReplayOutcome.TICKET, ticket=4)[0])


@pytest.mark.parametrize(
    ("outcome", "status"), [(None, STATUS), (ReplayOutcome.SESSION, STATUS), (ReplayOutcome.ITEMS, None)]
)
def test_a_request_with_an_unknown_fate_is_lost_with_its_session(outcome, status):
    error, _ = cancelled(outcome, status=status)
    assert isinstance(error, SessionLostError) and "may or may not have executed it" in str(error)

"""Errors for requests that the switch did not execute."""

import pytest

from iswitch.replay.errors import NotServedError, SessionLostError
from iswitch.replay.messages import Status
from iswitch.replay.request import Request
from iswitch.replay.unserved import unserved_error
from iswitch.wire.replay import WAITS, Fate, Kind

STATUS = Status(*[0] * 18)._replace(ticket=5, filled=3, adds=9)


def cancelled(fate, ticket=0, status=STATUS):
    request = Request(Kind.SAMPLE, table=1, count=4, ticket=ticket)
    request.fate, request.status = fate, status
    return unserved_error(request, address="the switch", wait_s=2.0), request


@pytest.mark.parametrize("fate", sorted(WAITS))
def test_a_cancelled_request_is_an_error_with_its_reason(fate):
    error, request = cancelled(fate, ticket=7)
    assert isinstance(error, NotServedError) and error.fate == fate and request.reported
    assert str(error).startswith("SAMPLE to table 1 at the switch was not executed, because ")
    assert ", for 2 s. It was cancelled: " in str(error)


def test_the_numbers_are_those_of_the_table():
    assert "the table is at ticket 5, and the request has ticket 7" in str(cancelled(Fate.TICKET, ticket=7)[0])
    assert "the table has 3, and 9 were ever added" in str(cancelled(Fate.ITEMS)[0])


def test_a_ticket_that_has_passed_says_so():
    assert ", and that ticket has passed. It was cancelled" in str(cancelled(Fate.TICKET, ticket=4)[0])


@pytest.mark.parametrize(("fate", "status"), [(None, STATUS), (Fate.SESSION, STATUS), (Fate.ITEMS, None)])
def test_a_request_with_an_unknown_fate_is_lost_with_its_session(fate, status):
    error, _ = cancelled(fate, status=status)
    assert isinstance(error, SessionLostError) and "may or may not have executed it" in str(error)

"""Tickets of requests in a row."""

import pytest

from iswitch.replay.tickets import check_ticket, consecutive_tickets


def test_tickets_are_consecutive_and_skip_0_when_they_wrap():
    assert consecutive_tickets(7, 3) == [7, 8, 9]
    assert consecutive_tickets(2**32 - 2, 4) == [2**32 - 2, 2**32 - 1, 1, 2]


def test_no_ticket_stays_none():
    assert consecutive_tickets(0, 3) == [0, 0, 0]


@pytest.mark.parametrize("ticket", [-1, 2**32])
def test_ticket_wrong(ticket):
    with pytest.raises(ValueError, match=f"ticket must be 0, or a table's ticket below 2\\^32, not {ticket}"):
        check_ticket(ticket)

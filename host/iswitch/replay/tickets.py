"""Tickets: the numbers that put operations of several clients on a table in a fixed order."""

__all__ = ["check_ticket", "consecutive_tickets"]


def check_ticket(ticket: int) -> int:
    """Return a ticket as an int. Raises ValueError unless it is 0 or a table's ticket."""
    if not 0 <= ticket < 2**32:
        raise ValueError(f"ticket must be 0, or a table's ticket below 2^32, not {ticket!r}")
    return int(ticket)


def consecutive_tickets(first: int, count: int) -> list[int]:
    """Return the tickets of `count` requests in a row. After 2^32 - 1 comes 1. If `first` is 0, all are 0."""
    return [first and (first - 1 + k) % (2**32 - 1) + 1 for k in range(count)]

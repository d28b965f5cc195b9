"""The rules of results that wait for room at a port, as `hw/egress/waiting_results.py` has them."""

from typing import NamedTuple

__all__ = ["Row", "is_valid", "note", "visit"]


class Row(NamedTuple):
    """What is recorded of a slot's result: its seq, how often the slot had been written then, and who lacks it."""

    seq: int
    writes: int
    recipients: frozenset[int]


def is_valid(row: Row | None, writes: int) -> bool:
    """Return whether a slot that has been written `writes` times still holds the result of its row."""
    return row is not None and row.writes == writes


def note(row: Row | None, refused: Row, writes: int) -> Row | None:
    """Return a slot's row after a result was refused for these recipients. Recipients of the same result are merged."""
    if refused.writes != writes:
        return row
    if row is not None and is_valid(row, writes):
        return row._replace(recipients=row.recipients | refused.recipients)
    return refused


def visit(row: Row | None, writes: int, ready: frozenset[int]) -> tuple[Row | None, Row | None]:
    """Return a slot's row after the scan has visited it, and the result to make again, if there is one.

    The result goes to the recipients that are behind a port with room (`ready`). A row that is no longer valid is
    erased.
    """
    if row is None or not is_valid(row, writes):
        return None, None
    sends, rest = row.recipients & ready, row.recipients - ready
    return (row._replace(recipients=rest) if rest else None), (row._replace(recipients=sends) if sends else None)

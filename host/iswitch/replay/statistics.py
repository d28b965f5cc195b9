"""How table, switch and client are doing, at one moment."""

from dataclasses import dataclass, field

__all__ = ["Statistics"]


@dataclass(frozen=True)
class Statistics:
    """Of the table: filled: items that are there. adds, draws: ever, modulo 2^32. total: sum of priorities. lowest: the
    least priority above 0, 0 if there is none, and highest the greatest, both rounded down by at most an eighth. ticket:
    the table's. version: of its parameters.

    Of the switch: fates: what became of requests of all clients, by the name of the `Fate`.

    Of this client: items_added: that were acknowledged. bytes_pushed: of items and log, each counted once.
    frames_written, frames_shared: of stacked fields, and those that need not be written because they were in the log.
    log_bytes, log_used: of its log. saturated: priorities that were greater than the switch can tell. resent: requests
    sent again. window: unordered requests that it has on their way at most. delay_s: between request and answer; 0 if
    not known yet.
    """

    filled: int
    adds: int
    draws: int
    total: float
    lowest: float
    highest: float
    ticket: int
    version: int
    fates: dict[str, int] = field(repr=False)
    items_added: int
    bytes_pushed: int
    frames_written: int
    frames_shared: int
    log_bytes: int
    log_used: int
    saturated: int
    resent: int
    window: int
    delay_s: float

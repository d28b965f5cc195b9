"""The messages of workers and the results of the switch, as the explorers of the ring, of trees and of claims share
them.

A *segment* counts from 0; on the wire it is a serial number. `low` is the lowest segment whose result a worker lacks.
Sets of segments and of workers are bit masks.

**The network remembers everything.** Whatever a worker may have sent by now may arrive now, again and again, in any
order, or never. That is more than any loss, duplication, reordering and delay can do, so a rule that holds here holds
under all of them at once. It also keeps messages in flight out of the state: they follow from what each worker holds.

- A result that was sent once can be delivered to each live member at any later time.
- A worker whose lowest missing segment is `low` may have sent, at each earlier `low`, a receipt, and a contribution to
  each segment of its window then. This includes a few messages that it never sent: those with a `low` that it skipped,
  which are true nevertheless, and those for a segment whose result it holds by now, which meet a complete slot or a
  later lap.
- The switch refuses a worker that left (MEMBER), so its messages end with its membership. A worker that joins again has
  a new token and begins at the segment that the switch names.
"""

from collections.abc import Iterator
from typing import NamedTuple

from iswitch.golden.interface.serial import SERIAL

__all__ = [
    "UNKNOWN",
    "Contribution",
    "Leave",
    "Receipt",
    "Result",
    "SegmentNumbers",
    "SetThreshold",
    "contributions",
    "is_member",
    "known",
    "lowest_missing",
    "receipts",
]

UNKNOWN = -1
"""No segment; a result that does not exist yet."""


class Contribution(NamedTuple):
    """A worker's contribution to a segment reaches its switch. The worker lacked no result below `low`."""

    worker: int
    segment: int
    low: int


class Receipt(NamedTuple):
    """A worker's receipt reaches its switch. `wanted`: the segment whose result it requests, or UNKNOWN."""

    worker: int
    low: int
    wanted: int

    @property
    def segment(self) -> int:
        """The segment that the receipt names."""
        return self.low if self.wanted == UNKNOWN else self.wanted


class Result(NamedTuple):
    """The result of a segment reaches a worker."""

    worker: int
    segment: int


class Leave(NamedTuple):
    """A worker leaves, or is evicted."""

    worker: int


class SetThreshold(NamedTuple):
    """SET_H sets the job's threshold."""

    threshold: int


class SegmentNumbers:
    """Segments as serial numbers. The first is the last multiple of 2W before 2^32, so that serial numbers wrap."""

    def __init__(self, window: int) -> None:
        self.first_seq = SERIAL - 2 * window

    def seq(self, segment: int) -> int:
        return (self.first_seq + segment) % SERIAL

    def segment(self, seq: int) -> int:
        return (seq - self.first_seq) % SERIAL


def is_member(members: int, index: int) -> bool:
    """Return whether a bit mask of members contains an index."""
    return bool(members >> index & 1)


def lowest_missing(held: int) -> int:
    """Return the lowest segment that is not in a bit mask."""
    return (~held & held + 1).bit_length() - 1


def known(results: tuple[int, ...]) -> int:
    """Return the bit mask of the segments whose result is not UNKNOWN."""
    return sum(1 << segment for segment, result in enumerate(results) if result != UNKNOWN)


def contributions(worker: int, low: int, end: int, held: int = 0) -> Iterator[Contribution]:
    """Return the contributions to segments from `low` to `end` whose results the worker does not hold."""
    for segment in range(low, end):
        if not is_member(held, segment):
            yield Contribution(worker, segment, low)


def receipts(worker: int, low: int, segments: int) -> Iterator[Receipt]:
    """Return the receipts of a worker that lacks `low`: a plain one, and one that requests the result it lacks."""
    yield Receipt(worker, low, UNKNOWN)
    if low < segments:
        yield Receipt(worker, low, low)

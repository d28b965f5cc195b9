"""The accumulators of all slots, and what an operation does to them."""

from typing import Protocol

import numpy as np

from iswitch.golden.decide.slot import Slot, Work
from iswitch.golden.interface.message import Settings
from iswitch.golden.numeric import lane
from iswitch.wire import TAIL_BYTES, UPLINK_TAIL, Operation
from iswitch.wire.formats import FORMATS

__all__ = ["StoredSums", "Sums"]


class StoredSums(Protocol):
    """Accumulators by job and slot index: a dictionary, or arrays."""

    def __getitem__(self, place: tuple[int, int], /) -> lane.Stored: ...
    def __setitem__(self, place: tuple[int, int], stored: lane.Stored, /) -> None: ...
    def get(self, place: tuple[int, int], /) -> lane.Stored | None: ...


class Sums:
    """The accumulators, in `stored`."""

    def __init__(self, stored: StoredSums) -> None:
        self.stored = stored

    def execute(self, job: int, settings: Settings, work: Work, slot: Slot, payload: bytes) -> int:
        """Execute an operation with a frame's payload, and return how many non-zero terms rounded to zero.

        An installed result is kept as it is, because only the root rounds. An uplink's payload, which is longer than a
        contribution's of the slot, ends with a tail.
        """
        place = job, work.slot
        old = self.stored.get(place)
        if work.operation == Operation.INSTALL_DOWN:
            self.stored[place] = lane.install(np.frombuffer(payload[:-TAIL_BYTES], lane.patterns(slot.format)))
            return 0
        adds = work.operation == Operation.CONTRIBUTE
        if adds and len(payload) > slot.length:
            terms = np.frombuffer(payload[: -UPLINK_TAIL.itemsize], lane.patterns(FORMATS[slot.format].uplink))
            self.stored[place] = lane.accumulate_uplink(slot.format, old, terms, first=work.first)
            return 0
        elements = np.frombuffer(payload if adds else bytes(slot.length), lane.patterns(slot.format))
        self.stored[place], flushed = lane.accumulate(
            slot.format,
            old,
            elements,
            fraction=settings.fraction,
            limit=lane.exponent_limit(settings.fraction),
            include=adds,
            first=work.first,
        )
        return flushed

    def result(self, job: int, index: int, format: int, fraction: int) -> np.ndarray:
        """Return a slot's elements as they leave in a result."""
        return lane.result(format, self.stored[job, index], fraction)

    def installed(self, job: int, index: int, format: int) -> np.ndarray:
        """Return the elements of a parent's result, which a slot holds."""
        return lane.installed(format, self.stored[job, index])

    def uplink(self, job: int, index: int, format: int) -> np.ndarray:
        """Return a slot's accumulators as they go up, unrounded."""
        return lane.uplink(format, self.stored[job, index])

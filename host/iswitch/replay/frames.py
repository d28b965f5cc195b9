"""Frames that are in the log already, found by their content."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["RecentFrames"]


class RecentFrames:
    """Where the frames are that were written last, at most `units` of the log in all.

    They are told apart by their bytes and nothing else: so overlapping stacks of one environment share their frames,
    with any number of steps between, an episode's first frames that are repeated are one, and nobody needs to say where
    episodes end. Those written first are forgotten first, however often they are found: else one blank frame would keep
    the whole log behind it.
    """

    def __init__(self, units: int):
        self.units = units
        self.found = 0
        """Frames that need not be written."""
        self._frames: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._units = 0

    def find(self, frame: bytes, oldest: int) -> int | None:
        """Where it is, if that is not before `oldest`."""
        place = self._frames.get(frame)
        if place is None or place[0] < oldest:
            return None
        self.found += 1
        return place[0]

    def add(self, frame: bytes, start: int, units: int) -> None:
        """It is written at a place, further on than all others."""
        if (before := self._frames.pop(frame, None)) is not None:
            self._units -= before[1]
        self._frames[frame] = start, units
        self._units += units
        self._forget()

    def _forget(self) -> None:
        while self._units > self.units:
            self._units -= self._frames.popitem(last=False)[1][1]

    @contextmanager
    def widened(self, units: int) -> Iterator[None]:
        """Meanwhile it remembers what is within so many units."""
        usual, self.units = self.units, units
        try:
            yield
        finally:
            self.units = usual
            self._forget()

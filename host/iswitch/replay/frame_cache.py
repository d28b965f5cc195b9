"""Frames of stacked observations that are in the log already, found by their content."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FrameCache"]


class FrameCache:
    """Remembers where in the log the latest frames were written.

    Frames are compared by their bytes and by nothing else. Overlapping stacks of one environment therefore share their
    frames, with any number of steps between them, and the repeated first frames of an episode are one frame. The caller
    does not have to mark the ends of episodes.

    The frames that were written first are evicted first, however often they are found. Otherwise one blank frame that
    appears repeatedly would keep the complete log after it.

    Parameters
    ----------
    units : int
        The most log units of 64 bytes that the remembered frames may take.
    """

    def __init__(self, units: int):
        self.units = units
        self.hits = 0
        """Number of frames that were found, and so did not have to be written."""
        self._frames: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # content: (first unit, units)
        self._units = 0

    def find(self, frame: bytes, oldest: int) -> int | None:
        """Return the first unit of a frame; None if the frame is unknown, or was written before the unit `oldest`."""
        place = self._frames.get(frame)
        if place is None or place[0] < oldest:
            return None
        self.hits += 1
        return place[0]

    def add(self, frame: bytes, start: int, units: int) -> None:
        """Record that a frame was written at unit `start`, behind all frames before it."""
        if (before := self._frames.pop(frame, None)) is not None:
            self._units -= before[1]
        self._frames[frame] = start, units
        self._units += units
        self._evict()

    def _evict(self) -> None:
        while self._units > self.units:
            self._units -= self._frames.popitem(last=False)[1][1]

    @contextmanager
    def enlarged(self, units: int) -> Iterator[None]:
        """Remember frames of up to `units` log units within the `with` block."""
        usual, self.units = self.units, units
        try:
            yield
        finally:
            self.units = usual
            self._evict()

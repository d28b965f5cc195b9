"""One direction of a cable: frames go in, and come out later, limited by its rate and subject to its faults."""

from collections import Counter, deque

from sim.emulator.card import FRAME_BYTES_LEAST
from sim.emulator.faults import Faults, Passed

__all__ = ["QUEUE_FRAMES", "Wire"]

QUEUE_FRAMES = 1000
"""Frames in a network card's queue under Linux (txqueuelen)."""
PS_PER_S = 10**12
# IEEE 802.3: what a frame takes on the wire beside its bytes here, which are without FCS.
PREAMBLE_BYTES, FCS_BYTES, GAP_BYTES = 8, 4, 12


class Wire:
    """One direction of a cable: `put` frames in, `take` those that have come out by now.

    Times are in picoseconds and never fall from one call to the next. With `rate_bps` a frame begins after the one
    before it and the inter-frame gap, and has come through with the last bit of its FCS; None takes no time.
    `queue_frames` may wait for a busy wire, the frame on it included; further frames are dropped and counted in
    `counts`. `faults` apply to frames that have passed, and include the delay. Frames keep their order unless the
    faults reorder them.
    """

    def __init__(
        self, faults: Faults | None = None, *, rate_bps: float | None = None, queue_frames: int = QUEUE_FRAMES
    ):
        if rate_bps is not None and not rate_bps > 0:
            raise ValueError(f"Wire rate_bps must be above 0, not {rate_bps!r}")
        if queue_frames < 1:
            raise ValueError(f"Wire queue_frames must be at least 1, not {queue_frames!r}")
        self.faults = faults or Faults.none()
        self.rate_bps, self.queue_frames = rate_bps, queue_frames
        self.counts: Counter[str] = Counter()
        self._free_ps = 0
        self._ends: deque[int] = deque()  # when each frame that was queued will have passed
        self._through: deque[tuple[int, Passed]] = deque()  # without faults: by the time they come out

    def _time_ps(self, size: int) -> int:
        """Return the time that a number of bytes takes."""
        return round(8 * size * PS_PER_S / self.rate_bps) if self.rate_bps else 0

    @property
    def latency_ps(self) -> int:
        """The least time from `put` to `take`."""
        return self._time_ps(PREAMBLE_BYTES + FRAME_BYTES_LEAST + FCS_BYTES) + self.faults.delay_ps

    def put(self, data: bytes, now_ps: int) -> None:
        """Send a frame."""
        end_ps = now_ps
        if self.rate_bps:
            while self._ends and self._ends[0] <= now_ps:
                self._ends.popleft()
            if len(self._ends) >= self.queue_frames:
                self.counts["dropped, queue full"] += 1
                return
            begin_ps = max(now_ps, self._free_ps)
            end_ps = begin_ps + self._time_ps(PREAMBLE_BYTES + max(len(data), FRAME_BYTES_LEAST) + FCS_BYTES)
            self._free_ps = end_ps + self._time_ps(GAP_BYTES)
            self._ends.append(end_ps)
        if self.faults.active:
            self.faults.put(data, end_ps)
        else:
            self._through.append((end_ps, Passed(data, False)))

    def pop_due(self, now_ps: int) -> list[Passed]:
        """Return the frames that have come out by now, in the order of their arrival."""
        if self.faults.active:
            return self.faults.pop_due(now_ps)
        frames = []
        while self._through and self._through[0][0] <= now_ps:
            frames.append(self._through.popleft()[1])
        return frames

    @property
    def due_ps(self) -> int | None:
        """The time of the next `pop_due`, if a frame is in flight."""
        if self.faults.active:
            return self.faults.due_ps
        return self._through[0][0] if self._through else None

"""A port of an emulated switch: carries frames between its cable and the board, counts and captures them."""

from collections import Counter, deque
from collections.abc import Callable

from sim.emulator.attachment import Attachment
from sim.emulator.device import Device
from sim.emulator.engine import Frame
from sim.emulator.faults import Passed
from sim.emulator.pcap import Capture
from sim.emulator.wire import Wire

__all__ = ["PENDING_FRAMES", "Port"]

PENDING_FRAMES = 256
"""The most frames that wait here for the board's own queue. Further frames stay in the attachment; those of a link are
dropped."""


class Port:
    """A port, whose cable is two wires. Each wire ends in another port (a link) or in an attachment.

    A port without a cable is an empty socket: frames that leave are counted and lost. Captures show the switch's side
    of the cable, good frames only. Only wires drop frames between an attachment and the switch: a frame without room
    stays in the attachment.
    """

    def __init__(self, board: Device, number: int, capture: Capture | None):
        self.board, self.number, self.capture = board, number, capture
        self.inbound: Wire | None = None
        self.outbound: Wire | None = None
        self.attachment: Attachment | None = None
        self.counts: Counter[str] = Counter()
        self._pending: deque[Passed] = deque()

    @property
    def plugged(self) -> bool:
        return self.inbound is not None

    def connect(self, inbound: Wire, outbound: Wire, attachment: Attachment | None = None) -> None:
        """Connect a cable: to an attachment, or, without one, wires that another port uses, too."""
        self.inbound, self.outbound, self.attachment = inbound, outbound, attachment
        if attachment:
            self.counts = attachment.counts

    def enter(self, now_ps: int) -> bool:
        """Move the frames that attachment and wire have brought by now into the board's queue, as far as it has room.
        Returns True if any frame came, waits or entered."""
        if self.inbound is None:
            return False
        came = False
        if self.attachment and len(self._pending) < PENDING_FRAMES:
            for frame in self.attachment.receive_frames(PENDING_FRAMES - len(self._pending)):
                self.inbound.put(frame, now_ps)
                came = True
        self._pending.extend(self.inbound.pop_due(now_ps))
        if not self._pending:
            return came
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), self.board.room(self.number)))]
        if batch:
            self.board.send_many(self.number, [frame for frame, _ in batch], [error for _, error in batch])
            self.counts["frames into the switch"] += len(batch)
            if self.capture:
                for frame, error in batch:
                    if not error:
                        self.capture.write(frame, now_ps // 1000)
        if self.attachment is None:
            while len(self._pending) > PENDING_FRAMES:
                self._pending.pop()
                self.counts["in, dropped at a full port"] += 1
        return True

    def leave(self, left_ps: Callable[[Frame], int]) -> bool:
        """Move frames that have left the board onto the wire. `left_ps` gives the time at which a frame left. Returns
        True if there was any."""
        frames = self.board.receive(self.number)
        if not frames:
            return False
        self.counts["frames out of the switch"] += len(frames)
        for frame in frames:
            time_ps = left_ps(frame)
            if self.capture:
                self.capture.write(frame.data, time_ps // 1000)
            if self.outbound:
                self.outbound.put(frame.data, time_ps)
        return True

    def deliver(self, now_ps: int) -> bool:
        """Give the frames that have arrived by now to the attachment. Returns True if there was any."""
        through = self.outbound.pop_due(now_ps) if self.attachment and self.outbound else []
        if self.attachment and through:
            good = [frame for frame, error in through if not error]
            if len(good) < len(through):
                self.counts["out, bad FCS"] += len(through) - len(good)
            self.attachment.deliver_frames(good)
        return bool(through)

    def close(self) -> None:
        """Close the attachment and the capture."""
        if self.attachment:
            self.attachment.close()
        if self.capture:
            self.capture.close()

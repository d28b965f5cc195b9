"""Why nothing comes to a member of an asynchronous job: what the switch says when it is queried."""

import math
from typing import NamedTuple

from iswitch.control.client import Control
from iswitch.control.inspection import read_slot
from iswitch.driver.stream import Stream
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.results import format_ranks
from iswitch.wire import JobState, SlotState

__all__ = ["Cause", "QuietStream"]

_QUIET_S = 1.0
"""After this time without a frame, a waiting call queries the switch for the cause."""


class Cause(NamedTuple):
    """What the switch has answered: whether the job is halted, and the error if the workers' vectors differ in size."""

    is_halted: bool
    mismatch: MismatchError | None


class QuietStream:
    """Queries the switch whenever nothing has come for some time, and when a NOTICE has said that the job is halted.

    Parameters
    ----------
    control : Control
        Carries the messages.
    stream : Stream
        The worker's stream, between two calls of its methods.
    layout : UpdateLayout
        Segments of an update.
    job_name : str
        The job and the switch, for messages.
    """

    def __init__(self, control: Control, stream: Stream, layout: UpdateLayout, job_name: str):
        self._control, self._stream, self._layout, self._job_name = control, stream, layout, job_name
        self._bursts_heard = -1  # those at the last look
        self._quiet_until = 0.0  # the time of the next inquiry, if nothing comes before
        self._notices_from = 0.0  # the time from which a NOTICE is a reason to inquire
        self._halted_at = -math.inf  # the last time at which the switch has answered that the job is halted

    def inquire_if_due(self, switch_timeout_s: float) -> Cause | None:
        """Query the switch if it is due. A program that waits briefly, again and again, learns as much as one that
        waits for long, so the time does not begin anew with each call.

        Parameters
        ----------
        switch_timeout_s : float
            The worker's longest time to wait for the switch, in seconds. The switch is queried after as long without a
            frame, and at the latest after a second.

        Returns
        -------
        Cause or None
            What the switch has answered, if it was queried.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer.
        """
        transport, stream = self._stream.transport, self._stream
        pause_s, now = min(_QUIET_S, switch_timeout_s), transport.now()
        if stream.bursts_received != self._bursts_heard:
            self._bursts_heard, self._quiet_until = stream.bursts_received, now + pause_s
        if now < self._quiet_until and not (stream.halted and now >= self._notices_from):
            return None
        cause = Cause(self._is_halted(), self._mismatch())
        self._bursts_heard, now = stream.bursts_received, transport.now()
        self._quiet_until = self._notices_from = now + pause_s
        return cause

    def halted_since(self, time_s: float) -> bool:
        """Query the switch. Return True if it answers that the job is halted, or has answered so since a time."""
        self._is_halted()
        return self._halted_at >= time_s

    def _is_halted(self) -> bool:
        """Query whether the job is halted. A NOTICE says so only to a member that contributes, and the job may have
        been resumed since."""
        stream = self._stream
        stream.halted = self._control.job(stream.membership.job).state == JobState.HALTED
        if stream.halted:
            self._halted_at = stream.transport.now()
        return stream.halted

    def _mismatch(self) -> MismatchError | None:
        stream, layout = self._stream, self._layout
        low, m = stream.low, stream.membership
        slot = read_slot(self._control, m.job, stream.low_seq, m.window)
        # Joins compare the number of segments, so sizes can differ in the vector's last segment only.
        last_segment = layout.vector_segments - 1
        their_size = last_segment * layout.elements + slot.length // 4
        waits_for_last = low == stream.low and low % layout.segments == last_segment and slot.seq == stream.low_seq
        if waits_for_last and slot.state == SlotState.COLLECTING and their_size != layout.size:
            return MismatchError(
                f"the workers of {self._job_name} push vectors of different sizes: {their_size:,} elements by "
                f"{format_ranks(slot.arrived)}, and {layout.size:,} by this worker, rank {m.member}. Start all "
                "workers with the same `size`"
            )
        return None

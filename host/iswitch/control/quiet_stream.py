"""Why nothing comes to a member of an asynchronous job: what the switch says when it is queried."""

from iswitch.control.client import Control
from iswitch.control.inspection import read_slot
from iswitch.driver.stream import Stream
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.results import format_ranks
from iswitch.wire import JobState, SlotState

__all__ = ["QuietStream"]

_QUIET_S = 1.0
"""After this time without a frame, a waiting call queries the switch for the cause."""


class QuietStream:
    """Queries the switch whenever nothing has come for some time.

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

    def inquire_if_due(self, switch_timeout_s: float) -> MismatchError | None:
        """Query the switch if nothing has come for some time. A program that waits briefly, again and again, learns as
        much as one that waits for long, so the time does not begin anew with each call.

        Parameters
        ----------
        switch_timeout_s : float
            The worker's longest time to wait for the switch, in seconds. The switch is queried after as long without a
            frame, and at the latest after a second.

        Returns
        -------
        MismatchError or None
            The error, if the workers' vectors differ in size.

        Raises
        ------
        SwitchUnreachableError
            If the switch does not answer.
        """
        transport, stream = self._stream.transport, self._stream
        if stream.bursts_received == self._bursts_heard and transport.now() < self._quiet_until:
            return None
        mismatch = self._inquire() if stream.bursts_received == self._bursts_heard else None
        self._bursts_heard = stream.bursts_received
        self._quiet_until = transport.now() + min(_QUIET_S, switch_timeout_s)
        return mismatch

    def _inquire(self) -> MismatchError | None:
        """Query the switch for the reason. Record in the stream whether the job is halted, which the switch reports
        only to a member that contributes."""
        stream, layout = self._stream, self._layout
        low, m = stream.low, stream.membership
        stream.halted |= self._control.job(m.job).state == JobState.HALTED
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

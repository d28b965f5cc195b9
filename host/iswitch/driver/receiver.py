"""The receiving half of a member: bursts become results in their place and entries in the ledger."""

from abc import ABC, abstractmethod

import numpy as np

from iswitch.driver.activity import ActivityMeter
from iswitch.driver.membership import Membership
from iswitch.driver.notices import handle_notice
from iswitch.driver.result_frames import ResultFrames, Results, datagrams
from iswitch.driver.segment_ledger import SegmentLedger
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transfer import Transfer
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.window import SendWindow

__all__ = ["Receiver"]

_BURSTS = 64
"""The most bursts to receive before the member sends something."""


class Receiver(ABC):
    """Receives for one member.

    Parameters
    ----------
    transport : Transport
        Carries frames and provides the clock.

    Attributes
    ----------
    membership : Membership
        The granted membership.
    ledger : SegmentLedger
        Which results are here.
    frames : ResultFrames
        Finds the new results among received frames.
    timer : RetransmissionTimer
        Learns which results the network lost.
    window : SendWindow
        How many segments may be in flight.
    activity : ActivityMeter
        Measures how regularly the program runs the driver.
    halted : bool
        The switch has reported that the job is halted, since the owner last cleared this.
    """

    timer: RetransmissionTimer

    def __init__(self, transport: Transport):
        self.transport = transport
        self.activity = ActivityMeter(transport.now())
        self.frames = ResultFrames()
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data

    def begin(self, membership: Membership, *, reach: int, cap_s: float, window: SendWindow) -> None:
        """Drop all state, and begin at the membership's epoch and first seq.

        Parameters
        ----------
        membership : Membership
            The granted membership.
        reach : int
            Results of so many positions from the lowest lacked one on are recorded.
        cap_s : float
            The longest time-out, in seconds.
        window : SendWindow
            How many segments may be in flight.
        """
        self.membership, self.window = membership, window
        self.ledger = SegmentLedger(reach)
        self.frames.begin(membership, self.ledger)
        self.timer = RetransmissionTimer(cap_s=cap_s)
        self.halted = False
        self.activity.restart(self.transport.now())

    # What a user of the engine decides

    @property
    @abstractmethod
    def limit(self) -> int:
        """The lowest position whose result has no room here."""

    @abstractmethod
    def store(self, results: Results) -> None:
        """Store new results, which the ledger does not show yet. Raises MismatchError if they do not fit."""

    @abstractmethod
    def transfer_at(self, position: int) -> Transfer | None:
        """Return this member's transfer that contains a position, or None."""

    def handle_other(self, header: np.void) -> None:
        """Handle a frame that is not a result of this epoch."""
        self.halted |= handle_notice(header, self.membership)

    # Positions

    @property
    def low(self) -> int:
        """The lowest position whose result is lacked."""
        return self.ledger.low

    @property
    def low_seq(self) -> int:
        """The lowest seq whose result is lacked."""
        return self.seq_at(self.ledger.low)

    @property
    def forged(self) -> int:
        """Results that were ignored because they do not carry the job's token."""
        return self.frames.forged

    def seq_at(self, position: int) -> int:
        """Return the seq of a position."""
        return (self.membership.first_seq + position) % 2**32

    # Receiving

    def receive(self, timeout_s: float) -> int:
        """Receive one burst. Return the number of new results in it."""
        size, segment_bytes = self.transport.receive(self._view, timeout_s)
        return self.handle_burst(self._buffer, size, segment_bytes) if size else 0

    def receive_waiting(self, wait_s: float = 0.0) -> int:
        """Receive the bursts that wait in the socket, up to a limit.

        A burst without a new result does not end the loop: the next burst may have the results that the member would
        request otherwise.

        Parameters
        ----------
        wait_s : float
            Seconds to wait for the first burst.

        Returns
        -------
        int
            The number of new results.
        """
        new_results = 0
        for _ in range(_BURSTS):
            size, segment_bytes = self.transport.receive(self._view, wait_s)
            if not size:
                break
            wait_s = 0.0
            new_results += self.handle_burst(self._buffer, size, segment_bytes)
        return new_results

    def handle_burst(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> int:
        """Handle a burst of received datagrams.

        Parameters
        ----------
        buffer : numpy.ndarray or memoryview
            The datagrams end to end, `segment_bytes` each; the last one may be shorter.
        size : int
            Bytes of the burst.
        segment_bytes : int
            Bytes of a datagram.

        Returns
        -------
        int
            The number of new results.

        Raises
        ------
        MembershipRejectedError
            If the switch rejects this member.
        CollectiveConflictError
            If another member calls another collective.
        MismatchError
            If a result does not fit this member's array.
        """
        new_results = 0
        try:
            for records in datagrams(buffer, size, segment_bytes):
                batches, others = self.frames.parse(records, self.limit)
                if others is not None:
                    for header in others:
                        self.handle_other(header)
                for results in batches:
                    new_results += self._record(results)
        finally:
            self.ledger.advance()
        return new_results

    def _record(self, results: Results) -> int:
        """Store new results, record them, and return their number."""
        resent = results.is_resent
        if resent:
            self.timer.record_loss()
        self.store(results)
        count = len(results.records)
        timed = resent or self.transfer_at(results.last) is not None
        retransmitted = self.ledger.record_results(results.positions, timed=timed)
        self.window.record_results(count, retransmitted=retransmitted, resent=count if resent else 0)
        return count

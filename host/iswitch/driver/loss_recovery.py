"""The engine of loss recovery: what a member sends, requests again and acknowledges, and when.

A synchronous member (`ring.py`) and an asynchronous one (`stream.py`) are two users of it. They say which transfers
there are, where a result goes, and how far they store. The engine has no thread and waits for nothing but the
transport, which also provides the clock.

1. It sends contributions while they are inside the window, in the order of their positions.
2. It detects a lost segment by later results, or by a time-out without any new result (`segment_ledger.py`).
3. It requests a lost result: by the contribution if a transfer of this member contains the segment, and otherwise by a
   receipt with the flag `want`. If the slot is complete, the switch answers both with the result.
4. Each contribution and each receipt says which results are held. The engine sends a receipt of its own when many
   results are held since the last message.
5. Delays of results give the time-outs (`timer.py`).
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.driver.packing import Packer
from iswitch.driver.receiver import Receiver
from iswitch.driver.transfer import Transfer
from iswitch.driver.transport import Transport
from iswitch.driver.window import SendWindow
from iswitch.wire import FLAGS_SHIFT, HEADER, ContributionFlag
from iswitch.wire.formats import FORMATS

__all__ = ["SIGNS_OF_LIFE", "LossRecovery"]

SIGNS_OF_LIFE = 5
"""Least number of messages in the time after which the switch evicts a silent member."""

_RETRANSMISSION = int(ContributionFlag.RETRANSMISSION) << FLAGS_SHIFT  # arithmetic on enumerations is slow


class LossRecovery(Receiver):
    """Sends and receives for one member. One thread calls it at a time.

    Parameters
    ----------
    transport : Transport
        Carries frames and provides the clock.

    Attributes
    ----------
    transfers : sequence of Transfer
        What this member contributes now, in the order of the positions.
    expiry : float
        The time of the next time-out. The user sets the first one.
    acknowledged : int
        The switch has recorded that this member holds every result below this position.
    retransmissions : int
        Contributions that this member retransmitted.
    """

    transfers: Sequence[Transfer]
    expiry: float

    def __init__(self, transport: Transport):
        super().__init__(transport)
        self.retransmissions = 0

    def begin(self, membership: Membership, *, reach: int, cap_s: float, window: SendWindow) -> None:
        super().begin(membership, reach=reach, cap_s=cap_s, window=window)
        widths = {4, FORMATS[membership.format].element.itemsize}  # a state's elements have 4 bytes in each job
        self._packers = {width * membership.elements: self._new_packer(membership, width) for width in widths}
        self.packer = self._packers[4 * membership.elements]
        self.transfers = []
        self.acknowledged = 0

    def _new_packer(self, membership: Membership, element_bytes: int) -> Packer:
        segment_bytes = HEADER.itemsize + element_bytes * membership.elements
        return Packer(membership, self.transport.burst_segments(segment_bytes), element_bytes)

    @property
    @abstractmethod
    def requestable_end(self) -> int:
        """One above the highest position whose result this member may request."""

    @property
    @abstractmethod
    def last_held(self) -> bool:
        """True if no result above those that are held is expected now."""

    # After something new, and after nothing new

    def proceed(self, now: float) -> None:
        """Send what is due because something new has come: further contributions, requests, receipts."""
        self.note_progress(now)
        self.send_new(now)
        lost = self.ledger.lost(self._overtaken(), now, self.timer)
        if len(lost):
            self.request(lost, now)
        self.acknowledge()
        self.expiry = now + self.timeout_s

    def note_progress(self, now: float) -> None:
        """Record for the time-outs that something new has come."""
        self._measure_delay(now)
        self.timer.end_backoff()

    def expire(self, now: float) -> None:
        """Send requests after a time-out without anything new.

        Before the first result of a transfer, that is the lowest segment alone: most likely another worker computes.
        """
        transfer, wanted = self.transfer_at(self.low), np.array([self.low])
        if transfer is None or transfer.first_result_at is not None:
            wanted = self.ledger.probes(self._overtaken(), self.requestable_end, now, self.timer)
        self.request(wanted, now)
        self.timer.back_off()
        self.expiry = now + self.timeout_s

    def _overtaken(self) -> np.ndarray:
        return self.ledger.overtaken(self.requestable_end, last_held=self.last_held)

    @property
    def timeout_s(self) -> float:
        """Seconds from now, after something new or a time-out, to the next time-out."""
        transfer = self.transfer_at(self.low)
        return self.timer.first_timeout_s if transfer and transfer.first_result_at is None else self.timer.timeout_s

    def _measure_delay(self, now: float) -> None:
        """Measure the delay of new results. The time to a transfer's first result is not the network's alone."""
        timed = self.ledger.timed
        transfer = self.transfer_at(self.ledger.high - 1 if timed is None else timed)
        if transfer and transfer.first_result_at is None:
            transfer.first_result_at = now
            self.timer.add_first_delay(now - transfer.first_sent_at)
        elif timed is not None:
            begun_at = transfer.first_result_at if transfer else None
            self.timer.add_delay(now - max(self.ledger.requested_at(timed), begun_at or 0.0))
        self.ledger.timed = None

    # Sending

    def send_new(self, now: float) -> None:
        """Send all that the window allows of the transfers, in the order of their positions."""
        ledger = self.ledger
        for transfer in self.transfers:
            first = max(transfer.next, ledger.low)
            end = min(transfer.end, ledger.low + self.window.size)
            if first < end:
                transfer.first_sent_at = transfer.first_sent_at or now
                transfer.next = end
                self._contribute(
                    transfer, slice(first, end) if first >= ledger.high else ledger.lacked(first, end), now
                )

    def request(self, positions: np.ndarray, now: float) -> None:
        """Request results that are lacked: positions, int64, ascending."""
        for transfer in self.transfers:
            own = (transfer.begin <= positions) & (positions < transfer.end)
            again = positions[own & (positions < transfer.next)]
            if len(again):
                self.retransmissions += len(again)
                self._contribute(transfer, again, now, _RETRANSMISSION)
            positions = positions[~own]
        positions = positions[positions <= self.low + self.membership.window]
        if len(positions):
            self.ledger.record_requests(positions, now)
            self.send_receipts(positions, want=True)

    def _contribute(self, transfer: Transfer, positions: slice | np.ndarray, now: float, flags: int = 0) -> None:
        """Send a transfer's contributions to some positions."""
        low, begin = self.low, transfer.begin
        for payloads, format_flags in zip(transfer.parts, transfer.format_flags):
            packer = self._packers[payloads.segment_bytes]
            packer.begin_collective(transfer.collective, transfer.digest)
            end, base = begin + payloads.size, self.seq_at(begin)
            if isinstance(positions, slice):
                bursts = packer.contributions(
                    payloads,
                    max(positions.start, begin) - begin,
                    min(positions.stop, end) - begin,
                    base=base,
                    low=low - begin,
                    format_flags=format_flags | flags,
                )
            else:
                chosen = positions[(begin <= positions) & (positions < end)] - begin
                bursts = packer.scattered(
                    payloads, chosen, base=base, low=low - begin, format_flags=format_flags | flags
                )
            for burst in bursts:
                self.transport.send(burst, packer.segment_bytes)
            begin = end
        self.ledger.record_requests(positions, now)
        if isinstance(positions, slice) or len(positions):
            self.acknowledged = low

    # Receipts

    def acknowledge(self) -> None:
        """Send a receipt if one is due."""
        if self.receipt_due:
            self.send_receipts(np.array([self.low]), want=False)

    @property
    def receipt_due(self) -> bool:
        """True if many results are held since the last message, and other members may wait for a receipt."""
        return self.low - self.acknowledged >= max(1, self.membership.window // 4)

    def send_receipts(self, positions: np.ndarray, *, want: bool) -> None:
        """Send receipts, all of which acknowledge every result below `low`.

        Parameters
        ----------
        positions : numpy.ndarray
            int64, ascending: from `low` to `low` plus the window.
        want : bool
            Request the results of these positions, unless there is no room for the lowest one.
        """
        low = self.low
        burst = self.packer.receipts(positions, base=self.seq_at(0), low=low, want=want and low < self.limit)
        self.transport.send(burst, HEADER.itemsize)
        self.acknowledged = low

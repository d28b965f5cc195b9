"""One member's end of a job's ring of slots, in synchronous jobs. Section 3 of `docs/protocol.md`.

`loss_recovery.py` sends, receives and retransmits. The ring says what: one collective at a time is one transfer, whose
results replace the caller's array. If the job's threshold is below its world and this member lags, results of later
collectives come. The ring stores up to `backlog` segments of them, and acknowledges no more than it stores.
"""

from collections.abc import Callable

import numpy as np

from iswitch.caller_warning import warn_program
from iswitch.driver.collective_result import CollectiveResult, NoProgressError
from iswitch.driver.exchange import Exchange
from iswitch.driver.loss_recovery import LossRecovery
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError
from iswitch.driver.packing import Payloads
from iswitch.driver.patience import Patience
from iswitch.driver.progress import STATELESS, Progress
from iswitch.driver.received_sum import ReceivedSum
from iswitch.driver.result_frames import Results
from iswitch.driver.transfer import Transfer
from iswitch.driver.transport import Transport
from iswitch.driver.window import SendWindow
from iswitch.errors import HaltedWarning, MismatchError
from iswitch.native.records import ExchangeEvent
from iswitch.wire import FLAGS_SHIFT, Collective, CollectiveKind, ContributionFlag, Format, result_identity
from iswitch.wire.formats import FORMATS

__all__ = ["Ring"]

_REQUIRES_ALL = int(ContributionFlag.REQUIRES_ALL) << FLAGS_SHIFT  # arithmetic on enumerations is slow


class Ring(LossRecovery):
    """Sends and receives for one member: `reduce` runs one collective, `serve` works between two.

    One thread calls the ring at a time. After MembershipRejectedError, CollectiveConflictError, NoProgressError,
    MismatchError or an interrupt, the ring is desynchronised until `restart`.

    Parameters
    ----------
    transport : Transport
        Carries frames and provides the clock.
    membership : Membership
        The granted membership.
    backlog : int
        Segments of later collectives to store.
    exchange : Exchange, optional
        Runs the usual case of a collective.
    in_flight : int, optional
        The most segments in flight, if the switch's window is larger.
    """

    def __init__(
        self,
        transport: Transport,
        membership: Membership,
        *,
        backlog: int,
        exchange: Exchange | None = None,
        in_flight: int | None = None,
    ):
        super().__init__(transport)
        self.backlog, self._exchange, self._in_flight = backlog, exchange, in_flight
        self.segments = 0
        """Segments of all completed collectives."""
        self.progress = Progress()
        """What this member has applied. It stays the same when the ring restarts."""
        self.collective: Collective
        """The present collective, or the last one."""
        self.restart(membership)

    def restart(self, membership: Membership) -> None:
        """Drop all state, and begin at the membership's epoch and first seq."""
        self._patience = Patience(membership, membership.threshold)
        cap_s, window = (
            self._patience.longest_timeout_s,
            SendWindow(min(membership.window, self._in_flight or membership.window)),
        )
        self.begin(membership, reach=4 * membership.window, cap_s=cap_s, window=window)  # twice the job's slots
        if self._exchange:
            self._exchange.join(membership, self.ledger, self._buffer, self.packer.most)
        self._base = 0  # position of the first segment of the present collective, or of the next one
        self._later: list[Results] = []  # of later collectives
        self._transfer: Transfer | None = None
        self._received: ReceivedSum | None = None
        self._restart_idle_timer()

    def set_threshold(self, threshold: int) -> None:
        """Set the job's threshold. Below the world, or with a deadline, other members go on without this one."""
        self._patience = Patience(self.membership, threshold)
        self.timer.cap_s = self._patience.longest_timeout_s
        self._restart_idle_timer()

    def _expect_partial(self) -> None:
        """Record that other members go on without some member: a threshold was lowered, or a slot forced."""
        if not self._patience.partial:
            self._patience.partial = True
            self.timer.cap_s = self._patience.longest_timeout_s
            self._restart_idle_timer()

    @property
    def lacked(self) -> tuple[int, int]:
        """The index of the lowest segment that is lacked, and the bytes of this worker's contribution to it."""
        index = self.low - self._base
        if self._transfer is None:
            return index, 0
        (payloads,) = self._transfer.parts
        return index, payloads.segment_bytes if index < payloads.full else payloads.last_bytes

    # A collective

    def reduce(
        self,
        values: np.ndarray,
        format: Format,
        timeout_s: float,
        *,
        kind: CollectiveKind = CollectiveKind.ALLREDUCE,
        argument: int = 0,
        all_members: bool = False,
        inquire: Callable[[], None] | None = None,
        inquire_s: float = 1.0,
        confirm: Callable[[MembershipRejectedError], None] | None = None,
    ) -> CollectiveResult:
        """Sum an array over the job, in place.

        Parameters
        ----------
        values : numpy.ndarray
            1-D, C-contiguous, elements as they are on the wire. The bytes are a multiple of 4.
        format : Format
            Number format of the sum.
        timeout_s : float
            Seconds without any result before NoProgressError. A halted job does not count.
        kind : CollectiveKind
            What the members call. The switch adds only contributions of one kind and one position.
        argument : int
            A number on which all members must agree, such as the root of a broadcast.
        all_members : bool
            Wait for all members, whatever the job's threshold and deadline are.
        inquire : callable, optional
            Called each time that no result has come for `inquire_s`. The function may call `handle_burst` with what
            comes meanwhile, and raises what it finds.
        inquire_s : float
            Seconds.
        confirm : callable, optional
            Called with a MembershipRejectedError. The function may call `handle_burst`; it returns if the rejection is
            void, and raises otherwise.

        Returns
        -------
        CollectiveResult
            The headers of the results, and their combined flags.

        Raises
        ------
        MembershipRejectedError
            If the switch rejects this member and `confirm` is None.
        CollectiveConflictError
            If another member calls another collective, or has applied other results.
        MismatchError
            If a result does not fit the array, or belongs to another collective.
        NoProgressError
            If no result has come for `timeout_s`.
        """
        payloads = Payloads(values, self.membership.elements, FORMATS[format].element.itemsize)
        self.collective, digest = self.progress.collective(kind, payloads.size), self.progress.digest(kind, argument)
        transfer = Transfer((payloads,))
        transfer.place(self._base, (int(format) | all_members * _REQUIRES_ALL,), self.collective, digest)
        self._timeout_s = timeout_s
        identity = result_identity(self.collective.word, digest)
        received = self._open(transfer, ReceivedSum(payloads, int(format), identity))
        ledger, retransmissions = self.ledger, self.retransmissions
        now = transfer.first_sent_at = self.transport.now()
        self.activity.mark(now)
        self.send_new(now)
        self.expiry, deadline, inquiry = now + self.timer.first_timeout_s, now + timeout_s, now + inquire_s
        while ledger.low < transfer.end:
            low = ledger.low
            try:
                new_results, now = self._receive_results(transfer, min(self.expiry, deadline))
            except MembershipRejectedError as rejection:
                if confirm is None:
                    raise
                confirm(rejection)
                new_results, now = ledger.low - low, self.transport.now()
            self.activity.mark(now)
            if new_results and ledger.low >= transfer.end:
                self.note_progress(now)  # nothing is left to send or to request
            elif new_results:
                self.proceed(now)
                deadline, inquiry = now + timeout_s, now + inquire_s
            elif self.halted:
                self.halted = False
                deadline = now + timeout_s
                self.expiry = now + min(self.timeout_s, timeout_s / 4)
                warn_program(
                    "the job is halted: this collective waits until a worker of the job calls `resume`", HaltedWarning
                )
            elif now >= deadline:
                raise NoProgressError(ledger.count_held(transfer.begin, transfer.end), transfer.segments)
            elif now >= self.expiry:
                self.expire(now)
                if inquire and now >= inquiry:
                    inquire()
                    now = self.transport.now()
                    inquiry = now + inquire_s
                    self.send_new(now)
                    self.expiry = now + self.timeout_s
        if received.is_foreign:
            raise MismatchError(
                "a result belongs to another collective than this worker's: the workers are at different steps, or "
                "have applied different results. On all workers, call `rejoin`, then `sync_state`, and go on from the "
                "step that it returns"
            )
        if kind not in STATELESS:
            self.progress.extend(received.checks)
        self._close(transfer)
        return CollectiveResult(
            received.headers, self.retransmissions - retransmissions, received.flagged, received.admitted
        )

    @property
    def _runs_exchange(self) -> bool:
        """True if the usual case runs in C. Where other members go on without some member, no case is usual."""
        return self._exchange is not None and self._exchange.is_usable and not self._patience.partial

    def _receive_results(self, transfer: Transfer, until: float) -> tuple[int, float]:
        """Receive results of a collective, until a time in seconds. Return how many are new, and when the last of them
        came, or the time now."""
        if self._exchange is not None and self._runs_exchange:
            return self._run_exchange(self._exchange, until)
        if self._exchange is not None:
            super().send_new(self.transport.now())  # the exchange left this to itself, and is no longer usable
        new_results = self.receive(until - self.transport.now())
        while (
            new_results
            and transfer.next < transfer.end
            and transfer.next - self.ledger.low > self.window.size * 3 // 4
            and self.receive(0.0)
        ):
            pass  # the window allows few segments: send them together with those of further results
        return new_results, self.transport.now()

    def send_new(self, now: float) -> None:
        """Send all that the window allows. The exchange does that first of all."""
        if not self._runs_exchange:
            super().send_new(now)

    def _run_exchange(self, exchange: Exchange, until: float) -> tuple[int, float]:
        event, results = exchange.run(until, timer=self.timer, longest_s=self._timeout_s, window=self.window.size)
        self.window.record_results(results, retransmitted=0, resent=0)
        if event == ExchangeEvent.TIMEOUT and results:
            return results, exchange.last_result_at
        if event == ExchangeEvent.RESULTS:
            datagrams, size, datagram_bytes = exchange.unhandled
            results += self.handle_burst(datagrams, size, datagram_bytes) if size else 0
        elif event == ExchangeEvent.SEND:
            super().send_new(self.transport.now())
        elif event == ExchangeEvent.FRAME:
            results += self.receive(0.0)
        return results, self.transport.now()

    def _open(self, transfer: Transfer, received: ReceivedSum) -> ReceivedSum:
        """Begin a collective, and take the results that have come for it already."""
        self._transfer, self._received, self.transfers = transfer, received, [transfer]
        if self._exchange:
            self._exchange.begin(transfer, received)
        if self._later:
            stored, self._later = self._later, []
            for results in stored:
                self.store(results)
        return received

    def _close(self, transfer: Transfer) -> None:
        """End the collective. The array belongs to the caller again."""
        self._base = transfer.end
        self.segments += transfer.segments
        self.window.end_collective()
        self._transfer, self._received, self.transfers = None, None, []
        if self._exchange:
            self._exchange.end()
        self._restart_idle_timer()
        if self._patience.partial:
            self.send_receipts(np.array([self.low]), want=False)
        self.activity.forget(before=transfer.first_sent_at)

    # What the engine asks

    @property
    def limit(self) -> int:
        return (self._transfer.end if self._transfer else self._base) + self.backlog

    @property
    def requestable_end(self) -> int:
        (transfer,) = self.transfers  # asked in a collective only
        return transfer.next

    @property
    def last_held(self) -> bool:
        return self.ledger.high >= self.requestable_end

    @property
    def receipt_due(self) -> bool:
        return self._patience.partial and super().receipt_due

    def transfer_at(self, position: int) -> Transfer | None:
        return self._transfer

    def store(self, results: Results) -> None:
        end = self._transfer.end if self._transfer else self._base
        if results.last >= end:
            self._expect_partial()
            self._later.append(results.since(end).copy())
            results = results.below(end)
        if len(results.records) and self._received is not None:
            self._received.store(results, self._base)
            if self._received.partial:
                self._expect_partial()

    def handle_other(self, header: np.void) -> None:
        try:
            super().handle_other(header)
        except CollectiveConflictError as conflict:  # void if it is late: the segment's result has come
            position = self.frames.position_of(conflict.seq)
            if self._transfer and self.low <= position < self._transfer.end and self.ledger.lacks(position):
                raise

    # Between collectives

    def _restart_idle_timer(self) -> None:
        self._idle_s = self._patience.first_idle_s
        self._idle_until = self.transport.now() + self._idle_s

    def serve(self) -> float:
        """Between collectives: receive what has come, and acknowledge it.

        A receipt can be lost, and a job with a threshold below its world would then stop. So the ring repeats receipts
        at growing intervals, with a request for the results that it lacks. If all members must contribute, the next
        contribution carries all information of a receipt.

        Returns
        -------
        float
            Seconds to the next call, at the latest.

        Raises
        ------
        MembershipRejectedError
            If the switch rejects this member.
        """
        self.activity.mark(self.transport.now())
        if self.receive_waiting():
            self._restart_idle_timer()
        self.acknowledge()
        now = self.transport.now()
        if now >= self._idle_until:
            top = min(max(self.ledger.high, self.low + 1), self.low + self.window.most + 1)
            self.send_receipts(self.ledger.lacked(self.low, top), want=True)
            self._idle_s = min(2 * self._idle_s, self._patience.longest_timeout_s)
            self._idle_until = now + self._idle_s
        return max(0.0, self._idle_until - now)

    def discard(self) -> float:
        """Between collectives of a desynchronised ring: discard received frames and send a periodic keepalive.

        A received frame triggers no keepalive, because that frame may be the switch's notice about the last keepalive.

        Returns
        -------
        float
            Seconds to the next call, at the latest.
        """
        while self.transport.receive(self._view, 0.0)[0]:
            pass
        now = self.transport.now()
        self.activity.mark(now)
        if now >= self._idle_until:
            self.send_receipts(np.array([self.low]), want=False)
            self._idle_until = now + self._patience.sign_of_life_s
        return max(0.0, self._idle_until - now)

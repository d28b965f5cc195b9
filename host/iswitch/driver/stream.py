"""One member's end of an asynchronous job. `docs/protocol.md`, "Asynchronous jobs".

`loss_recovery.py` sends, receives and retransmits. The stream says what: each vector to which an update was granted is
a transfer, and update u has the positions from u * M on, with M segments in an update. `claims.py` brings the program's
vectors into updates, `received_update.py` puts the results of an update together. The stream has no thread: its owner
calls `serve` when a frame has come or the time that `serve` has returned is over.
"""

import math

import numpy as np

from iswitch.driver.claims import PIPELINE_DEPTH, Claims, Vector
from iswitch.driver.loss_recovery import SIGNS_OF_LIFE, LossRecovery
from iswitch.driver.membership import Membership
from iswitch.driver.notices import CollectiveConflictError, MembershipRejectedError
from iswitch.driver.received_update import ReceivedUpdate
from iswitch.driver.result_frames import Results
from iswitch.driver.transport import Transport
from iswitch.driver.update_layout import UpdateLayout
from iswitch.driver.whole_section import WholeSection
from iswitch.driver.window import SendWindow
from iswitch.errors import IswitchError, MismatchError
from iswitch.wire import Type, version_type

__all__ = ["PIPELINE_DEPTH", "Stream"]

_GRANT, _REFUSE = version_type(Type.GRANT), version_type(Type.REFUSE)
_LONGEST_TIMEOUT_S = 0.05
"""Other members go on without this one, and a slot can be blocked until its receipt, so time-outs stay short."""


class Stream(LossRecovery):
    """Sends and receives for one member of an asynchronous job.

    One thread calls the stream at a time.

    Parameters
    ----------
    transport : Transport
        Carries frames and provides the clock.
    membership : Membership
        The granted membership.
    layout : UpdateLayout
        How an update is cut into segments.
    backlog : int
        Updates to store for a program that does not take them, above the job's staleness. The stream neither stores nor
        acknowledges further results, so that the other members wait for this one when the ring is full.
    in_flight : int, optional
        The most segments whose results the socket has room for. Default: the job's window.

    Raises
    ------
    ValueError
        If `backlog` is not above the staleness.
    """

    _request_next: bool
    """The burst has a result whose successor may come only if it is requested."""

    def __init__(
        self,
        transport: Transport,
        membership: Membership,
        layout: UpdateLayout,
        *,
        backlog: int,
        in_flight: int | None = None,
    ):
        if backlog <= membership.staleness:  # or this member might not store an update that was granted to it
            raise ValueError(f"backlog must be above the staleness, {membership.staleness}, not {backlog!r}")
        super().__init__(transport)
        self.layout, self.backlog = layout, backlog
        self.segments = layout.segments
        """Segments of an update."""
        sign_of_life_s = membership.evict_us / 1e6 / SIGNS_OF_LIFE
        longest_s = min(_LONGEST_TIMEOUT_S, sign_of_life_s) if sign_of_life_s else _LONGEST_TIMEOUT_S
        window = SendWindow(min(membership.window, in_flight or membership.window), narrows=False)
        self.begin(membership, reach=2 * membership.window, cap_s=longest_s, window=window)  # slots for two windows

        self._updates: dict[int, ReceivedUpdate] = {}
        """By number: updates that are not complete, or that the program has not taken."""
        self.updates_taken = 0
        """Updates that the program has taken. It alone says which update is next, so that an exception of a signal
        handler comes before or after the taking of an update."""
        self.section = WholeSection((IswitchError, MembershipRejectedError, OSError, ValueError))
        """Surrounds what an exception of a signal handler would leave half done."""
        self.expiry = transport.now()  # other members may have begun before: request the first result at once
        self.progress = 0
        """Bursts and answers with something new in them."""
        self._handled_progress = 0
        self.bursts_received = 0
        """Bursts of any content."""
        self.claims = Claims(
            transport, membership, self.timer, segments=layout.segments, longest_wait_s=longest_s, seq_of=self.seq_of
        )
        self.transfers = self.claims.granted

    @property
    def updates_complete(self) -> int:
        """Updates that are complete here. The weights of a vector cannot contain more."""
        return self.low // self.segments

    @property
    def updates_ready(self) -> int:
        """Complete updates that the program has not taken."""
        return self.updates_complete - self.updates_taken

    @property
    def awaits_newer_weights(self) -> bool:
        """True if the switch has refused a vector whose weights have all updates that are complete here. The switch
        would refuse another vector with these weights too."""
        return self.updates_complete <= self.claims.refused_version

    @property
    def is_ready(self) -> bool:
        """True if the pipeline has room for a vector whose claim the switch may grant."""
        return self.claims.pending < PIPELINE_DEPTH and not self.awaits_newer_weights

    def seq_of(self, update: int) -> int:
        """Return the seq with which an update begins."""
        return self.seq_at(update * self.segments)

    def update_of(self, seq: int) -> int:
        """Return the update that begins with a seq."""
        return self.frames.position_of(seq) // self.segments

    # The program's side

    def submit(self, vector: Vector) -> None:
        """Claim an update for a vector when the vector is first in the queue.

        Raises
        ------
        ValueError
            If the pipeline is full, or if updates in the vector's weights are not complete here.
        """
        if vector.version > self.updates_complete:
            raise ValueError(
                f"a vector's version must be at most {self.updates_complete}, the updates that are complete, not "
                f"{vector.version!r}"
            )
        with self.section:
            self.claims.submit(vector)

    def next_update(self) -> ReceivedUpdate | None:
        """Return the next update if it is complete, otherwise None. It stays the next one until `updates_taken`
        rises."""
        self._updates.pop(self.updates_taken - 1, None)
        return self._updates[self.updates_taken] if self.updates_ready else None

    def take_update(self) -> ReceivedUpdate | None:
        """Take the next update if it is complete, otherwise return None."""
        received = self.next_update()
        if received is not None:
            self.updates_taken += 1
        return received

    # The network's side

    def serve(self, wait_s: float = 0.0) -> float:
        """Receive what has come, and send what is due.

        Parameters
        ----------
        wait_s : float
            Seconds to wait for a frame.

        Returns
        -------
        float
            Seconds to the next call, at the latest.

        Raises
        ------
        MembershipRejectedError
            If the switch has no record of this member, or the job is in another epoch.
        MismatchError
            If the members' vectors differ in size or number format.
        """
        self.activity.mark(self.transport.now())
        self.receive_waiting(wait_s)
        now = self.transport.now()
        if self.frames.dropped_from <= self.low < self.limit:  # there is room again for results that were dropped
            self.frames.dropped_from = math.inf
            self.request(np.array([self.low]), now)
        if self.progress > self._handled_progress:
            self._handled_progress = self.progress
            self.proceed(now)
        elif now >= self.expiry:
            self.expire(now)
        with self.section:
            self.claims.send(now)
        return min(self.expiry, self.claims.due_at) - now

    def handle_burst(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> int:
        low = self.low
        with self.section:
            self.bursts_received += 1
            self._request_next = False
            new_results = super().handle_burst(buffer, size, segment_bytes)
            self.progress += new_results > 0
            for vector in self.claims.complete(self.updates_complete):
                self.activity.forget(before=vector.first_sent_at)
        if self._request_next and self.low > low:
            self.request(np.array([self.low]), self.transport.now())
        return new_results

    # What the engine asks

    @property
    def limit(self) -> int:
        return (self.updates_taken + self.backlog) * self.segments

    @property
    def requestable_end(self) -> int:
        top = max([self.ledger.high, *(vector.next for vector in self.transfers)])
        return min(top, self.low + self.window.size + 1)

    @property
    def last_held(self) -> bool:
        return self.ledger.high % self.segments == 0

    @property
    def timeout_s(self) -> float:
        """As in `LossRecovery`. No delay is known before this member has contributed, but results that later ones have
        overtaken were lost, or sent before this member was admitted."""
        if self.timer.delay_s is None and self.ledger.high > self.low:
            return self.timer.reordering_s
        return super().timeout_s

    @property
    def receipt_due(self) -> bool:
        return super().receipt_due or self.low // self.segments > self.acknowledged // self.segments

    def transfer_at(self, position: int) -> Vector | None:
        return self.claims.granted_to(position // self.segments)

    def store(self, results: Results) -> None:
        for update in range(results.first // self.segments, results.last // self.segments + 1):
            base = update * self.segments
            if update not in self._updates:
                self._updates[update] = ReceivedUpdate(self.layout, self.membership.format)
            self._updates[update].store(results.between(base, base + self.segments), base)
        # The members of an abandoned update have left: it ends only because others request its results. And where one
        # result was lost, or sent before this member was admitted, so may be the next.
        abandoned = not results.members.all()
        newest = results.last >= self.ledger.high and self.transfer_at(results.last + 1) is None
        self._request_next |= abandoned or (newest and results.is_resent)

    def handle_other(self, header: np.void) -> None:
        m, kind = self.membership, int(header["version_type"])
        try:
            super().handle_other(header)
        except CollectiveConflictError as conflict:
            raise MismatchError(
                f"the workers of job {m.job} contribute to different updates: {conflict.theirs.segments} segments "
                f"(modulo 16) at another worker, {self.segments} at this one. Start all workers with the same `size`"
            ) from None
        if (header["job"], header["epoch"]) != (m.job, m.epoch):
            return
        if kind == _GRANT and header["token"] != m.job_token:
            self.frames.forged += 1
        elif kind == _GRANT and int(header["members"]) >> m.member & 1:
            self.progress += self.claims.handle_grant(self.frames.position_of(int(header["seq"])))
        elif kind == _REFUSE and header["token"] == m.token:
            self.progress += self.claims.handle_refusal(int(header["seq"]))

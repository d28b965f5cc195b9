"""One ordered request: its contents, progress and outcome."""

import math

from iswitch.replay.messages import Status
from iswitch.wire.replay import SAMPLES_PER_FRAGMENT, Kind, ReplayOutcome

__all__ = ["FIRST_WAIT_S", "Request"]

FIRST_WAIT_S = 0.0002
"""Seconds until a request that has to wait is first retransmitted."""


class Request:
    """An ordered request of a session.

    Parameters
    ----------
    kind : Kind
        Kind of the request; one of `iswitch.wire.replay.ORDERED`.
    table : int
        The table it is about.
    count : int
        Items, samples or units of the request.
    body : bytes
        Rows behind the header.
    ticket : int
        0, or the ticket of the table that the request waits for.
    deadline : float
        Time in seconds at which the request is cancelled if it still has to wait.
    can_yield : bool
        If the request has to wait, let the requests behind it pass.

    Attributes
    ----------
    outcome : ReplayOutcome or None
        None until the request is settled. Then DONE, RANGE, MEMORY or CORRUPT if the switch executed it, else the
        reason for which it was cancelled.
    status : Status or None
        The status of its latest answer.
    fragments : dict of int to bytes
        Rows of the answer, by fragment. Only a SAMPLE has more than fragment 0.
    reported : bool
        True once the cancellation was reported to the caller.
    """

    __slots__ = (
        "ahead_answers",
        "awaits_answer",
        "blocking",
        "body",
        "can_yield",
        "cancelling",
        "count",
        "deadline",
        "due_at",
        "first_order",
        "fragments",
        "kind",
        "last_order",
        "missing_fragments",
        "outcome",
        "presumed_lost",
        "reported",
        "sent_at",
        "seq",
        "status",
        "table",
        "ticket",
        "transmissions",
        "wait_reason",
        "wait_s",
        "yielding",
    )

    def __init__(
        self,
        kind: Kind,
        *,
        table: int = 0,
        count: int = 0,
        body: bytes = b"",
        ticket: int = 0,
        deadline: float = math.inf,
        can_yield: bool = False,
    ):
        self.kind, self.table, self.count, self.body, self.ticket = kind, table, count, body, ticket
        self.deadline, self.can_yield = deadline, can_yield
        self.outcome: ReplayOutcome | None = None
        self.status: Status | None = None
        self.reported = False
        self.reset()

    def reset(self) -> None:
        """Return to the state before the first transmission."""
        fragments = -(-self.count // SAMPLES_PER_FRAGMENT) if self.kind == Kind.SAMPLE else 1
        self.missing_fragments = (1 << fragments) - 1  # a bit for each
        self.fragments: dict[int, bytes] = {}
        self.seq = -1
        self.transmissions = 0
        self.first_order = self.last_order = 0  # its first and last place among all transmissions of the channel
        self.sent_at, self.due_at = -math.inf, -math.inf
        self.ahead_answers = 0  # times that it was answered AHEAD
        self.presumed_lost = False  # it is retransmitted before its time-out
        self.awaits_answer = False
        self.blocking = False  # nothing behind it is sent
        self.wait_reason: ReplayOutcome | None = None
        self.wait_s = FIRST_WAIT_S
        self.cancelling = False  # a SKIP is sent in its place
        self.yielding = False  # after the SKIP it goes to the end of the queue

    @property
    def settled(self) -> bool:
        """True if the request was executed or cancelled."""
        return self.outcome is not None

    @property
    def rows(self) -> bytes:
        """Rows of the complete answer."""
        return b"".join(part for _, part in sorted(self.fragments.items()))

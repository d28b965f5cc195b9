"""The vectors of one member of an asynchronous job, from the program to an update. `docs/protocol.md`, "Asynchronous
jobs".

A vector first waits, then the member claims an update for it, then the switch grants the claim or refuses it. A granted
vector is done when all results of its update have come. The member claims for one vector at a time.
"""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.driver.packing import Payloads
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transfer import Transfer
from iswitch.driver.transport import Transport
from iswitch.wire import HEADER, Collective, CollectiveKind, Format, Type, version_type

__all__ = ["PIPELINE_DEPTH", "Claims", "Vector"]

PIPELINE_DEPTH = 2
"""Vectors between the program and their updates: one in flight, another that waits or is claimed meanwhile."""


class Vector(Transfer):
    """A copy of a program's vector, and its trailer.

    Parameters
    ----------
    values : numpy.ndarray
        The vector: 1-D, four bytes an element.
    trailer : numpy.ndarray
        `TRAILER_ENTRY`, (world,): this worker's entry; zeros for the others.
    version : int
        Updates in the weights that the vector was computed with, counted from this member's first.
    elements : int
        Elements in a segment.
    """

    def __init__(self, values: np.ndarray, trailer: np.ndarray, version: int, elements: int):
        super().__init__((Payloads(values, elements), Payloads(trailer, elements)))
        self.version = version
        self.update = -1
        """The update that was granted to the vector, or -1."""


class Claims:
    """Claims updates for a member's vectors, one at a time.

    Parameters
    ----------
    transport : Transport
        Carries the claims.
    membership : Membership
        The granted membership.
    timer : RetransmissionTimer
        Gives the time to the first repetition of a claim.
    segments : int
        Segments of an update.
    longest_wait_s : float
        Longest time between two transmissions of a claim, which the switch may answer late: after claims of others.
    seq_of : callable
        Returns the seq with which the update of a number begins.
    """

    _wait_s: float
    """Time from the last transmission of the claim to the next one."""

    def __init__(
        self,
        transport: Transport,
        membership: Membership,
        timer: RetransmissionTimer,
        *,
        segments: int,
        longest_wait_s: float,
        seq_of: Callable[[int], int],
    ):
        self.transport, self.membership, self.timer = transport, membership, timer
        self.segments, self._longest_wait_s, self._seq_of = segments, longest_wait_s, seq_of
        self._waiting: Vector | None = None
        self._claimed: Vector | None = None
        self.granted: list[Vector] = []
        """Vectors whose update is not complete here, in the order of their updates."""
        self._number = 0  # of the last claim
        self._last_granted = -1  # the highest update that was granted to this member
        self.due_at = math.inf
        """The time at which to call `send` again."""
        self.refused = 0
        """Vectors that were dropped, because their weights were too old."""
        self.refused_version = -1
        """Updates in the weights of the last vector that the switch refused, or -1."""
        self.ages: Counter[int] = Counter()
        """By age, the number of granted vectors. An age is the number of updates between a vector's weights and its own
        update."""

    @property
    def pending(self) -> int:
        """Vectors whose update is not complete here."""
        return (self._waiting is not None) + (self._claimed is not None) + len(self.granted)

    def granted_to(self, update: int) -> Vector | None:
        """Return this member's vector in an update, or None if there is no such vector, or the update is complete."""
        return next((vector for vector in self.granted if vector.update == update), None)

    def submit(self, vector: Vector) -> None:
        """Take over a vector.

        Raises
        ------
        ValueError
            If the pipeline is full.
        """
        if self.pending >= PIPELINE_DEPTH:
            raise ValueError(f"the vectors in the pipeline must be below {PIPELINE_DEPTH}, not {self.pending}")
        if vector.version <= self.refused_version:
            self.refused += 1
            return
        now = self.transport.now()
        self.send(now)  # a vector that waits since the one before it was refused goes first
        self._waiting = vector
        self.send(now)

    def send(self, now: float) -> None:
        """Send the claim for the next vector, if it is due. A claim or its answer may be lost, so the claim is
        repeated."""
        if self._claimed is None:
            self._claimed, self._waiting = self._waiting, None
            if self._claimed is None:
                self.due_at = math.inf
                return
            self._number = (self._number + 1) % 2**32
            self._wait_s = self.timer.base_s
        elif now < self.due_at:
            return
        else:
            self._wait_s = min(2 * self._wait_s, self._longest_wait_s)
        self.due_at = now + self._wait_s
        m, claim = self.membership, np.zeros(1, HEADER)
        for name, value in (
            ("version_type", version_type(Type.CLAIM)),
            ("job", m.job),
            ("epoch", m.epoch),
            ("seq", self._number),
            ("member", m.member),
            ("members", self._seq_of(self._claimed.version)),
            ("token", m.token),
        ):
            claim[name] = value
        self.transport.send(claim.tobytes(), HEADER.itemsize)

    def handle_grant(self, base: int) -> bool:
        """Handle a GRANT to this member, of the update that begins at a position. Return True if it is new.

        A delayed GRANT of an earlier claim is of an update no later than the last one granted to this member.
        """
        update, rest = divmod(base, self.segments)
        if self._claimed is None or rest or update <= self._last_granted:
            return False
        vector, self._claimed = self._claimed, None
        vector.update = self._last_granted = update
        formats = int(self.membership.format), int(Format.INT32)  # of the vector, and of its trailer
        collective = Collective(self._seq_of(update), CollectiveKind.UPDATE, self.segments)
        vector.place(base, formats, collective, digest=0)
        self.ages[update - vector.version] += 1
        self.granted.append(vector)
        return True

    def handle_refusal(self, number: int) -> bool:
        """Handle a REFUSE of this member's claim of a number. Return True if it is new.

        The member drops the vector, and also a waiting one that was computed with the same or older weights.
        """
        if self._claimed is None or number != self._number:
            return False
        self.refused_version, self._claimed = self._claimed.version, None
        self.refused += 1
        if self._waiting and self._waiting.version <= self.refused_version:
            self._waiting = None
            self.refused += 1
        return True

    def complete(self, updates: int) -> list[Vector]:
        """Record that all results of the updates below a number have come. Return the vectors in them."""
        complete = [vector for vector in self.granted if vector.update < updates]
        del self.granted[: len(complete)]
        return complete

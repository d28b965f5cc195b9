"""One member's end of an asynchronous job: claims, the window, retransmission, receipts. `docs/protocol.md`,
"Asynchronous jobs".

No threads and no waiting for anybody but the transport, which also tells the time: whoever has the stream calls `serve`
when something has come or the time it asked for is over. Segments are spoken of by *position*, counted from the seq
with which this member began: update u is the positions from u M on. A vector is *waiting*, then *claimed*, then
*granted*, and done when all results of its update are here; one is claimed at a time, and two are on their way at most.

What a member lacks it asks for in one of two ways. Of an update granted to it, it sends its contribution again, which a
complete slot answers with its result; of another one it sends a receipt with `want`. So claims and segments are one
class: whether an update was granted decides how each of its segments is asked for.
"""

import math
from collections import Counter, deque
from typing import Any

import numpy as np

from iswitch.driver.membership import Membership
from iswitch.driver.notices import MembershipRejectedError
from iswitch.driver.packing import Packer, Payloads
from iswitch.driver.timer import RetransmissionTimer
from iswitch.driver.transport import RECEIVE_BYTES, Transport
from iswitch.driver.update_layout import UpdateLayout
from iswitch.errors import MismatchError
from iswitch.wire import (
    FLAGS_SHIFT,
    HEADER,
    TAIL_BYTES,
    ContributionFlag,
    Format,
    Reason,
    ResultFlag,
    Type,
    version_type,
)
from iswitch.wire.formats import FORMATS

__all__ = ["DEPTH", "Arrival", "Stream", "Vector"]

DEPTH = 2
"""Vectors on their way: one in flight, one that waits or is claimed meanwhile."""
_RETRANSMISSION = int(ContributionFlag.RETRANSMISSION) << FLAGS_SHIFT  # arithmetic on enumerations is slow
_RESENT = int(ResultFlag.RESENT) << FLAGS_SHIFT
_KINDS = {version_type(kind): kind for kind in (Type.GRANT, Type.REFUSE, Type.NOTICE)}
_GAP = 3
"""A segment is taken for lost when so many later ones are here."""
_CAP_S = 0.05
"""The others go on without this member, and a slot can be held for its receipt: so nobody waits longer to try again."""
_SIGNS_OF_LIFE = 5
"""At least so many messages go out in the time after which a silent member is evicted."""
_TRAINS = 64
"""At most so many are taken before something is sent."""


class Vector:
    """A copy of a program's vector, and its trailer. version: so many updates were in its weights, counted from this
    member's first."""

    def __init__(self, values: np.ndarray, trailer: np.ndarray, version: int, elements: int):
        self.version = version
        self.parts = Payloads(values, elements), Payloads(trailer, elements)
        self.update = self.next = -1  # granted to it; the first position that was never sent
        self.sent_at = 0.0  # its first segment, for the first time
        self.first_at: float | None = None  # when the update's first result came


class Arrival:
    """Results of one update, in place. headers: (segments,) `HEADER`; sum, trailer: zeros where nothing has come or
    nobody contributed."""

    def __init__(self, layout: UpdateLayout, kind: np.dtype[Any]):
        self.headers = np.zeros(layout.segments, HEADER)
        self.sum, self.trailer = np.zeros(layout.size, kind), layout.empty_trailer()
        self.parts = Payloads(self.sum, layout.elements), Payloads(self.trailer.view(np.uint8), layout.elements)


class Stream:
    """Sends and receives for one member; see the module.

    backlog: so many whole updates are kept for a program that does not take them, above the job's staleness. What comes
    beyond them is neither kept nor acknowledged, which in the end holds the other members at the ring. Not safe for
    threads: one call at a time. Raises MembershipRejectedError if the switch does not know this member, MismatchError if the members'
    vectors differ.
    """

    def __init__(self, transport: Transport, membership: Membership, layout: UpdateLayout, *, backlog: int):
        if backlog <= membership.staleness:  # or an update granted to this member could be one that it does not keep
            raise ValueError(f"backlog must be above the staleness, {membership.staleness}, not {backlog!r}")
        self.transport, self.membership, self.layout, self.backlog = transport, membership, layout, backlog
        self.packer = Packer(membership, transport.train_segments(HEADER.itemsize + 4 * membership.elements))
        self._buffer = np.empty(RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self._word = version_type(Type.RESULT) | membership.job << 8 | membership.epoch << 16
        self._formats = int(membership.format), int(Format.INT32)
        self._kind = FORMATS[membership.format].element

        self.low = 0  # the first position lacked
        self._high = 0  # one above the highest held
        self._told = 0  # the switch knows that everything below is held
        # Of positions from `low` on, modulo their number. A switch has results of two windows.
        self._reach = 2 * membership.window
        self._lack = np.ones(2 * self._reach, np.bool_)
        self._asked_at = np.full(
            2 * self._reach, -math.inf
        )  # sent, or asked for with a receipt; or first found lacking
        self._asked = np.zeros(2 * self._reach, np.int64)  # how often
        self._seen_at = -math.inf  # the latest time of asking that has a result

        self._arrivals: dict[int, Arrival] = {}
        self.ready: deque[Arrival] = deque()
        """Complete updates that were not taken, in order."""
        self.taken = 0
        """Updates that the program has taken."""
        self._overflowed = False

        self._k = 0
        self._waiting: Vector | None = None
        self._claimed: Vector | None = None
        self._granted: list[Vector] = []
        self._last_granted = -1  # the highest update that was granted to this member
        self._newer_than = -1  # weights that were refused
        self.refused = 0
        """Vectors that were too old."""
        self.ages: Counter[int] = Counter()
        """How many updates were granted between the weights of a granted vector and its own, and how often."""
        self.retransmissions = 0
        """Contributions sent more than once."""
        self.news = 0
        """Trains and answers with something new in them."""
        self.trains = 0
        """Trains with anything in them."""
        self._handled = 0
        self.halted = False
        """The switch has said so since this was last looked at."""

        signs_s = membership.evict_us / 1e6 / _SIGNS_OF_LIFE
        self._cap_s = min(_CAP_S, signs_s) if signs_s else _CAP_S
        self.timer = RetransmissionTimer(cap_s=self._cap_s)
        self._claim_at, self._claim_wait_s = math.inf, 0.0
        self._expiry = transport.now() + self.timer.timeout_s

    @property
    def queued(self) -> int:
        """Vectors on their way."""
        return (self._waiting is not None) + (self._claimed is not None) + len(self._granted)

    @property
    def segments(self) -> int:
        """Segments in an update."""
        return self.layout.segments

    @property
    def complete(self) -> int:
        """Updates that are complete here. No vector may be claimed to have been computed with more."""
        return self.low // self.segments

    @property
    def low_seq(self) -> int:
        """The lowest seq whose result is lacked."""
        return self._seq(self.low)

    @property
    def _limit(self) -> int:
        """Positions from here on are not kept."""
        return (self.taken + self.backlog) * self.segments

    def _seq(self, position: int) -> int:
        return (self.membership.first_seq + position) % 2**32

    def _position(self, seq: int) -> int:
        return self.low + (seq - self._seq(self.low) + 2**31) % 2**32 - 2**31

    def seq_of(self, update: int) -> int:
        """The seq with which an update begins."""
        return self._seq(update * self.segments)

    def update_of(self, seq: int) -> int:
        """The update that begins with a seq."""
        return self._position(seq) // self.segments

    # The program's side

    def offer(self, vector: Vector) -> None:
        """Claims an update for the vector when its turn comes. ValueError if `DEPTH` are on their way, or if its
        weights are not complete here."""
        if vector.version > self.complete:
            raise ValueError(
                f"a vector's version must be at most {self.complete}, the updates that are complete, not {vector.version!r}"
            )
        if self.queued >= DEPTH:
            raise ValueError(f"vectors on their way must be below {DEPTH}, not {self.queued}")
        if vector.version <= self._newer_than:
            self.refused += 1
            return
        now = self.transport.now()
        self._claim(now)  # one that waits since the one before it was refused goes first
        self._waiting = vector
        self._claim(now)

    def take(self) -> Arrival | None:
        """The next update, if it is complete."""
        if not self.ready:
            return None
        self.taken += 1
        if self._overflowed:  # there is room again: ask at once
            self._overflowed, self._expiry = False, self.transport.now()
        return self.ready.popleft()

    # The network's side

    def serve(self, patience_s: float = 0.0) -> float:
        """Waits up to `patience_s` for something to come, takes what has, and sends what is due. Returns after how many
        seconds to call again at the latest."""
        for _ in range(_TRAINS):
            size, segment_bytes = self.transport.receive(self._view, patience_s)
            if not size:
                break
            patience_s = 0.0
            self.handle_train(self._buffer, size, segment_bytes)
        now = self.transport.now()
        if self.news > self._handled:
            self._handled = self.news
            self.timer.end_backoff()
            self._send_new(now)
            self._send_gaps(now)
            self._acknowledge()
            self._expiry = now + self._timeout_s
        elif now >= self._expiry:
            self._expire(now)
            self._expiry = now + self._timeout_s
        self._claim(now)
        return max(0.0, min(self._expiry, self._claim_at) - now)

    def handle_train(self, buffer: np.ndarray | memoryview, size: int, segment_bytes: int) -> None:
        """Takes a train of `size` bytes in `buffer`."""
        self.trains += 1
        count, rest = divmod(size, segment_bytes)
        self._take(np.ndarray((count, segment_bytes), np.uint8, buffer))
        if rest:
            self._take(np.ndarray((1, rest), np.uint8, buffer, size - rest))

    def _take(self, records: np.ndarray) -> None:
        """UDP payloads of one size, u8 (datagrams, bytes)."""
        count, size = records.shape
        if size < HEADER.itemsize:
            return
        headers = np.ndarray(count, HEADER, records, 0, (size,))
        ours = np.ndarray(count, "<u4", records, 0, (size,)) == self._word
        if not ours.all():
            for header in headers[~ours]:
                self._heed(header)
            headers, records = headers[ours], records[ours]
        ahead = (headers["seq"] - np.uint32(self._seq(self.low))).view(np.int32).astype(np.int64)
        new = (ahead >= 0) & (ahead < self._reach)
        new[new] = self._lack[(ahead[new] + self.low) % len(self._lack)]
        positions = ahead + self.low
        self._overflowed |= bool((positions[new] >= self._limit).any())
        new &= positions < self._limit
        if not new.any():
            return
        headers, records, positions = headers[new], records[new], positions[new]
        updates = positions // self.segments
        for update in np.unique(updates).tolist():
            which = updates == update
            self._put(
                update,
                positions[which] - update * self.segments,
                headers[which],
                records[which, HEADER.itemsize : -TAIL_BYTES],
            )
        at = positions % len(self._lack)
        self._lack[at] = False
        self.news += 1
        resent = headers["format_flags"] & _RESENT > 0
        if resent.any():
            self.timer.record_loss()
        answered = at[resent & (self._asked[at] == 1)]
        highest = int(positions.max())
        if highest >= self._high:
            self._high = highest + 1
            self._clock(self.transport.now())
        elif len(answered):  # a stored result, which was asked for once
            self._seen_at = max(self._seen_at, asked_at := float(self._asked_at[answered[-1]]))
            self.timer.add_delay(self.transport.now() - asked_at)
        self._advance(abandoned=size == HEADER.itemsize + 4 + TAIL_BYTES and not headers["count"].all())

    def _put(self, update: int, segments: np.ndarray, headers: np.ndarray, bodies: np.ndarray) -> None:
        """New results of one update into place; nobody's are zeros, and may be shorter than they should."""
        if update not in self._arrivals:
            self._arrivals[update] = Arrival(self.layout, self._kind)
        arrival = self._arrivals[update]
        arrival.headers[segments] = headers
        somebody = headers["count"] > 0
        for payloads, format, first, end in zip(
            arrival.parts, self._formats, (0, self.layout.vector_segments), (self.layout.vector_segments, self.segments)
        ):
            which = somebody & (first <= segments) & (segments < end)
            if not which.any():
                continue
            rows, size = segments[which] - first, bodies.shape[1]
            if (headers["format_flags"][which] & 15 != format).any():
                size = -1
            if size == payloads.rows.shape[1] and (rows < len(payloads.rows)).all():
                payloads.rows[rows] = bodies[which]
            elif size == payloads.last.size and (rows == len(payloads.rows)).all():
                payloads.last[:] = bodies[which][0]
            else:
                raise MismatchError(
                    "a result differs in size or number format from this worker's vectors: all workers of a job must push vectors "
                    "of the same length and format"
                )

    def _advance(self, *, abandoned: bool) -> None:
        """`low` to the first position lacked. abandoned: an update ends by whoever asks for its results, so ask for the
        next at once."""
        span = np.arange(self.low, self._high + 1) % len(self._lack)
        held = int(self._lack[span].argmax())
        self._lack[span[:held]], self._asked[span[:held]], self._asked_at[span[:held]] = True, 0, -math.inf
        self.low += held
        for update in range(self.taken + len(self.ready), self.low // self.segments):
            self.ready.append(self._arrivals.pop(update))
            self._granted = [vector for vector in self._granted if vector.update != update]
        if held and abandoned and self.low < self._limit:
            self._ask(np.array([self.low]), self.transport.now())

    def _clock(self, now: float) -> None:
        """Measure how long the highest position held took, if it was sent once. Time before an update's first result is
        not the network's alone."""
        newest = self._high - 1
        vector, at = self._contributed(newest // self.segments), newest % len(self._lack)
        if vector is None:
            return
        if vector.first_at is None:
            vector.first_at = now
            self.timer.add_first_delay(now - vector.sent_at)
        elif self._asked[at] == 1:
            self._seen_at = max(self._seen_at, sent_at := float(self._asked_at[at]))
            self.timer.add_delay(now - max(sent_at, vector.first_at))

    def _heed(self, header: np.void) -> None:
        """What is no result of this epoch."""
        m, kind = self.membership, _KINDS.get(int(header["version_type"]))
        if kind is None or header["job"] != m.job:
            return
        if kind == Type.NOTICE and header["token"] == m.token:
            reason = int(header["count"])
            self.halted |= reason == Reason.HALTED
            if Reason.JOB <= reason <= Reason.TOKEN and (reason != Reason.EPOCH or header["epoch"] != m.epoch):
                raise MembershipRejectedError(Reason(reason))
        elif self._claimed is None or header["epoch"] != m.epoch:
            return
        elif kind == Type.GRANT and int(header["members"]) >> m.member & 1:
            self._be_granted(self._claimed, self._position(int(header["seq"])))
        elif kind == Type.REFUSE and (header["seq"], header["token"]) == (self._k, m.token):
            self._be_refused(self._claimed)

    def _be_granted(self, vector: Vector, base: int) -> None:
        """An old GRANT, of a claim before this one, is of an update no later than the last that was granted to this
        member."""
        update, odd = divmod(base, self.segments)
        if odd or update <= self._last_granted:
            return
        vector.update, vector.next, self._last_granted = update, base, update
        self.ages[update - vector.version] += 1
        self._granted.append(vector)
        self._claimed = None
        self.timer.end_backoff()
        self.news += 1

    def _be_refused(self, vector: Vector) -> None:
        """It is dropped, and so is what was computed ahead with weights no newer."""
        self._newer_than, self._claimed = vector.version, None
        self.refused += 1
        if self._waiting and self._waiting.version <= self._newer_than:
            self._waiting = None
            self.refused += 1
        self.news += 1

    # Sending

    def _contributed(self, update: int) -> Vector | None:
        """The vector that is this member's part of an update."""
        return next((vector for vector in self._granted if vector.update == update), None)

    def _claim(self, now: float) -> None:
        """Claims for the vector whose turn it is; again and again, for the answer may be lost, and may wait for claims
        of others."""
        if self._claimed is None:
            self._claimed, self._waiting = self._waiting, None
            if self._claimed is None:
                self._claim_at = math.inf
                return
            self._k = (self._k + 1) % 2**32
            self._claim_wait_s = self.timer.base_s
        elif now < self._claim_at:
            return
        else:
            self._claim_wait_s = min(2 * self._claim_wait_s, self._cap_s)
        self._claim_at = now + self._claim_wait_s
        m, claim = self.membership, np.zeros(1, HEADER)
        for name, value in (
            ("version_type", version_type(Type.CLAIM)),
            ("job", m.job),
            ("epoch", m.epoch),
            ("seq", self._k),
            ("member", m.member),
            ("members", self.seq_of(self._claimed.version)),
            ("token", m.token),
        ):
            claim[name] = value
        self.transport.send(claim.tobytes(), HEADER.itemsize)

    def _send_new(self, now: float) -> None:
        """Whatever the window allows, of the updates granted to this member in their order."""
        for vector in self._granted:
            first = max(vector.next, self.low)
            last = min((vector.update + 1) * self.segments, self.low + self.membership.window)
            if first < last:
                vector.sent_at = vector.sent_at or now
                vector.next = last
                positions = np.arange(first, last)
                self._contribute(vector, positions[self._lack[positions % len(self._lack)]], now, 0)

    def _contribute(self, vector: Vector, positions: np.ndarray, now: float, flags: int) -> None:
        base = vector.update * self.segments
        segments = positions - base
        split = int(np.searchsorted(segments, self.layout.vector_segments))
        for payloads, format, first, chosen in zip(
            vector.parts, self._formats, (0, self.layout.vector_segments), (segments[:split], segments[split:])
        ):
            for train in self.packer.scattered(
                payloads,
                chosen - first,
                base=self._seq(base + first),
                low=self.low - base - first,
                format_flags=format | flags,
            ):
                self.transport.send(train, self.packer.segment_bytes)
        self._asked[positions % len(self._lack)] += 1
        self._asked_at[positions % len(self._lack)] = now
        if len(positions):
            self._told = self.low

    def _ask(self, positions: np.ndarray, now: float) -> None:
        """For results that are lacked: i8, ascending."""
        updates = positions // self.segments
        for update in np.unique(updates).tolist():
            chosen = positions[updates == update]
            if vector := self._contributed(update):
                chosen = chosen[chosen < vector.next]
                self.retransmissions += len(chosen)
                self._contribute(vector, chosen, now, _RETRANSMISSION)
            elif len(chosen := chosen[chosen <= self.low + self.membership.window]):
                self._asked[chosen % len(self._lack)] += 1
                self._asked_at[chosen % len(self._lack)] = now
                self._send_receipts(chosen, want=self.low < self._limit)

    @property
    def _timeout_s(self) -> float:
        """From now, after something new or a time-out, to the next time-out."""
        vector = self._contributed(self.low // self.segments)
        return self.timer.first_timeout_s if vector and vector.first_at is None else self.timer.timeout_s

    def _overtaken(self) -> np.ndarray:
        """Return the positions that are lacked although `_GAP` later results are here, or one if that was an update's
        last (RFC 5827)."""
        gap = 1 if self._high % self.segments == 0 else _GAP
        span = np.arange(self.low, self._high)
        lacked = self._lack[span % len(self._lack)]
        held = np.flatnonzero(~lacked)
        return span[: held[-gap]][lacked[: held[-gap]]] if len(held) >= gap else span[:0]

    def _send_gaps(self, now: float) -> None:
        """Ask for overtaken positions after about a round trip, and then once in a time-out."""
        lost = self._overtaken()
        at = lost % len(self._lack)
        self._asked_at[at[self._asked_at[at] < 0]] = now  # of an update of others, and perhaps only overtaken
        before = np.where(
            self._asked[at] > 1, min(now - self.timer.base_s, self._seen_at), now - self.timer.reordering_s
        )
        if len(lost := lost[self._asked_at[at] <= before]):
            self._ask(lost, now)

    def _expire(self, now: float) -> None:
        """Ask again after a time-out without anything new: for the lowest position lacked, which is also the sign of
        life, for all that were overtaken, and for the highest, whose result shows what is lost below (RFC 8985, section
        7)."""
        top = max([self._high, self.low + 1, *(vector.next for vector in self._granted)])
        span = np.arange(self.low, min(top, self.low + self.membership.window + 1))
        wanted = np.concatenate([self._overtaken(), span[self._lack[span % len(self._lack)]][-1:]])
        overdue = wanted[self._asked_at[wanted % len(self._lack)] <= now - self.timer.base_s]
        self._ask(np.unique([self.low, *overdue.tolist()]), now)
        self.timer.back_off()

    def _acknowledge(self) -> None:
        """A receipt when an update is complete, or if the switch does not know of many results that are held."""
        told, quarter = self._told, max(1, self.membership.window // 4)
        if self.low - told >= quarter or self.low // self.segments > told // self.segments:
            self._send_receipts(np.array([self.low]), want=False)

    def _send_receipts(self, positions: np.ndarray, *, want: bool) -> None:
        self.transport.send(
            self.packer.receipts(positions, base=self._seq(0), low=self.low, want=want), HEADER.itemsize
        )
        self._told = self.low

"""A client of the switch's replay service: what actors and learners call."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from iswitch.replay.channel import Request
from iswitch.replay.priorities import Normalize, Scale
from iswitch.replay.records import Field, Layout
from iswitch.replay.sampling import Batch, Sampling, Wish
from iswitch.replay.session import Session
from iswitch.replay.writer import Added, LogWriter, Writer, turns_from
from iswitch.replay_wire import BODY_BYTES, LIMITS, UPDATE_ROW, Fate, Kind
from iswitch.transport import Transport, UdpTransport

__all__ = ["ReplayClient", "Updated"]

_UPDATES = BODY_BYTES // UPDATE_ROW.itemsize  # in a request
_SEED_BITS = 128


class Updated:
    """Priorities that were sent. Unpacks to (done, stale), as soon as they are known. turn: the table's behind them, if they were given one."""

    def __init__(self, session: Session, requests: list[Request], turn: int):
        self._session, self._requests, self.turn = session, requests, turn

    def _sum(self, name: str) -> int:
        self._session.served(self._requests)
        return sum(getattr(request.status, name) for request in self._requests)

    @property
    def done(self) -> int:
        """Items that have the new priority. Waits; NotServed."""
        return self._sum("done")

    @property
    def stale(self) -> int:
        """Items that were gone. Waits; NotServed."""
        return self._sum("stale")

    def __iter__(self) -> Iterator[int]:
        return iter((self.done, self.stale))


class ReplayClient:
    """A session with the replay service: adds transitions, draws batches, sets priorities.

    address: of the switch, "host:port", or "host" for its usual port; or a Transport, which the client then closes.
    spec: the fields of a transition by name; the same for all clients of a table. table: which of the switch's tables.
    scale: what the integer 1 of the switch stands for is 1 / scale: a power of two, the same for all clients of a table; None: so that priorities
    up to 256 fit. timeout_s: how long the switch may be silent. wait_s: how long a request may wait for its turn, for items, for the limit's ratio.

    Nothing is done in the background: what is on its way goes on whenever the client is called, and `poll` does nothing else. A client that is
    silent for more than 10 s may lose its place if all are taken and another client wants one. It is for one thread.

    Raises SwitchUnreachable, NoReplayService, NoPlace; ValueError and TypeError for wrong arguments.
    """

    def __init__(self, address: str | Transport, spec: Mapping[str, Field], *, table: int = 0, scale: float | None = None, timeout_s: float = 10.0,
                 wait_s: float = 60.0):
        for name, seconds in (("timeout_s", timeout_s), ("wait_s", wait_s)):
            if not seconds > 0:
                raise ValueError(f"{name} must be above 0, not {seconds!r}")
        transport = UdpTransport(address) if isinstance(address, str) else address
        try:
            where = address if isinstance(address, str) else "the switch"
            self._session = Session(transport, address=where, table=table, timeout_s=timeout_s, wait_s=wait_s)
            self.config = self._session.config
            self._layout, self._scale = Layout(spec, self.config.record_bytes), Scale(self.config.priority_bits, scale)
            self._begin()
        except BaseException:
            transport.close()
            raise

    def _begin(self) -> None:
        self._log = LogWriter(self._session)
        self._writer = Writer(self._session, self._layout, self._log)
        self._closed = False

    # Facts

    @property
    def spec(self) -> dict[str, Field]:
        """The fields of a transition."""
        return dict(self._layout.spec)

    @property
    def scale(self) -> float:
        """Integers of the switch in a priority of 1."""
        return self._scale.scale

    @property
    def session(self) -> int:
        """The index of the place at the switch."""
        return self._session.index

    # Adding

    def add(self, *, priority: float, turn: int = 0, **transition: Any) -> Added:
        """One transition. It is sent at once if nothing is on its way; else it may wait for others until an answer comes or a datagram is full,
        and goes with the next call at the latest that finds it so: `flush` after the last one."""
        count, arrays = self._layout.columns(Writer.one(transition))
        return self._add(arrays, np.array([priority], np.float64), turn)

    def extend(self, data: Mapping[str, npt.ArrayLike], priorities: npt.ArrayLike, *, turn: int = 0) -> Added:
        """Many transitions: arrays with a leading axis of n, priorities (n,). With a turn every datagram takes one, from this one on: n transitions
        take `turns(n)`, and the result's `turn` is the next. MemoryExhausted if the log is full of what is still in the table."""
        count, arrays = self._layout.columns(data)
        real = np.asarray(priorities, np.float64)
        if real.shape != (count,):
            raise ValueError(f"priorities must be as many as the transitions, ({count},), not {real.shape}")
        return self._add(arrays, real, turn)

    def _add(self, arrays: Mapping[str, np.ndarray], priorities: np.ndarray, turn: int) -> Added:
        added = self._writer.add(arrays, self._scale.fixed(priorities), _turn(turn))
        self.poll()
        return added

    def turns(self, transitions: int) -> int:
        """How many turns an `extend` of so many transitions takes: one for each datagram."""
        return -(-transitions // self._writer.per_add)

    def flush(self) -> None:
        """Sends what waits, and returns when all that was sent is acknowledged. NotServed if adds had to be taken back."""
        self._writer.seal()
        self._session.wait(lambda: not any(request.kind != Kind.SAMPLE for request in self._session.channel.requests()))
        self._writer.settle()
        self._tell()

    def poll(self) -> None:
        """Takes what has come, and sends what is due."""
        self._session.pump()
        if not self._session.channel.pending:
            self._writer.seal()
            self._session.pump()
        self._writer.settle()

    def _tell(self) -> None:
        """Raises NotServed for adds that were taken back, once."""
        refused, self._writer.refused = self._writer.refused, []
        if refused:
            raise self._session.not_served(refused[0])

    # Drawing

    def sample(self, count: int, *, beta: float = 0.4, stratified: bool = True, seed: int | None = None, turn: int = 0, items: int = 0,
               normalize: Normalize = "batch") -> Batch:
        """Draws, each item as often as its priority says. stratified: one draw from each of `count` equal parts of the total. seed: below 2^128,
        None: by chance. turn: 0, or the table's turn to wait for. items: waits until so many were ever added. normalize: weights are over
        the greatest of the batch, or of the table, whose least priority is known to an eighth. NotServed."""
        wish = Wish(count, beta, stratified, normalize, items)
        wish.check(self.config.draws)
        self._writer.seal()
        sampling = Sampling(self._session, self._layout, self._scale, wish, self._seed(seed), turn=_turn(turn))
        self._session.wait(sampling.advance)
        return sampling.batch

    def _seed(self, seed: int | None) -> int:
        if seed is None:
            return self._session.transport.randbits(_SEED_BITS)
        if not 0 <= seed < 2**_SEED_BITS:
            raise ValueError(f"seed must be 0 to 2^{_SEED_BITS} - 1, not {seed!r}")
        return int(seed)

    # Priorities and limits

    def update_priority(self, items: npt.ArrayLike, priorities: npt.ArrayLike, *, turn: int = 0) -> Updated:
        """Gives items, by their handles, new priorities; of two for one item the last counts. An item that is gone is counted as stale. Unpacks to
        (done, stale), which waits for the answer; to wait for nothing, leave it alone. With a turn every 177 items take one."""
        handles = np.asarray(items)
        if handles.size and handles.dtype.kind not in "iu":
            raise TypeError(f"items must be integers, the handles of a batch, not {handles.dtype}")
        fixed = self._scale.fixed(priorities)
        if handles.shape != fixed.shape or handles.ndim != 1:
            raise ValueError(f"items and priorities must be as many, and in one row, not {handles.shape} and {fixed.shape}")
        self._writer.seal()
        rows = np.zeros(len(handles), UPDATE_ROW)
        rows["item"], rows["priority"] = handles, fixed
        parts = [rows[at:at + _UPDATES] for at in range(0, len(rows), _UPDATES)]
        turns = turns_from(_turn(turn), len(parts) + 1)
        requests = [self._session.put(Request(Kind.UPDATE, count=len(part), body=part.tobytes(), turn=own)) for part, own in zip(parts, turns)]
        self._session.pump()
        return Updated(self._session, requests, turns[-1])

    def limit(self, *, size: int = 1, ratio: float = 0.0, behind: int | None = None, ahead: int | None = None, times: int = 0,
              turn: int = 0) -> int:
        """For all clients of the table, from now on: draws wait until `size` items are there. ratio: draws for each item that is added, 0: as they
        like; draws may be `ahead`... of it by `behind` draws, adds by `ahead`. times: an item drawn so often gets priority 0, 0: never. Returns
        the table's turn behind it."""
        if not 0 <= ratio < 65536:
            raise ValueError(f"ratio must be 0 to 65536 draws for an item, not {ratio!r}")
        fixed = round(ratio * 65536)
        if ratio and not fixed:
            raise ValueError(f"ratio must be 0, or at least 1/65536 of a draw for an item, not {ratio!r}")
        margin = 2 * max(self.config.draws, int(np.ceil(ratio * self._writer.per_add)))
        behind, ahead = margin if behind is None else behind, margin if ahead is None else ahead
        values = {"size": size, "ratio": fixed, "behind": behind, "ahead": ahead, "times": times}
        for name, value in values.items():
            if not 0 <= value < 2**32:
                raise ValueError(f"{name} must be 0 to {2**32 - 1}, not {value!r}")
        if size > self.config.capacity:
            raise ValueError(f"size must be at most the table's capacity, {self.config.capacity}, or nothing is ever drawn, not {size!r}")
        if ratio and behind + ahead < ratio * self._writer.per_add + 1:
            raise ValueError(f"behind + ahead must be at least {int(np.ceil(ratio * self._writer.per_add + 1))}, one datagram of "
                             f"{self._writer.per_add} items and a draw, or adds and draws could wait for each other, not {behind + ahead}")
        body = np.zeros(1, LIMITS)
        for name, value in values.items():
            body[name] = value
        self._writer.seal()
        request = self._session.put(Request(Kind.LIMIT, body=body.tobytes(), turn=_turn(turn)))
        self._session.served([request])
        if request.fate == Fate.RANGE:
            raise ValueError(f"times must fit the counters that the switch was built with (`times_bits`), not {times!r}")
        assert request.status is not None
        return request.status.turn

    # The end

    def reopen(self) -> None:
        """After SessionLost: takes a place anew. What was not acknowledged may or may not have been carried out, and is forgotten here. NoPlace,
        SwitchUnreachable."""
        self._session.open()
        self._begin()

    def close(self) -> None:
        """Sends what waits, gives the place up, and closes the transport. A second call does nothing."""
        self._end(flush=True)

    def _end(self, *, flush: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if flush and not self._session.lost:
                self.flush()
        finally:
            self._session.close()
            self._session.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(flush=kind is None)

    def __repr__(self) -> str:
        return f"<iswitch.replay.ReplayClient session {self._session.index}, table {self._session.table} at {self._session.address}>"


def _turn(turn: int) -> int:
    if not 0 <= turn < 2**32:
        raise ValueError(f"turn must be 0, or a table's turn below 2^32, not {turn!r}")
    return int(turn)



"""A client of the switch's replay service: what actors and learners call. All calls stand here; what they do is in the
modules beside."""

import itertools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from iswitch.driver.transport import Transport, UdpTransport
from iswitch.replay.channel import Request
from iswitch.replay.checkpoint import Snapshot, read_table
from iswitch.replay.log_writer import LogWriter
from iswitch.replay.parameters import Parameters
from iswitch.replay.prefetch import Prefetch
from iswitch.replay.priorities import Normalize, Scale, bucket_begin
from iswitch.replay.records import Field, Layout
from iswitch.replay.sampling import Batch, Sampling, Wish
from iswitch.replay.seeds import SEED_BITS
from iswitch.replay.session import Session
from iswitch.replay.statistics import Statistics
from iswitch.replay.writer import Added, Writer, tickets_from
from iswitch.wire import Register
from iswitch.wire.replay import BODY_BYTES, LIMITS, UNIT_BYTES, UPDATE_ROW, Fate, Kind

__all__ = ["ReplayClient", "Updated"]

_UPDATES = BODY_BYTES // UPDATE_ROW.itemsize  # in a request
_RESTORED = 64  # transitions at a time, whole


class Updated:
    """Priorities that were sent. Unpacks to (done, stale), as soon as they are known. ticket: the table's behind them, if
    they were given one."""

    def __init__(self, session: Session, requests: list[Request], ticket: int):
        self._session, self._requests, self.ticket = session, requests, ticket

    def _sum(self, name: str) -> int:
        self._session.served(self._requests)
        return sum(getattr(request.status, name) for request in self._requests)

    @property
    def done(self) -> int:
        """Items that have the new priority. Waits; NotServedError."""
        return self._sum("done")

    @property
    def stale(self) -> int:
        """Items that were gone. Waits; NotServedError."""
        return self._sum("stale")

    def __iter__(self) -> Iterator[int]:
        return iter((self.done, self.stale))


class ReplayClient:
    """A session with the replay service: adds transitions, draws batches, sets priorities.

    address: of the switch, "host:port", or "host" for its usual port; or a Transport, which the client then closes.
    spec: the fields of a transition by name; the same for all clients of a table. table: which of the switch's tables.
    scale: what the integer 1 of the switch stands for is 1 / scale: a power of two, the same for all clients of a
    table; None: so that priorities up to 256 fit. timeout_s: how long the switch may be silent. wait_s: how long a
    request may wait for its turn, for items, for the limit's ratio.

    Nothing is done in the background: what is on its way goes on whenever the client is called, and `poll` does nothing
    else. A client that is silent for more than 10 s may lose its place if all are taken and another client wants one.
    It is for one thread.

    Raises SwitchUnreachableError, NoReplayServiceError, NoFreeSessionError; ValueError and TypeError for wrong
    arguments.
    """

    def __init__(
        self,
        address: str | Transport,
        spec: Mapping[str, Field],
        *,
        table: int = 0,
        scale: float | None = None,
        timeout_s: float = 10.0,
        wait_s: float = 60.0,
    ):
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
        self._parameters = Parameters(self._session, self._log)
        self._prefetches: weakref.WeakSet[Prefetch] = weakref.WeakSet()
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
    def closed(self) -> bool:
        """It was closed, or is being closed."""
        return self._closed

    @property
    def session(self) -> int:
        """The index of the place at the switch."""
        return self._session.index

    # Adding

    def add(self, *, priority: float, ticket: int = 0, **transition: Any) -> Added:
        """One transition. It is sent at once if nothing is on its way; else it may wait for others until an answer
        comes or a datagram is full, and goes with the next call at the latest that finds it so: `flush` after the last
        one."""
        count, arrays = self._layout.columns(Writer.one(transition))
        return self._add(arrays, np.array([priority], np.float64), ticket)

    def extend(self, data: Mapping[str, npt.ArrayLike], priorities: npt.ArrayLike, *, ticket: int = 0) -> Added:
        """Many transitions: arrays with a leading axis of n, priorities (n,). With a ticket every datagram takes one,
        from this one on: n transitions take `tickets(n)`, and the result's `ticket` is the next. MemoryExhaustedError if
        the log is full of what is still in the table."""
        count, arrays = self._layout.columns(data)
        real = np.asarray(priorities, np.float64)
        if real.shape != (count,):
            raise ValueError(f"priorities must be as many as the transitions, ({count},), not {real.shape}")
        return self._add(arrays, real, ticket)

    def _add(self, arrays: Mapping[str, np.ndarray], priorities: np.ndarray, ticket: int) -> Added:
        added = self._writer.add(arrays, self._scale.fixed(priorities), _ticket(ticket))
        self.poll()
        return added

    def tickets(self, transitions: int) -> int:
        """How many tickets an `extend` of so many transitions takes: one for each datagram."""
        return -(-transitions // self._writer.per_add)

    def flush(self) -> None:
        """Sends what waits, and returns when all that was sent is acknowledged. NotServedError if adds had to be taken
        back."""
        self._writer.seal()
        self._session.wait(lambda: not any(request.kind != Kind.SAMPLE for request in self._session.channel.requests()))
        self._writer.settle()
        self._tell()

    def poll(self) -> None:
        """Takes what has come, and sends what is due, or a sign of life if nothing was for some seconds."""
        self._session.live()
        self._session.pump()
        if not self._session.channel.busy:
            self._writer.seal()
        for prefetch in self._prefetches:
            prefetch.advance()
        self._session.pump()
        self._writer.settle()

    def _tell(self) -> None:
        """Raises NotServedError for adds that were taken back, once."""
        refused, self._writer.refused = self._writer.refused, []
        refused = [request for request in refused if not request.told]
        for request in refused:
            request.told = True
        if refused:
            raise self._session.given_up(refused[0])

    # Drawing

    def sample(
        self,
        count: int,
        *,
        beta: float = 0.4,
        stratified: bool = True,
        seed: int | None = None,
        ticket: int = 0,
        items: int = 0,
        normalize: Normalize = "batch",
    ) -> Batch:
        """Draws, each item as often as its priority says. stratified: one draw from each of `count` equal parts of the
        total. seed: below 2^128, None: by chance. ticket: 0, or the table's ticket to wait for. items: waits until so many
        were ever added. normalize: weights are over the greatest of the batch, or of the table, whose least priority is
        known to an eighth. NotServedError."""
        wish = Wish(count, beta, stratified, normalize, items)
        wish.check(self.config.draws)
        self._writer.seal()
        sampling = Sampling(self._session, self._layout, self._scale, wish, self._seed(seed), ticket=_ticket(ticket))
        self._session.wait(sampling.advance)
        return sampling.batch

    def prefetch(
        self,
        count: int,
        *,
        depth: int = 2,
        beta: float | Callable[[], float] = 0.4,
        stratified: bool = True,
        seed: int | None = None,
        items: int = 0,
        normalize: Normalize = "batch",
    ) -> Prefetch:
        """Batches without an end, of which `depth` are always on their way; else as `sample`. beta: or a function that
        says it for each batch when it is drawn. seed: of the first batch; the next has the next. A SAMPLE that must
        wait lets this client's other requests pass."""
        first = self._seed(seed)
        numbers = itertools.count()

        def make() -> Sampling:
            wish = Wish(count, beta() if callable(beta) else beta, stratified, normalize, items)
            wish.check(self.config.draws)
            own = self._seed(None) if seed is None else (first + next(numbers)) % 2**SEED_BITS
            return Sampling(self._session, self._layout, self._scale, wish, own, yields=True)

        self._writer.seal()
        made = Prefetch(self._session, make, depth)
        self._prefetches.add(made)
        return made

    def _seed(self, seed: int | None) -> int:
        if seed is None:
            return self._session.transport.randbits(SEED_BITS)
        if not 0 <= seed < 2**SEED_BITS:
            raise ValueError(f"seed must be 0 to 2^{SEED_BITS} - 1, not {seed!r}")
        return int(seed)

    # Priorities and limits

    def update_priority(self, items: npt.ArrayLike, priorities: npt.ArrayLike, *, ticket: int = 0) -> Updated:
        """Gives items, by their handles, new priorities; of two for one item the last counts. An item that is gone is
        counted as stale. Unpacks to (done, stale), which waits for the answer; to wait for nothing, leave it alone.
        With a ticket every 177 items take one."""
        handles = np.asarray(items)
        if handles.size and handles.dtype.kind not in "iu":
            raise TypeError(f"items must be integers, the handles of a batch, not {handles.dtype}")
        fixed = self._scale.fixed(priorities)
        if handles.shape != fixed.shape or handles.ndim != 1:
            raise ValueError(
                f"items and priorities must be as many, and in one row, not {handles.shape} and {fixed.shape}"
            )
        self._writer.seal()
        rows = np.zeros(len(handles), UPDATE_ROW)
        rows["item"], rows["priority"] = handles, fixed
        parts = [rows[at : at + _UPDATES] for at in range(0, len(rows), _UPDATES)]
        tickets = tickets_from(_ticket(ticket), len(parts) + 1)
        requests = [
            self._session.put(Request(Kind.UPDATE, count=len(part), body=part.tobytes(), ticket=own))
            for part, own in zip(parts, tickets)
        ]
        self._session.pump()
        return Updated(self._session, requests, tickets[-1])

    def limit(
        self,
        *,
        size: int = 1,
        ratio: float = 0.0,
        behind: int | None = None,
        ahead: int | None = None,
        times: int = 0,
        ticket: int = 0,
    ) -> int:
        """For all clients of the table, from now on. size: draws wait until so many items are there. ratio: of draws to
        items added, 0: as they like. behind, ahead: how many draws there may be too many, and too few, before draws or
        adds wait; None: two of the largest requests. times: an item drawn so often gets priority 0, 0: never. Returns
        the table's ticket behind it. NotServedError."""
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
            raise ValueError(
                f"size must be at most the table's capacity, {self.config.capacity}, or nothing is ever drawn, not {size!r}"
            )
        if ratio and behind + ahead < ratio * self._writer.per_add + 1:
            raise ValueError(
                f"behind + ahead must be at least {int(np.ceil(ratio * self._writer.per_add + 1))}, one datagram of "
                f"{self._writer.per_add} items and a draw, or adds and draws could wait for each other, not {behind + ahead}"
            )
        body = np.zeros(1, LIMITS)
        for name, value in values.items():
            body[name] = value
        self._writer.seal()
        request = self._session.put(Request(Kind.LIMIT, body=body.tobytes(), ticket=_ticket(ticket)))
        self._session.served([request])
        if request.fate == Fate.RANGE:
            raise ValueError(
                f"times must fit the counters that the switch was built with (`times_bits`), not {times!r}"
            )
        assert request.status is not None
        return request.status.ticket

    # Parameters

    def set_parameters(
        self, version: int, data: bytes | bytearray | memoryview | np.ndarray, *, shout: bool = True
    ) -> None:
        """Publishes a network's parameters for the table, from this client's log; versions rise. shout: sends them to
        all other clients at once, whom they reach if nothing is lost on the way. MemoryExhaustedError if the log does
        not hold them."""
        if not 0 < version < 2**32:
            raise ValueError(f"version must be 1 to {2**32 - 1}, not {version!r}")
        self._writer.seal()
        plain = np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else bytes(data)
        self._parameters.set(int(version), plain, shout=shout)

    def get_parameters(self, newer_than: int = 0, timeout: float = 0.0) -> tuple[int, bytes] | None:
        """(version, bytes) of the newest parameters of the table above a version, as soon as there are any; None if
        there are none within `timeout` seconds. What was shouted need not be loaded."""
        self._writer.seal()
        return self._parameters.get(newer_than, timeout)

    # Facts and files

    def statistics(self) -> Statistics:
        """How table, switch and client are doing; what was sent and is not acknowledged may be in it or not.
        SwitchUnreachableError."""
        status, session, scale = self._session.look(), self._session, self._scale
        fates = dict(zip(Fate.__members__, session.control.registers(Register.REPLAY_FATES, len(Fate))))
        self._writer.settle()
        space = self._log.space
        return Statistics(
            filled=status.filled,
            adds=status.adds,
            draws=status.draws,
            total=status.total / scale.scale,
            lowest=float(scale.real(bucket_begin(status.lowest))),
            highest=float(scale.real(bucket_begin(status.highest))),
            ticket=status.ticket,
            version=status.version,
            fates=fates,
            items_added=self._writer.added,
            bytes_pushed=self._log.pushed + self._writer.pushed,
            frames_written=self._writer.written,
            frames_shared=self._writer.recent.found,
            log_bytes=self.config.log_bytes,
            log_used=(space.units - space.room(session.adds)) * UNIT_BYTES,
            saturated=scale.saturated,
            resent=session.channel.resent + session.inquiries.resent,
            window=int(session.inquiries.window),
            delay_s=session.channel.timer.delay_s or session.inquiries.timer.delay_s or 0.0,
        )

    def save(self, path: str | os.PathLike[str]) -> int:
        """Writes the table's items to a file, while everything goes on; items that are overwritten meanwhile are left
        out. Returns how many there are. Limits and parameters are not in it."""
        self.flush()
        snapshot = read_table(self._session, self._layout, self._scale.scale)
        snapshot.save(path)
        return len(snapshot)

    def restore(self, path: str | os.PathLike[str], *, share: tuple[int, int] = (0, 1), append: bool = False) -> int:
        """Adds the items of a file, the oldest first, with the priorities that they had; the newest, if they are more
        than the table has room for. Returns how many.

        share: (k, n), this is client k of n that restore the file together, for a log of one session may not hold what
        was in those of several. append: the table need not be empty. Others may add and draw meanwhile. ValueError,
        MemoryExhaustedError.
        """
        part, of = share
        if not 0 <= part < of:
            raise ValueError(f"share must be (k, n) with k from 0 to n - 1, not {share!r}")
        snapshot = Snapshot.load(path)
        if snapshot.layout.spec != self._layout.spec:
            raise ValueError(
                f"a checkpoint must have the fields of this client's spec, but {os.fspath(path)!r} has {snapshot.layout.spec}"
            )
        if not append and (adds := self._session.look().adds):
            raise ValueError(
                f"{adds} items were added to table {self._session.table} before: restart the switch, or restore with append=True"
            )
        chosen = np.flatnonzero(snapshot.shares(of) == part)[-self.config.capacity :]
        with self._writer.recent.widened(self.config.log_units):
            for at in range(0, len(chosen), _RESTORED):
                which = chosen[at : at + _RESTORED]
                self._writer.add(
                    snapshot.columns(which), self._scale.fixed(snapshot.priorities[which] / snapshot.scale)
                )
                self.poll()
            self.flush()
        return len(chosen)

    # The end

    def reopen(self) -> None:
        """After SessionLostError: takes a place anew. What was not acknowledged may or may not have been carried out,
        and is forgotten here: whoever waits for it gets SessionLostError, and prefetching ends. NoFreeSessionError,
        SwitchUnreachableError."""
        for prefetch in list(self._prefetches):
            prefetch.close()
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


def _ticket(ticket: int) -> int:
    if not 0 <= ticket < 2**32:
        raise ValueError(f"ticket must be 0, or a table's ticket below 2^32, not {ticket!r}")
    return int(ticket)

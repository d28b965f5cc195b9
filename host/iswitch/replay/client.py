"""The replay client: all calls of actors and learners. The modules beside it do the work."""

import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from iswitch.driver.closable import ClosableTransport
from iswitch.driver.termination import call_before_termination
from iswitch.driver.transport import Keepalive, Transport
from iswitch.driver.udp import UdpTransport
from iswitch.errors import ClosedError
from iswitch.replay.checkpoint import Checkpoint, read_table
from iswitch.replay.fifo import Fifo, Start
from iswitch.replay.limits import Limits
from iswitch.replay.log_writer import LogWriter
from iswitch.replay.parameters import Parameters
from iswitch.replay.prefetch import Prefetch
from iswitch.replay.priorities import Normalize, Scale
from iswitch.replay.rebuild import rebuild_table
from iswitch.replay.records import Field, Layout
from iswitch.replay.request import Request
from iswitch.replay.sampling import Batch, SampleOperation, SampleOptions
from iswitch.replay.seeds import SEED_BITS
from iswitch.replay.session import Session, closed_message
from iswitch.replay.statistics import Statistics, read_statistics
from iswitch.replay.tickets import check_ticket, consecutive_tickets
from iswitch.replay.update import PendingUpdate
from iswitch.replay.writer import PendingAdd, Writer
from iswitch.wire.replay import BODY_BYTES, UPDATE_ROW, Kind, ReplayOutcome

__all__ = ["ReplayClient"]

_UPDATES_PER_REQUEST = BODY_BYTES // UPDATE_ROW.itemsize
_RESTORED_AT_ONCE = 64  # transitions
_CLOSE_TIMEOUT_S = 1.0
"""The longest wait for the switch before SIGTERM ends the process."""


def _close_before_termination(session: weakref.ref[Session]) -> None:
    """Close a session before SIGTERM ends the process. This may interrupt any call of its client."""
    if opened := session():
        opened.close(timeout_s=_CLOSE_TIMEOUT_S)


class ReplayClient:
    """A client of the switch's replay service: adds transitions, samples batches, updates priorities.

    Nothing runs in the background. Requests in flight make progress whenever a method is called; `poll` does only that.
    A client that is silent for more than 10 s may lose its session if all sessions are in use and another client opens
    one. SIGTERM closes the session before it ends the process, unless the program has a handler of its own (see
    `iswitch.driver.termination`); what waits in the client is not sent. Use a client from one thread only, and in the
    process that made it: a forked child makes a client of its own.

    Parameters
    ----------
    address : str or Transport
        The switch's address, "host:port", or "host" for the switch's usual port. Or a transport, which the client
        closes.
    spec : mapping of str to Field
        The fields of a transition; the same for all clients of a table.
    table : int
        Which of the switch's tables.
    scale : float or None
        The switch's integer that stands for priority 1, a power of two; the same for all clients of a table. None:
        priorities below 256 fit.
    timeout_s : float
        Seconds without an answer of the switch until SwitchUnreachableError.
    wait_s : float
        Seconds that a request may wait for its ticket, for items or for the table's limits, until NotServedError.

    Raises
    ------
    SwitchUnreachableError
        If the switch does not answer.
    NoReplayServiceError
        If the switch has no replay service.
    NoFreeSessionError
        If all sessions of the service are in use.
    ValueError, TypeError
        If an argument is wrong.

    Notes
    -----
    Every method that sends a request raises SwitchUnreachableError if the switch does not answer for `timeout_s`,
    SessionLostError if the session is lost, and ClosedError if this process has closed the client or is a forked child
    of the one that made it.

    A program may catch KeyboardInterrupt, or the exception of an alarm, and go on. The call that was interrupted may or
    may not have had its effect, once. If the exception comes in the middle of a message, the next call raises
    SessionLostError.

    A *ticket* puts operations of several clients in a fixed order. Each table has a ticket, which begins at 1 and rises
    by one with each request that adds, samples, updates or limits. A request with a ticket waits until the table has
    the same one. With the same seeds, a complete training run is then reproducible. With ticket 0 the switch serves
    requests as they come.
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
        where = address if isinstance(address, str) else "the switch"
        inner = UdpTransport(address) if isinstance(address, str) else address
        self._transport = transport = ClosableTransport(inner, closed_message(where))
        try:
            self._session = Session(transport, address=where, table=table, timeout_s=timeout_s, wait_s=wait_s)
            self.config = self._session.config
            self._layout, self._scale = Layout(spec, self.config.record_bytes), Scale(self.config.priority_bits, scale)
            self._begin()
        except BaseException:
            transport.close()
            raise
        self._unregister = call_before_termination(partial(_close_before_termination, weakref.ref(self._session)))
        weakref.finalize(self, self._unregister)

    def _begin(self) -> None:
        self._log = LogWriter(self._session)
        self._writer = Writer(self._session, self._layout, self._log)
        self._parameters = Parameters(self._session, self._log)
        self._prefetches: weakref.WeakSet[Prefetch] = weakref.WeakSet()
        self._closed = False

    # Properties

    @property
    def spec(self) -> dict[str, Field]:
        """The fields of a transition."""
        return dict(self._layout.spec)

    @property
    def scale(self) -> float:
        """The switch's integer that stands for priority 1."""
        return self._scale.scale

    @property
    def closed(self) -> bool:
        """True if the client is closed, or is being closed."""
        return self._closed

    @property
    def session(self) -> int:
        """Index of the client's session at the switch."""
        return self._session.index

    # Adding

    def add(
        self, transition: Mapping[str, Any] | None = None, /, *, priority: float = 1.0, ticket: int = 0, **fields: Any
    ) -> PendingAdd:
        """Add one transition.

        If nothing is in flight, it is sent at once. Otherwise it may wait in the client for more transitions, until an
        answer comes or a datagram is full. Call `flush` after the last one.

        Parameters
        ----------
        transition : mapping of str to array-like or None
            The fields of the transition. A field called "priority" or "ticket" can only be in here.
        priority : float
            Its priority, finite and at least 0. If all have the same, sampling is uniform.
        ticket : int
            0, or the ticket of the table to wait for.
        **fields : array-like
            The fields that are not in `transition`.

        Returns
        -------
        PendingAdd
            Its `items` waits for the switch and returns the handle.

        Raises
        ------
        MemoryExhaustedError
            If the log is full of what is still in the table.
        ValueError, TypeError
            If fields are missing or unknown, or an argument is wrong.
        """
        given = {**(transition or {}), **fields}
        _, columns = self._layout.to_columns({name: np.asarray(value)[None] for name, value in given.items()})
        return self._add(columns, np.array([priority], np.float64), ticket)

    def extend(
        self, data: Mapping[str, npt.ArrayLike], priorities: npt.ArrayLike | None = None, *, ticket: int = 0
    ) -> PendingAdd:
        """Add n transitions.

        Parameters
        ----------
        data : mapping of str to array of shape (n, ...)
            The transitions, by field.
        priorities : array of shape (n,) or None
            Their priorities, finite and at least 0. None: 1 each. If all have the same, sampling is uniform.
        ticket : int
            0, or the ticket of the first datagram. Each further datagram takes the next ticket, `tickets(n)` in all.
            The result's `ticket` is the next free one.

        Returns
        -------
        PendingAdd
            Its `items` waits for the switch and returns the handles.

        Raises
        ------
        MemoryExhaustedError
            If the log is full of what is still in the table. Transitions before the first that did not fit were added.
        ValueError, TypeError
            If fields are missing or unknown, or an argument is wrong.
        """
        count, columns = self._layout.to_columns(data)
        real = np.ones(count) if priorities is None else np.asarray(priorities, np.float64)
        if real.shape != (count,):
            raise ValueError(f"priorities must have the shape ({count},), one for each transition, not {real.shape}")
        return self._add(columns, real, ticket)

    def _add(self, columns: Mapping[str, np.ndarray], priorities: np.ndarray, ticket: int) -> PendingAdd:
        added = self._writer.add(columns, self._scale.to_integers(priorities), check_ticket(ticket))
        self.poll()
        return added

    def tickets(self, transitions: int) -> int:
        """Return how many tickets an `extend` of `transitions` transitions takes: one for each datagram."""
        return -(-transitions // self._writer.items_per_datagram)

    def flush(self) -> None:
        """Send all transitions that wait in the client, and wait until the switch has acknowledged everything.

        Raises
        ------
        NotServedError
            If adds were cancelled since the last `flush`, because they had to wait for longer than `wait_s`.
        """
        self._writer.seal()
        self._session.wait_until(lambda: self._session.channel.only_samples)
        self._writer.process_answers()
        self._report_cancelled()

    def poll(self) -> None:
        """Handle what has come and send what is due. If nothing was sent for some seconds, send a keep-alive."""
        self._session.keep_alive()
        self._session.poll()
        if not self._session.channel.busy:
            self._writer.seal()
        for prefetch in self._prefetches:
            prefetch.advance()
        self._session.send_due()
        self._writer.process_answers()

    def start_keepalive(self) -> Keepalive:
        """Start a thread that calls `poll` while the program computes.

        From then on, call the methods of this client within `with keepalive:`, which suspends the thread. Before
        `close`, call `keepalive.stop()`.

        Returns
        -------
        Keepalive
            The thread.
        """
        return self._transport.start_keepalive(self._serve)

    def _serve(self) -> float:
        """Poll, and return the seconds until the next call is due."""
        if self._closed:
            raise ClosedError(closed_message(self._session.address))
        self.poll()
        return self._session.idle_s()

    def _report_cancelled(self) -> None:
        """Raise NotServedError for adds that were cancelled and not reported yet."""
        cancelled, self._writer.cancelled = self._writer.cancelled, []
        cancelled = [request for request in cancelled if not request.reported]
        for request in cancelled:
            request.reported = True
        if cancelled:
            raise self._session.unserved_error(cancelled[0])

    # Sampling

    def sample(
        self,
        count: int,
        *,
        beta: float = 0.4,
        stratified: bool = True,
        seed: int | None = None,
        ticket: int = 0,
        min_adds: int = 0,
        normalize: Normalize = "batch",
    ) -> Batch:
        """Sample a batch. The probability of an item is its share of the sum of all priorities.

        Parameters
        ----------
        count : int
            Items in the batch, 1 to `config.samples_per_request`.
        beta : float
            Exponent of the importance weights.
        stratified : bool
            Divide the sum of priorities into `count` equal parts, and sample one item from each.
        seed : int or None
            0 to 2^128 - 1. None: at random.
        ticket : int
            0, or the ticket of the table to wait for.
        min_adds : int
            Items that must have been added to the table, overwritten ones included, before it is sampled.
        normalize : {"batch", "table"}
            Divide weights by the largest weight of the batch, or by that of the lowest priority in the table, which is
            known to an eighth.

        Returns
        -------
        Batch
            The batch.

        Raises
        ------
        NotServedError
            If the request had to wait for longer than `wait_s`.
        CorruptTableError
            If the switch found a bit error in the table's priorities: call `rebuild`.
        ValueError
            If an argument is wrong.
        """
        options = SampleOptions(count, beta, stratified, normalize, min_adds)
        options.check(self.config.samples_per_request)
        self._writer.seal()
        operation = SampleOperation(
            self._session, self._layout, self._scale, options, self._seed(seed), ticket=check_ticket(ticket)
        )
        self._session.wait_until(operation.advance)
        return operation.batch

    def prefetch(
        self,
        count: int,
        *,
        depth: int = 2,
        beta: float | Callable[[], float] = 0.4,
        stratified: bool = True,
        seed: int | None = None,
        min_adds: int = 0,
        normalize: Normalize = "batch",
    ) -> Prefetch:
        """Return an endless iterator over batches that samples ahead. A SAMPLE that has to wait lets this client's
        other requests pass.

        Parameters
        ----------
        depth : int
            Batches in progress.
        beta : float or callable
            Exponent of the importance weights; or a function that returns it for each batch when it is sampled.
        seed : int or None
            Seed of the first batch; each further batch has the next seed. None: at random.
        count, stratified, min_adds, normalize
            As in `sample`.

        Returns
        -------
        Prefetch
            The iterator.

        Raises
        ------
        ValueError
            If an argument is wrong.
        """
        first = self._seed(seed)
        numbers = itertools.count()

        def begin() -> SampleOperation:
            options = SampleOptions(count, beta() if callable(beta) else beta, stratified, normalize, min_adds)
            options.check(self.config.samples_per_request)
            own_seed = self._seed(None) if seed is None else (first + next(numbers)) % 2**SEED_BITS
            return SampleOperation(self._session, self._layout, self._scale, options, own_seed, can_yield=True)

        self._writer.seal()
        made = Prefetch(self._session, begin, depth)
        self._prefetches.add(made)
        return made

    def fifo(self, count: int, *, start: Start = "oldest") -> Fifo:
        """Return an endless iterator over batches of items in the order in which they were added, each item once.

        It reads the table and changes nothing: every reader gets all items, and no actor waits for a reader. An item
        that a faster actor overwrites before it is read is missing, and counted in `overwritten` of batch and iterator.

        Parameters
        ----------
        count : int
            Items in a batch, 1 to `config.capacity`.
        start : {"oldest", "next"} or int
            Begin with the oldest item in the table, with the next that is added, or with a handle, such as `position`
            of an earlier iterator.

        Returns
        -------
        Fifo
            The iterator.

        Raises
        ------
        ValueError
            If an argument is wrong.
        IswitchError
            If `start` is a handle after the next item.
        """
        self._writer.seal()
        return Fifo(self._session, self._layout, count, start, send_waiting=lambda: self._writer.seal())

    def _seed(self, seed: int | None) -> int:
        if seed is None:
            return self._session.transport.randbits(SEED_BITS)
        if not 0 <= seed < 2**SEED_BITS:
            raise ValueError(f"seed must be 0 to 2^{SEED_BITS} - 1, not {seed!r}")
        return int(seed)

    # Priorities and limits

    def update_priority(self, items: npt.ArrayLike, priorities: npt.ArrayLike, *, ticket: int = 0) -> PendingUpdate:
        """Give items new priorities. This does not wait for the switch.

        Parameters
        ----------
        items : integer array of shape (n,)
            Handles of the items, from a batch. If an item is named several times, the last priority counts. An item
            that was overwritten is counted as stale.
        priorities : array of shape (n,)
            Finite and at least 0.
        ticket : int
            0, or the ticket of the first request. Each further 177 items take the next ticket.

        Returns
        -------
        PendingUpdate
            Unpacks to (updated, stale), which waits for the answer.

        Raises
        ------
        ValueError, TypeError
            If an argument is wrong.
        """
        handles = np.asarray(items)
        if handles.size and handles.dtype.kind not in "iu":
            raise TypeError(f"items must be integers, the handles of a batch, not {handles.dtype}")
        integers = self._scale.to_integers(priorities)
        if handles.shape != integers.shape or handles.ndim != 1:
            raise ValueError(
                "items and priorities must be one-dimensional and of the same length, but their shapes are "
                f"{handles.shape} and {integers.shape}"
            )
        self._writer.seal()
        rows = np.zeros(len(handles), UPDATE_ROW)
        rows["item"], rows["priority"] = handles, integers
        parts = [rows[at : at + _UPDATES_PER_REQUEST] for at in range(0, len(rows), _UPDATES_PER_REQUEST)]
        tickets = consecutive_tickets(check_ticket(ticket), len(parts) + 1)
        requests = [
            self._session.submit(Request(Kind.UPDATE, count=len(part), body=part.tobytes(), ticket=own))
            for part, own in zip(parts, tickets)
        ]
        self._session.poll()
        return PendingUpdate(self._session, requests, tickets[-1])

    def set_limits(
        self,
        *,
        min_size_to_sample: int = 1,
        samples_per_insert: float = 0.0,
        max_insert_lag: int | None = None,
        max_insert_lead: int | None = None,
        max_times_sampled: int = 0,
        ticket: int = 0,
    ) -> int:
        """Set the limits of the table, for all its clients and from now on.

        Parameters
        ----------
        min_size_to_sample : int
            Items that the table must hold before sampling starts.
        samples_per_insert : float
            Sampled items for each added item, below 65536. 0: no limit.
        max_insert_lag : int or None
            Samples by which adds may lag behind the ratio; beyond that, sampling waits. None: two of the largest
            requests.
        max_insert_lead : int or None
            Samples by which adds may lead the ratio; beyond that, adding waits. None: two of the largest requests.
        max_times_sampled : int
            Times an item may be sampled before its priority becomes 0; 0: no limit.
        ticket : int
            0, or the ticket of the table to wait for.

        Returns
        -------
        int
            The table's ticket after this operation.

        Raises
        ------
        NotServedError
            If the request had to wait for longer than `wait_s`.
        ValueError
            If an argument is wrong.
        """
        limits = Limits(min_size_to_sample, samples_per_insert, max_insert_lag, max_insert_lead, max_times_sampled)
        body = limits.encode(self.config, self._writer.items_per_datagram)
        self._writer.seal()
        request = self._session.submit(Request(Kind.LIMIT, body=body, ticket=check_ticket(ticket)))
        self._session.wait_served([request])
        if request.outcome == ReplayOutcome.RANGE:
            bits = self.config.sample_count_bits
            raise ValueError(
                f"max_times_sampled must be 0 to {2**bits - 1}, because the switch was built with "
                f"sample_count_bits={bits}, not {max_times_sampled!r}"
            )
        assert request.status is not None
        return request.status.ticket

    def rebuild(self) -> int:
        """Rebuild the sums of the table from its priorities, after a bit error in the switch's memory. All clients
        continue, but the table is not sampled meanwhile.

        Returns
        -------
        int
            Items whose priority had a bit error itself. It is 0 now, until an update.

        Raises
        ------
        CorruptTableError
            If the table is still corrupt after some attempts.
        """
        self._writer.seal()
        return rebuild_table(self._session)

    # Parameters of the network

    def set_parameters(
        self, version: int, data: bytes | bytearray | memoryview | np.ndarray, *, broadcast: bool = True
    ) -> None:
        """Publish the parameters of a network for the table.

        Parameters
        ----------
        version : int
            1 to 2^32 - 1; versions must rise.
        data : bytes-like or array
            The parameters; an array as its bytes in C order.
        broadcast : bool
            Send the parameters to all other clients at once. A client that misses a part reads it from the log.

        Raises
        ------
        MemoryExhaustedError
            If the log does not hold them.
        ValueError
            If the version is out of range.
        """
        if not 0 < version < 2**32:
            raise ValueError(f"version must be 1 to {2**32 - 1}, not {version!r}")
        self._writer.seal()
        content = np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else bytes(data)
        self._parameters.set(int(version), content, broadcast=broadcast)

    def get_parameters(self, newer_than: int = 0, timeout_s: float = 0.0) -> tuple[int, bytes] | None:
        """Return the latest parameters of the table.

        Parameters
        ----------
        newer_than : int
            Only versions above this one.
        timeout_s : float
            Seconds to wait for such a version.

        Returns
        -------
        (int, bytes) or None
            Version and data; None if there is no such version in time.
        """
        self._writer.seal()
        return self._parameters.get(newer_than, timeout_s)

    # Statistics and checkpoints

    def count_items(self) -> int:
        """Ask the switch how many items the table holds. Items that are not acknowledged may be counted or not."""
        return self._session.read_status().filled

    def statistics(self) -> Statistics:
        """Read the state of table, switch and client. Requests that are not acknowledged may be in it or not."""
        return read_statistics(self._session, self._writer, self._log, self._scale)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the items of the table to a file, while all clients continue. Items that are overwritten meanwhile are
        left out. Limits and parameters are not in the file.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        int
            Items in the file.
        """
        self.flush()
        checkpoint = read_table(self._session, self._layout, self._scale.scale)
        checkpoint.save(path)
        return len(checkpoint)

    def restore(self, path: str | os.PathLike[str], *, share: tuple[int, int] = (0, 1), append: bool = False) -> int:
        """Add the items of a file with their priorities, the oldest first. If the table has room for fewer, the newest
        are added.

        Parameters
        ----------
        path : path-like
            A file that `save` wrote.
        share : (int, int)
            (k, n): this is client k of n clients that restore the file together. The log of one session may not hold
            what was in the logs of several.
        append : bool
            The table need not be empty, and other clients may use it meanwhile.

        Returns
        -------
        int
            Items added by this client.

        Raises
        ------
        ValueError
            If the file has other fields, or the table is not empty and `append` is False.
        MemoryExhaustedError
            If the log does not hold the items.
        """
        part, clients = share
        if not 0 <= part < clients:
            raise ValueError(f"share must be (k, n) with k from 0 to n - 1, not {share!r}")
        checkpoint = Checkpoint.load(path)
        if checkpoint.layout.spec != self._layout.spec:
            raise ValueError(
                f"a checkpoint must have the fields of this client's spec, but {os.fspath(path)!r} has "
                f"{checkpoint.layout.spec}"
            )
        if not append and (adds := self._session.read_status().adds):
            raise ValueError(
                f"{adds} items were added to table {self._session.table} before: restart the switch, or restore with "
                "append=True"
            )
        chosen = np.flatnonzero(checkpoint.shares(clients) == part)[-self.config.capacity :]
        with self._writer.frame_cache.enlarged(self.config.log_units):
            for at in range(0, len(chosen), _RESTORED_AT_ONCE):
                some = chosen[at : at + _RESTORED_AT_ONCE]
                priorities = self._scale.to_integers(checkpoint.priorities[some] / checkpoint.scale)
                self._writer.add(checkpoint.columns(some), priorities)
                self.poll()
            self.flush()
        return len(chosen)

    # Closing

    def reopen(self) -> None:
        """Open a new session after SessionLostError. The switch may or may not have executed requests that it has not
        acknowledged; waiting for them raises SessionLostError. Prefetching ends.

        Raises
        ------
        NoFreeSessionError
            If all sessions of the service are in use.
        """
        for prefetch in list(self._prefetches):
            prefetch.close()
        self._session.open()
        self._begin()

    def close(self) -> None:
        """Send what waits in the client, close the session and the transport. A second call does nothing, nor does the
        call of a forked child.

        If another thread is in a call of this client, that call raises ClosedError first.
        """
        self._close(flush=True)

    def _close(self, *, flush: bool) -> None:
        if self._closed or self._transport.is_inherited:  # a forked child leaves the session to its parent
            return
        self._closed = True
        self._transport.claim()
        try:
            if flush and not self._session.lost:
                self.flush()
        finally:
            self._session.close()
            self._transport.close()
            self._unregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(flush=kind is None)  # after an error, what waits in the client is not sent

    def __repr__(self) -> str:
        return (
            f"<iswitch.replay.ReplayClient session {self._session.index}, table {self._session.table} at "
            f"{self._session.address}>"
        )
